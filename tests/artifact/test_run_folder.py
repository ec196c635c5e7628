"""What `graphveil train --out` writes is an artifact, and stays one when reports are made of it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import graphveil as gv
from graphveil.cli import app
from graphveil.cli.options import without_seed
from graphveil.graph import write_graph
from support.artifacts import GRAPH, SEED, fitted


def call(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def run(tmp_path):
    write_graph(GRAPH, tmp_path / "mine.npz")
    words = ["--level", "edge", "--epsilon", 2, "--budget", 3, "--seed", SEED, "--out", tmp_path / "run"]
    done = call("train", tmp_path / "mine.npz", *words)
    assert done.exit_code == 0, done.output
    return tmp_path / "run"


def test_it_loads_and_holds_its_predictions(run):
    model = gv.load(run)
    assert model.budget_ == 3.0
    rows = np.loadtxt(run / "predictions.csv", delimiter=",", skiprows=1)[:, 2:]
    assert rows == pytest.approx(model.predict_proba(), abs=1e-6)


@pytest.mark.slow
def test_reports_and_checks(run):
    verdict = json.loads(call("verify", run, "--no-audits", "--json").stdout)
    assert (verdict["ok"], verdict["problems"]) == (True, [])
    assert verdict["epsilon_spent"] == gv.load(run).certificate_.epsilon
    for form in ("html", "markdown", "svg"):
        assert call("report", run, "--format", form).exit_code == 0
    assert call("verify", run, "--no-audits").exit_code == 0
    gv.load(run)
    for file in ("report.html", "figures/calibration.svg", "public/weights.safetensors", "metrics.json"):
        data = bytearray((run / file).read_bytes())
        data[len(data) // 2] ^= 1
        (run / file).write_bytes(data)
        done = call("verify", run, "--no-audits")
        assert done.exit_code == 1
        assert f"{file}: does not have the checksum" in done.stdout


def test_a_saved_model_is_verified_too(tmp_path):
    fitted("mlp").save(tmp_path / "run")
    assert call("verify", tmp_path / "run", "--no-audits").exit_code == 0
    (tmp_path / "run/manifest.json").unlink()
    assert "manifest.json" in call("verify", tmp_path / "run", "--no-audits").stdout


def test_a_budget_must_hold_the_fit(tmp_path):
    for words in (["--epsilon", 4, "--budget", 3, "--out", tmp_path / "run"], ["--budget", 9]):
        assert "budget" in str(call("train", "csbm", *words).exception)
    assert list(tmp_path.iterdir()) == []


def test_commands_are_kept_without_their_seed():
    words = ["train", "x", "--seed", "7", "--seed=8", "--split-seed", "9"]
    assert without_seed(words) == ["train", "x", "--seed", "SEED", "--seed=SEED", "--split-seed", "9"]
