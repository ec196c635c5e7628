"""Graphs in files: `read_graph` and `write_graph` choose the format by the path."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.graph.adjacency import Repairs
from graphveil.graph.convert import read_pt
from graphveil.graph.graph import Graph
from graphveil.graph.io.declared import DECLARATIONS, TableOptions
from graphveil.graph.io.npz import read_npz, write_npz
from graphveil.graph.links import in_words
from graphveil.graph.summary import FileContent, ReadReport
from graphveil.storage import written_beside
from graphveil.validate import decoding, inside

_NO_EDGES = np.empty((2, 0), np.int32)
_PYG_FILES = (".pt", ".pth")
_TABLES = (".csv", ".parquet")


def is_path(word: str, folder: Path = Path()) -> bool:
    """Whether a word that could be a dataset's name means a file or folder, seen from `folder`, there or not.

    Example:
        >>> is_path("mine.npz"), is_path("graphs/mine"), is_path("csbm:0.5")
        (True, True, False)
    """
    return (folder / word).exists() or os.sep in word or Path(word).suffix in (".npz", *_PYG_FILES, *_TABLES)


def read_graph(
    path: str | Path,
    *,
    directed: bool | None = None,
    seed: int | None = 0,
    split: int = 0,
    name: str | None = None,
    symmetrize: bool = False,
    mmap: str | Path | None = None,
    **tables: Any,
) -> Graph:
    """Read a graph from an `.npz` file, a PyG `.pt` file, or tables of nodes and edges.

    The formats are described in docs/data.md, `graphveil.graph.io.npz`, `graphveil.graph.io.tables` and
    `graphveil.graph.convert.read_pt`. No file can run code. `graph.counts` says what was read, what became of each
    column, and which facts are from then on treated as public.

    Args:
        path: The file or folder; a `graph.json` stands for its folder. A `.csv` or `.parquet` file is a table of nodes;
            its edges are `edge_table`, or `edges.csv` or `edges.parquet` beside it.
        directed: The declaration that the privacy guarantee rests on. None: what the file declares, else undirected.
        seed: Draws a 75/10/15 split when the file has none; None leaves such a graph without a split.
        split: Which column of masks with several splits is used.
        name: The name of the graph; by default the file's.
        symmetrize: Add the reverse of every edge. In tables declared undirected, an edge listed once is always stored
            in both directions.
        mmap: For tables of more edges than should be in memory: a folder on a disk with room for 32 bytes per edge.
            Edges are read in parts, and the adjacency is mapped to nameless files there, which go when the graph goes
            (docs/scale.md). The graph, and every error, is the same.
        tables: For folders of tables, what `TableOptions` lists: `node_table`, `edge_table`, `id_column`,
            `label_column`, `split_column`, `source_column`, `target_column`, `feature_columns`, `drop_columns`,
            `classes`, `categories`, `ranges`, `missing`, `scaling`, `max_categories`, `drop_self_loops`,
            `merge_duplicates`, `weight_column`, `max_weight`, `relation_column`, `relations`, `time_column`,
            `train_before`, `test_after`. The same keys may stand in the folder's `graph.json`; what is given here goes
            before it. `drop_self_loops`, `merge_duplicates`, `max_weight` and `relations` are understood for files too.

    Returns:
        The checked graph.

    Raises:
        InvalidInput: A file cannot be read or is not a graph; the message names the file, the line and the value.

    Example:
        >>> import tempfile, graphveil.graph as gg
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gg.write_graph(gg.csbm(n=100, f=5), f"{folder}/mine.npz")
        ...     gg.read_graph(f"{folder}/mine.npz").num_nodes
        100
    """
    validate.flag("symmetrize", symmetrize)
    if directed is not None:
        validate.flag("directed", directed)
    path = Path(path)
    path = path.parent if path.name == DECLARATIONS else path
    given = path
    if path.suffix in _TABLES and path.is_file():
        path, tables = _folder_of(path, tables)
    options = table_options(tables)
    with decoding(path, "a graph"):
        if path.is_dir():
            content = _read_folder(path, options, symmetrize, directed, mmap)
        else:
            content = _read_file(path, options, split, mmap)
    directed = _declared(directed, content, path)
    repairs = Repairs(content.drop_self_loops, content.merge_duplicates, symmetrize or (path.is_dir() and not directed))
    fields = {"edge_index": _NO_EDGES, **content.fields}
    fields |= {"name": name or content.fields.get("name") or given.resolve().stem, "directed": directed}
    with decoding(path, "a graph"), inside(path):
        graph = _graph_of(content, fields, repairs)
    public = () if path.is_dir() else ("the number of nodes and features, and which node is in which set",)
    return finished(graph, replace(content, public=(*content.public, *public)), given.name, seed)


def graph_of_tables(
    nodes: Any, edges: Any, options: Mapping[str, Any], *, directed: bool, seed: int | None, name: str
) -> Graph:
    """What `Graph.from_tables` returns."""
    from graphveil.graph.io.sources import arrow_table
    from graphveil.graph.io.tables import content_of_tables

    validate.flag("directed", directed)
    said = table_options(options)
    content = content_of_tables(arrow_table("nodes", nodes), arrow_table("edges", edges), said, directed=directed)
    repairs = Repairs(content.drop_self_loops, content.merge_duplicates, symmetrize=not directed)
    fields = {"edge_index": _NO_EDGES, **content.fields, "name": name, "directed": directed}
    graph = _graph_of(content, fields, repairs)
    return finished(graph, content, name, seed)


def _graph_of(content: FileContent, fields: dict[str, Any], repairs: Repairs) -> Graph:
    """The graph of these fields, or of them and of rows that are finished."""
    graph = Graph.from_edge_index(**fields, **asdict(repairs))
    return graph if content.rows is None else graph._with_canonical_rows(*content.rows)


def table_options(given: Mapping[str, Any]) -> TableOptions:
    """The arguments of `read_graph` that are about tables, checked."""
    known = [field.name for field in dataclasses.fields(TableOptions)]
    for key in given:
        if key not in known:
            raise TypeError(f"unknown argument {key!r}; what can be said about tables: {', '.join(known)}")
    return TableOptions.of(given)


def finished(graph: Graph, content: FileContent, source: str, seed: int | None) -> Graph:
    """A graph that was read, with a split and with the report of how it was read."""
    origin = content.split or "none"
    if not graph.has_split and seed is not None and int(graph.labels.max()) >= 0:
        graph, origin = graph.with_split(seed), f"random, seed {seed}"
    return graph.with_counts(_report(graph, content, source, origin))


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
    from graphveil.graph.io.sources import FORMATS
    from graphveil.graph.io.tables import write_tables

    validate.flag("compress", compress)
    validate.flag("overwrite", overwrite)
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


def _folder_of(path: Path, tables: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The folder of a table of nodes, and the options about tables with its name."""
    other = tables.get("node_table")
    if other is not None:
        raise InvalidInput("node_table", other, f"the table of nodes is {path.name} already; name one of them")
    return path.parent, {**tables, "node_table": path.name}


