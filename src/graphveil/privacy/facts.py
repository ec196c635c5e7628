"""Public facts about a graph, and the delta that follows from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.privacy.levels import Edge, KNeighbor, Level, Public
from graphveil.privacy.mechanisms import WEIGHT_BITS

LARGEST_DELTA, SMALLEST_DELTA = 1e-2, 1e-30


@dataclass(frozen=True)
class PublicFacts:
    """What everybody may know about a graph. Plans depend on nothing else.

    Args:
        nodes: The number of nodes.
        train_nodes: The number of training nodes. Which nodes these are is public too.
        features: The number of features.
        classes: The number of classes.
        directed: Whether the graph is declared directed.
        numeric_columns: How many columns of features hold raw numbers, which a fit has to bring to one scale. A fact
            about the form of the tables.
        edges: A declared upper bound on the number of stored edges, never a count: the count is private. None: no
            bound.
        undeclared: Facts among these that were read from the data and not declared, in words that contain no values of
            the data.
        max_weight: The declared weight from which on a link counts fully; None: links have no weights.
        relations: The declared names of relations, where there are several.

    Raises:
        InvalidInput: A number is out of range.
    """

    nodes: int
    train_nodes: int
    features: int
    classes: int
    directed: bool = False
    edges: int | None = None
    undeclared: tuple[str, ...] = ()
    max_weight: float | None = None
    relations: tuple[str, ...] = ()
    numeric_columns: int = 0

    def __post_init__(self) -> None:
        validate.count("nodes", self.nodes, least=2)
        validate.count("train_nodes", self.train_nodes)
        validate.count("features", self.features, least=0)
        validate.count("classes", self.classes, least=2)
        validate.count("numeric_columns", self.numeric_columns, least=0)
        if self.numeric_columns > self.features:
            raise InvalidInput("numeric_columns", self.numeric_columns, f"exceeds the features, {self.features}")
        if self.train_nodes > self.nodes:
            raise InvalidInput("train_nodes", self.train_nodes, f"exceeds the number of nodes, {self.nodes}")
        if self.edges is not None:
            validate.count("edges", self.edges, least=0)
        if self.max_weight is not None:
            validate.scale("max_weight", self.max_weight)
        for name, what in (("undeclared", "sentences"), ("relations", "names")):
            listed = getattr(self, name)
            if isinstance(listed, str) or not all(isinstance(each, str) for each in listed):
                raise InvalidInput(name, listed, f"must be a list of {what}")
            object.__setattr__(self, name, tuple(listed))

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def weighted(self) -> bool:
        """Whether links have weights."""
        return self.max_weight is not None

    @property
    def blocks(self) -> int:
        """The number of relations, 1 where none are declared."""
        return max(1, len(self.relations))

    @property
    def rows(self) -> int:
        """Rows of A, those of all relations together."""
        return self.nodes * self.blocks

    @property
    def terms(self) -> int:
        """How many terms a sum of rows may have, counted in the steps of the weights (`mechanisms.table_step`)."""
        return self.nodes << WEIGHT_BITS if self.weighted else self.nodes

    @property
    def entries(self) -> str:
        """What entries the adjacency has, as the beginning of a sentence."""
        each = "The adjacency of each relation is" if self.relations else "The adjacency is"
        return f"{each} {'made of weights from 0 to 1' if self.weighted else '0/1'}"

    def declared_links(self) -> tuple[str, ...]:
        """What is declared about weights and relations, in sentences."""
        sentences = []
        if self.max_weight is not None:
            most = f"{self.max_weight:g}"
            sentences.append(f"Declared: links have weights. From {most} on a link counts fully, below it by its part.")
        if self.relations:
            sentences.append(f"Declared: there are the relations {', '.join(self.relations)}.")
        return tuple(sentences)


def links_are_public(level: Level) -> bool:
    """Whether a level protects attributes alone."""
    return isinstance(level, KNeighbor) and level.k == 0


def what_a_link_is(level: Level, facts: PublicFacts) -> tuple[str, ...]:
    """What "one link" means where links have weights or belong to relations, beside `levels.describe`."""
    if isinstance(level, Public) or links_are_public(level):
        return ()
    weights = "A link is protected with its weight, whatever that is, and with everything that was merged into it."
    together = "Links of all relations count together."
    if isinstance(level, Edge):
        together = "One link is a link of one relation."
    return (weights,) * facts.weighted + (together,) * bool(facts.relations)


def protected_units(level: Level, facts: PublicFacts) -> int:
    """How many nodes, or edges, a level protects one by one, by public facts alone.

    Nodes include those outside of the training set. At edge level, stored edges are counted: the declared bound, or
    without one the largest number that this many nodes can have, n (n - 1) for each relation. An edge of an undirected
    graph is stored twice and counted twice, which makes the automatic delta smaller.
    """
    if not isinstance(level, Edge):
        return facts.nodes
    return max(1, facts.rows * (facts.nodes - 1) if facts.edges is None else facts.edges)


def automatic_delta(level: Level, facts: PublicFacts) -> float:
    """The largest power of ten that is at most 0.1 / `protected_units` (docs/theory.md, section 9.4).

    >>> automatic_delta(Edge("directed"), PublicFacts(nodes=100, train_nodes=50, features=1, classes=2, edges=1000))
    0.0001
    """
    units = protected_units(level, facts)
    delta = float(f"1e-{len(str(units - 1)) + 1}")
    if delta <= SMALLEST_DELTA:
        why = f"protects {units:.1e} units, and 0.1 over that is below {SMALLEST_DELTA:g}; declare a bound on the edges"
        raise InvalidInput("nodes", facts.nodes, why)
    return delta


def paper_delta(level: Level, train_nodes: int, edges: int) -> float:
    """The paper's choice: 10 to the minus number of digits of the training nodes, at edge level of the stored edges.

    Not for private graphs: it counts the edges there are, and it may exceed 1 / `protected_units`.
    """
    return float(f"1e-{len(str(edges if isinstance(level, Edge) else train_nodes))}")


def check_delta(delta: object) -> float:
    """Refuse a delta at which the guarantee means little, or that is too small for the accountants."""
    number = validate.open_unit("delta", delta)
    if number > LARGEST_DELTA:
        raise InvalidInput("delta", delta, f"must be at most {LARGEST_DELTA}: the chance that nothing is promised")
    if number < SMALLEST_DELTA:
        raise InvalidInput("delta", delta, f"must be at least {SMALLEST_DELTA}: the accountants do not reach further")
    return number


def delta_warning(level: Level, facts: PublicFacts, delta: float) -> str | None:
    """What is wrong with a delta that is allowed, but larger than one over the number of protected units."""
    units = protected_units(level, facts)
    if isinstance(level, Public) or delta <= 1 / units:
        return None
    what = "nodes" if not isinstance(level, Edge) else "possible edges" if facts.edges is None else "declared edges"
    return (
        f"delta {delta:.3g} is more than 1 / {units}, one over the number of protected {what}: a method that publishes "
        f"one of them in full could have it. Take {automatic_delta(level, facts):.0e} or less."
    )


def declared_edges(bound: object) -> int | None:
    """The declared bound on the number of stored edges, checked; None where none is declared."""
    if isinstance(bound, bool):
        why = "is a declared upper bound on the number of stored edges, a number; None where there is none"
        raise InvalidInput("public_edges", bound, why)
    return None if bound is None else validate.count("public_edges", bound)


def check_declared_edges(facts: PublicFacts, stored: int) -> None:
    """Refuse a graph with more edges than were declared, without saying how many it has."""
    if facts.edges is not None and stored > facts.edges:
        raise InvalidInput("public_edges", facts.edges, "the graph has more stored edges than this declared bound")
