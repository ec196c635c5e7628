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
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import scipy.sparse as sp
import torch

from graphveil.distributed.group import Group
from graphveil.distributed.part_files import DECLARED, EDGES, FORMAT, NAMES, NODES, part_folder
from graphveil.distributed.shard import Layout, Shard, Span, return_free_memory
from graphveil.errors import InvalidInput
from graphveil.graph import Direction
from graphveil.graph.fingerprint import mixed
from graphveil.graph.io.columns import Table
from graphveil.graph.io.declared import check_declarations
from graphveil.graph.splits import MASKS
from graphveil.graph.summary import Undeclared
from graphveil.graph.validation import node_ids
from graphveil.storage.decoding import decoding, inside

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
    parts = len(starts) - 1
    chosen = Layout.even(parts, group.size).starts
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
    if not directed:
        _check_symmetric(source, target, group, path)
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


def _check_symmetric(source: np.ndarray, target: np.ndarray, group: Group, path: Path) -> None:
    """Refuse a graph in which an edge is there in one direction alone.

    The two directions of an edge may be in the parts of two processes. So each process adds keyed hashes of its edges,
    with a sign for the direction, and the total of all processes must be zero. A graph that is not symmetric passes
    with a probability of about 2^-64.
    """
    key = group.object_from_first(int(np.random.default_rng().integers(2**63)))
    total = 0
    for first in range(0, len(source), _EDGES_AT_ONCE):
        a, b = (ends[first : first + _EDGES_AT_ONCE].astype(np.uint64) for ends in (source, target))
        hashed = mixed(mixed(np.minimum(a, b) ^ np.uint64(key)) + np.maximum(a, b))
        up = a < b
        total += int(hashed[up].sum(dtype=np.uint64)) - int(hashed[~up].sum(dtype=np.uint64))
    # Sums of int64 wrap, so a residue modulo 2^64 may be written as a signed number.
    residue = (total + 2**63) % 2**64 - 2**63
    if int(group.total(torch.tensor([residue]))):
        why = "declares the graph undirected, but some edge has no way back"
        raise InvalidInput("directed", False, f"{path.name}/{DECLARED} {why}")
