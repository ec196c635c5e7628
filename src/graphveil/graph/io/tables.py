"""Graphs in a folder of tables: `nodes.parquet` or `nodes.csv`, and `edges.parquet` or `edges.csv`.

Nodes: an id column (integers or strings), optionally a label column (any type; empty means "no label") and a split
column ("train", "val", "test", or empty), and feature columns: numbers and booleans as they are, strings one-hot with
their categories in the declared order, or else sorted. A missing feature value is an error. In a CSV file a column is
numeric if at least half of its cells are numbers; any other cell is then an error. Edges: a source and a target column.
Blanks around an id do not belong to it.

An undirected edge may be listed once or in both directions; it is stored in both. The same ordered pair twice is a
duplicate. Rows are counted from 1, without the header. A file `graph.json` beside the tables may declare "directed",
"name", "classes" (all classes, in order) and "categories" (of each column by name, all of them, in order). What is not
declared is read from the data, and its number is then a public fact. `write_graph` adds the key "found" where it lists
class names that nobody declared (`Undeclared`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.graph.adjacency import Repairs
from graphveil.graph.graph import Graph
from graphveil.graph.io import TableColumns
from graphveil.graph.io.columns import DUPLICATE, SELF_LOOP, NodeIds, Table, find_table
from graphveil.graph.io.mapped import EdgeStream, mapped_rows
from graphveil.graph.report import FeatureColumn, FileContent, Undeclared
from graphveil.graph.splits import split_names
from graphveil.graph.validation import category_lists, class_list
from graphveil.storage.decoding import decoding, inside

_DECLARATIONS = ("directed", "name", "classes", "categories", "found")
_DENSE_LIMIT = 2**30  # bytes of one-hot columns above which the features are kept sparse


def read_tables(
    folder: Path, columns: TableColumns, repairs: Repairs, *, directed: bool | None = None, mmap: Path | None = None
) -> FileContent:
    """Read a folder of tables.

    Args:
        folder: The folder.
        columns: Which columns mean what.
        repairs: What may be repaired in the list of edges.
        directed: The declaration of direction, which is needed here with `mmap` alone.
        mmap: A folder for files; edges are then read in parts and become `FileContent.rows`.

    Returns:
        The fields of the graph.

    Raises:
        InvalidInput: A table cannot be read; the message names the file, the row and the column.
    """
    declared = _declarations(folder)
    categories = declared.get("categories", {}) if columns.categories is None else columns.categories
    nodes = Table(find_table(folder, "nodes"), [columns.id_column], text=tuple(categories))
    if mmap is not None and not bool(declared.get("directed") if directed is None else directed):
        repairs = replace(repairs, symmetrize=True)
    ids, edges = _read_edges(find_table(folder, "edges"), nodes, columns, repairs, mmap)

    label = _present(nodes, columns.label_column, "label")
    split = _present(nodes, columns.split_column, "split")
    labels, undeclared = _labels(nodes, label, columns, declared)
    masks = {} if split is None else nodes.masks(split, labels.get("y"))
    names = _feature_names(nodes, (columns.id_column, label, split), columns.feature_columns, categories)
    x, described = _features(nodes, names, categories, columns.max_categories)
    counted = [(c.name, c.width) for c in described if c.kind == "categorical" and not c.declared]
    used = (columns.id_column, label, split, *names)
    unused = [f"{nodes.path.name}: column {name!r}" for name in nodes.table.column_names if name not in used]
    sets = () if split is None else (f"which node is in which set (column {split!r})",)
    return replace(
        edges,
        fields={
            **edges.fields,
            **labels,
            **masks,
            "x": x,
            "num_nodes": len(ids),
            "node_ids": _named(ids.ids),
            "undeclared": replace(undeclared, categories=(*undeclared.categories, *counted)),
            **({"name": declared["name"]} if "name" in declared else {}),
        },
        columns=described,
        split=None if split is None else f"column {split!r}",
        declared_directed=declared.get("directed"),
        public=("the number of nodes and their ids", *sets),
        unused=(*unused, *edges.unused),
    )


def _declarations(folder: Path) -> dict[str, Any]:
    path = folder / "graph.json"
    if not path.is_file():
        return {}
    with decoding(path, "JSON"), inside(path):
        declared = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(declared, dict):
            raise InvalidInput("content", type(declared).__name__, "must be an object")
        return check_declarations(declared, _DECLARATIONS)


def check_declarations(declared: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The content of a `graph.json` in which nothing is unknown and everything is of its type."""
    for key in declared:
        if key not in known:
            raise InvalidInput("key", key, f"must be one of {', '.join(known)}")
    if not isinstance(declared.get("directed", False), bool):
        raise InvalidInput("directed", declared["directed"], "must be true or false")
    if not isinstance(declared.get("name", ""), str):
        raise InvalidInput("name", declared["name"], "must be text")
    checks = {"classes": class_list, "categories": category_lists, "found": Undeclared.from_dict}
    return declared | {key: check(declared[key]) for key, check in checks.items() if key in declared}


