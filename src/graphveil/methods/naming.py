"""How the owner of a graph names its nodes, classes and feature columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from graphveil.errors import InvalidInput
from graphveil.graph import Graph
from graphveil.graph.report import FeatureColumn
from graphveil.plan import PublicFacts


@dataclass(frozen=True)
class Naming:
    """Names of nodes and classes (None: their numbers), and the feature columns of the tables that the graph was read
    from (none: features have no names). A graph's read report lists all of them as public facts.
    """

    nodes: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    columns: tuple[FeatureColumn, ...] = ()

    @classmethod
    def of(cls, graph: Graph) -> Naming:
        """Names that can be relied on; where they are ambiguous or do not fit the graph, numbers take their place."""
        nodes = None if graph.node_ids is None else tuple(map(str, graph.node_ids.tolist()))
        if nodes is not None and len(set(nodes)) < len(nodes):  # 1 and "1" are different ids with the same text
            nodes = None
        columns = () if graph.counts is None else graph.counts.columns
        # A matrix in a file is reported as one wide column; and features may have been replaced since they were read.
        single = all(column.kind == "categorical" or column.width == 1 for column in columns)
        if not single or sum(column.width for column in columns) != graph.num_features:
            columns = ()
        return cls(nodes, graph.class_names, columns)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.nodes or ())}

    def places(self, field: str, names: Sequence[str], count: int) -> list[int]:
        """The numbers of nodes by name."""
        return [self._place(field, name, count) for name in names]

    def node(self, place: int) -> str:
        return str(place) if self.nodes is None else self.nodes[place]

    def class_name(self, number: int) -> str:
        return str(number) if self.classes is None else self.classes[number]

    def _place(self, field: str, name: str, count: int) -> int:
        if self.nodes is not None:
            found = self._places.get(name)
        else:
            found = int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else None
        if found is None or found >= count:
            known = "one of the names in owner/nodes.json" if self.nodes is not None else f"a number, 0 .. {count - 1}"
            raise InvalidInput(field, name, f"is not a node of this run; must be {known}")
        return found

    def public_dict(self) -> dict[str, Any]:
        """Classes and columns in JSON form; nodes are kept apart."""
        return {
            "classes": None if self.classes is None else list(self.classes),
            "columns": [asdict(column) for column in self.columns],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], nodes: Sequence[str] | None, facts: PublicFacts) -> Naming:
        """The naming that `public_dict` wrote; strict about its form."""
        classes = data["classes"]
        if classes is not None and not (len(classes) == facts.classes and all(isinstance(c, str) for c in classes)):
            raise InvalidInput("classes", classes, f"must be {facts.classes} names")
        columns = tuple(
            FeatureColumn(**{**found, "categories": tuple(found["categories"])}) for found in data["columns"]
        )
        if columns and sum(column.width for column in columns) != facts.features:
            raise InvalidInput("columns", len(columns), f"do not make up {facts.features} features")
        return cls(None if nodes is None else tuple(nodes), None if classes is None else tuple(classes), columns)
