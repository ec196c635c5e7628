"""A folder with tables of nodes and edges."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphveil.graph.io.features as features_module
import graphveil.graph.io.sources as sources
from graphveil.errors import InvalidInput
from graphveil.graph import Graph, read_graph, write_graph
from graphveil.graph.io import edges
from graphveil.graph.io.columns import Table
from graphveil.graph.io.declared import TableOptions
from graphveil.graph.io.edges import plain_edges
from graphveil.graph.io.ids import NodeIds
from graphveil.graph.io.sources import read_whole

NODES = {
    "id": ["ann", "bob", "cyd", "dee"],
    "age": [31.5, 20.0, 44.0, 8.0],
    "member": [True, False, True, True],
    "town": ["Ulm", "Bonn", "Ulm", "Aachen"],
    "label": ["yes", "no", None, "no"],
    "split": ["train", "train", None, "test"],
}
EDGES = {"source": ["ann", "bob"], "target": ["bob", "cyd"]}


def folder(
    path: Path, nodes: dict[str, Any] | None = None, edges: dict[str, Any] | None = None, ending: str = "csv"
) -> Path:
    path.mkdir(exist_ok=True)
    for stem, content in (("nodes", nodes or NODES), ("edges", edges or EDGES)):
        write = pyarrow.csv.write_csv if ending == "csv" else pyarrow.parquet.write_table
        write(pa.table(content), path / f"{stem}.{ending}")
    return path


class Unlisted:
    """A table whose names are not listed."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        assert name != "column_names", "takes as long as there are columns"
        return getattr(self._table, name)


def test_reading_a_column_takes_no_longer_where_there_are_many() -> None:
    table = Table.part(Path("nodes.parquet"), Unlisted(pa.table(NODES)), 0)
    assert table.numbers("age").tolist() == NODES["age"]
    assert table.kind_of("town") == "categorical"
    assert table.codes("town", ["Aachen", "Bonn", "Ulm"]).tolist() == [2, 1, 2, 0]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_categories_labels_and_split(tmp_path: Path, ending: str) -> None:
    graph = read_graph(folder(tmp_path / "club", ending=ending), scaling="none")
    assert graph.features_torch().tolist() == [[31.5, 1, 0, 0, 1], [20, 0, 0, 1, 0], [44, 1, 0, 0, 1], [8, 1, 1, 0, 0]]
    assert graph.numeric_columns == ()
    assert graph.class_names == ("no", "yes")
    assert graph.labels.tolist() == [1, 0, -1, 0]
    assert graph.train_mask.tolist() == [True, True, False, False]
    assert graph.test_mask.tolist() == [False, False, False, True]
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == NODES["id"]
    assert graph.reads("out").toarray().tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert (graph.name, graph.directed) == ("club", False)


def test_the_report_counts_and_lists_what_became_public(tmp_path: Path) -> None:
    counts = read_graph(folder(tmp_path / "club")).counts
    assert counts is not None
    assert (counts.nodes, counts.edges_listed, counts.edges_stored, counts.labelled) == (4, 2, 4, 3)
    assert [(c.name, c.kind, c.width) for c in counts.columns] == [
        ("age", "numeric", 2),
        ("member", "boolean", 1),
        ("town", "categorical", 3),
    ]
    assert counts.columns[2].categories == ("Aachen", "Bonn", "Ulm")
    assert (counts.train, counts.val, counts.test, counts.split) == (2, 0, 1, "column 'split'")
    assert counts.undeclared == (
        "the number of classes (2) and their order",
        "the number of categories of column 'town' (3) and their order",
    )
    assert "6 from 3 columns" in str(counts)
    assert "age: number, scaled by statistics of the fit, missing: the centre and an indicator" in str(counts)
    assert "town: text, 3 categories" in str(counts)


def test_direction_is_declared(tmp_path: Path) -> None:
    path = folder(tmp_path / "club")
    assert read_graph(path, directed=True).num_edges == 2
    both = folder(tmp_path / "both", edges={"source": ["ann", "bob"], "target": ["bob", "ann"]})
    assert read_graph(both).num_edges == 2
    assert read_graph(both).counts.edges_listed == 2  # type: ignore[union-attr]
    (path / "graph.json").write_text(json.dumps({"directed": True}))
    assert read_graph(path).directed
    with pytest.raises(InvalidInput, match="declares directed = True"):
        read_graph(path, directed=False)