def _read_folder(
    path: Path, options: TableOptions, symmetrize: bool, directed: bool | None, mmap: str | Path | None
) -> FileContent:
    from graphveil.graph.io.edges import check_folder
    from graphveil.graph.io.tables import read_tables

    if mmap is not None:
        check_folder(Path(mmap))
        mmap = Path(mmap)
    return read_tables(path, options, symmetrize=symmetrize, directed=directed, mmap=mmap)


def _read_file(path: Path, options: TableOptions, split: int, mmap: str | Path | None) -> FileContent:
    if not path.is_file():
        raise InvalidInput("path", str(path), "there is no such file or folder")
    if mmap is not None:
        raise InvalidInput("mmap", str(mmap), f"belongs to folders of tables, and {path.name} is none")
    of_files = dict.fromkeys(("drop_self_loops", "merge_duplicates", "max_weight", "relations"))
    if replace(options, **of_files) != TableOptions():
        raise InvalidInput(
            "path", str(path), "is no folder of tables, so arguments about columns and classes do not apply"
        )
    if path.suffix not in (".npz", *_PYG_FILES):
        raise InvalidInput("path", str(path), "must be an .npz file, a PyG .pt file, or a folder of tables")
    read = read_npz if path.suffix == ".npz" else read_pt
    content = read(path, split, options.max_weight, options.relations)
    loops, duplicates = bool(options.drop_self_loops), bool(options.merge_duplicates)
    return replace(content, drop_self_loops=loops, merge_duplicates=duplicates)


def _declared(directed: bool | None, content: FileContent, path: Path) -> bool:
    in_file = content.declared_directed
    if directed is not None and in_file is not None and directed != in_file:
        raise InvalidInput("directed", directed, f"{path.name} declares directed = {in_file}")
    return bool(directed if directed is not None else in_file)


def _report(graph: Graph, content: FileContent, source: str, split: str) -> ReadReport:
    return ReadReport(
        source=source,
        nodes=graph.num_nodes,
        edges_listed=content.edges_listed,
        edges_stored=graph.num_edges,
        directed=graph.directed,
        columns=content.columns,
        features=graph.num_features,
        classes=graph.num_classes,
        labelled=int(np.count_nonzero(graph.labels.numpy() >= 0)),
        train=int(np.count_nonzero(graph.train_mask.numpy())),
        val=int(np.count_nonzero(graph.val_mask.numpy())),
        test=int(np.count_nonzero(graph.test_mask.numpy())),
        split=split,
        public=content.public,
        undeclared=graph.undeclared.facts(),
        unused=content.unused,
        links=in_words(graph, merged=content.merge_duplicates),
        labels_as=content.labels_as,
    )
