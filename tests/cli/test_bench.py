"""`graphveil bench`."""

import json

import pytest
import typer
from typer.testing import CliRunner

from graphveil.cli.experiments import bench
from graphveil.errors import InvalidInput
from graphveil.storage import read_journal
from support.specs import write_spec

app = typer.Typer()
app.command()(bench)


@pytest.fixture
def spec_path(tmp_path):
    return write_spec(tmp_path)


@pytest.fixture
def call(spec_path):
    def call(*words):
        out = ["--out", str(spec_path.parent / "out"), "--jobs", "1", "--threads", "1"]
        done = CliRunner().invoke(app, [*words, *out])
        if isinstance(done.exception, InvalidInput):
            raise done.exception
        return done

    return call


def test_an_experiment_of_ones_own(call, spec_path):
    done = call(str(spec_path), "--seeds", "1", "--levels", "N_1", "--methods", "mlp", "--json")
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    assert (printed["experiment"], printed["runs"], printed["done"], printed["failed"], printed["new"]) == (
        "small",
        1,
        1,
        0,
        1,
    )
    assert printed["tables"][0]["columns"] == ["tiny"]
    assert "[1/1] tiny mlp N_1 epsilon 8 seed 0: " in done.stderr
    again = call(str(spec_path), "--seeds", "1", "--levels", "N_1", "--methods", "mlp")
    assert again.exit_code == 0
    assert again.stderr == ""
    assert "A small experiment" in again.stdout
    assert "1 of 1 runs done" in again.stdout
    assert (spec_path.parent / "out" / "table.md").is_file()
    assert read_journal(spec_path.parent / "out" / "calls.jsonl")[0]["command"].startswith("graphveil")


def test_failed_runs_show_in_the_exit_code(call, spec_path):
    spec_path.write_text(
        'graphs = ["tiny.npz"]\nseeds = 1\n'
        '[[settings]]\nlevel = "node"\nmax_degree = 1\nepsilon = 1\nmethods = ["dpdgc"]\n'
    )
    done = call(str(spec_path))
    assert done.exit_code == 1
    assert "failed, InvalidInput: max_degree = 1: the graph breaks this promise" in done.stderr
    assert "1 failed: dpdgc on tiny, InvalidInput" in done.stdout


def test_the_rows_of_the_paper_on_ones_own_graph(call, spec_path):
    path = spec_path.with_name("tiny.npz")
    done = call("table2", "--graphs", str(path), "--levels", "none", "--methods", "mlp", "--seeds", "1", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["tables"][0]["columns"] == ["tiny"]


def test_graphs_that_are_not_at_hand(call, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHVEIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHVEIL_DATA", raising=False)
    root = ("--root", str(tmp_path / "nothing"))
    with pytest.raises(InvalidInput, match="dataset = 'cora'"):
        call("table2", "--graphs", "cora", *root)
    with pytest.raises(InvalidInput, match="has no runs left"):
        call("figure-a", *root)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table3"], "experiment = 'table3'"),
        (["table2", "--unit", "both"], "unit = 'both'"),
        (["table2", "--graphs", ","], "graphs = ','"),
        (["table2", "--graphs", "nowhere"], "dataset = 'nowhere'"),
        (["table2", "--methods", "magic"], "methods = 'magic'"),
        (["table2", "--levels", "all"], "levels = 'all'"),
    ],
)
def test_bad_input(call, words, message):
    with pytest.raises(InvalidInput, match=message):
        call(*words)


def test_help_has_an_example():
    done = CliRunner().invoke(app, ["--help"])
    assert "graphveil bench table2 --graphs cora" in " ".join(done.stdout.split())
