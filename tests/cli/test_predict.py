"""`graphveil predict` from the outside."""

import csv
import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import graphveil as gv
from graphveil.cli import app
from graphveil.graph import write_graph
from graphveil.graph.summary import FeatureColumn, Naming
from support.artifacts import GRAPH, fitted, save_with_new_nodes

RUNNER = CliRunner()


def call(*words):
    return RUNNER.invoke(app, ["predict", *map(str, words)])


def error(*words):
    done = call(*words)
    assert isinstance(done.exception, gv.GraphveilError), done.output
    assert "\n" not in str(done.exception)
    return str(done.exception)


def rows_of(done):
    assert done.exit_code == 0, done.exception
    return list(csv.DictReader(io.StringIO(done.stdout)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_with_new_nodes(tmp_path_factory.mktemp("artifact") / "run")


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "new.csv"
    names = [f"x{j}" for j in range(8)]
    lines = [["id", "neighbors", *names], ["anna", "1 2 30", *[1] * 8], ["007", "", *[0.5] * 8]]
    path.write_text("\n".join(",".join(map(str, line)) for line in lines) + "\n")
    return path


def test_formats_agree(saved, tmp_path):
    expected = gv.load(saved).predict_proba([3, 17])
    lines = rows_of(call(saved, "--nodes", "3,17"))
    assert [line["node"] for line in lines] == ["3", "17"]
    assert np.array_equal(np.float32([[line["p(0)"], line["p(1)"]] for line in lines]), expected)
    assert [int(line["prediction"]) for line in lines] == expected.argmax(1).tolist()
    data = json.loads(call(saved, "--nodes", "3,17", "--json").stdout)
    assert np.array_equal(np.float32([row["probabilities"] for row in data["predictions"]]), expected)
    assert data["ledger"]["epsilon"] <= data["ledger"]["budget"]
    assert call(saved, "--nodes", "3,17", "--format", "parquet", "--out", tmp_path / "p.parquet").exit_code == 0
    read = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    assert np.array_equal(np.stack([read["p(0)"], read["p(1)"]], axis=1), expected)


def test_all_and_files(saved, tmp_path):
    assert len(rows_of(call(saved, "--all"))) == 120
    (tmp_path / "nodes.txt").write_text("3\n17, 5\n")
    assert [row["node"] for row in rows_of(call(saved, "--nodes", tmp_path / "nodes.txt"))] == ["3", "17", "5"]


def test_new_nodes_and_asking_again(folder, table):
    first, second = call(folder, "--new", table), call(folder, "--new", table)
    assert [row["node"] for row in rows_of(first)] == ["anna", "007"]
    assert first.stdout == second.stdout
    assert rows_of(call(folder, "--new", table, "--format", "csv"))[1]["node"] == "007"


def test_parquet_with_lists(folder, table, tmp_path):
    columns = {"id": ["anna", "007"], "neighbors": [[1, 2, 30], []]}
    features = {f"x{j}": [1.0, 0.5] for j in range(8)}
    pyarrow.parquet.write_table(pa.table({**columns, **features}), tmp_path / "new.parquet")
    assert call(folder, "--new", tmp_path / "new.parquet").stdout == call(folder, "--new", table).stdout


def test_changed_data_and_the_budget(folder, table):
    table.write_text(table.read_text().replace("1 2 30", "1 2 31"))
    assert "answered before" in error(folder, "--new", table)
    assert "the budget is" in error(folder, "--new", table, "--update")


def test_methods_that_need_the_graph(tmp_path, table):
    write_graph(GRAPH, tmp_path / "mine.npz")
    fitted("gap", max_degree=40).save(tmp_path / "run")
    assert "graph = None" in error(tmp_path / "run", "--new", table)
    done = call(tmp_path / "run", "--new", table, "--graph", tmp_path / "mine.npz")
    assert done.stdout == call(tmp_path / "run", "--new", table, "--graph", tmp_path / "mine.npz").stdout
    assert done.exit_code == 0


@pytest.mark.parametrize("file", ["mine.npz", "mine"])
def test_graphs_from_files(tmp_path, table, file):
    """A matrix has no column names, so features go by their order; tables have names, here the same ones."""
    write_graph(GRAPH, tmp_path / file)
    graph = gv.read_graph(tmp_path / file)
    gv.DPDGC(level=gv.KNeighbor(1), epsilon=4.0, table="labels", steps=2).fit(graph).save(tmp_path / "run")
    first = rows_of(call(tmp_path / "run", "--new", table))
    assert [row["node"] for row in first] == ["anna", "007"]
    assert rows_of(call(tmp_path / "run", "--new", table)) == first


@pytest.mark.slow
def test_names_and_categories(tmp_path):
    model = fitted("mlp")
    columns = (FeatureColumn("age", "numeric"), FeatureColumn("job", "categorical", 7, tuple("abcdefg")))
    model.fitted_.naming = Naming(tuple(f"p{i}" for i in range(120)), ("north", "south"), columns)
    model.save(tmp_path / "run")
    (row,) = rows_of(call(tmp_path / "run", "--nodes", "p5"))
    assert row["prediction"] in ("north", "south")
    (tmp_path / "new.csv").write_text("id,job,neighbors,age\nzoe,c,p1 p2,1.5\n")
    (row,) = rows_of(call(tmp_path / "run", "--new", tmp_path / "new.csv"))
    expected = model.predict_new(["zoe"], [[1.5, 0, 0, 1, 0, 0, 0, 0]], [[1, 2]])[0]
    assert np.float32(row["p(north)"]) == expected[0]
    for text, message in [
        ("id,job,neighbors,age\nzoe,z,p1,1.5\n", "row 1, column 'job' = 'z'"),
        ("id,job,neighbors,age\nzoe,c,p999,1.5\n", "neighbors = 'p999'"),
        ("id,job,neighbors\nzoe,c,p1\n", "no column 'age'"),
        ("id,job,neighbors,age,more\nzoe,c,p1,1,1\n", "'more'"),
        ("id,job,neighbors,age\nzoe,c,p1,old\n", "must be a number"),
        ("id,job,neighbors,age\nzoe,c,p1,1\nyan,c,p1,n/a\nxi,c,p1,old\n", "row 2, column 'age' = 'n/a': must be"),
        ("id,job,neighbors,age\np7,c,p1,1\n", "ids = 'p7': is a node of the training graph"),
        ("id,job,neighbors,age\n p7 ,c,p1,1\n", "ids = 'p7': is a node of the training graph"),
        (f"id,job,neighbors,age\n{'z' * 1025},c,p1,1\n", "an id may have 1024 characters at most"),
        ("id,job,neighbors,age\nzoe,c,p1,\n", "missing"),
        ("id,job,neighbors,age\nzoe,c,p1 p1,1\n", "names a node twice"),
        ("job,neighbors,age\nc,p1,1\n", "no column 'id'"),
        ("id,job,neighbors,age\nzoe,c,p1,1\nzoe,c,p1,1\n", "unique"),
    ]:
        (tmp_path / "new.csv").write_text(text)
        assert message in error(tmp_path / "run", "--new", tmp_path / "new.csv")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "one of --nodes, --all and --new"),
        (["--all", "--nodes", "3"], "one of"),
        (["--nodes", "120"], "nodes = '120'"),
        (["--nodes", "-1"], "nodes = '-1'"),
        (["--nodes", "nodes.txt"], "nodes = 'nodes.txt'"),
        (["--nodes", "3;4"], "nodes = '3;4'"),
        (["--nodes", "²"], "nodes = '²'"),
        (["--nodes", ","], "names no node"),
        (["--all", "--format", "xml"], "format = 'xml'"),
        (["--all", "--format", "parquet"], "name a file"),
        (["--all", "--update"], "belongs to --new"),
        (["--all", "--out", "nowhere/x.csv"], "does not exist"),
        (["--new", "nowhere.csv"], "no such file"),
        (["--new", "nowhere.txt"], "must end in"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(saved, words, message):
    assert message in error(saved, *words)


def test_nothing_is_written_into_the_run_or_over_a_file(saved, tmp_path):
    assert "lies in the run" in error(saved, "--all", "--out", saved / "p.csv")
    (tmp_path / "p.csv").write_text("mine")
    assert "exists already" in error(saved, "--all", "--out", tmp_path / "p.csv")
    assert "is not a folder" in error(tmp_path / "nowhere", "--all")
    assert "manifest.json" in error(tmp_path, "--all")


def test_new_nodes_and_the_graph_of_tables_with_other_names(tmp_path):
    """A model that needs its graph reads it from the tables again, and new nodes have the same column of ids."""
    rows = "".join(f"a{i};{'xy'[i % 2]};{i / 3}\n" for i in range(60))
    (tmp_path / "people.csv").write_text(f"who;side;v\n{rows}")
    (tmp_path / "links.csv").write_text("source,target\n" + "".join(f"a{i},a{(i + 7) % 60}\n" for i in range(60)))
    words = ["--edges", str(tmp_path / "links.csv"), "--id-column", "who", "--label-column", "side"]
    fit = ["train", tmp_path / "people.csv", *words, "--method", "gap", "--max-degree", 9, "--steps", 1]
    fit += ["--reserve-readers", 2]
    assert RUNNER.invoke(app, [*map(str, fit), "--out", str(tmp_path / "run")]).exit_code == 0
    (tmp_path / "new.csv").write_text("who,neighbors,v\nnew,a1 a2,3.5\n")
    asked = (tmp_path / "run", "--new", tmp_path / "new.csv", "--graph", tmp_path / "people.csv", *words)
    assert [row["node"] for row in rows_of(call(*asked))] == ["new"]
    assert "belongs to --graph" in error(tmp_path / "run", "--new", tmp_path / "new.csv", "--label-column", "side")
    assert "label_column = 'side': belongs to --new" in error(tmp_path / "run", "--all", "--label-column", "side")
