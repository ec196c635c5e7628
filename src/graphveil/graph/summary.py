"""What belongs to a user's graph beside its arrays: what was read from files, facts that nobody declared, and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from graphveil.errors import InvalidInput
from graphveil.graph.validation import why_no_id
from graphveil.validate import check_declared

if TYPE_CHECKING:
    from graphveil.graph import GraphView
    from graphveil.privacy.facts import PublicFacts

# How many names of columns the summary lists, where columns are treated alike.
_NAMES_SHOWN = 8
# Times are days since 2020-01-01 (UTC), which is so many days after 1970-01-01.
FIRST_DAY = 18262.0
# What a column of a table is. A "matrix" is the features of a file that has no columns.
ColumnKind = Literal["numeric", "boolean", "timestamp", "date", "categorical", "matrix"]
# How numbers are brought to one scale: not at all, by a declared range, or by statistics that a fit pays for.
Scaling = Literal["none", "range", "paid"]
# Columns of X between the value of a time and its indicator of a missing value: sine and cosine of cycles.
CYCLIC_PARTS = {"timestamp": ("hour of day", "day of week"), "date": ("day of week",)}


@dataclass(frozen=True)
class FeatureColumn:
    """A feature column of the input, and what becomes of it.

    Args:
        name: The column's name.
        kind: What it holds. Text is one-hot encoded, and all zero where a value is missing. Booleans become 1 and -1,
            and 0 where missing. Numbers and times (in days since 2020, UTC) are scaled.
        width: How many columns of the feature matrix it became.
        categories: The values of a categorical column, in the order of the one-hot columns.
        declared: Whether the user declared the categories; otherwise they were read from the data.
        scaling: How numbers and times are scaled.
        range: The declared range, which becomes [-1, 1]; values outside are clipped.
        constant: What a missing number counts as; None: the centre, where the column is scaled, or else an error.
    """

    name: str
    kind: ColumnKind
    width: int = 1
    categories: tuple[str, ...] = ()
    declared: bool = False
    scaling: Scaling = "none"
    range: tuple[float, ...] | None = None
    constant: float | None = None

    @classmethod
    def of_numbers(
        cls, name: str, kind: ColumnKind, scaling: Scaling, range: tuple[float, ...] | None, constant: float | None
    ) -> Self:
        """A column of numbers or times; its value comes first, then cycles, then the indicator of a missing value."""
        parts = 1 + 2 * len(CYCLIC_PARTS.get(kind, ()))
        indicator = scaling != "none" or constant is not None
        return cls(name, kind, parts + indicator, scaling=scaling, range=range, constant=constant)

    @property
    def has_indicator(self) -> bool:
        """Whether its last column of X says that the value is missing."""
        return self.scaling != "none" or self.constant is not None

    def in_words(self) -> str:
        """What was done to it, for the summary; no value of the data is in it."""
        if self.kind == "categorical":
            return f"text, {self.width} {'declared ' if self.declared else ''}categories"
        if self.kind == "boolean":
            return "true or false, as 1 and -1"
        if self.kind == "matrix":
            return "numbers, as they are"
        words = ["number" if self.kind == "numeric" else "time"]
        if self.range is not None:
            words.append(f"the range {_shown(self.range, self.kind)} becomes [-1, 1]")
        else:
            words.append("scaled by statistics of the fit" if self.scaling == "paid" else "as it is")
        words += [f"{cycle} as sine and cosine" for cycle in CYCLIC_PARTS.get(self.kind, ())]
        if self.has_indicator:
            missing = "the centre" if self.constant is None else _shown((self.constant,), self.kind)
            words.append(f"missing: {missing} and an indicator")
        return ", ".join(words)


def _shown(values: tuple[float, ...], kind: str) -> str:
    texts = [f"{v:g}" if kind == "numeric" else str(np.datetime64(round((v + FIRST_DAY) * 86400), "s")) for v in values]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def scaled_by_fit(columns: tuple[FeatureColumn, ...]) -> tuple[tuple[int, int], ...]:
    """The columns of X that a fit has to scale, and for each the one that says which of its values are missing.

    -1 in its place: none counts as missing, because missing values have become a declared constant.
    """
    pairs, at = [], 0
    for column in columns:
        if column.scaling == "paid":
            pairs.append((at, at + column.width - 1 if column.constant is None else -1))
        at += column.width
    return tuple(pairs)


@dataclass(frozen=True)
class Undeclared:
    """How many classes and categories the data has, where nobody declared them, and by which times it was divided.

    Args:
        classes: The number of classes that was read from the labels; None if it was declared.
        categories: The number of categories of each column in which they were read from the data.
        times: The column of times by which the nodes were divided into sets; None if they were not.

    The numbers fix the shape of the weights, so every guarantee treats them as public. The names of such classes and
    categories are not kept here; they stay with the owner of the data. Files have this value under the key `found`.
    """

    classes: int | None = None
    categories: tuple[tuple[str, int], ...] = ()
    times: str | None = None

    def facts(self) -> tuple[str, ...]:
        """One phrase for each number, for the certificate; no value of the data is in it."""
        classes = () if self.classes is None else (f"the number of classes ({self.classes}) and their order",)
        columns = (f"the number of categories of column {name!r} ({n}) and their order" for name, n in self.categories)
        shown = "as far as the set that a node is in shows it"
        times = () if self.times is None else (f"the time of each node (column {self.times!r}), {shown}",)
        return (*classes, *columns, *times)

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self) | {"categories": dict(self.categories)}
        return data if self.times is not None else {key: data[key] for key in ("classes", "categories")}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What `to_dict` wrote; strict about its form."""
        counted = isinstance(data, dict) and set(data) - {"times"} == {"classes", "categories"}
        if not counted or not isinstance(data["categories"], dict):
            raise InvalidInput("found", data, "must have the keys classes and categories, as graphveil writes them")
        for value in (*([] if data["classes"] is None else [data["classes"]]), *data["categories"].values()):
            if type(value) is not int or value < 0:
                raise InvalidInput("found", value, "must be a number of classes or categories")
        if not isinstance(data.get("times"), str | None):
            raise InvalidInput("found", data["times"], "must be the name of a column")
        return cls(data["classes"], tuple(data["categories"].items()), data.get("times"))