def test_columns_can_have_other_names(tmp_path: Path) -> None:
    nodes = {
        "who": [30, 10, 20],
        "kind": [2.5, 1.5, 2.5],
        "fold": ["train", "train", "test"],
        "a": [1, 2, 3],
        "note": [0, 0, 0],
    }
    path = folder(tmp_path / "g", nodes, {"from": [10], "to": [30]}, "parquet")
    graph = read_graph(
        path,
        id_column="who",
        source_column="from",
        target_column="to",
        label_column="kind",
        split_column="fold",
        feature_columns=["a"],
        directed=True,
        scaling="none",
    )
    assert graph.class_names == ("1.5", "2.5")
    assert graph.features_torch().tolist() == [[1], [2], [3]]
    assert graph.reads("out").toarray()[1].tolist() == [1, 0, 0]
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == [30, 10, 20]


def test_ids_of_different_types_meet(tmp_path: Path) -> None:
    """A CSV whose ids look like numbers in one file and not in the other; and integers against text."""
    nodes = {"id": ["1", "2", "x7"], "label": [0, 1, 1]}
    assert read_graph(folder(tmp_path / "csv", nodes, {"source": [1], "target": [2]})).num_edges == 2
    assert read_graph(folder(tmp_path / "pq", nodes, {"source": [1], "target": [2]}, "parquet")).num_edges == 2
    small = {"id": pa.array([5, 6], pa.int16()), "label": [0, 1]}
    edges = {"source": pa.array([6], pa.uint64()), "target": pa.array([5], pa.int8())}
    assert read_graph(folder(tmp_path / "ints", small, edges, "parquet")).num_edges == 2
    coded = {"id": pa.array(["u", "v"]).dictionary_encode(), "label": pa.array(["p", "q"]).dictionary_encode()}
    graph = read_graph(folder(tmp_path / "dict", coded, {"source": ["u"], "target": ["v"]}, "parquet"))
    assert graph.class_names == ("p", "q")


def test_leading_zeros_are_part_of_an_id(tmp_path: Path) -> None:
    graph = read_graph(
        folder(tmp_path / "g", {"id": ["007", "7"], "label": [0, 1]}, {"source": ["007"], "target": ["7"]})
    )
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["007", "7"]


NAMES = ["a", "b", "long-name"]
PLAIN = "source,target\n10,7\n1000000,10\n"


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        (PLAIN, True),
        (PLAIN.rstrip(), True),
        (PLAIN.replace(",", ";"), True),
        (PLAIN.replace("\n", "\r\n"), False),
        (PLAIN.replace("10,7", '"10",7'), False),
        (PLAIN.replace("10,7", " 10,7"), False),
        (PLAIN.replace("10,7", "10,7\n"), False),
        ("target,source\n7,10\n10,1000000\n", True),
        ("source,target,since\n10,7,2\n1000000,10,3\n", False),
    ],
)
def test_edges_of_plain_numbers_are_read_as_numbers(tmp_path: Path, text: str, is_plain: bool) -> None:
    path = folder(tmp_path / "g", {"id": [7, 10, 1000000], "label": [0, 1, 1]})
    (path / "edges.csv").write_bytes(text.encode())
    ends = plain_edges(path / "edges.csv", ("source", "target"), NodeIds(pa.array([7, 10, 1000000])))
    assert ends is None if not is_plain else [each.tolist() for each in ends] == [[1, 2], [0, 1]]
    graph = read_graph(path, directed=True)
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 0, 1, 2], [0, 1])


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("source,target\nb,a\nlong-name,b\n", True),
        ('"source","target"\n"b","a"\n"long-name","b"\n', True),
        ("target,source\na,b\nb,long-name\n", True),
        ("source;target\r\nb;a\r\nlong-name;b", True),
        ("source,target\nb, a\nlong-name,b\n", False),  # a blank
        ("source,target,year\nb,a,1\nlong-name,b,2\n", False),
    ],
)
def test_edges_of_plain_words_are_looked_up_while_they_are_read(tmp_path: Path, text: str, is_plain: bool) -> None:
    path = folder(tmp_path / "g", {"id": NAMES, "label": [0, 1, 1]})
    (path / "edges.csv").write_bytes(text.encode())
    ends = plain_edges(path / "edges.csv", ("source", "target"), NodeIds(pa.array(NAMES, pa.large_string())))
    assert ends is None if not is_plain else [each.tolist() for each in ends] == [[1, 2], [0, 1]]
    graph = read_graph(path, directed=True)
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 0, 1, 2], [0, 1])


