"""A graph as a folder of parts, of which each process reads its own and no other.

    GRAPH/
      graph.json                {"format": "graphveil-parts/1", "name", "directed", "classes", "starts"}, also "sparse"
      names.parquet             id, name: what the nodes are called, if they are not called by their numbers; optional
      part-NNNNN/nodes.parquet  id, label, split, and numeric feature columns, the same in the same order in all parts
      part-NNNNN/edges.parquet  source, target: the edges whose target is one of these nodes

Ids are the numbers 0 .. n - 1, in order: part p has the nodes `starts[p]` .. `starts[p + 1] - 1`. An undirected edge
is listed in both directions, each in the part of its target. `classes` are all classes in order. Tools that write
Parquet partitioned by a column can write such a folder; `graphveil shard` does for graphs that fit into memory.
"""

from __future__ import annotations

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

from graphveil import validate
from graphveil.distributed.group import Group
from graphveil.distributed.shard import Layout, Shard, return_free_memory
from graphveil.errors import InvalidInput
from graphveil.graph import Graph
from graphveil.graph.io.columns import Table
from graphveil.graph.io.tables import check_declarations
from graphveil.graph.report import Undeclared
from graphveil.graph.splits import MASKS, split_names
from graphveil.graph.validation import node_ids
from graphveil.storage.decoding import decoding, inside
from graphveil.storage.files import unwritable, written_beside

FORMAT = "graphveil-parts/1"
_DECLARED, _NAMES = "graph.json", "names.parquet"
_KEYS = ("format", "name", "directed", "classes", "starts")
_EDGES_AT_ONCE = 2**20
# The folder of a part, its first node, and the first node of the next part.
_Part = tuple[Path, int, int]


def is_parts(path: Path) -> bool:
    """Whether this is a folder of parts, and not one of tables."""
    return any(path.glob("part-*"))


def read_part(path: Path, group: Group) -> Shard:
    """Read the parts that belong to this process.

    Args:
        path: The folder of parts.
        group: All processes, which call this together. Each reads as many parts as the others, or one more.

    Returns:
        The part of the graph that this process has.

    Raises:
        InvalidInput: There are fewer parts than processes, or a file is not as described; the message names it.
    """
    with decoding(path / _DECLARED, "a description of parts"), inside(path / _DECLARED):
        declared = _checked(json.loads((path / _DECLARED).read_text(encoding="utf-8")))
    starts, classes = declared["starts"], declared["classes"]
    parts = len(starts) - 1
    if parts < group.size:
        raise InvalidInput("processes", group.size, f"are more than the {parts} parts of {path.name}")
    chosen = Layout.even(parts, group.size).starts
    layout = Layout(tuple(starts[part] for part in chosen))
    mine = [
        (path / f"part-{part:05d}", starts[part], starts[part + 1])
        for part in range(chosen[group.rank], chosen[group.rank + 1])
    ]
    own = _own_nodes(mine, classes, group)
    matrix = _own_columns(path, mine, layout, declared["directed"], group)
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
        # Only the first process writes anything that names nodes.
        node_ids=_names(path / _NAMES, starts[-1]) if group.rank == 0 else None,
        undeclared=declared.get("found", Undeclared()),
    )


def _own_nodes(mine: list[_Part], classes: Sequence[Any], group: Group) -> dict[str, torch.Tensor]:
    """Features, labels and masks of own nodes. Feature columns must be the same in all parts of all processes."""
    nodes, columns = [], None
    for part in mine:
        names, fields = _nodes(*part, classes)
        nodes.append(fields)
        if columns is None:
            columns = group.object_from_first(names)
        _check_columns(part[0], names, columns)
    return {field: torch.cat([fields[field] for fields in nodes]) for field in nodes[0]}


def _own_columns(path: Path, mine: list[_Part], layout: Layout, directed: bool, group: Group) -> sp.csr_array:
    """The entries of A in the columns of this process's nodes."""
    edges = [_edges(*part, layout.starts[-1]) for part in mine]
    first = layout.starts[group.rank]
    source = np.concatenate([ends[0] for ends in edges])
    target = np.concatenate([ends[1] for ends in edges])
    del edges
    if not directed:
        _check_symmetric(source, target, group, path)
    target -= first
    return _rows(source, target, (layout.starts[-1], layout.span(group.rank).count), first, path)


def write_parts(graph: Graph, path: Path, parts: int) -> None:
    """Divide a graph that is in memory.

    Args:
        graph: The graph.
        path: The folder to create; it appears complete or not at all.
        parts: How many parts.

    Raises:
        InvalidInput: There are more parts than nodes, or the folder exists or cannot be written.
    """
    validate.count("parts", parts)
    if path.exists():
        raise InvalidInput("out", str(path), "exists already")
    starts = Layout.even(graph.num_nodes, parts).starts
    classes: list[Any] = list(graph.class_names) if graph.class_names else list(range(graph.num_classes))
    split, columns = split_names(graph), sp.csc_array(graph.reads("out"))
    declared = {"format": FORMAT, "name": graph.name, "directed": graph.directed, "classes": classes, "starts": starts}
    declared["sparse"] = bool(sp.issparse(graph.features))
    if graph.undeclared != Undeclared():
        declared["found"] = graph.undeclared.to_dict()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_beside(path) as fresh:
            fresh.mkdir()
            (fresh / _DECLARED).write_text(json.dumps(declared, indent=2) + "\n", encoding="utf-8")
            if graph.node_ids is not None:
                names = pa.table({"id": np.arange(graph.num_nodes), "name": pa.array(graph.node_ids.astype(str))})
                pyarrow.parquet.write_table(names, fresh / _NAMES)
            for part, (first, last) in enumerate(pairwise(starts)):
                folder = fresh / f"part-{part:05d}"
                folder.mkdir()
                _write_part(graph, folder, first, last, classes, split[first:last], columns)
    except OSError as error:
        raise unwritable(path, error, "out") from None


