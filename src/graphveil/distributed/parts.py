"""A graph as a folder of parts, of which each process reads its own and no other.

    GRAPH/
      graph.json                {"format": "graphveil-parts/1", "name", "directed", "classes", "starts"}, also "sparse"
      names.parquet             id, name: what the nodes are called, if they are not called by their numbers; optional
      part-NNNNN/nodes.parquet  id, label, split, and numeric feature columns, the same in the same order in all parts
      part-NNNNN/edges.parquet  source, target: the edges whose target is one of these nodes

Ids are the numbers 0 .. n - 1, in order: part p has the nodes `starts[p]` .. `starts[p + 1] - 1`. An undirected edge
is listed in both directions, each in the part of its target. `classes` are all classes in order. Tools that write
Parquet partitioned by a column can write such a folder; `graphveil shard` does (`division` for long tables).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import scipy.sparse as sp
import torch

from graphveil import validate
from graphveil.distributed.group import Group
from graphveil.distributed.shard import Layout, Shard, Span, check_divisible, is_symmetric, return_free_memory
from graphveil.distributed.unfinished import RowGroups, node_rows_at_once
from graphveil.errors import InvalidInput
from graphveil.graph import Direction, Graph
from graphveil.graph.io.columns import Table
from graphveil.graph.io.declared import check_declarations
from graphveil.graph.splits import MASKS, SPLITS
from graphveil.graph.summary import Undeclared
from graphveil.graph.validation import node_ids
from graphveil.storage import unwritable, written_beside
from graphveil.validate import decoding, inside

FORMAT = "graphveil-parts/1"
DECLARED, NAMES, NODES, EDGES = "graph.json", "names.parquet", "nodes.parquet", "edges.parquet"
_KEYS = ("format", "name", "directed", "classes", "starts")
_EDGES_AT_ONCE = 2**20
# The folder of a part, its first node, and the first node of the next part.
_Part = tuple[Path, int, int]


def is_parts(path: Path) -> bool:
    """Whether this is a folder of parts, and not one of tables."""
    return any(path.glob("part-*"))


def read_part(path: Path, group: Group, direction: Direction = "out") -> Shard:
    """Read the parts that belong to this process.

    Args:
        path: The folder of parts.
        group: All processes, which call this together. Each reads as many parts as the others, or one more.
        direction: Which end of an edge reads the other, as in `Graph.reads`. Parts have edges by target; where the
            other end is read, the edges of a directed graph are sent to the processes of their sources.

    Returns:
        The part of the graph that this process has.

    Raises:
        InvalidInput: There are fewer parts than processes, or a file is not as described; the message names it.
    """
    declared = group.by_first(lambda: _described(path, group.size))
    starts, classes = declared["starts"], declared["classes"]
    chosen = Layout.even(len(starts) - 1, group.size).starts
    layout = Layout(tuple(starts[part] for part in chosen))
    mine = [
        (part_folder(path, part), starts[part], starts[part + 1])
        for part in range(chosen[group.rank], chosen[group.rank + 1])
    ]
    own = _own_nodes(mine, classes, group)
    matrix = _own_columns(path, mine, layout, declared["directed"], group)
    if declared["directed"] and direction == "in":
        matrix = _by_source(matrix, layout, group)
    pa.default_memory_pool().release_unused()
    return_free_memory()
    numbered = list(classes) == list(range(len(classes)))
    return Shard(
        layout=layout,
        rank=group.rank,
        indptr=matrix.indptr,
        indices=matrix.indices,
        features=sp.csr_array(own["features"].numpy()) if declared.get("sparse") else own["features"],
        labels=own["labels"],
        train_mask=own["train_mask"],
        val_mask=own["val_mask"],
        test_mask=own["test_mask"],
        directed=declared["directed"],
        num_classes=len(classes),
        name=str(declared["name"]),
        class_names=None if numbered else tuple(map(str, classes)),
        node_ids=_own_names(path / NAMES, layout.span(group.rank), group),
        undeclared=declared.get("found", Undeclared()),
        numeric_columns=declared.get("numeric_columns", ()),
        direction=direction,
    )


def _own_nodes(mine: list[_Part], classes: Sequence[Any], group: Group) -> dict[str, torch.Tensor]:
    """Features, labels and masks of own nodes. Feature columns must be the same in all parts of all processes."""
    nodes = group.by_all(lambda: [_nodes(*part, classes) for part in mine])
    columns = group.object_from_first(nodes[0][0])

    def check() -> None:
        for part, (names, _) in zip(mine, nodes, strict=True):
            _check_columns(part[0], names, columns)

    group.by_all(check)
    return {field: torch.cat([fields[field] for _, fields in nodes]) for field in nodes[0][1]}


def _own_columns(path: Path, mine: list[_Part], layout: Layout, directed: bool, group: Group) -> sp.csr_array:
    """The entries of A in the columns of this process's nodes."""
    edges = group.by_all(lambda: [_edges(*part, layout.starts[-1]) for part in mine])
    first = layout.starts[group.rank]
    source = np.concatenate([ends[0] for ends in edges])
    target = np.concatenate([ends[1] for ends in edges])
    del edges
    if not directed and not is_symmetric(source, target, group):
        why = "declares the graph undirected, but some edge has no way back"
        raise InvalidInput("directed", False, f"{path.name}/{DECLARED} {why}")
    target -= first
    shape = layout.starts[-1], layout.span(group.rank).count
    return group.by_all(lambda: _rows(source, target, shape, first, path))