@pytest.mark.parametrize("edges", ["b,c", "b,", ",b", "b,a" + "x" * 50, "b,\xe9"])
def test_edges_of_words_that_are_no_ids(tmp_path: Path, edges: str) -> None:
    (tmp_path / "edges.csv").write_bytes(f"source,target\na,b\n{edges}\n".encode("latin-1"))
    ids = NodeIds(pa.array(NAMES, pa.large_string()))
    assert plain_edges(tmp_path / "edges.csv", ("source", "target"), ids) is None


def test_edges_of_numbers_may_be_more_than_the_first_rows_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "_SAMPLE", 32)
    (tmp_path / "edges.csv").write_text("source,target\n1000000,1000001\n" + "0,1\n1,0\n" * 200)
    ends = plain_edges(tmp_path / "edges.csv", ("source", "target"), NodeIds(pa.array([0, 1, 1000000, 1000001])))
    assert ends is not None
    assert [each.tolist() for each in ends] == [[2] + [0, 1] * 200, [3] + [1, 0] * 200]


def test_edges_of_large_numbers_are_read_as_numbers(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(PLAIN.replace("1000000", "5000000000"))
    ends = plain_edges(tmp_path / "edges.csv", ("source", "target"), NodeIds(pa.array([7, 10, 5 * 10**9])))
    assert ends is not None
    assert [each.tolist() for each in ends] == [[1, 2], [0, 1]]


@pytest.mark.parametrize(
    ("first", "last", "kind"),
    [
        ("1", "2.5", pa.float64()),
        ("", "7", pa.int64()),
        ("1", "word", pa.string()),
        ("2024-01-31", "2024-01-31 08:00:00", pa.timestamp("s")),
        ('"two\nlines"', '"two\nlines"', pa.string()),
    ],
)
def test_a_type_follows_from_all_blocks_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, last: str, kind: pa.DataType
) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("id,x\n" + "".join(f"{i},{first if i < 50 else last}\n" for i in range(100)))
    whole = read_whole(path, ["id"])
    monkeypatch.setattr(sources, "_BLOCK", 64)
    in_blocks = read_whole(path, ["id"])
    assert in_blocks.equals(whole)
    assert in_blocks.column("x").num_chunks > whole.column("x").num_chunks == 1
    assert (whole.schema.field("x").type, len(whole)) == (kind, 100)


@pytest.mark.parametrize("odd", ["0xF4240", "010", "-1", "+7", "1e1", "7.0", "", "9" * 20])
def test_errors_show_the_cell_as_it_is_in_the_file(tmp_path: Path, odd: str) -> None:
    """0xF4240 is 1000000, and no longer than it."""
    path = folder(tmp_path / "g", {"id": [7, 10, 1000000], "label": [0, 1, 1]})
    (path / "edges.csv").write_text(f"source,target\n10,7\n{odd},10\n")
    why = "an id is missing" if not odd else "there is no node with this id"
    with pytest.raises(InvalidInput, match=f"row 2, column 'source' = {re.escape(repr(odd or None))}: {why}"):
        read_graph(path)


@pytest.mark.parametrize("odd", ["0xF4240", "010"])
def test_ids_of_nodes_are_their_text(tmp_path: Path, odd: str) -> None:
    nodes = {"id": ["10", odd, "1000000"], "label": [0, 1, 1]}
    graph = read_graph(folder(tmp_path / "g", nodes, {"source": ["10"], "target": [odd]}), directed=True)
    assert graph.node_ids is not None
    assert (graph.node_ids.tolist(), graph.indices.tolist()) == (["10", odd, "1000000"], [1])


def test_ids_that_only_look_like_numbers_stay_text(tmp_path: Path) -> None:
    for odd in ("--1", "1.0", "+1", "1_0", "9" * 30, "٣"):
        path = folder(tmp_path / "g", {"id": [odd, "2"], "label": [0, 1]}, {"source": [odd], "target": ["2"]})
        graph = read_graph(path)
        assert graph.node_ids is not None
        assert graph.node_ids.tolist() == [odd, "2"]


def test_integer_labels_that_already_count_need_no_names(tmp_path: Path) -> None:
    graph = read_graph(folder(tmp_path / "g", NODES | {"label": [2, 0, None, 1]}))
    assert (graph.class_names, graph.num_classes, graph.labels.tolist()) == (None, 3, [2, 0, -1, 1])
    graph = read_graph(folder(tmp_path / "h", NODES | {"label": [20, 3, None, 20]}))
    assert (graph.class_names, graph.labels.tolist()) == (("3", "20"), [1, 0, -1, 1])


