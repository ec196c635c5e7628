"""`graphveil audit` from the outside."""

import json

import pytest
from typer.testing import CliRunner

from graphveil.cli import app
from graphveil.errors import InvalidInput
from graphveil.graph import csbm, write_graph

RUNNER = CliRunner()


def call(*words):
    return RUNNER.invoke(app, list(map(str, words)))


def test_audit_prints_json():
    done = call("audit", "--table", "labels", "--level", "k-neighbor", "--k", 1, "--epsilon", 4, "--seed", 1,
                 "--attack", "release", "--attack", "joint", "--trials", 20000, "--steps", 10, "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["claimed_epsilon"] == 4.0
    assert 3.0 < data["lower_bound"] <= 4.0
    assert data["confidence"] == 0.95
    assert data["verdict"] == "consistent"
    assert [attack["attack"] for attack in data["attacks"]] == ["release", "joint"]


def test_audit_of_a_twin_ends_with_code_1_and_leaves_files(tmp_path):
    out = tmp_path / "audit"
    done = call("audit", "--twin", "halved-noise", "--attack", "joint", "--trials", 5000, "--steps", 5, "--seed", 1,
                 "--out", out)  # fmt: skip
    assert done.exit_code == 1
    assert "VIOLATED" in done.stdout
    data = json.loads((out / "audit.json").read_text())
    assert data["verdict"] == "violated"
    assert "verdict violated" in data["picture"]
    assert "VIOLATED" in (out / "audit.txt").read_text()


def test_audit_of_ones_own_graph(tmp_path):
    write_graph(csbm(0.5, n=200, f=6, d=4, seed=2), tmp_path / "mine.npz")
    # With a seed: at 95 % one sound run in twenty is called violated.
    words = ("--method", "mlp", "--attack", "gradient", "--trials", 500, "--seed", 1, "--json")
    done = call("audit", tmp_path / "mine.npz", *words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["delta"] == 1e-4


@pytest.mark.parametrize(
    "words",
    [
        ["--attack", "nonsense"],
        ["--twin", "nonsense"],
        ["--method", "nonsense"],
        ["--level", "nonsense"],
        ["--trials", "3"],
        ["--confidence", "2"],
    ],
    ids=" ".join,
)
def test_bad_words_are_refused(words):
    with pytest.raises(InvalidInput):
        RUNNER.invoke(app, ["audit", *words], catch_exceptions=False)


def test_the_attack_on_arithmetic(tmp_path):
    words = ["audit", "--attack", "arithmetic", "--method", "randedge", "--level", "edge", "--seed", "1"]
    done = RUNNER.invoke(app, [*words, "--out", str(tmp_path / "audit")])
    assert done.exit_code == 0, done.output
    assert "CONSISTENT" in done.stdout
    assert "epsilon is at least" not in done.stdout
    data = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert data["arithmetic"][0]["claimed_sensitivity"] == 1
    assert "edges" in data["picture"]


def test_options_of_the_level_replace_those_of_the_twin():
    words = ["--twin", "halved-noise", "--attack", "gradient", "--trials", 300, "--steps", 3, "--seed", 1, "--json"]
    levels = {
        (): {"name": "k-neighbor", "k": 1},
        ("--k", 2): {"name": "k-neighbor", "k": 2},
        ("--unit", "undirected"): {"name": "edge", "unit": "undirected"},
        ("--level", "node"): {"name": "node", "max_degree": 25},
        ("--level", "node", "--max-degree", 30): {"name": "node", "max_degree": 30},
    }
    for more, expected in levels.items():
        level = json.loads(call("audit", *words, *more).stdout)["level"]
        assert {name: level[name] for name in expected} == expected
