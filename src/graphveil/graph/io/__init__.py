"""Graphs in files: `read_graph` and `write_graph` choose the format by the path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphveil.errors import InvalidInput
from graphveil.graph.adjacency import Repairs
from graphveil.graph.convert import read_pt
from graphveil.graph.graph import Graph
from graphveil.graph.io.npz import read_npz, write_npz
from graphveil.graph.report import FileContent, ReadReport
from graphveil.graph.validation import category_lists, class_list
from graphveil.storage.decoding import decoding, inside
from graphveil.storage.files import written_beside

_NO_EDGES = np.empty((2, 0), np.int32)
_PYG_FILES = (".pt", ".pth")


@dataclass(frozen=True)
class TableColumns:
    """Which columns mean what; the arguments of `read_graph` that are about tables."""

    id_column: str = "id"
    source_column: str = "source"
    target_column: str = "target"
    label_column: str | None = None
    split_column: str | None = None
    feature_columns: tuple[str, ...] | None = None
    classes: tuple[Any, ...] | None = None
    categories: Mapping[str, tuple[str, ...]] | None = None
    max_categories: int = 1000


def is_path(word: str, folder: Path = Path()) -> bool:
    """Whether a word that could be a dataset's name means a file or folder, seen from `folder`, there or not.

    Example:
        >>> is_path("mine.npz"), is_path("graphs/mine"), is_path("csbm:0.5")
        (True, True, False)
    """
    return (folder / word).exists() or os.sep in word or Path(word).suffix in (".npz", *_PYG_FILES)


def read_graph(
    path: str | Path,
    *,
    directed: bool | None = None,
    seed: int | None = 0,
    split: int = 0,
    name: str | None = None,
    id_column: str = "id",
    source_column: str = "source",
    target_column: str = "target",
    label_column: str | None = None,
    split_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    max_categories: int = 1000,
    drop_self_loops: bool = False,
    drop_duplicates: bool = False,
    symmetrize: bool = False,
    mmap: str | Path | None = None,
) -> Graph:
    """Read a graph from an `.npz` file, a PyG `.pt` file, or a folder with tables of nodes and edges.

    The formats are described in `graphveil.graph.io.npz`, `graphveil.graph.io.tables` and
    `graphveil.graph.convert.read_pt`. No file can run code. `graph.counts` says what was read, and which facts are from
    then on treated as public.

    Args:
        path: the file or folder.
        directed: the declaration that the privacy guarantee rests on. None: what the file declares, else undirected.
        seed: draws a 75/10/15 split when the file has none; None leaves such a graph without a split.
        split: which column of masks with several splits is used.
        name: the name of the graph; by default the file's.
        id_column, source_column, target_column, label_column, split_column: columns of the tables. Label and split
            are optional; left at None they are "label" and "split" if there are such columns.
        feature_columns: the columns of the tables that are features; by default all others.
        classes: all classes in order, declared instead of read from the label column.
        categories: all categories of a column in order, by its name, likewise. Such a column is text, whatever it
            looks like; a value that is not listed is an error.
        max_categories: a text column with more distinct values that are not declared is an error.
        drop_self_loops, drop_duplicates, symmetrize: repairs, on request only. In tables declared undirected, an edge
            listed once is always stored in both directions.
        mmap: for tables of more edges than should be in memory: a folder on a disk with room for 32 bytes per edge.
            Edges are read in parts, and the adjacency is mapped to nameless files there, which go when the graph goes
            (docs/scale.md). The graph, and every error, is the same.

    Returns:
        The checked graph.

    Raises:
        InvalidInput: a file cannot be read or is not a graph; the message names the file, the line and the value.

    Example:
        >>> import tempfile, graphveil.graph as gg
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gg.write_graph(gg.csbm(n=100, f=5), f"{folder}/mine.npz")
        ...     gg.read_graph(f"{folder}/mine.npz").num_nodes
        100
    """
    path = Path(path)
    columns = TableColumns(
        id_column=id_column,
        source_column=source_column,
        target_column=target_column,
        label_column=label_column,
        split_column=split_column,
        feature_columns=None if feature_columns is None else tuple(feature_columns),
        classes=None if classes is None else class_list(classes),
        categories=None if categories is None else category_lists(dict(categories)),
        max_categories=max_categories,
    )
    repairs = Repairs(drop_self_loops, drop_duplicates, symmetrize)
    with decoding(path, "a graph"):
        if path.is_dir():
            content = _read_folder(path, columns, repairs, directed, mmap)
        else:
            content = _read_file(path, columns, split, mmap)
    directed = _declared(directed, content, path)
    if path.is_dir() and not directed:
        repairs = replace(repairs, symmetrize=True)
    fields = {"edge_index": _NO_EDGES, **content.fields}
    fields |= {"name": name or content.fields.get("name") or path.stem, "directed": directed}
    with decoding(path, "a graph"), inside(path):
        graph = Graph.from_edge_index(**fields, **asdict(repairs))
    if content.rows is not None:
        graph = graph._with_canonical_rows(*content.rows)
    origin = content.split or "none"
    if not graph.has_split and seed is not None and bool((graph.labels >= 0).any()):
        graph, origin = graph.with_split(seed), f"random, seed {seed}"
    return graph.with_counts(_report(graph, content, path, origin))


def write_graph(
    graph: Graph, path: str | Path, *, ending: str = "parquet", compress: bool = False, overwrite: bool = False
) -> None:
    """Write a graph so that `read_graph` gives it back.

    Args:
        graph: The graph.
        path: A file that ends in `.npz`, or a folder (no ending) for tables of nodes and edges and a `graph.json`.
        ending: The format of the tables: parquet or csv.
        compress: Compress the `.npz` file.
        overwrite: Replace what is there already, once the new content is complete.

    Raises:
        InvalidInput: The path has another ending, exists already, or its folder does not.

    The files hold the private graph as it is.
    """
    from graphveil.graph.io.columns import FORMATS
    from graphveil.graph.io.tables import write_tables

    path = Path(path)
    if path.suffix not in (".npz", ""):
        raise InvalidInput("path", str(path), "must end in .npz, or have no ending (a folder of tables)")
    if ending not in FORMATS:
        raise InvalidInput("ending", ending, f"must be one of {', '.join(FORMATS)}")
    if path.exists() and not overwrite:
        raise InvalidInput("path", str(path), "exists; overwrite=True replaces it")
    if not path.parent.is_dir():
        raise InvalidInput("path", str(path), f"the folder {path.parent} does not exist")
    with written_beside(path, overwrite=overwrite) as fresh:
        if path.suffix == ".npz":
            write_npz(graph, fresh, compress=compress)
        else:
            fresh.mkdir()
            write_tables(graph, fresh, ending)


def _read_folder(
    path: Path, columns: TableColumns, repairs: Repairs, directed: bool | None, mmap: str | Path | None
) -> FileContent:
    from graphveil.graph.io.mapped import check_folder
    from graphveil.graph.io.tables import read_tables

    if mmap is None:
        return read_tables(path, columns, repairs)
    check_folder(Path(mmap))
    return read_tables(path, columns, repairs, directed=directed, mmap=Path(mmap))


def _read_file(path: Path, columns: TableColumns, split: int, mmap: str | Path | None) -> FileContent:
    if not path.is_file():
        raise InvalidInput("path", str(path), "there is no such file or folder")
    if mmap is not None:
        raise InvalidInput("mmap", str(mmap), f"belongs to folders of tables, and {path.name} is none")
    if columns != TableColumns():
        raise InvalidInput(
            "path", str(path), "is no folder of tables, so arguments about columns and classes do not apply"
        )
    if path.suffix == ".npz":
        return read_npz(path, split)
    if path.suffix in _PYG_FILES:
        return read_pt(path, split)
    raise InvalidInput("path", str(path), "must be an .npz file, a PyG .pt file, or a folder of tables")


def _declared(directed: bool | None, content: FileContent, path: Path) -> bool:
    in_file = content.declared_directed
    if directed is not None and in_file is not None and directed != in_file:
        raise InvalidInput("directed", directed, f"{path.name} declares directed = {in_file}")
    return bool(directed if directed is not None else in_file)


def _report(graph: Graph, content: FileContent, path: Path, split: str) -> ReadReport:
    public = list(content.public)
    if not path.is_dir():
        public.append("the number of nodes and features, and which node is in which set")
    return ReadReport(
        source=path.name,
        nodes=graph.num_nodes,
        edges_listed=content.edges_listed,
        edges_stored=graph.num_edges,
        directed=graph.directed,
        columns=content.columns,
        features=graph.num_features,
        classes=graph.num_classes,
        labelled=int((graph.labels >= 0).sum()),
        train=int(graph.train_mask.sum()),
        val=int(graph.val_mask.sum()),
        test=int(graph.test_mask.sum()),
        split=split,
        public=tuple(public),
        undeclared=graph.undeclared.facts(),
        unused=content.unused,
    )
