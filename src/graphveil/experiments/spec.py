"""An experiment as data: a spec lists graphs, settings and seeds, and expands to runs.

Nothing here loads a graph or trains: a spec is a value that can be checked, narrowed down and compared.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.evaluation import METRICS
from graphveil.methods import method_class, method_named
from graphveil.methods.spending import Settings, spending_of
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import (
    Edge,
    KNeighbor,
    Level,
    Node,
    NodeUnit,
    Public,
    Unit,
    is_zero_out,
    level_name,
    level_to_dict,
    with_unit,
)

# The columns of a table: the graphs, or the parameter that a figure varies.
Axis = Literal["graph", "epsilon", "k", "phi"]
MOST_SEEDS = 100_000
AXES: tuple[Axis, ...] = ("graph", "epsilon", "k", "phi")

# "auto" is the library's own rule (`facts.automatic_delta`), "paper" the paper's (`facts.paper_delta`).
Delta = float | Literal["auto", "paper"]

# Parameters of a method that a run has fields for, or that the runner sets.
_RESERVED = ("level", "epsilon", "delta", "seed", "show_progress", "public_edges")
# A graph that is large enough for every k and every degree: it is used to ask whether a method fits a level.
_LARGE_GRAPH = PublicFacts(nodes=10**9, train_nodes=10**8, features=1, classes=2)


@dataclass(frozen=True)
class GraphRef:
    """A dataset by name, or a user's own file or folder.

    A file is identified by its content: moving it changes nothing, and changing it makes its runs new ones.

    Args:
        name: The dataset's name, or the name that tables show.
        path: The file or folder; None for a dataset.
        directed: Whether the file's graph is declared directed; None if the file says it.
        content: A digest of the file's bytes.
    """

    name: str
    path: str | None = None
    directed: bool | None = None
    content: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """What identifies the graph; the path does not."""
        if self.path is None:
            return {"name": self.name}
        return {"name": self.name, "directed": self.directed, "content": self.content}


@dataclass(frozen=True)
class Run:
    """One fit, by everything that its result depends on.

    Args:
        graph: The graph.
        method: The method's name.
        level: The privacy level.
        epsilon: The budget; None at level none.
        delta: A number, or the rule that gives it.
        seed: The seed of the random split. The noise has a seed that is derived from it.
        options: Parameters of the method that differ from its defaults.
    """

    graph: GraphRef
    method: str
    level: Level
    epsilon: float | None
    delta: Delta
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "graph": self.graph.to_dict(),
            "method": self.method,
            "level": level_to_dict(self.level),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "seed": self.seed,
            "options": dict(sorted(self.options.items())),
        }

    @property
    def key(self) -> str:
        """A digest of all fields. Two runs with the same key have the same result."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        budget = "" if self.epsilon is None else f" epsilon {self.epsilon:g}"
        return f"{self.graph.name} {self.method} {level_label(self.level)}{budget} seed {self.seed}"


@dataclass(frozen=True)
class Setting:
    """Every method at every level with every epsilon.

    Args:
        levels: The privacy levels.
        epsilons: The budgets.
        methods: The methods' names.
        delta: A number, or the rule that gives it.
        options: Parameters for all methods.
        method_options: Parameters for one method, by its name.
    """

    levels: tuple[Level, ...]
    epsilons: tuple[float | None, ...]
    methods: tuple[str, ...]
    delta: Delta = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    method_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def options_of(self, method: str) -> dict[str, Any]:
        """The parameters that this method is given."""
        return {**self.options, **self.method_options.get(method, {})}


@dataclass(frozen=True)
class Spec:
    """An experiment.

    Args:
        name: Its name in the folder of results.
        title: The heading of its table.
        graphs: The graphs.
        settings: The settings; all graphs are run in all of them.
        seeds: The seeds of the random splits.
        axis: What the columns of its table are.
        metric: The score that its table shows and compares.
        stand_ins: By a graph's name, the graph to use where its files are missing.
    """

    name: str
    title: str
    graphs: tuple[GraphRef, ...]
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...] = tuple(range(10))
    axis: Axis = "graph"
    metric: str = "accuracy"
    stand_ins: Mapping[str, str] = field(default_factory=dict)

    def runs(self) -> tuple[Run, ...]:
        """All runs, each once. Runs of the first seed come first, so that an early stop has filled every cell."""
        by_key = {
            run.key: run
            for seed in self.seeds
            for graph in self.graphs
            for setting in self.settings
            for run in _runs(graph, setting, seed)
        }
        return tuple(by_key.values())

    def narrowed(
        self,
        *,
        methods: Sequence[str] | None = None,
        levels: Sequence[str] | None = None,
        seeds: int | None = None,
        unit: Unit | NodeUnit | None = None,
        metric: str | None = None,
    ) -> Spec:
        """A part of this experiment; None leaves a field as it is.

        Args:
            methods: Only these methods.
            levels: Only these levels: none, edge, k-neighbor, node, or N_5 for one k.
            seeds: The number of seeds.
            unit: The unit of edge levels (undirected, directed), or of the others (replace, zero-out).
            metric: The score that is compared.

        Returns:
            The narrower experiment.

        Raises:
            InvalidInput: If the experiment does not have one of them.
        """
        settings: Iterable[Setting] = self.settings
        if unit is not None:
            settings = [_with_unit(setting, unit) for setting in settings]
        if levels is not None:
            settings = _with_levels(settings, levels)
        if methods is not None:
            settings = _with_methods(settings, methods)
        score = self.metric if metric is None else check_metric(metric)
        return replace(self, settings=tuple(settings), seeds=self._first_seeds(seeds), metric=score)

    def _first_seeds(self, count: int | None) -> tuple[int, ...]:
        if count is None:
            return self.seeds
        validate.count("seeds", count, most=MOST_SEEDS)
        if count <= len(self.seeds):
            return self.seeds[:count]
        if self.seeds != tuple(range(len(self.seeds))):
            raise InvalidInput("seeds", count, f"this experiment lists {len(self.seeds)} seeds of its own")
        return tuple(range(count))


