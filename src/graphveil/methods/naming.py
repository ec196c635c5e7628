"""How the owner of a graph names its nodes, classes and feature columns; predictions as a table with these names.

A table of predictions has one row for each node: the columns are `node`, `prediction`, and `p(NAME)` for each class, so
that no name of a class is taken for another column. Every table of predictions that graphveil writes has this form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil.errors import InvalidInput
from graphveil.graph import GraphView
from graphveil.graph.summary import FeatureColumn
from graphveil.graph.validation import spells_integer, why_no_id
from graphveil.privacy.facts import PublicFacts
from graphveil.storage.decoding import check_declared

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Naming:
    """Names of nodes and classes (None: their numbers), and the feature columns of the tables that the graph was read
    from (none: features have no names).

    Formal guarantee: `public_dict` holds nothing that was read from private data: names of columns, which are the form
    of the tables, and names of classes and categories that were declared. `owner_dict` holds the others.
    """

    nodes: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    columns: tuple[FeatureColumn, ...] = ()
    declared_classes: bool = True

    @classmethod
    def of(cls, graph: GraphView) -> Naming:
        """Names that can be relied on; columns that do not fit the graph are left out."""
        nodes = None if graph.node_ids is None else tuple(map(str, graph.node_ids.tolist()))
        columns = () if graph.counts is None else graph.counts.columns
        # A matrix in a file is reported as one wide column; and features may have been replaced since they were read.
        width = sum(column.width for column in columns)
        if width != graph.num_features or any(column.kind == "matrix" for column in columns):
            columns = ()
        return cls(nodes, graph.class_names, columns, graph.class_names is None or graph.undeclared.classes is None)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.nodes or ())}

    def place(self, name: str, count: int) -> int | None:
        """The number of the node with this very name, of `count` nodes; None if there is none."""
        if self.nodes is not None:
            return self._places.get(name)
        # Without an exception for names that no node has: raising one takes long enough to be measured.
        number = int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else -1
        return number if 0 <= number < count and str(number) == name else None

    def places(self, field: str, names: Sequence[str], count: int) -> list[int]:
        """The numbers of nodes by name."""
        return [self._place(field, name, count) for name in names]

    def new_ids(self, ids: Sequence[Any], count: int) -> list[str]:
        """Names for nodes that join a graph of `count` nodes: as text without blanks around it, none of them taken."""
        if isinstance(ids, str | bytes | Mapping) or not hasattr(ids, "__iter__") or getattr(ids, "ndim", 1) != 1:
            raise InvalidInput("ids", type(ids).__name__, "must be a list of names, one for each new node")
        names = [str(value.item() if hasattr(value, "item") else value).strip() for value in ids]
        for name in names:
            why = why_no_id(name)
            if why is not None:
                raise InvalidInput("ids", name[:40], why)
            if self.place(name, count) is not None:
                why = "is a node of the training graph, which has its answer already; a new node needs another id"
                raise InvalidInput("ids", name, why)
        return names

    def node(self, place: int) -> str:
        return str(place) if self.nodes is None else self.nodes[place]

    def class_name(self, number: int) -> str:
        return str(number) if self.classes is None else self.classes[number]

    def _place(self, field: str, name: str, count: int) -> int:
        place = self.place(name, count)
        if place is None:
            known = "one of the names in owner/nodes.json" if self.nodes is not None else f"a number, 0 .. {count - 1}"
            raise InvalidInput(field, name, f"is not a node of this run; must be {known}")
        return place

    def declared(self) -> dict[str, Any]:
        """What was declared, as arguments of `read_graph`."""
        classes = self.classes if self.declared_classes else None
        categories = {column.name: column.categories for column in self.columns if column.declared}
        return {"classes": classes, "categories": categories or None}

    def public_dict(self) -> dict[str, Any]:
        """Columns and what was declared, in JSON form."""
        columns = (column if column.declared else replace(column, categories=()) for column in self.columns)
        return {
            "classes": None if self.classes is None or not self.declared_classes else list(self.classes),
            "columns": [asdict(column) for column in columns],
        }

    def owner_dict(self) -> dict[str, Any]:
        """Names that were read from the data, in JSON form; nodes are kept apart."""
        return {
            "classes": None if self.classes is None or self.declared_classes else list(self.classes),
            "categories": {column.name: list(column.categories) for column in self.columns if _is_undeclared(column)},
        }

    @classmethod
    def from_dicts(
        cls, public: Mapping[str, Any], owner: Mapping[str, Any], nodes: Sequence[str] | None, facts: PublicFacts
    ) -> Naming:
        """The naming that `public_dict` and `owner_dict` wrote; strict about its form."""
        declared = owner["classes"] is None
        classes = public["classes"] if declared else owner["classes"]
        if not declared and public["classes"] is not None:
            raise InvalidInput("classes", public["classes"], "are named twice")
        if classes is not None and not (len(classes) == facts.classes and all(isinstance(c, str) for c in classes)):
            raise InvalidInput("classes", classes, f"must be {facts.classes} names")
        columns = tuple(_column(column, owner["categories"]) for column in public["columns"])
        if set(owner["categories"]) != {column.name for column in columns if _is_undeclared(column)}:
            raise InvalidInput("categories", sorted(owner["categories"]), "are not those of the columns")
        if columns and sum(column.width for column in columns) != facts.features:
            raise InvalidInput("columns", len(columns), f"do not make up {facts.features} features")
        named = None if nodes is None else tuple(nodes)
        return cls(named, None if classes is None else tuple(classes), columns, declared)


def column_names(naming: Naming, classes: int) -> list[str]:
    """The header of a table of predictions.

    Example:
        >>> column_names(Naming(classes=("north", "node")), 2)
        ['node', 'prediction', 'p(north)', 'p(node)']
    """
    return ["node", "prediction", *(f"p({naming.class_name(number)})" for number in range(classes))]


def prediction_table(
    naming: Naming, nodes: Sequence[str], guesses: Sequence[str], probabilities: np.ndarray
) -> pa.Table:
    """Predictions as an Arrow table. Ids are integers in it if all of them spell one."""
    import pyarrow as pa  # which a server does without

    whole = all(map(spells_integer, nodes)) and all(map(spells_integer, naming.nodes or ()))
    ids = pa.array(map(int, nodes), pa.int64()) if whole else pa.array(nodes, pa.string())
    columns = [ids, pa.array(guesses, pa.string()), *map(pa.array, probabilities.T)]
    return pa.Table.from_arrays(columns, names=column_names(naming, probabilities.shape[1]))


def _is_undeclared(column: FeatureColumn) -> bool:
    return column.kind == "categorical" and not column.declared


def _column(public: Mapping[str, Any], undeclared: Mapping[str, Sequence[str]]) -> FeatureColumn:
    limits = None if public["range"] is None else tuple(public["range"])
    column = FeatureColumn(**{**public, "categories": tuple(public["categories"]), "range": limits})
    check_declared(column)
    if _is_undeclared(column):
        column = replace(column, categories=tuple(undeclared[column.name]))
    if column.kind == "categorical" and len(column.categories) != column.width:
        raise InvalidInput(f"categories of column {column.name!r}", len(column.categories), f"must be {column.width}")
    return column
