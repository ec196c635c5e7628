"""Experiments as data: a spec lists graphs, settings and seeds, and expands to runs.

Nothing here loads a graph or trains: a spec is a value that can be read, narrowed down and compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, Unit, level_name, level_to_dict

# What the columns of a summary are: the graphs, or the quantity that a figure sweeps.
Axis = Literal["graph", "epsilon", "k", "phi"]
MOST_SEEDS = 100_000
AXES: tuple[Axis, ...] = ("graph", "epsilon", "k", "phi")

# "auto" is the library's own rule (`plan.automatic_delta`), "paper" the paper's (`plan.paper_delta`).
Delta = float | Literal["auto", "paper"]


@dataclass(frozen=True)
class GraphRef:
    """A dataset by name, or a user's own file or folder.

    A file is identified by `content`, the digest of its bytes, and by what it is declared to be: moving it changes
    nothing, changing it makes its runs new ones.
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
    """One fit: everything that its result follows from. `seed` draws the split."""

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
        """The run's identity: two runs with the same key have the same result."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        budget = "" if self.epsilon is None else f" epsilon {self.epsilon:g}"
        return f"{self.graph.name} {self.method} {level_label(self.level)}{budget} seed {self.seed}"


@dataclass(frozen=True)
class Setting:
    """Every method at every level with every epsilon; `options` for all methods, `method_options` for one of them."""

    levels: tuple[Level, ...]
    epsilons: tuple[float | None, ...]
    methods: tuple[str, ...]
    delta: Delta = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    method_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def options_of(self, method: str) -> dict[str, Any]:
        return {**self.options, **self.method_options.get(method, {})}


@dataclass(frozen=True)
class Spec:
    """An experiment. `stand_ins` names the graph to take where another one is not at hand."""

    name: str
    title: str
    graphs: tuple[GraphRef, ...]
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...] = tuple(range(10))
    axis: Axis = "graph"
    stand_ins: Mapping[str, str] = field(default_factory=dict)

    def runs(self) -> tuple[Run, ...]:
        """All runs, each once; seeds outermost, so that a run cut short has seen every cell of its table."""
        found = {
            run.key: run
            for seed in self.seeds
            for graph in self.graphs
            for setting in self.settings
            for run in _runs(graph, setting, seed)
        }
        return tuple(found.values())

    def narrowed(
        self,
        *,
        methods: Sequence[str] | None = None,
        levels: Sequence[str] | None = None,
        seeds: int | None = None,
        unit: Unit | None = None,
    ) -> Spec:
        """The part of this spec with these methods and levels, the first `seeds` seeds, and this edge unit."""
        settings: Iterable[Setting] = self.settings
        if unit is not None:
            settings = [_with_unit(setting, Edge(unit)) for setting in settings]
        if levels is not None:
            settings = _with_levels(settings, levels)
        if methods is not None:
            settings = _with_methods(settings, methods)
        return replace(self, settings=tuple(settings), seeds=self._first_seeds(seeds))

    def _first_seeds(self, count: int | None) -> tuple[int, ...]:
        if count is None:
            return self.seeds
        validate.count("seeds", count, most=MOST_SEEDS)
        if count <= len(self.seeds):
            return self.seeds[:count]
        if self.seeds != tuple(range(len(self.seeds))):
            raise InvalidInput("seeds", count, f"this experiment lists {len(self.seeds)} seeds of its own")
        return tuple(range(count))


def level_label(level: Level) -> str:
    """The paper's short name of a level: none, edge, N_5, node; with the unit, D, and public attributes in brackets.

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
    return _short(level) + (f" ({', '.join(details)})" if details else "")


def _runs(graph: GraphRef, setting: Setting, seed: int) -> Iterable[Run]:
    for level in setting.levels:
        for epsilon in (None,) if isinstance(level, Public) else setting.epsilons:
            for method in setting.methods:
                yield Run(graph, method, level, epsilon, setting.delta, seed, setting.options_of(method))


def _with_unit(setting: Setting, edge: Edge) -> Setting:
    return replace(setting, levels=tuple(edge if isinstance(level, Edge) else level for level in setting.levels))


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
    found = re.fullmatch(r"[Nn]_?(\d+)", word)
    return found is not None and isinstance(level, KNeighbor) and level.k == int(found[1])


def _short(level: Level) -> str:
    return f"N_{level.k}" if isinstance(level, KNeighbor) else level_name(level)