def _by_source(columns: sp.csr_array, layout: Layout, group: Group) -> sp.csr_array:
    """The transpose of the matrix whose columns of own nodes these are, in the columns of own nodes."""
    coo, span = columns.tocoo(), layout.span(group.rank)
    ends = torch.from_numpy(np.stack([coo.coords[1].astype(np.int64) + span.first, coo.coords[0]], axis=1))
    counts = np.diff(columns.indptr[np.array(layout.starts)])  # rows are in order, so owners of sources are too
    reader, read = group.dealt(ends, counts.tolist()).numpy().T
    shape, ones = (span.total, span.count), np.ones(len(read), np.int8)
    return sp.csr_array((ones, (reader, read - span.first)), shape=shape)


def _described(path: Path, processes: int) -> dict[str, Any]:
    with decoding(path / DECLARED, "a description of parts"), inside(path / DECLARED):
        declared = _checked(json.loads((path / DECLARED).read_text(encoding="utf-8")))
    parts = len(declared["starts"]) - 1
    if parts < processes:
        raise InvalidInput("processes", processes, f"are more than the {parts} parts of {path.name}")
    return declared


def _checked(declared: Any) -> dict[str, Any]:
    form = declared.get("format") if isinstance(declared, dict) else None
    if form != FORMAT:
        raise InvalidInput("format", form, f"must be {FORMAT}")
    for key in _KEYS:
        if key not in declared:
            raise InvalidInput("key", key, "is missing")
    declared = check_declarations(declared, (*_KEYS, "found", "sparse", "numeric_columns"))
    declared["numeric_columns"] = _column_pairs(declared.get("numeric_columns", []))
    if not isinstance(declared.get("sparse", False), bool):
        raise InvalidInput("sparse", declared["sparse"], "must be true or false")
    starts = declared["starts"]
    rising = isinstance(starts, list) and all(type(start) is int for start in starts) and len(starts) > 1
    if not rising or starts[0] != 0 or any(b <= a for a, b in pairwise(starts)):
        raise InvalidInput("starts", str(starts)[:60], "must be rising numbers of nodes, from 0 on")
    return declared


def _column_pairs(pairs: Any) -> tuple[tuple[int, int], ...]:
    """The columns that a fit scales, as `Graph.numeric_columns` has them."""
    whole = isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    if not whole or not all(type(number) is int for pair in pairs for number in pair):
        raise InvalidInput("numeric_columns", str(pairs)[:60], "must be pairs of column numbers")
    return tuple((pair[0], pair[1]) for pair in pairs)


def _check_columns(folder: Path, names: list[str], columns: list[str]) -> None:
    """Columns are told apart by their names, and features are a matrix: the order counts too."""
    for place in range(max(len(names), len(columns))):
        here, there = names[place : place + 1], columns[place : place + 1]
        if here != there:
            known = f"in the first part it is {there[0]!r}" if there else "the first part has no such column"
            field = f"{folder.name}: nodes.parquet, feature column {place + 1}"
            raise InvalidInput(field, here[0] if here else None, f"{known}; columns and their order must be the same")