def _write_part(
    graph: Graph, folder: Path, first: int, last: int, classes: Sequence[Any], split: Sequence[Any], A: sp.csc_array
) -> None:
    x = graph.features[first:last]
    x = x.numpy() if isinstance(x, torch.Tensor) else x.toarray()
    labels = [classes[y] if y >= 0 else None for y in graph.labels[first:last].tolist()]
    kind = pa.string() if graph.class_names else pa.int64()
    nodes = {"id": np.arange(first, last), "label": pa.array(labels, kind), "split": pa.array(split, pa.string())}
    features = {f"x{j}": np.ascontiguousarray(x[:, j]) for j in range(x.shape[1])}
    pyarrow.parquet.write_table(pa.table(nodes | features), folder / "nodes.parquet")
    low, high = A.indptr[first], A.indptr[last]
    target = np.repeat(np.arange(first, last), np.diff(A.indptr[first : last + 1]))
    edges = pa.table({"source": A.indices[low:high].astype(np.int64), "target": target})
    pyarrow.parquet.write_table(edges, folder / "edges.parquet")


def _checked(declared: Any) -> dict[str, Any]:
    form = declared.get("format") if isinstance(declared, dict) else None
    if form != FORMAT:
        raise InvalidInput("format", form, f"must be {FORMAT}")
    for key in _KEYS:
        if key not in declared:
            raise InvalidInput("key", key, "is missing")
    declared = check_declarations(declared, (*_KEYS, "found", "sparse"))
    if not isinstance(declared.get("sparse", False), bool):
        raise InvalidInput("sparse", declared["sparse"], "must be true or false")
    starts = declared["starts"]
    rising = isinstance(starts, list) and all(type(start) is int for start in starts) and len(starts) > 1
    if not rising or starts[0] != 0 or any(b <= a for a, b in pairwise(starts)):
        raise InvalidInput("starts", str(starts)[:60], "must be rising numbers of nodes, from 0 on")
    return declared


def _check_columns(folder: Path, names: list[str], columns: list[str]) -> None:
    """Columns are told apart by their names, and features are a matrix: the order counts too."""
    for place in range(max(len(names), len(columns))):
        here, there = names[place : place + 1], columns[place : place + 1]
        if here != there:
            known = f"in the first part it is {there[0]!r}" if there else "the first part has no such column"
            field = f"{folder.name}: nodes.parquet, feature column {place + 1}"
            raise InvalidInput(field, here[0] if here else None, f"{known}; columns and their order must be the same")


def _names(path: Path, nodes: int) -> np.ndarray | None:
    """What the nodes are called, by number."""
    if not path.is_file():
        return None
    table = Table(path, ["id", "name"])
    ids, names = table.ids("id"), table.ids("name").cast(pa.string())
    if not np.array_equal(ids.to_numpy(zero_copy_only=False), np.arange(nodes)):
        raise table.error("column 'id'", len(ids), f"must be the numbers 0 .. {nodes - 1} in order")
    return node_ids(np.array(names.to_pylist()), nodes)


def _nodes(folder: Path, first: int, last: int, classes: Sequence[Any]) -> tuple[list[str], dict[str, torch.Tensor]]:
    table = Table(folder / "nodes.parquet", ["id", "label", "split"])
    with inside(folder):
        ids = table.ids("id").to_numpy(zero_copy_only=False)
        if len(ids) != last - first or not np.array_equal(ids, np.arange(first, last)):
            raise table.error("column 'id'", len(ids), f"must be the numbers {first} .. {last - 1} in order")
        labels, _ = table.labels("label", classes, len(classes))
        names = [name for name in table.table.column_names if name not in ("id", "label", "split")]
        x = np.empty((len(ids), len(names)), dtype=np.float32)
        for place, name in enumerate(names):
            if not table.is_numeric(name):
                raise table.error(f"column {name!r}", "text", "features of parts must be numbers")
            x[:, place] = table.numbers(name)
        masks = table.masks("split", labels)
    fields = {"features": x, "labels": labels, **{name: masks[name].astype(bool) for name in MASKS}}
    return names, {name: torch.from_numpy(values) for name, values in fields.items()}


def _edges(folder: Path, first: int, last: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets, in the smallest type that fits, read some at a time."""
    path, kind = folder / "edges.parquet", np.int32 if nodes < 2**31 else np.int64
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
        hashed = _mixed(_mixed(np.minimum(a, b) ^ np.uint64(key)) + np.maximum(a, b))
        up = a < b
        total += int(hashed[up].sum(dtype=np.uint64)) - int(hashed[~up].sum(dtype=np.uint64))
    # Sums of int64 wrap, so a residue modulo 2^64 may be written as a signed number.
    residue = (total + 2**63) % 2**64 - 2**63
    if int(group.total(torch.tensor([residue]))):
        why = "declares the graph undirected, but some edge has no way back"
        raise InvalidInput("directed", False, f"{path.name}/{_DECLARED} {why}")


def _mixed(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
