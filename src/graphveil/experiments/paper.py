"""The paper's experiments, Table 2 and Figures (a) to (d), as specs, and the figures that its Table 2 prints.

From the paper (https://arxiv.org/abs/2307.06422) come graphs, levels, budgets, delta, methods, the cap of degrees at
D = 100, and ten random splits. Its text does not print the budgets of the sweeps nor the level of Figure (d); those
below are our choice. Everything else is each method's default.

The printed figures are for comparison; docs/theory.md says under which guarantee they were obtained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphveil.errors import InvalidInput
from graphveil.experiments.spec import GraphRef, Setting, Spec, is_defined_at
from graphveil.methods import method_class, other_names
from graphveil.privacy.levels import NODE_UNITS, Edge, KNeighbor, Level, Node, Public, is_zero_out

MAX_DEGREE = 100
PAPER_GRAPHS = ("squirrel", "chameleon", "facebook", "pubmed", "computers", "cora", "photo")
# A smaller graph of the same collection. Tables show it under its own name, without the paper's figures.
STAND_INS = {"facebook": "berkeley13"}

_NODE = Node(MAX_DEGREE)
_N_K = (KNeighbor(1), KNeighbor(5), KNeighbor(25))
_CAPPED = {"cap_degrees": True}
# The paper's own embedding; the library's default is another one.
_TRAINED = {"table": "trained"}
# GAP, CARIBOU, ProGAP and DP-SAGE need the degree promise at the k-neighbour level too; DPDGC and MLP do not.
_PROMISE: Mapping[str, Any] = {"max_degree": MAX_DEGREE, "cap_degrees": True}
_PROMISED = dict.fromkeys(("gap", "caribou", "progap", "dp-sage"), _PROMISE)


def _graphs(*names: str) -> tuple[GraphRef, ...]:
    return tuple(GraphRef(name) for name in names)


def _setting(
    levels: tuple[Level, ...], epsilons: tuple[float | None, ...], methods: tuple[str, ...], **given: Any
) -> Setting:
    """A setting with the paper's delta, which depends on the graph; the paper's graphs are public."""
    return Setting(levels, epsilons, methods, delta="paper", **given)


def _neighbors(ks: tuple[int, ...], epsilons: tuple[float, ...], *methods: str) -> Setting:
    levels = tuple(KNeighbor(k) for k in ks)
    return _setting(levels, epsilons, methods, method_options={**_PROMISED, "dpdgc": _TRAINED})


def _default(levels: tuple[Level, ...], epsilons: tuple[float, ...]) -> Setting:
    """DPDGC with the table W that the library chooses, which the paper does not have."""
    capped = _CAPPED if any(isinstance(level, Node) for level in levels) else {}
    return _setting(levels, epsilons, ("dpdgc",), options={"table": "auto", **capped})


TABLE_2 = Spec(
    name="table2",
    title="Table 2: test accuracy (%) by level, method and graph",
    graphs=_graphs(*PAPER_GRAPHS),
    settings=(
        _setting((Public(),), (None,), ("dpdgc", "gap", "sage", "mlp")),
        _setting((Edge(),), (1.0,), ("dpdgc", "gap", "randedge", "mlp"), method_options={"dpdgc": _TRAINED}),
        _default((Edge(),), (1.0,)),
        _neighbors((1, 5, 25), (16.0,), "dpdgc", "gap", "mlp"),
        _default(_N_K, (16.0,)),
        _setting(
            (_NODE,),
            (16.0,),
            ("dpdgc", "gap", "dp-sage", "mlp"),
            options=_CAPPED,
            method_options={"dpdgc": _TRAINED},
        ),
        _default((_NODE,), (16.0,)),
    ),
    stand_ins=STAND_INS,
)

_EDGE_BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
FIGURE_A = Spec(
    name="figure-a",
    title="Figure (a): test accuracy (%) by epsilon at edge level",
    graphs=_graphs("facebook"),
    settings=(
        _setting((Edge(),), _EDGE_BUDGETS, ("dpdgc", "gap", "mlp"), method_options={"dpdgc": _TRAINED}),
        _default((Edge(),), _EDGE_BUDGETS),
    ),
    axis="epsilon",
    stand_ins=STAND_INS,
)

_BUDGETS = (1.0, 2.0, 4.0, 8.0, 16.0)
FIGURE_B = Spec(
    name="figure-b",
    title="Figure (b): test accuracy (%) by epsilon at k-neighbour and node level",
    graphs=_graphs("facebook"),
    settings=(
        _neighbors((1, 5, 25), _BUDGETS, "dpdgc"),
        _default(_N_K, _BUDGETS),
        # GAP and MLP need the same noise at every k and at node level, so they are run once.
        _setting((_NODE,), _BUDGETS, ("dpdgc", "gap", "mlp"), options=_CAPPED, method_options={"dpdgc": _TRAINED}),
        _default((_NODE,), _BUDGETS),
    ),
    axis="epsilon",
    stand_ins=STAND_INS,
)

_KS = (1, 5, 10, 25, 50, 100)
FIGURE_C = Spec(
    name="figure-c",
    title="Figure (c): test accuracy (%) by k at epsilon = 16",
    graphs=_graphs("computers"),
    settings=(
        _neighbors(_KS, (16.0,), "dpdgc", "gap", "mlp"),
        _default(tuple(KNeighbor(k) for k in _KS), (16.0,)),
    ),
    axis="k",
)

FIGURE_D = Spec(
    name="figure-d",
    title="Figure (d): test accuracy (%) on cSBM graphs by phi",
    graphs=_graphs(*(f"csbm:{step / 4:g}" for step in range(-4, 5))),
    settings=(
        _setting((Public(),), (None,), ("dpdgc", "mlp")),
        _neighbors((1,), (16.0,), "dpdgc", "mlp"),
        _default((KNeighbor(1),), (16.0,)),
    ),
    axis="phi",
)

# Every method at every level, and in both units: `graphveil bench field`. The default is `auto`, and `dpdgc` is the
# paper's model. Methods of other packages join it.
_READERS = ("auto", "dpdgc", "gap", "caribou", "progap", "dp-sage", "mlp")
_OTHER_GRAPHS = ("wisconsin87", "citeseer", "actor", "tolokers", "coauthor-cs", "coauthor-physics", "wikics")
_LARGER_GRAPHS = ("elliptic", "ogbn-arxiv", "reddit", "ogbn-products", "dgraphfin")
FIELD = Spec(
    name="field",
    title="The field: test accuracy (%) by level, unit, method and graph",
    graphs=_graphs(*PAPER_GRAPHS, *_OTHER_GRAPHS, *_LARGER_GRAPHS),
    settings=(
        _setting(
            (Edge("undirected"), Edge("directed")),
            (1.0,),
            ("auto", "dpdgc", "gap", "caribou", "progap", "randedge", "mlp"),
            method_options={"dpdgc": _TRAINED},
        ),
        *(
            _setting(
                tuple(KNeighbor(k, unit=unit) for k in (1, 5, 25)),
                (16.0,),
                _READERS,
                method_options={**_PROMISED, "dpdgc": _TRAINED},
            )
            for unit in NODE_UNITS
        ),
        *(
            _setting(
                (Node(MAX_DEGREE, unit=unit),),
                (8.0, 16.0),
                _READERS,
                options=_CAPPED,
                method_options={"dpdgc": _TRAINED},
            )
            for unit in NODE_UNITS
        ),
    ),
    stand_ins=STAND_INS,
)

SPECS = {spec.name: spec for spec in (TABLE_2, FIGURE_A, FIGURE_B, FIGURE_C, FIGURE_D, FIELD)}


def builtin_spec(name: str) -> Spec:
    """One of the paper's experiments, or the field.

    Args:
        name: Its name on the command line: table2, figure-a to figure-d, or field.

    Returns:
        The experiment; the field has the methods of other packages too (entry points of `graphveil.methods`).

    Raises:
        InvalidInput: If there is no experiment of this name.
    """
    if name not in SPECS:
        raise InvalidInput("experiment", name, f"must be one of {', '.join(SPECS)}, or a .toml file")
    return with_other_methods(FIELD) if name == FIELD.name else SPECS[name]


def with_other_methods(spec: Spec) -> Spec:
    """An experiment with the methods of other packages, at those of its levels at which they protect something.

    A method that sums what depends on the neighbours' own data gets the same degree promise as graphveil's own.
    """
    settings = list(spec.settings)
    for name in other_names():
        promised = method_class(name).sums_attributes
        for setting in spec.settings:
            for level in setting.levels:
                own = _PROMISE if promised and isinstance(level, KNeighbor) else {}
                if is_defined_at(name, level, {**setting.options, **own}):
                    settings.append(replace(setting, levels=(level,), methods=(name,), method_options={name: own}))
    return replace(spec, settings=tuple(settings))


@dataclass(frozen=True)
class Figure:
    """A figure that the paper prints.

    Args:
        mean: Mean test accuracy in percent.
        half_width: Half the width of its 95 % interval over ten splits.
    """

    mean: float
    half_width: float


# Columns in the order of PAPER_GRAPHS.
_ROWS = {
    ("none", "dpdgc"): "79.92±0.26 79.24±0.54 86.06±0.24 88.34±0.46 92.27±0.15 82.44±0.83 94.98±0.29",
    ("none", "gap"): "36.86±1.35 50.35±1.37 79.52±0.24 89.75±0.12 91.05±0.16 86.53±0.46 95.13±0.16",
    ("none", "sage"): "35.47±0.58 41.61±0.86 84.62±0.13 88.17±0.98 91.76±0.23 84.19±0.76 94.05±0.38",
    ("none", "mlp"): "34.14±0.77 46.78±1.39 51.16±0.16 87.25±0.19 85.27±0.28 76.48±0.91 91.35±0.22",
    ("edge", "dpdgc"): "38.18±1.48 53.83±1.11 62.04±0.33 88.59±0.16 87.74±0.26 77.71±0.95 92.59±0.41",
    ("edge", "gap"): "35.15±0.47 49.47±0.88 69.75±0.44 87.79±0.22 87.74±0.20 76.95±0.90 92.94±0.36",
    ("edge", "randedge"): "19.79±0.69 21.70±1.23 25.27±2.00 87.88±0.18 48.44±1.48 59.95±1.98 46.42±0.55",
    ("edge", "mlp"): "34.14±0.77 46.78±1.39 51.16±0.16 87.25±0.19 85.27±0.28 76.48±0.91 91.35±0.22",
    ("N_1", "dpdgc"): "42.71±1.43 48.63±1.78 80.94±0.27 84.33±0.40 83.49±0.29 59.98±0.81 88.38±0.44",
    ("N_1", "gap"): "33.82±0.60 38.68±0.59 51.57±0.28 85.28±0.14 77.50±0.20 54.36±1.14 81.27±0.31",
    ("N_1", "mlp"): "34.46±1.09 38.19±1.97 50.12±0.22 85.72±0.11 80.01±0.37 64.29±0.80 85.61±0.42",
    ("N_5", "dpdgc"): "41.00±1.19 47.22±1.90 76.84±0.36 84.31±0.46 80.60±0.44 59.56±0.97 87.02±0.49",
    ("N_5", "gap"): "33.82±0.60 38.68±0.59 51.57±0.28 85.28±0.14 77.50±0.20 54.36±1.14 81.27±0.31",
    ("N_5", "mlp"): "34.46±1.09 38.19±1.97 50.12±0.22 85.72±0.11 80.01±0.37 64.29±0.80 85.61±0.42",
    ("N_25", "dpdgc"): "40.51±0.85 46.32±1.87 68.66±0.32 84.27±0.38 78.25±0.31 59.26±0.87 84.82±0.54",
    ("N_25", "gap"): "33.82±0.60 38.68±0.59 51.57±0.28 85.28±0.14 77.50±0.20 54.36±1.14 81.27±0.31",
    ("N_25", "mlp"): "34.46±1.09 38.19±1.97 50.12±0.22 85.72±0.11 80.01±0.37 64.29±0.80 85.61±0.42",
    ("node", "dpdgc"): "36.17±0.62 46.43±1.21 56.65±0.64 84.55±0.32 76.62±0.47 58.97±1.05 82.15±0.54",
    ("node", "gap"): "33.82±0.60 38.68±0.59 51.57±0.28 85.28±0.14 77.50±0.20 54.36±1.14 81.27±0.31",
    ("node", "dp-sage"): "19.81±0.99 20.96±1.27 32.15±0.78 39.68±0.70 39.13±0.52 15.86±1.55 31.41±0.93",
    ("node", "mlp"): "34.46±1.09 38.19±1.97 50.12±0.22 85.72±0.11 80.01±0.37 64.29±0.80 85.61±0.42",
}
_EPSILON = {"none": None, "edge": 1.0, "N_1": 16.0, "N_5": 16.0, "N_25": 16.0, "node": 16.0}

ABOUT_THE_PAPERS_FIGURES = (
    "The paper's figures are shown as printed. Those of its private DPDGC rows (†) were obtained with an embedding "
    "that was in effect released without noise: the published implementation normalises the rows of W in a temporary "
    "copy that never reaches the weights, so the noise on Z is scaled for rows of norm 1e-8 while their norms are 0.1 "
    "to 0.8.",
    "Its accuracies reproduce, but not under the guarantee that is claimed for them: with the normalisation repaired, "
    "Chameleon at k = 1 falls from 48.5 to between 28 and 37. Its group factors spend an epsilon of at least 26 at "
    "k = 25, and of at least 185 at node level, where 16 is claimed. Our rows keep the guarantee that their "
    "certificates state, so the two are not like for like (docs/theory.md, section 7.2).",
)


def _figure(text: str) -> Figure:
    mean, half_width = text.split("±")
    return Figure(float(mean), float(half_width))


PAPER_TABLE_2 = {
    (level, method, graph): _figure(cell)
    for (level, method), row in _ROWS.items()
    for graph, cell in zip(PAPER_GRAPHS, row.split(), strict=True)
}


def paper_figure(level: Level, epsilon: float | None, method: str, graph: str) -> Figure | None:
    """What the paper's Table 2 prints for a run, or None.

    In the paper an edge is one stored entry of A; its edge rows are shown beside both units.

    >>> paper_figure(KNeighbor(5), 16.0, "dpdgc", "photo")
    Figure(mean=87.02, half_width=0.49)
    >>> paper_figure(KNeighbor(5), 8.0, "dpdgc", "photo") is None
    True
    """
    row = _row(level)
    if row not in _EPSILON or epsilon != _EPSILON[row]:
        return None
    return PAPER_TABLE_2.get((row, method, graph))


def _row(level: Level) -> str | None:
    """The block of rows with the same level, or None for a level that the paper does not have."""
    if isinstance(level, Public):
        return "none"
    if isinstance(level, Edge):
        return "edge"
    if not level.attributes or is_zero_out(level):
        return None
    if isinstance(level, KNeighbor):
        return f"N_{level.k}"
    return "node" if isinstance(level, Node) and level.max_degree == MAX_DEGREE else None
