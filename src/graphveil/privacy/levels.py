"""Levels: what may differ between two adjacent graphs, that is, what a guarantee protects.

They cover all combinations of the paper's Figure 1(c): from no topology protection (k = 0) through one edge and k
neighbours to a whole node, with or without the node's features and label.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from graphveil import validate
from graphveil.errors import InvalidInput

Unit = Literal["undirected", "directed"]
UNITS: tuple[Unit, ...] = ("undirected", "directed")
# What becomes of a node: another one takes its place, or its record is emptied (docs/theory.md, section 2.6).
NodeUnit = Literal["replace", "zero-out"]
NODE_UNITS: tuple[NodeUnit, ...] = ("replace", "zero-out")


@dataclass(frozen=True)
class Public:
    """Nothing is private: training without noise.

    Formal guarantee: none.
    """


@dataclass(frozen=True)
class Edge:
    """One edge may be added or removed; features, labels and every other edge are known to the adversary.

    Formal guarantee: adjacent graphs differ in one edge. All rows of what is released are protected.

    Args:
        unit: "undirected": an edge is the pair of entries A[i, j] and A[j, i]. "directed": it is a single entry. None:
            by what the graph declares (`with_unit`). The directed unit on a symmetric graph protects less than it seems
            to, because the mirrored entry shows the edge a second time.

    Raises:
        InvalidInput: There is no such unit.
    """

    unit: Unit | None = None

    def __post_init__(self) -> None:
        if self.unit is not None and self.unit not in UNITS:
            raise InvalidInput("unit", self.unit, f"must be one of {', '.join(UNITS)}")


@dataclass(frozen=True)
class KNeighbor:
    """A node's features and label, k entries of its row of A and k entries of its column may all change together.

    Formal guarantee: adjacent graphs differ in that much. What is protected is everything except the replaced node's
    own row of what is released.

    Args:
        k: How many of the nodes it reads, and how many of the nodes that read it, may change. 0 protects attributes
            alone.
        attributes: False: features and labels are public, and only the 2k entries are protected.
        unit: "replace": all of this may change to anything. "zero-out": features and label may be emptied and the
            entries taken away, which is about half as much, and what most papers on private graphs count. A figure in
            one unit cannot be compared with a figure in the other.

    Raises:
        InvalidInput: k is negative, nothing would be protected, or there is no such unit.
    """

    k: int
    attributes: bool = True
    unit: NodeUnit = "replace"

    def __post_init__(self) -> None:
        validate.count("k", self.k, least=0)
        _check_node_unit(self.unit)
        validate.flag("attributes", self.attributes)
        if self.k == 0 and not self.attributes:
            raise InvalidInput("k", self.k, "with public attributes this protects nothing; use k >= 1")


@dataclass(frozen=True)
class Node:
    """A node's features, label and all of its edges may change.

    Formal guarantee: adjacent graphs differ in that much, and both keep the promise on degrees. What is protected is
    everything except the replaced node's own row of what is released.

    Args:
        max_degree: A promise that no node is read by more than this many others (column sums of A).
        attributes: False: features and labels are public.
        unit: "replace": another node takes its place. "zero-out": it loses all of its edges, its features and its
            label, which is about half as much, and what most papers on private graphs count.

    Raises:
        InvalidInput: `max_degree` is not a positive whole number, or there is no such unit.
    """

    max_degree: int
    attributes: bool = True
    unit: NodeUnit = "replace"

    def __post_init__(self) -> None:
        validate.count("max_degree", self.max_degree)
        validate.flag("attributes", self.attributes)
        _check_node_unit(self.unit)


def _check_node_unit(unit: str) -> None:
    if unit not in NODE_UNITS:
        raise InvalidInput("unit", unit, f"must be one of {', '.join(NODE_UNITS)}")


Level = Public | Edge | KNeighbor | Node
NAMES: dict[type, str] = {Public: "none", Edge: "edge", KNeighbor: "k-neighbor", Node: "node"}


def level_name(level: Level) -> str:
    """The level's name on the command line."""
    if type(level) not in NAMES:
        raise InvalidInput("level", level, f"must be one of {', '.join(NAMES.values())}")
    return NAMES[type(level)]


def make_level(
    name: str,
    *,
    k: int | None = None,
    max_degree: int | None = None,
    unit: str | None = None,
    attributes: bool = True,
) -> Level:
    """The level with this name; an option that does not belong to it is an error."""
    if name not in NAMES.values():
        raise InvalidInput("level", name, f"must be one of {', '.join(NAMES.values())}")
    if k is not None and name != "k-neighbor":
        raise InvalidInput("k", k, f"belongs to level k-neighbor, not {name}")
    if unit is not None and name == "none":
        raise InvalidInput("unit", unit, "belongs to levels that protect something, not none")
    if not validate.flag("attributes", attributes) and name not in ("k-neighbor", "node"):
        raise InvalidInput("attributes", attributes, f"belongs to levels k-neighbor and node, not {name}")
    if name == "none":
        return Public()
    if name == "edge":
        return Edge(unit)  # type: ignore[arg-type]
    if name == "k-neighbor":
        if k is None:
            raise InvalidInput("k", k, "level k-neighbor needs a k, as in KNeighbor(k=1)")
        return KNeighbor(k, attributes, unit or "replace")  # type: ignore[arg-type]
    if max_degree is None:
        raise InvalidInput("max_degree", max_degree, "level node needs a promise on the degree")
    return Node(max_degree, attributes, unit or "replace")  # type: ignore[arg-type]