def test_classes_can_be_declared_instead_of_found(tmp_path: Path) -> None:
    graph = read_graph(folder(tmp_path / "g"), classes=["yes", "no", "maybe"])
    assert graph.class_names == ("yes", "no", "maybe")
    assert graph.labels.tolist() == [0, 1, -1, 1]
    assert graph.counts is not None
    assert graph.counts.undeclared == ("the number of categories of column 'town' (3) and their order",)
    with pytest.raises(InvalidInput, match=r"nodes.csv, row 2, column 'label' = 'no': is not one of the declared"):
        read_graph(tmp_path / "g", classes=["yes", "maybe"])


@pytest.mark.parametrize("classes", [["0", "00"], ["NA", "1"], ["1.0", "1"], ["true", "True"]])
def test_declared_classes_are_their_text(tmp_path: Path, classes: list[str]) -> None:
    path = folder(
        tmp_path / "g", {"id": [1, 2, 3, 4], "label": [*classes, classes[0], None]}, {"source": [1], "target": [2]}
    )
    graph = read_graph(path, classes=classes)
    assert (graph.labels.tolist(), graph.class_names) == ([0, 1, 0, -1], tuple(classes))


def test_no_labels_no_features_no_edges(tmp_path: Path) -> None:
    empty = {"source": pa.array([], pa.string()), "target": pa.array([], pa.string())}
    for ending in ("csv", "parquet"):
        graph = read_graph(folder(tmp_path / ending, {"id": ["a", "b"]}, empty, ending))
        assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (2, 0, 0, 0)
        assert graph.counts is not None
        assert graph.counts.split == "none"


TABLE_ERRORS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "duplicate id": ({"id": ["ann", "bob", "ann", "dee"]}, {}, "nodes.csv, row 3, column 'id' = 'ann': .* to row 1"),
    "missing id": ({"id": ["ann", None, "cyd", "dee"]}, {}, "nodes.csv, row 2, column 'id' = None: an id is missing"),
    "unknown source": ({}, {"source": ["ann", "zoe"]}, "edges.csv, row 2, column 'source' = 'zoe': there is no node"),
    "unknown target": ({}, {"target": ["zoe", "ann"]}, "edges.csv, row 1, column 'target' = 'zoe': there is no node"),
    "missing target": ({}, {"target": ["bob", None]}, "edges.csv, row 2, column 'target' = None: an id is missing"),
    "self-loop": ({}, {"target": ["bob", "bob"]}, "edges.csv, row 2, column 'source' = 'bob': .* its own node"),
    "duplicate edge": (
        {},
        {"source": ["ann", "cyd", "ann"], "target": ["bob", "ann", "bob"]},
        "edges.csv, row 3, column 'source' = 'ann': this edge was already listed in row 1",
    ),
    "missing number": ({"age": [1.0, None, 2.0, 3.0]}, {}, "nodes.csv, row 2, column 'age' = None: .* missing"),
    "NaN": ({"age": [1.0, 2.0, float("nan"), 3.0]}, {}, "nodes.csv, row 3, column 'age' = nan: .* missing"),
    "infinite": ({"age": [1.0, 2.0, 3.0, float("inf")]}, {}, "nodes.csv, row 4, column 'age' = inf: must be a finite"),
    "too large": ({"age": [1.0, 2.0, 3.0, 1e300]}, {}, r"nodes.csv, row 4, column 'age' = 1e\+300"),
    "empty column": ({"town": [None] * 4}, {}, "nodes.csv, column 'town' = 'empty': all .*--drop-columns town"),
    "unknown split": ({"split": ["train", "dev", None, None]}, {}, "nodes.csv, row 2, column 'split' = 'dev'"),
    "split without a label": ({"split": ["train", None, "val", None]}, {}, "nodes.csv, row 3, column 'split' = 'val'"),
    "empty training set": ({"split": [None, None, None, "test"]}, {}, "the training set is empty"),
    "one class": ({"label": ["no"] * 4}, {}, r"nodes.csv, column 'label' = \['no'\]: needs at least two classes"),
    "fractional ids": ({}, {"source": ["1.5", "ann"]}, "edges.csv, row 1, column 'source' = '1.5'"),
}


