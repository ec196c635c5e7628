"""Graphs in a folder of tables: `nodes.parquet` or `nodes.csv`, and `edges.parquet` or `edges.csv`.

Nodes: an id column (integers or strings), optionally a label column (any type; empty means "no label") and a split
column ("train", "val", "test", or empty), and feature columns of numbers, text, true and false, or times. What becomes
of them: `graphveil.graph.io.features`. In a CSV file a column is numeric if at least half of its cells are numbers; any
other cell is then an error, unless it is empty or a word like "NA". Edges: a source and a target column. Blanks around
an id do not belong to it.

An undirected edge may be listed once or in both directions; it is stored in both. The same ordered pair twice is a
duplicate. Rows are counted from 1, without the header. A file `graph.json` beside the tables may declare "directed",
"name" and everything in `graphveil.graph.io.declared.TableOptions`. Classes and categories that are not declared are
read from the data, and their number is then a public fact. `write_graph` adds the key "found" where it lists class
names that nobody declared (`Undeclared`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import torch

from graphveil.errors import InvalidInput
from graphveil.graph.adjacency import Repairs, rows_of_pairs
from graphveil.graph.graph import Graph
from graphveil.graph.io.columns import DUPLICATE, SELF_LOOP, Table
from graphveil.graph.io.declared import DECLARATIONS, Declared, TableOptions
from graphveil.graph.io.edges import EdgeStream, mapped_rows, plain_edges, relations_of
from graphveil.graph.io.features import encoded, feature_columns, times
from graphveil.graph.io.ids import NodeIds, texts_in_numpy
from graphveil.graph.io.sources import find_table, with_times
from graphveil.graph.links import edge_list
from graphveil.graph.splits import split_names, time_split
from graphveil.graph.summary import FeatureColumn, FileContent, Undeclared, scaled_by_fit
from graphveil.graph.validation import INTEGER

_WHOLE = "numbers such as 1.0 are read as the integers that they are"


def read_tables(
    folder: Path,
    options: TableOptions,
    *,
    symmetrize: bool = False,
    directed: bool | None = None,
    mmap: Path | None = None,
) -> FileContent:
    """Read a folder of tables.

    Args:
        folder: The folder.
        options: Which columns mean what, where the folder's `graph.json` does not say it or says something else.
        symmetrize: Add the reverse of every edge.
        directed: The declaration of direction.
        mmap: A folder for files; edges are then read in parts and become `FileContent.rows`.

    Returns:
        The fields of the graph.

    Raises:
        InvalidInput: A table cannot be read; the message names the file, the row and the column.
    """
    declared = Declared.of(folder, options)
    options = declared.options
    path = find_table(folder, "nodes", options.node_table)
    nodes = Table(path, [options.id_column or ""], text=options.text_columns)
    symmetrize = symmetrize or not bool(declared.directed if directed is None else directed)
    ids, edges = _read_edges(find_table(folder, "edges", options.edge_table), nodes, options, symmetrize, mmap)
    return _content(nodes, ids, edges, declared)


def content_of_tables(nodes: pa.Table, edges: pa.Table, options: TableOptions, *, directed: bool) -> FileContent:
    """What `read_tables` returns, of tables in memory."""
    declared = Declared(options.resolved())
    options = declared.options
    label, split = options.label_column or "label", options.split_column or "split"
    named = (options.id_column, label, split, *(options.categories or ()))
    table = Table.part(Path("nodes"), with_times(nodes, named), 0)
    table.check_columns([options.id_column or ""])
    links = Table.part(Path("edges"), edges, 0)
    links.check_columns(_ends(options))
    ids = _NodeIdsOnce(table, options)
    content = _edges_in_memory(links, ids, options, symmetrize=not directed)
    return _content(table, ids(), content, declared)


@dataclass(frozen=True)
class NodeColumns:
    """What becomes of the columns of a table of nodes.

    Args:
        label, split: Columns; None if there is none.
        classes: All classes in order; None if there is no label.
        labels_as: How labels are read, if they are not taken as they stand.
        features: The feature columns.
        undeclared: What was read from the data.
        unused: Columns that are not read.
    """

    label: str | None
    split: str | None
    classes: tuple[Any, ...] | None
    labels_as: str | None
    features: tuple[FeatureColumn, ...]
    undeclared: Undeclared
    unused: tuple[str, ...]

    @classmethod
    def of(cls, nodes: Table, declared: Declared) -> Self:
        """By the names and types of columns, by what is declared, and by the values of labels and of text."""
        options = declared.options
        label = _present(nodes, options.label_column, "label")
        split = None if options.time_column else _present(nodes, options.split_column, "split")
        classes, undeclared = _classes(nodes, label, declared)
        others = (options.id_column, label, split, options.time_column)
        columns = feature_columns(nodes, options, others)
        counted = [(c.name, c.width) for c in columns if c.kind == "categorical" and not c.declared]
        known = dict(undeclared.categories)
        undeclared = replace(
            undeclared,
            categories=(*((n, w) for n, w in known.items() if n not in dict(counted)), *counted),
            times=options.time_column or undeclared.times,
        )
        used = {*others, *(column.name for column in columns)}
        whole = label is not None and nodes.whole_floats(label, classes or ())
        unused = _not_read(nodes.path, nodes.table.column_names, used)
        return cls(label, split, classes, _WHOLE if whole else None, columns, undeclared, unused)

    @property
    def class_names(self) -> list[Any] | None:
        """The classes, unless they are the numbers from 0 on."""
        classes = list(self.classes or ())
        return None if all(type(name) is int and name == i for i, name in enumerate(classes)) else classes

    def sets(self, options: TableOptions) -> str | None:
        """Where the masks come from; None: from nowhere."""
        if self.split is not None:
            return f"column {self.split!r}"
        return None if options.time_column is None else f"times in column {options.time_column!r}"

    def public(self, options: TableOptions) -> tuple[str, ...]:
        """Facts that are treated as public from now on."""
        sets = self.sets(options)
        of_sets = () if sets is None else (f"which node is in which set ({sets})",)
        return ("the number of nodes and their ids", *of_sets)

    def rows(self, nodes: Table, options: TableOptions, *, whole: bool = True) -> dict[str, Any]:
        """Labels, masks and features of the rows, or of some of them: fields of the graph."""
        y = None if self.label is None else nodes.labels(self.label, self.classes, 0)[0]
        masks: dict[str, np.ndarray] = {}
        if self.split is not None:
            masks = nodes.masks(self.split, y)
        elif options.time_column is not None and options.train_before is not None:
            masks = time_split(times(nodes, options), y, options.train_before, options.test_after, whole=whole)
        return {**({} if y is None else {"y": y}), **masks, "x": encoded(nodes, self.features)}


def _content(nodes: Table, ids: NodeIds, edges: FileContent, declared: Declared) -> FileContent:
    """The fields of the graph of these nodes and edges."""
    options = declared.options
    columns = NodeColumns.of(nodes, declared)
    classes = {} if columns.classes is None else {"num_classes": len(columns.classes)}
    return replace(
        edges,
        fields={
            **edges.fields,
            **columns.rows(nodes, options),
            **classes,
            "class_names": columns.class_names,
            "num_nodes": len(ids),
            "node_ids": _named(ids.ids),
            "undeclared": columns.undeclared,
            "numeric_columns": scaled_by_fit(columns.features),
            **({} if declared.name is None else {"name": declared.name}),
        },
        columns=columns.features,
        split=columns.sets(options),
        labels_as=columns.labels_as,
        declared_directed=declared.directed,
        drop_self_loops=bool(options.drop_self_loops),
        merge_duplicates=bool(options.merge_duplicates),
        public=columns.public(options),
        unused=(*columns.unused, *edges.unused),
    )


def _ends(options: TableOptions) -> tuple[str, str]:
    return options.source_column or "", options.target_column or ""


def _read_edges(
    path: Path, nodes: Table, options: TableOptions, symmetrize: bool, mmap: Path | None
) -> tuple[NodeIds, FileContent]:
    """The ids of the nodes, and the edges among them: in the fields, or, with `mmap`, as rows in files."""
    ends, ids = _ends(options), _NodeIdsOnce(nodes, options)
    if mmap is None:
        if path.suffix == ".csv" and ends[0] != ends[1]:
            with suppress(InvalidInput):  # whose message shows the cell as it is in the file, so that has to be read
                plain = _plain_edges(path, ids, options, symmetrize)
                if plain is not None:
                    return ids(), plain
        text = () if options.relation_column is None else (options.relation_column,)
        edges = Table(path, ends, text, in_chunks=True)
        return ids(), _edges_in_memory(edges, ids, options, symmetrize)
    if options.max_weight is not None or options.relation_column is not None:
        raise InvalidInput("mmap", str(mmap), "weights and relations are read in memory; leave this out")
    stream = EdgeStream(path, ends)
    options.check_columns(nodes.table.column_names, stream.column_names)
    rows, listed = mapped_rows(stream, ids(), _repairs(options, symmetrize), mmap)
    return ids(), FileContent({}, listed, rows=rows, unused=_not_read(path, stream.column_names, ends))


class _NodeIdsOnce:
    """The ids of a table of nodes, read and checked when they are first asked for: other errors may come before."""

    def __init__(self, nodes: Table, options: TableOptions) -> None:
        self.nodes, self._column = nodes, options.id_column or ""
        self._known: NodeIds | None = None

    def __call__(self) -> NodeIds:
        if self._known is None:
            self._known = _node_ids(self.nodes, self._column)
        return self._known


def _plain_edges(path: Path, ids: _NodeIdsOnce, options: TableOptions, symmetrize: bool) -> FileContent | None:
    """The edges of a CSV file that has nothing but plain ids of nodes; None: it has more."""
    said = (options.weight_column, options.max_weight, options.relation_column, options.relations)
    if any(value is not None for value in said):
        return None
    options.check_columns(ids.nodes.table.column_names, _ends(options))
    pairs = plain_edges(path, _ends(options), ids())
    rows = None if pairs is None else rows_of_pairs(*pairs, len(ids()), _repairs(options, symmetrize))
    return None if pairs is None or rows is None else FileContent({}, len(pairs[0]), rows=rows)


def _edges_in_memory(edges: Table, known: _NodeIdsOnce, options: TableOptions, symmetrize: bool) -> FileContent:
    """The edges: as finished rows where they have neither weights nor relations."""
    ends, repairs = _ends(options), _repairs(options, symmetrize)
    options.check_columns(known.nodes.table.column_names, edges.table.column_names)
    ids = known()
    source, target = (edges.looked_up(column, ids) for column in ends)
    said = _links(edges, options)
    used = (*ends, options.weight_column, options.relation_column)
    unused = _not_read(edges.path, edges.table.column_names, used)
    plain = all(value is None for value in said.values())
    rows = rows_of_pairs(source, target, len(ids), repairs) if plain else None
    if rows is not None:
        return FileContent({}, len(edges), unused=unused, rows=rows)
    edge_index = np.stack([source, target])
    _check_edges(edges, edge_index, ends[0], len(ids), said.get("edge_relation"), repairs)
    return FileContent({"edge_index": edge_index, **said}, len(edges), unused=unused)


def _links(edges: Table, options: TableOptions) -> dict[str, Any]:
    """Weights and relations of the edges, as arguments of `Graph.from_edge_index`."""
    said: dict[str, Any] = {"max_weight": options.max_weight, "relations": options.relations}
    if options.weight_column is not None:
        edges.require(options.weight_column)
        weights = edges.numbers(options.weight_column)
        for wrong, why in ((np.isnan(weights), "a weight is missing"), (weights < 0, "a weight must be 0 or more")):
            if wrong.any():
                raise edges.cell_error(options.weight_column, int(np.argmax(wrong)), why)
        said["edge_weight"] = weights
    if options.relation_column is not None:
        said["edge_relation"] = relations_of(edges, options.relation_column, options.relations)
    return said


def _repairs(options: TableOptions, symmetrize: bool = False) -> Repairs:
    return Repairs(bool(options.drop_self_loops), bool(options.merge_duplicates), symmetrize)


def _not_read(path: Path, names: Sequence[str], used: Collection[str | None]) -> tuple[str, ...]:
    return tuple(f"{path.name}: column {name!r}" for name in names if name not in used)


def _node_ids(nodes: Table, column: str) -> NodeIds:
    ids = nodes.ids(column, numbers=True)
    if len(ids) == 0:
        raise nodes.error("rows", 0, "a graph needs at least one node")
    known = NodeIds(ids)
    again = known.first_again()
    if again is not None:
        row, earlier = again
        raise nodes.cell_error(column, row, f"this id was already given to row {earlier + 1}")
    return known


def _check_edges(
    edges: Table, edge_index: np.ndarray, column: str, n: int, relation: np.ndarray | None, repairs: Repairs
) -> None:
    loops = edge_index[0] == edge_index[1]
    if loops.any() and not repairs.drop_self_loops:
        raise edges.cell_error(column, int(np.argmax(loops)), SELF_LOOP)
    if not repairs.merge_duplicates:
        key = edge_index[0].astype(np.int64) * n + edge_index[1]
        if relation is not None:
            key = key * (int(relation.max(initial=0)) + 1) + relation
        _check_duplicates(edges, np.where(loops, -1 - np.arange(len(key)), key), column)


def _check_duplicates(edges: Table, key: np.ndarray, column: str) -> None:
    order = np.argsort(key, kind="stable")
    again = key[order[1:]] == key[order[:-1]]
    if again.any():
        at = int(np.argmin(np.where(again, order[1:], len(key))))
        earlier, row = int(order[at]), int(order[at + 1])
        raise edges.cell_error(column, row, DUPLICATE.format(earlier=earlier + 1))


def _named(ids: pa.Array) -> np.ndarray | None:
    """Ids for the graph: integers where they are (or are spelled as) integers, None if they just count the rows."""
    if not pa.types.is_integer(ids.type):
        spelled = f"^({INTEGER})$"
        if not all(pc.all(pc.match_substring_regex(some, spelled)).as_py() for some in (ids[:1], ids)):
            return texts_in_numpy(ids)
        ids = ids.cast(pa.int64())
    numbers = ids.to_numpy(zero_copy_only=False)
    return None if np.array_equal(numbers, np.arange(len(numbers))) else numbers


def _present(nodes: Table, declared: str | None, usual: str) -> str | None:
    if declared is not None:
        nodes.require(declared)
        return declared
    return usual if usual in nodes.table.column_names else None


def _classes(nodes: Table, label: str | None, declared: Declared) -> tuple[tuple[Any, ...] | None, Undeclared]:
    """All classes in order, and whether their number was read from the column."""
    undeclared, known = declared.found, declared.options.classes
    if label is None:
        return None, undeclared
    classes = nodes.labels(label, known, declared.options.max_categories or 0)[1]
    if len(classes) < 2:
        why = "needs at least two classes; name another label_column (--label-column), or declare all classes"
        raise nodes.error(f"column {label!r}", classes, why)
    if known is None:
        undeclared = replace(undeclared, classes=len(classes))
    return tuple(classes), undeclared


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
    columns |= {f"x{j}": np.ascontiguousarray(x[:, j]) for j in range(x.shape[1])}
    links = edge_list(graph)
    source, target = links["edge_index"]
    once = slice(None) if graph.directed else source < target
    edges = {"source": pa.array(ids[source[once]]), "target": pa.array(ids[target[once]])}
    if "edge_weight" in links:
        edges["weight"] = pa.array(links["edge_weight"][once])
    if "edge_relation" in links:
        edges["relation"] = pa.array(np.array(links["relations"])[links["edge_relation"][once]])
    for stem, content in (("nodes", columns), ("edges", edges)):
        path = folder / f"{stem}.{ending}"
        write = pyarrow.csv.write_csv if ending == "csv" else pyarrow.parquet.write_table
        write(pa.table(content), path)
    declared = {"name": graph.name, "directed": graph.directed, "scaling": "none"}
    if "edge_weight" in links:
        declared |= {"weight_column": "weight", "max_weight": graph.max_weight}
    if "edge_relation" in links:
        declared |= {"relation_column": "relation", "relations": list(links["relations"])}
    if classes:
        declared["classes"] = classes
    if graph.undeclared != Undeclared():
        declared["found"] = graph.undeclared.to_dict()
    (folder / DECLARATIONS).write_text(json.dumps(declared, indent=2) + "\n", encoding="utf-8")
