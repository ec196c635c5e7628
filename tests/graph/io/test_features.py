"""What becomes of columns: missing values, ranges, times, booleans; and tables in memory."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.csv
import pytest
import torch

from graphveil.errors import InvalidInput
from graphveil.graph import Graph, read_graph

EDGES = {"source": ["a", "b"], "target": ["b", "c"]}
LABELS = {"id": ["a", "b", "c", "d"], "label": ["no", "yes", "no", "yes"]}


def features(nodes: dict[str, Any], **options: Any) -> list[list[float]]:
    graph = Graph.from_tables(LABELS | nodes, EDGES, **options)
    assert isinstance(graph.features, torch.Tensor)
    return graph.features.tolist()


def test_missing_numbers_have_an_indicator_whether_there_are_any_or_not() -> None:
    assert features({"x": [1.0, None, 3.0, math.nan]}) == [[1, 0], [0, 1], [3, 0], [0, 1]]
    assert features({"x": [1.0, 2.0, 3.0, 4.0]}) == [[1, 0], [2, 0], [3, 0], [4, 0]]
    graph = Graph.from_tables(LABELS | {"x": [1.0, None, 3.0, 4.0], "y": [1, 2, 3, None]}, EDGES, missing={"y": -1})
    assert graph.numeric_columns == ((0, 1), (2, -1))
    assert graph.features[:, 2:].tolist() == [[1, 0], [2, 0], [3, 0], [-1, 1]]


def test_a_declared_range_becomes_minus_one_to_one() -> None:
    options: dict[str, Any] = {"ranges": {"x": [0, 10]}}
    assert features({"x": [0.0, 10.0, 25.0, None]}, **options) == [[-1, 0], [1, 0], [1, 0], [0, 1]]
    assert features({"x": [0.0, 10.0, 5.0, None]}, missing={"x": 10}, **options)[3] == [1, 1]
    with pytest.raises(InvalidInput, match=r"ranges of column 'x' = .*least and the largest"):
        features({"x": [0.0] * 4}, ranges={"x": [1, 1]})
    with pytest.raises(InvalidInput, match="ranges are declared of 'z', no feature"):
        features({"x": [0.0] * 4}, ranges={"z": [1, 2]})


def test_booleans_and_text_need_no_indicator() -> None:
    assert features({"x": [True, False, None, True]}) == [[1], [-1], [0], [1]]
    assert features({"x": ["u", None, "v", "u"]}) == [[1, 0], [0, 0], [0, 1], [1, 0]]


def test_times_have_a_trend_and_cycles() -> None:
    times = [datetime.datetime(2024, 1, 1, 6), datetime.datetime(2024, 1, 7), datetime.datetime(2023, 1, 1), None]
    rows = features({"x": times}, ranges={"x": ["2023-01-01", "2025-01-01"]})
    trend, sine, cosine, week_sine, week_cosine, missing = rows[0]
    assert trend == pytest.approx(2 * 365.25 / 731 - 1, abs=1e-6)
    assert (sine, cosine) == pytest.approx((1, 0), abs=1e-6)  # six o'clock
    assert math.atan2(week_sine, week_cosine) == pytest.approx(2 * math.pi * 0.25 / 7, abs=1e-5)  # a Monday
    assert missing == 0
    assert rows[2][0] == -1
    assert rows[3] == [0, 0, 0, 0, 0, 1]
    graph = Graph.from_tables(LABELS | {"x": pa.array([18262, 18263, None, 0], pa.date32())}, EDGES)
    assert graph.features[:, 0].tolist() == [0, 1, 0, -18262]
    assert graph.numeric_columns == ((0, 3),)


def test_times_with_a_zone_are_utc() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=6))
    local = pa.array([datetime.datetime(2024, 1, 1, 12, tzinfo=zone)] * 4, pa.timestamp("ms", "+06:00"))
    utc = pa.array([datetime.datetime(2024, 1, 1, 6)] * 4, pa.timestamp("ns"))
    assert features({"x": local}) == features({"x": utc})


def test_words_for_missing_values_among_numbers(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,label,x,y\na,0,1.5,NA\nb,1,N/A,Namibia\nc,0,2,NA\nd,1,,NA\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    graph = read_graph(tmp_path, categories={"y": ["NA", "Namibia"]})
    assert graph.features.tolist() == [[1.5, 0, 1, 0], [0, 1, 0, 1], [2, 0, 1, 0], [0, 1, 1, 0]]


def test_declarations_in_graph_json_are_those_of_the_arguments(tmp_path: Path) -> None:
    nodes = {"who": [1, 2, 3], "fraud": ["no", "yes", "no"], "age": [1.0, None, 3.0], "mail": ["u", "v", "w"]}
    pyarrow.csv.write_csv(pa.table(nodes), tmp_path / "accounts.csv")
    pyarrow.csv.write_csv(pa.table({"from": [1, 1, 2], "to": [2, 2, 2], "sum": [1, 2, 3]}), tmp_path / "transfers.csv")
    declared = {
        "_comment": "anything",
        "node_table": "accounts.csv",
        "edge_table": "transfers.csv",
        "id_column": "who",
        "label_column": "fraud",
        "source_column": "from",
        "target_column": "to",
        "drop_columns": ["mail"],
        "drop_self_loops": True,
        "merge_duplicates": True,
        "ranges": {"age": [0, 4]},
        "classes": ["no", "yes"],
    }
    by_arguments = read_graph(tmp_path, **{key: value for key, value in declared.items() if key[0] != "_"})
    (tmp_path / "graph.json").write_text(json.dumps(declared))
    by_file = read_graph(tmp_path / "graph.json")
    for graph in (by_arguments, by_file):
        assert graph.features.tolist() == [[-0.5, 0], [0, 1], [0.5, 0]]
        assert (graph.num_edges, graph.class_names, graph.undeclared.facts()) == (2, ("no", "yes"), ())
    assert read_graph(tmp_path, ranges={"age": [0, 6]}).features[2].tolist() == [0, 0]
    with pytest.raises(InvalidInput, match=r"transfers.csv, row 3, column 'from' = '2': .*--drop-self-loops"):
        read_graph(tmp_path, drop_self_loops=False)


def test_a_missing_label_column_lists_the_columns() -> None:
    graph = Graph.from_tables({"id": [1, 2], "age": [1, 2], "fraud": [0, 1]}, {"source": [1], "target": [2]})
    with pytest.raises(InvalidInput, match=r"label_column = None: no column is named label.* one of 'age', 'fraud'"):
        graph.check_trainable()
    with pytest.raises(InvalidInput, match=r"nodes, columns = \['id', 'age', 'fraud'\]: there is no column 'lable'"):
        Graph.from_tables(
            {"id": [1, 2], "age": [1, 2], "fraud": [0, 1]}, {"source": [1], "target": [2]}, label_column="lable"
        )


def test_the_same_tables_from_everywhere() -> None:
    nodes = {"id": ["a", "b", "c", "d"], "label": ["x", "y", "x", "y"], "v": [1.0, 2.0, 3.0, 4.0]}
    edges = {"source": ["a", "b"], "target": ["b", "c"]}

    class Capsule:
        """A table of a library that speaks Arrow, as polars and DuckDB do."""

        def __init__(self, table: pa.Table) -> None:
            self._table = table

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self._table.__arrow_c_stream__(requested_schema)

    class Old:
        def to_arrow(self) -> pa.Table:
            return pa.table(nodes)

    arrays = {"id": np.array(nodes["id"]), "label": np.array(nodes["label"]), "v": torch.tensor(nodes["v"])}
    forms = [nodes, arrays, pa.table(nodes), pa.RecordBatch.from_pydict(nodes), Capsule(pa.table(nodes)), Old()]
    for form in forms:
        graph = Graph.from_tables(form, edges)
        assert graph.features.tolist() == [[1, 0], [2, 0], [3, 0], [4, 0]]
        assert graph.class_names == ("x", "y")
        assert graph.node_ids is not None
        assert graph.node_ids.tolist() == nodes["id"]
    with pytest.raises(InvalidInput, match="nodes = 'list': must be a pandas, polars or Arrow table"):
        Graph.from_tables([1, 2], edges)
    with pytest.raises(InvalidInput, match="nodes = 'dict': cannot be read as a table"):
        Graph.from_tables({"id": [1, 2], "label": [1]}, edges)


def test_pandas_and_polars() -> None:
    frame = pandas.DataFrame({"account": ["a", "b"], "label": [0, 1], "v": [1.5, float("nan")]})
    edges = pandas.DataFrame({"source": ["a"], "target": ["b"]})
    for nodes in (frame, frame.set_index("account"), frame.sample(frac=1, random_state=0).sort_values("account")):
        graph = Graph.from_tables(nodes, edges, id_column="account")
        assert graph.features.tolist() == [[1.5, 0], [0, 1]]
    table = polars.DataFrame({"account": ["a", "b"], "label": [0, 1], "v": [1.5, None]})
    graph = Graph.from_tables(table, polars.DataFrame({"source": ["a"], "target": ["b"]}), id_column="account")
    assert graph.features.tolist() == [[1.5, 0], [0, 1]]


def test_times_that_are_text_in_memory_are_times_as_in_a_file(tmp_path: Path) -> None:
    nodes: dict[str, Any] = LABELS | {
        "day": ["2024-01-31", None, "2020-01-01", "2021-05-05"],
        "time": ["2024-01-31 08:00:00", "2024-02-01T09:30:00", None, "2020-01-01 00:00:00"],
        "word": ["2024-01-31", "soon", "later", "soon"],
    }
    pa.csv.write_csv(pa.table(nodes), tmp_path / "nodes.csv")
    pa.csv.write_csv(pa.table(EDGES), tmp_path / "edges.csv")
    from_file, from_memory = read_graph(tmp_path), Graph.from_tables(pandas.DataFrame(nodes), EDGES)
    assert from_memory.counts is not None
    assert [column.kind for column in from_memory.counts.columns] == ["date", "timestamp", "categorical"]
    assert torch.equal(from_file.features_torch(), from_memory.features_torch())
    named = Graph.from_tables(nodes | {"label": nodes["day"]}, EDGES, id_column="id")
    assert named.class_names == ("2020-01-01", "2021-05-05", "2024-01-31")


def test_columns_of_pandas_and_polars_that_are_no_numbers() -> None:
    day = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2), None]
    columns = {"id": [1, 2, 3], "town": ["Ulm", None, "Ulm"], "since": day, "ok": [True, None, False]}
    categories = pandas.DataFrame(columns).astype({"town": "category", "ok": "boolean"})
    wholes = polars.DataFrame(columns).with_columns(polars.col("town").cast(polars.Categorical))
    expected = Graph.from_tables(pa.table(columns), {"source": [1], "target": [2]}).features.tolist()
    for table in (categories, wholes):
        assert Graph.from_tables(table, {"source": [1], "target": [2]}).features.tolist() == expected


def test_nodes_divided_by_time() -> None:
    nodes = LABELS | {"opened": ["2024-01-01", "2024-02-01", "2024-03-01", None]}
    nodes["opened"] = pa.array([datetime.date(2024, month, 1) for month in (1, 2, 3)] + [None])
    graph = Graph.from_tables(nodes, EDGES, time_column="opened", train_before="2024-02-01", test_after="2024-03-01")
    assert [mask.tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [
        [True, False, False, False],
        [False, True, False, False],
        [False, False, True, False],
    ]
    assert graph.num_features == 0
    assert any("the time of each node (column 'opened')" in fact for fact in graph.undeclared.facts())
    with pytest.raises(InvalidInput, match=r"train_before = .*no node with a label has an earlier time"):
        Graph.from_tables(nodes, EDGES, time_column="opened", train_before="2020-01-01")
    with pytest.raises(InvalidInput, match="train_before = None: must say when training ends"):
        Graph.from_tables(nodes, EDGES, time_column="opened")
    with pytest.raises(InvalidInput, match=r"test_after = .*must not be before"):
        Graph.from_tables(nodes, EDGES, time_column="opened", train_before="2024-02-01", test_after="2024-01-01")
    with pytest.raises(InvalidInput, match="train_before = 'soon': must be a number, a date"):
        Graph.from_tables(nodes, EDGES, time_column="opened", train_before="soon")


def kinds_of(folder: Path, cells: list[str]) -> tuple[str, int]:
    """The kind of a column with these cells, and how many features it makes."""
    lines = ["id,label,x", *(f"{row},{row % 2},{cell}" for row, cell in enumerate(cells))]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    (folder / "edges.csv").write_text("source,target\n0,1\n")
    graph = read_graph(folder)
    assert graph.counts is not None
    return graph.counts.columns[0].kind, graph.num_features


@pytest.mark.parametrize(
    ("others", "own"),
    [
        (["2021-05-03"] * 9, "2021-05-05 10:30:00"),
        (["2021-05-03"] * 9, "soon"),
        (["0", "1", "1"] * 3, "true"),
    ],
    ids=str,
)
def test_one_cell_does_not_decide_what_a_column_is(tmp_path: Path, others: list[str], own: str) -> None:
    """Kind and width of a column are published: one cell may lead to a refusal, never to another kind."""
    kinds_of(tmp_path, [*others, others[0]])
    with pytest.raises(InvalidInput, match="column 'x'"):
        kinds_of(tmp_path, [*others, own])


@pytest.mark.parametrize("only", ["5", "soon", "true", "2021-05-03"])
def test_one_cell_alone_is_no_column(tmp_path: Path, only: str) -> None:
    """Where all other cells are empty, a cell would decide by itself what its column is."""
    with pytest.raises(InvalidInput, match="column 'x' = 1: a single cell has a value"):
        kinds_of(tmp_path, [*[""] * 9, only])
    kinds_of(tmp_path, [*[""] * 8, only, only])


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["2021-05-03", "2021-05-04"], "date"),
        (["2021-05-03 10:30:00", "2021-05-04 11:00:00"], "timestamp"),
        (["2021-05-03T10:30:00Z", "2021-05-04T11:00:00Z"], "timestamp"),
        (["true", "false"], "boolean"),
        (["1", "2"], "numeric"),
        (["1.5", "2"], "numeric"),
    ],
    ids=str,
)
@pytest.mark.parametrize("gap", ["NA", "n/a", "None"])
def test_words_for_a_missing_value(tmp_path: Path, cells: list[str], kind: str, gap: str) -> None:
    """Outside text, a word for a missing value is an empty cell."""
    assert kinds_of(tmp_path, [*cells, gap, *cells]) == kinds_of(tmp_path, [*cells, "", *cells])
    assert kinds_of(tmp_path, [*cells, gap, *cells])[0] == kind


def test_one_more_missing_number_leaves_a_column_of_numbers(tmp_path: Path) -> None:
    half = ["1", "2", "3", "4", "NA", "NA", "NA", "NA", "5"]
    assert kinds_of(tmp_path, [*half, "6"]) == kinds_of(tmp_path, [*half, "NA"])


def test_names_of_columns_that_are_equal_as_text() -> None:
    with pytest.raises(InvalidInput, match="nodes, column '3' = 2: this column name is used more than once"):
        Graph.from_tables({"id": [1, 2], 3: [1, 2], "3": [2, 1]}, {"source": [1], "target": [2]})
    with pytest.raises(InvalidInput, match="nodes = 'Series': cannot be read as a table"):
        Graph.from_tables(pandas.Series([1, 2]), {"source": [1], "target": [2]})


def test_declared_numbers_and_dates_of_numpy() -> None:
    nodes = LABELS | {"v": [1.0, 2.0, 3.0, 4.0], "day": [datetime.date(2024, 1, day) for day in (1, 2, 3, 4)]}
    days = np.array(["2024-01-01", "2024-01-31"], "datetime64[ns]")
    graph = Graph.from_tables(nodes, EDGES, ranges={"v": np.array([0, 10]).tolist(), "day": tuple(days)})
    same = Graph.from_tables(nodes, EDGES, ranges={"v": (np.int64(0), 10), "day": ("2024-01-01", "2024-01-31")})
    assert torch.equal(graph.features_torch(), same.features_torch())
    assert graph.counts is not None
    assert same.counts is not None
    assert graph.counts.columns == same.counts.columns


def test_a_word_for_a_missing_value_among_declared_categories(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,label,x\n0,0,DE\n1,1,NA\n2,0,\n3,1,FR\n")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    graph = read_graph(tmp_path, categories={"x": ["DE", "FR"]})
    assert graph.features_torch().tolist() == [[1, 0], [0, 0], [0, 0], [0, 1]]
    graph = read_graph(tmp_path, categories={"x": ["DE", "FR", "NA"]})
    assert graph.features_torch().tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