@dataclass(frozen=True)
class ReadReport:
    """Counts of what was read; `str()` is meant for people.

    Args:
        source: The file or folder.
        nodes, edges_listed, edges_stored: Numbers of nodes, of edges in the file, and of entries of A.
        directed: The declared direction.
        columns: The feature columns.
        features, classes: The number of columns of X, and of classes.
        labelled, train, val, test: How many nodes have a label, and how many are in each set.
        split: Where the split comes from: the file, a random draw with its seed, or nowhere.
        public: Facts that every guarantee about this graph treats as public.
        undeclared: Those among them that could have been declared, and then would not depend on private values.
        unused: Columns, arrays and attributes that were there and were not read.
        links: How weights and relations were read.
        labels_as: How labels were read, if they were not taken as they stand.
    """

    source: str
    nodes: int
    edges_listed: int
    edges_stored: int
    directed: bool
    columns: tuple[FeatureColumn, ...]
    features: int
    classes: int
    labelled: int
    train: int
    val: int
    test: int
    split: str
    public: tuple[str, ...]
    undeclared: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    labels_as: str | None = None

    def __str__(self) -> str:
        lines = [
            f"{self.source}",
            f"  nodes     {self.nodes:,}",
            f"  edges     {self.edges_listed:,} listed, {self.edges_stored:,} stored "
            f"({'directed' if self.directed else 'undirected'})",
            *(f"            {words}" for words in self.links),
            f"  features  {self.features:,} from {len(self.columns)} columns",
            *self._columns_in_words(),
            f"  labels    {self.labelled:,} of {self.nodes:,} nodes, {self.classes} classes"
            f"{f' ({self.labels_as})' if self.labels_as else ''}",
            f"  split     {self.train:,} / {self.val:,} / {self.test:,} train / val / test ({self.split})",
        ]
        lines += [f"  unused    {name}" for name in self.unused]
        lines += [f"  public    {fact}" for fact in (*self.public, *self.undeclared)]
        if self.undeclared:
            lines.append(
                "            Numbers that were read from the data depend on private values, and a rare value changes "
                "them: declare classes and categories (graph.json, --classes, --categories)."
            )
        return "\n".join(lines)

    def _columns_in_words(self) -> list[str]:
        """A line for each column of a table; many columns that are treated alike share one."""
        if all(column.kind == "matrix" for column in self.columns):
            return []
        alike: dict[str, list[str]] = {}
        for column in self.columns:
            alike.setdefault(column.in_words(), []).append(column.name)
        lines = []
        for words, names in alike.items():
            more = [f"{len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else []
            lines.append(f"            {', '.join([*names[:_NAMES_SHOWN], *more])}: {words}")
        return lines


@dataclass(frozen=True)
class FileContent:
    """What the reader of a file format returns.

    Args:
        fields: Arguments of `Graph.from_edge_index`.
        edges_listed: How many edges the file lists.
        columns: The feature columns.
        split: Where the split comes from; None if the file has none.
        labels_as: How labels were read, if they were not taken as they stand.
        declared_directed: The direction that the file declares; None if it does not.
        public: Facts that are treated as public from now on.
        unused: What was there and was not read.
        drop_self_loops, merge_duplicates: Repairs that the file asks for.
        rows: Finished `(indptr, indices)` in place of `edge_index`, in memory or mapped from files.
    """

    fields: dict[str, Any]
    edges_listed: int
    columns: tuple[FeatureColumn, ...] = ()
    split: str | None = None
    labels_as: str | None = None
    declared_directed: bool | None = None
    public: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    drop_self_loops: bool = False
    merge_duplicates: bool = False
    rows: tuple[np.ndarray, np.ndarray] | None = None


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
