"""`graphveil init`: a first graph.json."""

import json

import pyarrow.csv
import pyarrow.parquet
import pytest

import graphveil as gv
from graphveil.graph.io.draft import ROWS
from support.payments import write_payments


@pytest.fixture
def payments(tmp_path):
    return write_payments(tmp_path / "payments", accounts=300)


def test_a_table_goes_in_without_a_change(run, payments):
    done = run("init", payments / "accounts.csv")
    assert done.returncode == 0, done.stderr
    assert "for the owner of the tables: it was made by looking at them" in done.stdout
    lines = (payments / "graph.json").read_text().splitlines()
    for shown in done.stdout.splitlines():
        if shown.startswith("  line "):
            _, number, key, *_ = shown.split()
            assert lines[int(number) - 1].startswith(f'  "{key.removesuffix(":")}": ')
            assert '": "LOOK: ' in lines[int(number) - 2]
    graph = gv.read_graph(payments)
    assert graph.class_names == ("no", "yes")
    assert graph.node_ids[0].startswith("DE")
    assert graph.counts.unused == ("transfers.csv: column 'amount'", "transfers.csv: column 'sent_at'")
    assert graph.undeclared.classes == 2, "what was found is not declared"


def test_what_is_known_is_taken(run, payments):
    words = ["--label-column", "verified", "--range", "age=18,100", "--weight-column", "amount", "--max-weight", 500]
    done = run("init", payments / "accounts.csv", "--edges", payments / "transfers.csv", *words, "--json")
    told = json.loads(done.stdout)
    assert told["path"] == str(payments / "graph.json")
    looked = {entry["key"] for entry in told["look"]}
    assert looked >= {"id_column", "classes", "directed"}
    assert not looked & {"label_column", "ranges", "edge_table", "weight_column"}
    written = json.loads((payments / "graph.json").read_text())
    assert written["label_column"] == "verified"
    assert written["ranges"] == {"age": [18, 100]}
    assert (written["edge_table"], written["max_weight"]) == ("transfers.csv", 500)
    assert gv.read_graph(payments).max_weight == 500


def test_nothing_is_overwritten(run, payments):
    (payments / "graph.json").write_text("{}")
    done = run("init", payments / "accounts.csv")
    assert (done.returncode, (payments / "graph.json").read_text()) == (2, "{}")
    assert "exists already" in done.stderr


def test_only_the_first_rows_are_read(run, tmp_path):
    """A table that cannot be read further down still gets its file; reading it later says what is wrong."""
    rows = "".join(f"{i},{'ab'[i % 2]},name {i}\n" for i in range(300_000))
    (tmp_path / "people.csv").write_text(f"user,class,said\n{rows}broken\n")
    (tmp_path / "edges.csv").write_text("u,v\n1,2\n")
    assert run("init", tmp_path / "people.csv").returncode == 0
    written = json.loads((tmp_path / "graph.json").read_text())
    assert (written["id_column"], written["label_column"], written["drop_columns"]) == ("user", "class", ["said"])
    assert (written["source_column"], written["target_column"]) == ("u", "v")
    assert f"first {ROWS:,} rows" in written["_"]


def test_a_parquet_table_and_columns_without_usual_names(run, tmp_path):
    table = pyarrow.csv.read_csv(write_payments(tmp_path / "csv", accounts=100) / "accounts.csv")
    table = table.rename_columns(["iban", *table.column_names[1:-1], "outcome"])
    (tmp_path / "g").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "g" / "nodes.parquet")
    (tmp_path / "g" / "edges.csv").write_text("a,b\n1,2\n")
    assert run("init", tmp_path / "g").returncode == 0
    written = json.loads((tmp_path / "g" / "graph.json").read_text())
    assert (written["id_column"], written["label_column"]) == ("iban", None)
    assert "outcome" in written["_label_column"]
    assert (written["source_column"], written["target_column"]) == ("a", "b")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "there is no such file or folder"),
        (lambda folder: (folder / "people.csv").write_text(""), "name the table of edges: --edges"),
        (lambda folder: [(folder / name).write_text("") for name in ("people.csv", "edges.csv")], "Empty CSV file"),
        (lambda folder: [(folder / f"{n}.csv").write_text("a\n1\n") for n in ("people", "x", "y")], "2 other tables"),
    ],
)
def test_tables_that_are_not_there(run, tmp_path, make, message):
    make(tmp_path)
    done = run("init", tmp_path / "people.csv")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not (tmp_path / "graph.json").exists()


def test_a_column_that_is_not_there(run, payments):
    done = run("init", payments / "accounts.csv", "--label-column", "frod")
    assert "label_column = 'frod': there is no such column; there are balance" in done.stderr


def test_declared_dates_are_written_as_dates(run, payments):
    words = ("--range", "opened_at=2022-01-01,2025-01-01T08:30:00", "--missing", "opened_at=2023-01-01")
    assert run("init", payments / "accounts.csv", *words).returncode == 0
    written = json.loads((payments / "graph.json").read_text())
    assert written["ranges"] == {"opened_at": ["2022-01-01", "2025-01-01T08:30:00+00:00"]}
    assert written["missing"] == {"opened_at": "2023-01-01"}
    assert run("train", payments, "--method", "mlp", "--steps", 1).returncode == 0
