"""--class-weight and --class-prior of `graphveil train`, and the counts of `graphveil plan --class-weight balanced`."""

import json

import pytest

from graphveil.graph import csbm, write_graph

FACTS = ("--nodes", 300, "--train-nodes", 200, "--features", 6, "--classes", 2)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "graph.npz"
    write_graph(csbm(0.5, n=300, f=6, seed=0), path)
    return path


def trained(run, graph, *words):
    done = run("train", graph, "--method", "mlp", "--seed", 0, "--steps", 3, "--json", *words)
    assert done.returncode == 0, done.stderr
    return [mechanism["name"] for mechanism in json.loads(done.stdout)["certificate"]["mechanisms"]]


def test_declared_weights_are_free_and_balanced_ones_are_not(run, graph):
    assert trained(run, graph, "--class-weight", "0=1", "--class-weight", "1=30") == ["head"]
    assert trained(run, graph, "--class-weight", "balanced", "--class-prior", "0=0.9", "--class-prior", "1=0.1") == [
        "classes",
        "head",
    ]


def test_a_plan_has_the_counts(run):
    done = run("plan", *FACTS, "--method", "mlp", "--class-weight", "balanced", "--json")
    assert [mechanism["name"] for mechanism in json.loads(done.stdout)["mechanisms"]] == ["classes", "head"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--class-weight", "fraud=3"], "class_weight = 'fraud': is not a class; they are 0, 1"),
        (["--class-weight", "much"], "class_weight = 'much': must have the form NAME=VALUE"),
        (["--class-weight", "0=1"], "has no number for 1"),
        (["--class-prior", "0=0.4", "--class-prior", "1=0.4"], "must be positive shares that add up to 1"),
    ],
)
def test_bad_words_are_one_line(run, graph, tmp_path, words, message):
    done = run("train", graph, "--out", tmp_path / "run", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert not (tmp_path / "run").exists()


def test_a_plan_takes_no_declared_weights(run):
    done = run("plan", *FACTS, "--class-weight", "0=3")
    assert done.returncode == 2
    assert "declared weights change no plan" in done.stderr
