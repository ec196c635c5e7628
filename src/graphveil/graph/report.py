"""What was read from a user's files, in counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class FeatureColumn:
    """One feature column of the input and how many columns of the feature matrix it became."""

    name: str
    kind: Literal["numeric", "categorical"]
    width: int = 1
    categories: tuple[str, ...] = ()
    declared: bool = False


@dataclass(frozen=True)
class ReadReport:
    """Counts of what was read; `str()` is meant for people."""

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
    """Where the split comes from: the file, a random draw with its seed, or nowhere."""
    public: tuple[str, ...]
    """Facts found in the data that every guarantee about this graph treats as public."""
    found: tuple[str, ...] = ()
    """Those among them that could have been declared instead, and then would not depend on private values."""
    unused: tuple[str, ...] = ()
    """Columns, arrays and attributes that are there and were not read."""

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
        lines += [f"  public    {fact}" for fact in (*self.public, *self.found)]
        if self.found:
            lines.append(
                "            Numbers that were found depend on private values, and a rare value changes them: declare "
                "classes and categories (graph.json, --classes, --categories)."
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Reading:
    """What a file format hands over: the fields of `Graph.from_edge_index`, and what the report cannot see there.

    `rows` are the finished `(indptr, indices)` in place of the field `edge_index`, where that would not fit in memory.
    """

    fields: dict[str, Any]
    edges_listed: int
    columns: tuple[FeatureColumn, ...] = ()
    split: str | None = None
    declared_directed: bool | None = None
    public: tuple[str, ...] = field(default=())
    unused: tuple[str, ...] = ()
    rows: tuple[np.ndarray, np.ndarray] | None = None