@pytest.mark.parametrize(("nodes", "edges", "message"), TABLE_ERRORS.values(), ids=TABLE_ERRORS.keys())
def test_errors_name_file_row_and_column(
    tmp_path: Path, nodes: dict[str, Any], edges: dict[str, Any], message: str
) -> None:
    for ending in ("csv", "parquet"):
        path = folder(tmp_path / ending, NODES | nodes, EDGES | edges, ending)
        with pytest.raises(InvalidInput, match=message.replace(".csv", f".{ending}")) as caught:
            read_graph(path, scaling="none")
        assert "\n" not in str(caught.value)


TYPE_ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "ids": ({"id": pa.array([1.0, 2.0, 3.0, 4.0])}, "column 'id' = 'double': ids must be integers or strings"),
    "labels that are no number": ({"label": [0.0, 1.0, float("nan"), 1.0]}, "column 'label' = nan: is not a label"),
    "lists as labels": ({"label": [[0], [1], [0], [1]]}, "column 'label' = 'list.*': must hold single values"),
}


@pytest.mark.parametrize(("nodes", "message"), TYPE_ERRORS.values(), ids=TYPE_ERRORS.keys())
def test_columns_of_another_type(tmp_path: Path, nodes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_graph(folder(tmp_path / "g", NODES | nodes, EDGES, "parquet"))


def test_more_classes_than_categories_are_allowed(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", NODES | {"label": ["a", "b", "c", "d"]}, EDGES)
    assert read_graph(path, max_categories=4).num_classes == 4
    with pytest.raises(InvalidInput, match="column 'label' = 4: more than max_categories = 3 classes"):
        read_graph(path, max_categories=3)


def test_repairs_on_request(tmp_path: Path) -> None:
    edges = {"source": ["ann", "ann", "ann"], "target": ["bob", "bob", "ann"]}
    graph = read_graph(folder(tmp_path / "g", edges=edges), merge_duplicates=True, drop_self_loops=True)
    assert graph.num_edges == 2


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = folder(tmp_path / "g")
    for argument in ("id_column", "label_column", "split_column"):
        wrong: dict[str, Any] = {argument: "other"}
        with pytest.raises(InvalidInput, match=r"nodes.csv, columns = .*: there is no column 'other'"):
            read_graph(path, **wrong)
    with pytest.raises(InvalidInput, match="there is no column 'weight'"):
        read_graph(path, feature_columns=["weight"])
    with pytest.raises(InvalidInput, match=r"edges.csv, columns"):
        read_graph(path, source_column="from")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    path = folder(tmp_path / "g")
    pyarrow.parquet.write_table(pa.table(NODES), path / "nodes.parquet")
    with pytest.raises(InvalidInput, match=r"nodes.parquet and nodes.csv: both are there"):
        read_graph(path)
    (path / "nodes.parquet").unlink()
    (path / "nodes.csv").unlink()
    with pytest.raises(InvalidInput, match="neither is there"):
        read_graph(path)
    folder(path, {"id": pa.array([], pa.string())})
    with pytest.raises(InvalidInput, match="at least one node"):
        read_graph(path)
    (path / "graph.json").write_text('{"directed": "no"}')
    with pytest.raises(InvalidInput, match=r"graph.json: directed = 'no'"):
        read_graph(path)


def test_a_type_that_changes_late_in_a_csv_is_still_one_column(tmp_path: Path) -> None:
    n = 200_000
    path = tmp_path / "g"
    path.mkdir()
    values = ["1"] * (n - 1) + ["0.5"]
    (path / "nodes.csv").write_text("id,a\n" + "\n".join(f"{i},{v}" for i, v in enumerate(values)) + "\n")
    (path / "edges.csv").write_text("source,target\n0,1\n")
    assert read_graph(path, scaling="none").features_torch()[-1].item() == 0.5


def test_ragged_csv_rows_and_repeated_headers(tmp_path: Path) -> None:
    path = folder(tmp_path / "g")
    (path / "edges.csv").write_text("source,target\nann,bob\nann\n")
    with pytest.raises(InvalidInput, match=r"cannot be read as CSV.*Row #3: Expected 2 columns, got 1"):
        read_graph(path)
    (path / "edges.csv").write_text("source,target,source\nann,bob,x\n")
    with pytest.raises(InvalidInput, match="column 'source' = 2: this column name is used more than once"):
        read_graph(path)


def mixed(path: Path, column: str, cells: list[str]) -> Path:
    path.mkdir()
    rows = "".join(f"{i},{'ab'[i % 2]},{cell}\n" for i, cell in enumerate(cells))
    (path / "nodes.csv").write_text(f"id,label,{column}\n{rows}")
    (path / "edges.csv").write_text("source,target\n0,1\n")
    return path


def test_a_numeric_column_with_a_few_words_is_refused(tmp_path: Path) -> None:
    cells = [str(i / 7) for i in range(5000)]
    cells[16], cells[4000] = "unknown", "n/a"
    path = mixed(tmp_path / "g", "income", cells)
    with pytest.raises(InvalidInput, match=r"nodes.csv, row 17, column 'income' = 'unknown': is not a number.*declare"):
        read_graph(path)
    counts = read_graph(mixed(tmp_path / "text", "grade", ["1", "2", "a", "b", "c"])).counts
    assert counts is not None
    assert counts.columns[0].kind == "categorical"
    with pytest.raises(InvalidInput, match=r"row 3, column 'grade' = 'a'"):
        read_graph(mixed(tmp_path / "half", "grade", ["1", "2", "a", "b"]))


def test_labels_with_a_word_among_numbers_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", NODES | {"label": ["0", "1", "0", "?"]})
    with pytest.raises(InvalidInput, match=r"row 4, column 'label' = '\?': is not a number.*leave it empty"):
        read_graph(path)
    assert read_graph(path, classes=["0", "1", "?"]).num_classes == 3


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_declared_as_categories_is_text_whatever_it_looks_like(tmp_path: Path, ending: str) -> None:
    path = folder(tmp_path / "g", NODES | {"zip": ["01234", "52062", "01234", "52062"]}, ending=ending)
    graph = read_graph(path, feature_columns=["zip"], categories={"zip": ["52062", "01234", "99999"]})
    assert graph.features_torch().tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]]
    (path / "graph.json").write_text('{"categories": {"zip": ["01234"]}}')
    with pytest.raises(InvalidInput, match=r"row 2, column 'zip' = '52062': is not one of the declared categories"):
        read_graph(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_blanks_around_an_id_do_not_belong_to_it(tmp_path: Path, ending: str) -> None:
    nodes = NODES | {"id": [" ann", "bob ", "cyd", "dee"]}
    edges = {"source": ["ann", " bob"], "target": ["bob", "cyd\t"]}
    graph = read_graph(folder(tmp_path / "g", nodes, edges, ending))
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["ann", "bob", "cyd", "dee"]
    assert graph.num_edges == 4
    with pytest.raises(InvalidInput, match=r"row 3, column 'id' = 'ann ': this id was already given to row 1"):
        read_graph(folder(tmp_path / "twice", NODES | {"id": ["ann", "bob", "ann ", "dee"]}, ending=ending))
    with pytest.raises(InvalidInput, match=r"row 2, column 'id' = '  ': an id is missing"):
        read_graph(folder(tmp_path / "blank", NODES | {"id": ["ann", "  ", "cyd", "dee"]}, ending=ending))
    with pytest.raises(InvalidInput, match="1024 characters at most"):
        read_graph(folder(tmp_path / "long", NODES | {"id": ["ann", "b" * 1025, "cyd", "dee"]}, ending=ending))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"directd": True}, "graph.json: key = 'directd': must be one of directed, name, found, node_table"),
        ({"directed": "yes"}, "graph.json: directed = 'yes'"),
        ({"directed": 1}, "graph.json: directed = 1"),
        ({"name": 5}, "graph.json: name = 5: must be text"),
        ({"classes": "no"}, "graph.json: classes = 'no': must be a list"),
        ({"classes": [0, "0", 1]}, "must be values of one type"),
        ({"classes": ["no", 1]}, "must be values of one type"),
        ({"classes": ["no", "yes", "no"]}, "graph.json: classes = 'no': is listed twice"),
        ({"classes": ["no", None]}, "must be values of one type"),
        ({"classes": ["no"]}, "two at least"),
        ({"categories": ["town"]}, "must give a list of values for each column"),
        ({"categories": {"town": "Ulm"}}, "categories of column 'town' = 'Ulm': must be a list"),
        ({"categories": {"town": []}}, "one value at least"),
        ({"categories": {"twon": ["Ulm"]}}, "'twon', no feature"),
        ({"found": {"classes": "many", "categories": {}}}, "found = 'many'"),
        (["classes"], "graph.json: content = 'list': must be an object"),
    ],
)
def test_declarations_are_strict(tmp_path: Path, declared: dict[str, Any], message: str) -> None:
    path = folder(tmp_path / "g")
    (path / "graph.json").write_text(json.dumps(declared))
    with pytest.raises(InvalidInput) as caught:
        read_graph(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("mapped", [False, True])
def test_columns_that_are_not_used_are_named(tmp_path: Path, mapped: bool) -> None:
    path = folder(tmp_path / "g", edges=EDGES | {"weight": [0.5, 2.0]}, ending="parquet")
    graph = read_graph(path, feature_columns=["age"], mmap=tmp_path if mapped else None)
    assert graph.counts is not None
    named = tuple(f"nodes.parquet: column {name!r}" for name in ("member", "town"))
    assert graph.counts.unused == (*named, "edges.parquet: column 'weight'")
    assert "unused    edges.parquet: column 'weight'" in str(graph.counts)


def test_the_report_says_what_follows_from_private_values(tmp_path: Path) -> None:
    assert "a rare value changes them: declare classes and categories" in str(read_graph(folder(tmp_path / "g")).counts)


def test_text_with_too_many_values_is_no_category(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'town' = 3: distinct values, more .* 2; drop .*--drop-columns town"):
        read_graph(folder(tmp_path / "g"), max_categories=2)
    names = [f"person {i}" for i in range(30)]
    nodes = {"id": names, "label": [0, 1] * 15, "mail": names}
    with pytest.raises(InvalidInput, match="column 'mail' = 30: distinct values in 30 rows"):
        read_graph(folder(tmp_path / "h", nodes, {"source": names[:1], "target": names[1:2]}))
    assert read_graph(tmp_path / "h", drop_columns=["mail"]).num_features == 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_of_amounts_is_no_label(tmp_path: Path, ending: str) -> None:
    names = [f"person {i}" for i in range(60)]
    edges = {"source": names[:1], "target": names[1:2]}
    for distinct, refused in ((21, False), (31, True)):
        amounts = [min(i, distinct - 1) + 0.5 for i in range(60)]
        path = folder(tmp_path / str(distinct), {"id": names, "label": amounts}, edges, ending)
        if refused:
            with pytest.raises(InvalidInput, match=r"'label' = 31: distinct labels of 60 nodes.*label_column.*--class"):
                read_graph(path)
        else:
            assert read_graph(path).num_classes == 21
    assert read_graph(path, classes=[str(i + 0.5) for i in range(31)]).num_classes == 31


def test_many_categories_are_kept_sparse_and_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path / "g")
    dense = read_graph(path)
    monkeypatch.setattr(features_module, "_DENSE_LIMIT", 0)
    sparse = read_graph(path)
    assert sp.issparse(sparse.features)
    assert torch.equal(sparse.features_torch().to_dense(), dense.features_torch())


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(2, 6))
    pairs = draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=8))
    edges = np.array([p for p in pairs if p[0] != p[1]], dtype=np.int64).reshape(-1, 2).T
    directed = draw(st.booleans())
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    x = draw(st.lists(st.lists(finite, min_size=2, max_size=2), min_size=n, max_size=n))
    classes = draw(st.integers(2, 4))
    y = draw(st.lists(st.integers(-1, classes - 1), min_size=n, max_size=n))
    named = st.lists(texts.map(str.strip).filter(bool), min_size=n, max_size=n, unique=True)
    ids = draw(st.none() | named | st.permutations(range(n)))
    names = draw(st.none() | st.lists(texts, min_size=classes, max_size=classes, unique=True))
    graph = Graph.from_edge_index(
        edges,
        np.array(x, dtype=np.float32),
        y,
        directed=directed,
        symmetrize=not directed,
        num_classes=classes,
        node_ids=ids if ids != list(range(n)) else None,
        class_names=names,
        name=draw(texts),
    )
    return graph.with_split(0) if any(label >= 0 for label in y) and draw(st.booleans()) else graph