def _own_names(path: Path, span: Span, group: Group) -> np.ndarray | None:
    """What the nodes of this process are called; None if nodes are called by their numbers.

    No two nodes of all processes may have the same name: digests of names are sent to the process that compares them.
    """
    if not group.by_first(path.is_file):
        return None
    names = group.by_all(lambda: _names(path, span))
    if group.size == 1:
        return names
    digests = b"".join(hashlib.blake2b(str(name).encode(), digest_size=16).digest() for name in names)
    words = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    owners = ((words[:, 0] >> np.uint64(32)) * np.uint64(group.size) >> np.uint64(32)).astype(np.int64)
    by_owner = torch.from_numpy(words[np.argsort(owners, kind="stable")].view(np.int64))
    here = group.dealt(by_owner, np.bincount(owners, minlength=group.size).tolist()).numpy()

    def check() -> None:
        if len(np.unique(here, axis=0)) < len(here):
            raise InvalidInput("names", path.name, "gives the same name to two nodes")

    group.by_all(check)
    return names


def _names(path: Path, span: Span) -> np.ndarray:
    """Those of these nodes, by number."""
    first, last = span.first, span.first + span.count
    with decoding(path, "Parquet"), inside(path):
        rows = pyarrow.parquet.ParquetFile(path).metadata.num_rows
        if rows != span.total:
            raise InvalidInput("column 'id'", rows, f"must be the numbers 0 .. {span.total - 1} in order")
        table = pyarrow.parquet.read_table(
            path, columns=["id", "name"], filters=[("id", ">=", first), ("id", "<", last)]
        )
        ids = table.column("id").to_numpy()
        if not np.array_equal(ids, np.arange(first, last)):
            raise InvalidInput("column 'id'", len(ids), f"must be the numbers {first} .. {last - 1} in order")
        names = node_ids(np.array(table.column("name").cast(pa.string()).to_pylist()), len(ids))
        assert names is not None
        return names


def _nodes(folder: Path, first: int, last: int, classes: Sequence[Any]) -> tuple[list[str], dict[str, torch.Tensor]]:
    table = Table(folder / NODES, ["id", "label", "split"])
    with inside(folder):
        ids = table.ids("id").to_numpy(zero_copy_only=False)
        if len(ids) != last - first or not np.array_equal(ids, np.arange(first, last)):
            raise table.error("column 'id'", len(ids), f"must be the numbers {first} .. {last - 1} in order")
        labels, _ = table.labels("label", classes, len(classes))
        names = [name for name in table.table.column_names if name not in ("id", "label", "split")]
        x = np.empty((len(ids), len(names)), dtype=np.float32)
        for place, name in enumerate(names):
            if table.kind_of(name) not in ("numeric", "boolean"):
                raise table.error(f"column {name!r}", "text", "features of parts must be numbers")
            x[:, place] = table.numbers(name, gaps=False)
        masks = table.masks("split", labels)
    fields = {"features": x, "labels": labels, **{name: masks[name].astype(bool) for name in MASKS}}
    return names, {name: torch.from_numpy(values) for name, values in fields.items()}


def _edges(folder: Path, first: int, last: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets, in the smallest type that fits, read some at a time."""
    path, kind = folder / EDGES, np.int32 if nodes < 2**31 else np.int64
    ends: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    with decoding(path, "Parquet"), inside(path), pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_EDGES_AT_ONCE, columns=["source", "target"], use_threads=False):
            for end, low, high, column in zip(ends, (0, first), (nodes, last), ("source", "target"), strict=True):
                values = batch.column(column).cast(pa.int64())
                if values.null_count:
                    raise InvalidInput(column, None, "is missing")
                numbers = values.to_numpy()
                wrong = (numbers < low) | (numbers >= high)
                if wrong.any():
                    raise InvalidInput(column, int(numbers[wrong][0]), f"must lie in {low} .. {high - 1} in this part")
                end.append(numbers.astype(kind))
    empty = np.zeros(0, kind)
    return np.concatenate([empty, *ends[0]]), np.concatenate([empty, *ends[1]])


def _rows(source: np.ndarray, target: np.ndarray, shape: tuple[int, int], first: int, path: Path) -> sp.csr_array:
    """Readers by row; neither loops nor duplicates, on which the sensitivity of `A W` rests."""
    loops = source == target + first
    if loops.any():
        raise InvalidInput("edge", int(source[loops][0]), f"in {path.name} leads back to its own node")
    # int16 counts how often an edge is listed; a byte could overflow.
    matrix = sp.coo_array((np.ones(len(source), np.int16), (source, target)), shape=shape).tocsr()
    if matrix.nnz < len(source):
        at = int(np.argmax(matrix.data > 1))
        reader = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        edge = (reader, int(matrix.indices[at]) + first)
        raise InvalidInput("edge", edge, f"is listed more than once in {path.name}")
    return matrix


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


def part_folder(folder: Path, part: int) -> Path:
    return folder / f"part-{part:05d}"


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