def _read_edges(
    path: Path, nodes: Table, columns: TableColumns, repairs: Repairs, mmap: Path | None
) -> tuple[NodeIds, FileContent]:
    """The ids of the nodes, and the edges among them: in the fields, or, with `mmap`, as rows in files."""
    ends = (columns.source_column, columns.target_column)
    if mmap is None:
        edges = Table(path, ends)
        ids = _node_ids(nodes, columns.id_column)
        content = FileContent({"edge_index": _edge_index(edges, ends, ids, repairs)}, len(edges))
        names = edges.table.column_names
    else:
        stream = EdgeStream(path, ends)
        ids = _node_ids(nodes, columns.id_column)
        rows, listed = mapped_rows(stream, ids, repairs, mmap)
        content = FileContent({}, listed, rows=rows)
        names = stream.column_names
    return ids, replace(content, unused=tuple(f"{path.name}: column {name!r}" for name in names if name not in ends))


def _node_ids(nodes: Table, column: str) -> NodeIds:
    ids = nodes.ids(column)
    if len(ids) == 0:
        raise nodes.error("rows", 0, "a graph needs at least one node")
    first = pc.index_in(ids, value_set=ids).to_numpy(zero_copy_only=False)
    again = first != np.arange(len(ids))
    if again.any():
        raise nodes.cell_error(column, int(np.argmax(again)), f"this id was already given to row {first[again][0] + 1}")
    return NodeIds(ids)


def _edge_index(edges: Table, ends: tuple[str, str], ids: NodeIds, repairs: Repairs) -> np.ndarray:
    edge_index = np.stack([edges.positions(column, edges.ids(column), ids) for column in ends])
    if not repairs.drop_self_loops:
        _check_self_loops(edges, edge_index, ends[0])
    if not repairs.drop_duplicates:
        _check_duplicates(edges, edge_index, ends[0], len(ids))
    return edge_index


def _check_self_loops(edges: Table, edge_index: np.ndarray, column: str) -> None:
    loops = edge_index[0] == edge_index[1]
    if loops.any():
        raise edges.cell_error(column, int(np.argmax(loops)), SELF_LOOP)


def _check_duplicates(edges: Table, edge_index: np.ndarray, column: str, n: int) -> None:
    key = edge_index[0].astype(np.int64) * n + edge_index[1]
    order = np.argsort(key, kind="stable")
    again = key[order[1:]] == key[order[:-1]]
    if again.any():
        at = int(np.argmin(np.where(again, order[1:], len(key))))
        earlier, row = int(order[at]), int(order[at + 1])
        raise edges.cell_error(column, row, DUPLICATE.format(earlier=earlier + 1))


def _named(ids: pa.Array) -> np.ndarray | None:
    """Ids for the graph: integers where they are (or are spelled as) integers, None if they just count the rows."""
    if not pa.types.is_integer(ids.type):
        text = ids.to_pylist()
        if not all(_spells_integer(name) for name in text):
            return np.array(text)
        ids = pa.array([int(name) for name in text])
    numbers = ids.to_numpy(zero_copy_only=False)
    return None if np.array_equal(numbers, np.arange(len(numbers))) else numbers


def _spells_integer(name: str) -> bool:
    return re.fullmatch("0|-?[1-9][0-9]{0,17}", name) is not None


def _present(nodes: Table, declared: str | None, usual: str) -> str | None:
    if declared is not None:
        nodes.require(declared)
        return declared
    return usual if usual in nodes.table.column_names else None


def _labels(
    nodes: Table, label: str | None, columns: TableColumns, declared: Mapping[str, Any]
) -> tuple[dict[str, Any], Undeclared]:
    """Labels and classes as fields of the graph, and whether the number of classes was read from the column."""
    undeclared = declared.get("found", Undeclared())
    if label is None:
        return {}, undeclared
    known = columns.classes if columns.classes is not None else declared.get("classes")
    y, classes = nodes.labels(label, known, columns.max_categories)
    already_numbers = all(type(name) is int and name == i for i, name in enumerate(classes))
    if columns.classes is not None or known is None:
        undeclared = replace(undeclared, classes=len(classes) if known is None else None)
    return {"y": y, "num_classes": len(classes), "class_names": None if already_numbers else classes}, undeclared