@pytest.mark.slow
@given(graph=graphs(), ending=st.sampled_from(["csv", "parquet"]))
@settings(max_examples=60, deadline=None)
def test_tables_there_and_back(tmp_path_factory: pytest.TempPathFactory, graph: Graph, ending: str) -> None:
    path = tmp_path_factory.mktemp("round") / "g"
    write_graph(graph, path, ending=ending)
    back = read_graph(path, seed=None)
    assert np.array_equal(back.indptr, graph.indptr)
    assert np.array_equal(back.indices, graph.indices)
    assert torch.equal(back.features_torch(), graph.features_torch())
    assert torch.equal(back.labels, graph.labels)
    assert torch.equal(back.train_mask, graph.train_mask)
    assert torch.equal(back.test_mask, graph.test_mask)
    assert (back.directed, back.num_classes, back.name) == (graph.directed, graph.num_classes, graph.name)
    assert back.class_names == graph.class_names
    assert (back.node_ids is None) == (graph.node_ids is None)
    if back.node_ids is not None and graph.node_ids is not None:
        assert back.node_ids.tolist() == graph.node_ids.tolist()


def test_one_word_does_not_make_text_of_true_and_false(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    (tmp_path / "nodes.csv").write_text("id,member\n0,true\n1,false\n2,true\n")
    assert read_graph(tmp_path).num_features == 1
    (tmp_path / "nodes.csv").write_text("id,member\n0,true\n1,maybe\n2,true\n")
    with pytest.raises(InvalidInput, match=r"row 2, column 'member' = 'maybe': is not true or false"):
        read_graph(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_column": "from", "source_column": "from"}, "target_column = 'from': is the source_column already"),
        ({"label_column": "id"}, "label_column = 'id': is the id_column already"),
        ({"label_column": "old", "feature_columns": ("x", "old")}, "feature_columns = 'old': is the label_column"),
    ],
    ids=str,
)
def test_a_column_has_one_role(options, message):
    with pytest.raises(InvalidInput, match=message):
        TableOptions(**options).resolved()