def level_of(level: object, max_degree: int | None = None) -> Level:
    """A level, or the one with this name; `max_degree` is for the name node. No level at all is an error.

    >>> level_of("edge"), level_of("node", max_degree=30)
    (Edge(unit=None), Node(max_degree=30, attributes=True, unit='replace'))
    """
    if isinstance(level, str):
        return make_level(level, max_degree=max_degree)
    if not isinstance(level, Public | Edge | KNeighbor | Node):
        why = "is missing" if level is None else "is no level"
        raise InvalidInput("level", level, f"{why}; give Public(), Edge(), KNeighbor(k=...) or Node(max_degree=...)")
    return level


def with_unit(level: Level, directed: bool) -> Level:
    """The level with its unit filled in: an edge level without one takes what the graph *declares* itself to be.

    The declaration decides, not a measurement: noise that depends on whether A is symmetric would depend on private
        data.
    """
    if isinstance(level, Edge) and level.unit is None:
        return Edge("directed" if directed else "undirected")
    return level


def check_size(level: Level, nodes: int) -> None:
    """Refuse levels that make no sense on a graph of this many nodes."""
    validate.count("nodes", nodes)
    if isinstance(level, KNeighbor) and level.k >= nodes:
        raise InvalidInput("k", level.k, f"must be less than the number of nodes, {nodes}")
    if isinstance(level, Node) and level.max_degree >= nodes:
        raise InvalidInput("max_degree", level.max_degree, f"must be less than the number of nodes, {nodes}")


# What helps where a graph breaks the promise on degrees.
OR_CUT = "promise more, or cap_degrees=True cuts the graph to the promise"


def check_promise(level: Level, largest_column_sum: float) -> None:
    """Refuse a graph that breaks the level's promise on degrees, instead of repairing it silently."""
    if isinstance(level, Node) and largest_column_sum > level.max_degree:
        why = f"the graph breaks this promise: a node is read by {largest_column_sum}; {OR_CUT}"
        raise InvalidInput("max_degree", level.max_degree, why)


def protects_attributes(level: Level) -> bool:
    """Whether a node's features and label are private."""
    return isinstance(level, KNeighbor | Node) and level.attributes


def is_zero_out(level: Level) -> bool:
    """Whether adjacent graphs differ by an emptied node, instead of a replaced one."""
    return isinstance(level, KNeighbor | Node) and level.unit == "zero-out"


def describe(level: Level, *, degrees: bool = True) -> str:
    """The level in one sentence, for readers who do not know the theory; `degrees`: with its promise on degrees."""
    if is_zero_out(level):
        first, semicolon, rest = _describe(level, degrees).removesuffix(".").partition(";")
        return f"{first}, {_WHOM}{semicolon}{rest}."
    return _describe(level, degrees)


# Whom the zero-out unit protects against.
_WHOM = "against someone who has to tell whether this person is in the data with these links at all"


def _describe(level: Level, degrees: bool) -> str:
    if isinstance(level, Public):
        return "Nothing is protected."
    if isinstance(level, Edge):
        edge = "one directed link" if level.unit == "directed" else "one connection between two nodes"
        return f"Whether {edge} exists is protected; features and labels are treated as public."
    whose = "A node's features and label" if level.attributes else "Nothing about a node's features and label"
    if isinstance(level, KNeighbor):
        links = f"any {level.k} of the nodes it reads and any {level.k} of the nodes that read it"
    else:
        links = "all of its connections" + f" (at most {level.max_degree} nodes read it)" * degrees
    if isinstance(level, KNeighbor) and level.k == 0:
        return "A node's features and label are protected; who is connected to whom is treated as public."
    if not level.attributes:
        return f"A node's links, {links}, are protected together; features and labels are treated as public."
    return f"{whose}, {links}, are protected together."


def level_to_dict(level: Level) -> dict[str, Any]:
    """A JSON form; `level_from_dict` reads it back. The unit "replace" goes without saying."""
    fields = {key: value for key, value in asdict(level).items() if value != "replace"}
    return {"name": level_name(level), **fields}


def level_from_dict(data: dict[str, Any]) -> Level:
    """The level that `level_to_dict` wrote."""
    words = {key: value for key, value in data.items() if key != "name"}
    return make_level(data.get("name", ""), **words)
