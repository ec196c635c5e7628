"""What was read from a user's files: columns, counts, and the facts that nobody declared."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np

from graphveil.errors import InvalidInput


@dataclass(frozen=True)
class FeatureColumn:
    """A feature column of the input.

    Args:
        name: The column's name.
        kind: Numbers as they are, or text that is one-hot encoded.
        width: How many columns of the feature matrix it became.
        categories: The values of a categorical column, in the order of the one-hot columns.
        declared: Whether the user declared the categories; otherwise they were read from the data.
    """

    name: str
    kind: Literal["numeric", "categorical"]
    width: int = 1
    categories: tuple[str, ...] = ()
    declared: bool = False


@dataclass(frozen=True)
class Undeclared:
    """How many classes and categories the data has, where nobody declared them.

    Args:
        classes: The number of classes that was read from the labels; None if it was declared.
        categories: The number of categories of each column in which they were read from the data.

    These numbers fix the shape of the weights, so every guarantee treats them as public. The names of such classes and
    categories are not kept here; they stay with the owner of the data. Files have this value under the key `found`.
    """

    classes: int | None = None
    categories: tuple[tuple[str, int], ...] = ()

    def facts(self) -> tuple[str, ...]:
        """One phrase for each number, for the certificate; no value of the data is in it."""
        classes = () if self.classes is None else (f"the number of classes ({self.classes}) and their order",)
        columns = (f"the number of categories of column {name!r} ({n}) and their order" for name, n in self.categories)
        return (*classes, *columns)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"categories": dict(self.categories)}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What `to_dict` wrote; strict about its form."""
        counted = isinstance(data, dict) and set(data) == {"classes", "categories"}
        if not counted or not isinstance(data["categories"], dict):
            raise InvalidInput("found", data, "must have the keys classes and categories, as graphveil writes them")
        for value in (*([] if data["classes"] is None else [data["classes"]]), *data["categories"].values()):
            if type(value) is not int or value < 0:
                raise InvalidInput("found", value, "must be a number of classes or categories")
        return cls(data["classes"], tuple(data["categories"].items()))


@dataclass(frozen=True)
class ReadReport:
    """Counts of what was read; `str()` is meant for people.

    `split` says where the split comes from: the file, a random draw with its seed, or nowhere. `public` are facts that
    every guarantee about this graph treats as public, and `undeclared` those among them that could have been declared
    instead, and then would not depend on private values. `unused` are columns, arrays and attributes that were there
    and were not read.
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

    def __str__(self) -> str:
        kinds = [column.kind for column in self.columns]
        lines = [
            f"{self.source}",
            f"  nodes     {self.nodes:,}",
            f"  edges     {self.edges_listed:,} listed, {self.edges_stored:,} stored "
            f"({'directed' if self.directed else 'undirected'})",
            f"  features  {self.features:,} from {kinds.count('numeric')} numeric and "
            f"{kinds.count('categorical')} categorical columns",
            f"  labels    {self.labelled:,} of {self.nodes:,} nodes, {self.classes} classes",
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


@dataclass(frozen=True)
class FileContent:
    """What the reader of a file format returns.

    Args:
        fields: Arguments of `Graph.from_edge_index`.
        edges_listed: How many edges the file lists.
        columns: The feature columns.
        split: Where the split comes from; None if the file has none.
        declared_directed: The direction that the file declares; None if it does not.
        public: Facts that are treated as public from now on.
        unused: What was there and was not read.
        rows: Finished `(indptr, indices)` in place of `edge_index`, for edges that do not fit in memory.
    """

    fields: dict[str, Any]
    edges_listed: int
    columns: tuple[FeatureColumn, ...] = ()
    split: str | None = None
    declared_directed: bool | None = None
    public: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    rows: tuple[np.ndarray, np.ndarray] | None = None