@pytest.mark.parametrize("form", ["csv", "parquet", "pandas", "words"])
def test_labels_that_pandas_wrote_as_floats_are_the_integers_that_they_are(tmp_path: Path, form: str) -> None:
    frame = pandas.DataFrame({"id": [1, 2, 3, 4], "label": [1.0, None, 0.0, 2.0]})
    edges = pandas.DataFrame({"source": [1], "target": [2]})

    def read(**options: Any) -> Graph:
        if form == "pandas":
            return Graph.from_tables(frame, edges, seed=None, **options)
        return read_graph(tmp_path, seed=None, **options)

    if form == "parquet":
        frame.to_parquet(tmp_path / "nodes.parquet")
    elif form != "pandas":
        frame.to_csv(tmp_path / "nodes.csv", index=False, na_rep="NA" if form == "words" else "")
    edges.to_csv(tmp_path / "edges.csv", index=False)
    for options in ({}, {"classes": [0, 1, 2]}, {"classes": ["0", "1", "2"]}):
        graph = read(**options)
        assert graph.labels.tolist() == [1, -1, 0, 2]
        assert graph.class_names in (None, ("0", "1", "2"))
        assert "3 of 4 nodes, 3 classes (numbers such as 1.0 are read as the integers" in str(graph.counts)
    graph = read(classes=[2, 1, 0])
    assert (graph.labels.tolist(), graph.class_names) == ([1, -1, 2, 0], ("2", "1", "0"))
    graph = read(classes=[0.0, 1.0, 2.0])
    assert (graph.labels.tolist(), graph.class_names) == ([1, -1, 0, 2], ("0.0", "1.0", "2.0"))
    assert "numbers such as" not in str(graph.counts)
    with pytest.raises(InvalidInput, match=r"row 4, column 'label' = '?2.0'?: is not one of the declared classes"):
        read(classes=[0, 1])