def check_metric(metric: str) -> str:
    """Refuse a score that runs do not record."""
    if metric not in METRICS:
        raise InvalidInput("metric", metric, f"must be one of {', '.join(METRICS)}")
    return metric


def level_label(level: Level) -> str:
    """The paper's short name of a level (none, edge, N_5, node), with its parameters in brackets.

    >>> level_label(KNeighbor(5)), level_label(Edge("directed")), level_label(Node(100, attributes=False))
    ('N_5', 'edge (directed unit)', 'node (D = 100, public attributes)')
    """
    details = []
    if isinstance(level, Edge) and level.unit is not None:
        details.append(f"{level.unit} unit")
    if isinstance(level, Node):
        details.append(f"D = {level.max_degree}")
    if isinstance(level, KNeighbor | Node) and not level.attributes:
        details.append("public attributes")
    if is_zero_out(level):
        details.append("zero-out")
    return _short(level) + (f" ({', '.join(details)})" if details else "")


def _runs(graph: GraphRef, setting: Setting, seed: int) -> Iterable[Run]:
    for level in setting.levels:
        for epsilon in (None,) if isinstance(level, Public) else setting.epsilons:
            for method in setting.methods:
                yield Run(graph, method, level, epsilon, setting.delta, seed, setting.options_of(method))


def _with_unit(setting: Setting, unit: Unit | NodeUnit) -> Setting:
    def changed(level: Level) -> Level:
        if isinstance(level, KNeighbor | Node) and (unit == "replace" or unit == "zero-out"):
            return replace(level, unit=unit)
        return Edge(unit) if isinstance(level, Edge) and (unit == "undirected" or unit == "directed") else level

    return replace(setting, levels=tuple(map(changed, setting.levels)))


def _with_levels(settings: Iterable[Setting], words: Sequence[str]) -> list[Setting]:
    settings = list(settings)
    there = [level for setting in settings for level in setting.levels]
    for word in words:
        if not any(_is_called(level, word) for level in there):
            known = ", ".join(dict.fromkeys(_short(level) for level in there))
            raise InvalidInput("levels", word, f"is not in this experiment; there are {known}")
    kept = [
        replace(setting, levels=tuple(level for level in setting.levels if any(_is_called(level, w) for w in words)))
        for setting in settings
    ]
    return [setting for setting in kept if setting.levels]


def _with_methods(settings: Iterable[Setting], words: Sequence[str]) -> list[Setting]:
    settings = list(settings)
    there = list(dict.fromkeys(method for setting in settings for method in setting.methods))
    for word in words:
        if word not in there:
            raise InvalidInput("methods", word, f"is not in this experiment; there are {', '.join(there)}")
    kept = [replace(setting, methods=tuple(m for m in setting.methods if m in words)) for setting in settings]
    return [setting for setting in kept if setting.methods]


def _is_called(level: Level, word: str) -> bool:
    """A level's own name, or N_5 (N5, n_5) for one k."""
    if word == level_name(level):
        return True
    match = re.fullmatch(r"[Nn]_?(\d+)", word)
    return match is not None and isinstance(level, KNeighbor) and level.k == int(match[1])


def _short(level: Level) -> str:
    return f"N_{level.k}" if isinstance(level, KNeighbor) else level_name(level)


def check_option(method: str, name: str, value: object) -> None:
    """Refuse an option that the method does not have, or a value of another type than the option's."""
    cls = method_class(method)
    kinds = typing.get_type_hints(cls)
    known = [field.name for field in dataclasses.fields(cls) if field.name not in _RESERVED]
    if name not in known:
        raise InvalidInput(name, value, f"is not an option of {method}; there are {', '.join(known)}")
    if not _fits(value, kinds[name]):
        raise InvalidInput(name, value, f"must be {_describe(kinds[name])}")


def check_method(method: str, level: Level, epsilon: float | None, options: Mapping[str, Any]) -> None:
    """Refuse a method that does not exist, does not protect at this level, or lacks what it needs there."""
    settled = with_unit(level, directed=_LARGE_GRAPH.directed)
    settings = Settings(max_degree=options.get("max_degree"), capped=options.get("cap_degrees", False))
    spending_of(method, method_named(method).spend, settled, _LARGE_GRAPH, settings, epsilon)


def is_defined_at(method: str, level: Level, options: Mapping[str, Any]) -> bool:
    """Whether a method protects at this level, with these options."""
    try:
        check_method(method, level, None, options)
    except InvalidInput:
        return False
    return True


def _fits(value: object, kind: Any) -> bool:
    if isinstance(kind, types.UnionType):
        return any(_fits(value, part) for part in typing.get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if typing.get_origin(kind) is not None:
        item = typing.get_args(kind)[-1]
        return isinstance(value, Mapping) and all(_fits(part, item) for part in value.values())
    return isinstance(value, kind)


def _describe(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if isinstance(kind, types.UnionType):
        return " or ".join(_describe(part) for part in typing.get_args(kind) if part is not types.NoneType)
    return words.get(kind, "a table of numbers")
