"""Writing a folder of parts, as `parts` describes it: a graph that is in memory, or some rows at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import scipy.sparse as sp
import torch

from graphveil import validate
from graphveil.distributed.shard import Layout, check_divisible
from graphveil.errors import InvalidInput
from graphveil.graph import Graph
from graphveil.graph.splits import MASKS, SPLITS
from graphveil.graph.summary import Undeclared
from graphveil.storage.files import put_in_place, unwritable, written_beside

FORMAT = "graphveil-parts/1"
DECLARED, NAMES, NODES, EDGES = "graph.json", "names.parquet", "nodes.parquet", "edges.parquet"


def write_parts(graph: Graph, path: Path, parts: int) -> None:
    """Divide a graph that is in memory.

    Args:
        graph: The graph.
        path: The folder to create; it appears complete or not at all.
        parts: How many parts.

    Raises:
        InvalidInput: There are more parts than nodes, the graph has weights or relations, or the folder exists or
            cannot be written.
    """
    validate.count("parts", parts)
    if path.exists():
        raise InvalidInput("out", str(path), "exists already")
    check_divisible(graph)
    starts = Layout.even(graph.num_nodes, parts).starts
    A = sp.csc_array(graph.reads("out"))
    sets = sets_of({mask: getattr(graph, mask).numpy() for mask in MASKS}, graph.num_nodes)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_beside(path) as fresh:
            fresh.mkdir()
            Described.of(graph, starts).write(fresh)
            if graph.node_ids is not None:
                with RowGroups(fresh / NAMES) as names:
                    names.add(names_table(0, pa.array(graph.node_ids.astype(str))))
            for part, (first, last) in enumerate(pairwise(starts)):
                folder = part_folder(fresh, part)
                folder.mkdir()
                x = graph.features[first:last]
                x = x.numpy() if isinstance(x, torch.Tensor) else x.toarray()
                with RowGroups(folder / NODES, node_rows_at_once(x.shape[1])) as nodes:
                    labels = graph.labels[first:last].numpy()
                    nodes.add(nodes_table(first, labels, sets[first:last], x, graph.class_names))
                low, high = A.indptr[first], A.indptr[last]
                target = np.repeat(np.arange(first, last), np.diff(A.indptr[first : last + 1]))
                with RowGroups(folder / EDGES) as edges:
                    edges.add(edges_table(A.indices[low:high].astype(np.int64), target))
    except OSError as error:
        raise unwritable(path, error, "out") from None


@dataclass(frozen=True)
class Described:
    """The graph.json of a folder of parts; fields as in `Graph`."""

    name: str
    directed: bool
    class_names: tuple[str, ...] | None
    num_classes: int
    starts: tuple[int, ...]
    sparse: bool
    undeclared: Undeclared
    numeric_columns: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, graph: Graph, starts: tuple[int, ...]) -> Self:
        """What is said about a graph that is divided at these nodes."""
        return cls(
            graph.name,
            graph.directed,
            graph.class_names,
            graph.num_classes,
            starts,
            bool(sp.issparse(graph.features)),
            graph.undeclared,
            graph.numeric_columns,
        )

    def write(self, folder: Path) -> None:
        classes = list(range(self.num_classes)) if self.class_names is None else list(self.class_names)
        declared: dict[str, Any] = {"format": FORMAT, "name": self.name, "directed": self.directed, "classes": classes}
        declared |= {"starts": self.starts, "sparse": self.sparse}
        if self.undeclared != Undeclared():
            declared["found"] = self.undeclared.to_dict()
        if self.numeric_columns:
            declared["numeric_columns"] = self.numeric_columns
        (folder / DECLARED).write_text(json.dumps(declared, indent=2) + "\n", encoding="utf-8")


class RowGroups:
    """A Parquet file that is written some rows at a time, in row groups of equal length: its bytes do not depend on how
    many rows come at a time. The file appears when it is complete.

    Args:
        path: The file.
        rows: The length of a row group.
    """

    def __init__(self, path: Path, rows: int = 2**20) -> None:
        self._path, self._rows = path, rows
        # Always the same name: who goes on with an ended division writes over it.
        self._unfinished = path.with_name(f"{path.name}-unfinished")
        self._waiting: list[pa.Table] = []
        self._count = 0
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def add(self, table: pa.Table) -> None:
        """Take some rows."""
        self._waiting.append(table)
        self._count += len(table)
        while self._count >= self._rows:
            self._write(self._rows)

    def _write(self, rows: int) -> None:
        whole = pa.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(self._unfinished, whole.schema)
        self._writer.write_table(whole.slice(0, rows).combine_chunks(), row_group_size=self._rows)
        self._waiting, self._count = [whole.slice(rows)], len(whole) - rows

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and (self._count or self._writer is None):
            self._write(self._count)
        if self._writer is not None:
            self._writer.close()
        if kind is None:
            put_in_place(self._unfinished, self._path)


def part_folder(folder: Path, part: int) -> Path:
    return folder / f"part-{part:05d}"


def node_rows_at_once(features: int) -> int:
    """The length of a row group of nodes: 64 MiB of features at most."""
    return max(1, min(2**20, 2**24 // max(1, features)))


def nodes_table(
    first: int, labels: np.ndarray, sets: np.ndarray, x: np.ndarray, class_names: tuple[str, ...] | None
) -> pa.Table:
    """Rows of nodes.parquet: nodes from `first` on, with -1 for no label, and sets as `sets_of` gives them."""
    label = pa.array(labels.astype(np.int64), mask=labels < 0)
    split = pa.array(np.maximum(0, sets.astype(np.int64) - 1), mask=sets == 0)
    columns: dict[str, Any] = {
        "id": np.arange(first, first + len(labels)),
        "label": label if class_names is None else pa.array(class_names, pa.string()).take(label),
        "split": pa.array(SPLITS, pa.string()).take(split),
    }
    return pa.table(columns | {f"x{j}": np.ascontiguousarray(x[:, j]) for j in range(x.shape[1])})


def sets_of(masks: Mapping[str, np.ndarray], nodes: int) -> np.ndarray:
    """0 for a node in no set, 1, 2 and 3 for training, validation and test."""
    sets = np.zeros(nodes, np.uint8)
    for number, mask in enumerate(MASKS, start=1):
        if mask in masks:
            sets[masks[mask]] = number
    return sets


def names_table(first: int, names: pa.Array) -> pa.Table:
    """Rows of names.parquet."""
    return pa.table({"id": np.arange(first, first + len(names)), "name": names.cast(pa.string())})


def edges_table(source: np.ndarray, target: np.ndarray) -> pa.Table:
    """Rows of edges.parquet."""
    return pa.table({"source": source, "target": target})