def test_labels_that_are_no_whole_numbers_stay_floats(tmp_path: Path) -> None:
    graph = read_graph(
        folder(tmp_path / "g", {"id": [1, 2, 3], "label": [1.0, 2.5, None]}, {"source": [1], "target": [2]})
    )
    assert graph.class_names == ("1.0", "2.5")


@pytest.mark.parametrize("table", ["nodes", "edges"])
@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("sep=;", "'sep=;'"),
        ('"SEP=,"', "'\"SEP=,\"'"),
        ("sep=\t", "'sep='"),
        ("# made by the bank, in March, in a hurry", "a comment"),
        ("#made by the bank", "a comment"),
    ],
)
def test_what_stands_before_the_header_is_named(tmp_path: Path, table: str, line: str, what: str) -> None:
    path = folder(tmp_path / "g")
    file = path / f"{table}.csv"
    file.write_text(f"\ufeff{line}\n{file.read_text()}", encoding="utf-8")
    why = f"path = '{file}': cannot be read as CSV: its first line is {what}; remove it: the header comes first"
    with pytest.raises(InvalidInput) as refused:
        read_graph(path)
    assert str(refused.value) == why


def test_a_name_of_a_column_may_begin_with_a_number_sign(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text('#id,label\n1,"a, b"\n2,c\n')
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    assert read_graph(tmp_path, id_column="#id", seed=None).class_names == ("a, b", "c")