def _feature_names(
    nodes: Table, others: tuple[str | None, ...], chosen: tuple[str, ...] | None, categories: Mapping[str, Any]
) -> tuple[str, ...]:
    """The feature columns: the chosen ones, or all that are not among the others."""
    names = chosen
    if names is None:
        names = tuple(name for name in nodes.table.column_names if name not in others)
    for name in categories:
        if name not in names:
            raise nodes.error("columns", nodes.table.column_names, f"categories are declared of {name!r}, no feature")
    return names


def _features(
    nodes: Table, names: tuple[str, ...], declared: Mapping[str, tuple[str, ...]], limit: int
) -> tuple[Any, tuple[FeatureColumn, ...]]:
    n = len(nodes)
    described, blocks = [], []
    for name in names:
        if name not in declared and nodes.is_numeric(name):
            described.append(FeatureColumn(name, "numeric"))
            blocks.append(nodes.numbers(name))
        else:
            codes, categories = nodes.categories(name, declared.get(name), limit)
            described.append(FeatureColumn(name, "categorical", len(categories), categories, name in declared))
            blocks.append(codes)
    width = sum(column.width for column in described)
    one_hot = sum(column.width for column in described if column.kind == "categorical")
    fill = _sparse if one_hot * n * 4 > _DENSE_LIMIT else _dense
    return fill(n, width, described, blocks), tuple(described)


def _dense(n: int, width: int, described: list[FeatureColumn], blocks: list[np.ndarray]) -> np.ndarray:
    x = np.zeros((n, width), dtype=np.float32)
    at = 0
    for column, block in zip(described, blocks, strict=True):
        if column.kind == "numeric":
            x[:, at] = block
        else:
            x[np.arange(n), at + block] = 1
        at += column.width
    return x


def _sparse(n: int, width: int, described: list[FeatureColumn], blocks: list[np.ndarray]) -> sp.csr_array:
    # Every column of the table gives exactly one entry per row.
    data = np.ones((n, len(blocks)), dtype=np.float32)
    at = np.empty((n, len(blocks)), dtype=np.int64)
    start = 0
    for j, (column, block) in enumerate(zip(described, blocks, strict=True)):
        if column.kind == "numeric":
            data[:, j], at[:, j] = block, start
        else:
            at[:, j] = start + block
        start += column.width
    indptr = np.arange(n + 1) * len(blocks)
    return sp.csr_array((data.ravel(), at.ravel(), indptr), shape=(n, width))


def write_tables(graph: Graph, folder: Path, ending: str) -> None:
    """Nodes, edges and declarations. Features come back dense; an undirected edge is listed once."""
    x = graph.features.numpy() if isinstance(graph.features, torch.Tensor) else graph.features.toarray()
    ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    ids = ids if ids.dtype.kind in "iuU" else ids.astype(str)
    classes: list[Any] = list(graph.class_names) if graph.class_names else list(range(graph.num_classes))
    columns: dict[str, Any] = {"id": pa.array(ids)}
    if classes:
        kind = pa.string() if graph.class_names else pa.int64()
        columns["label"] = pa.array([classes[y] if y >= 0 else None for y in graph.labels.tolist()], kind)
    if graph.has_split:
        columns["split"] = pa.array(split_names(graph), pa.string())
    columns |= {f"x{j}": pa.array(np.ascontiguousarray(x[:, j])) for j in range(x.shape[1])}
    coo = graph.reads("out").tocoo()
    source, target = coo.coords
    once = slice(None) if graph.directed else source < target
    edges = {"source": pa.array(ids[source[once]]), "target": pa.array(ids[target[once]])}
    for stem, content in (("nodes", columns), ("edges", edges)):
        path = folder / f"{stem}.{ending}"
        write = pyarrow.csv.write_csv if ending == "csv" else pyarrow.parquet.write_table
        write(pa.table(content), path)
    declared = {"name": graph.name, "directed": graph.directed, **({"classes": classes} if classes else {})}
    if graph.undeclared != Undeclared():
        declared["found"] = graph.undeclared.to_dict()
    (folder / "graph.json").write_text(json.dumps(declared, indent=2) + "\n", encoding="utf-8")
