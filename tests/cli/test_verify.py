"""`graphveil verify`: a run folder as train wrote it, and with every file changed."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from graphveil.cli import app
from graphveil.graph import csbm, write_graph

pytestmark = pytest.mark.slow

RUNNER = CliRunner()
GRAPH = csbm(0.5, n=200, f=6, d=4, seed=2)


def call(*words):
    return RUNNER.invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    write_graph(GRAPH, folder / "mine.npz")
    runs = {}
    for name, words in {
        "dpdgc": ["--table", "trained", "--level", "k-neighbor", "--k", 1],
        "auto": ["--level", "k-neighbor", "--k", 1],
        "gap": ["--method", "gap", "--level", "edge"],
        "open": ["--method", "mlp", "--level", "none"],
    }.items():
        runs[name] = folder / name
        done = call("train", folder / "mine.npz", *words, "--steps", 3, "--seed", 1, "--out", runs[name])
        assert done.exit_code == 0, done.output
    return runs


@pytest.mark.parametrize("name", ["dpdgc", "auto", "gap", "open"])
def test_what_train_writes_is_verified(trained, name):
    done = call("verify", trained[name], "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["ok"] is True
    assert data["problems"] == []


def change_certificate(folder, change):
    path = folder / "certificate.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=2) + "\n")


def cheaper(data):
    data["epsilon"] = data["accountants"]["pld"] = 1.0


def less_noise(data):
    data["mechanisms"][1]["std"] *= 0.5


def smaller_group(data):
    data["mechanisms"][0]["group"]["training"] = 1


def forgotten(data):
    del data["mechanisms"][1]


def garbled(text):
    return text.replace("epsilon", "upsilon")


TAMPERED = {
    "a smaller epsilon": ("certificate.json", cheaper, "epsilon is stated as 1"),
    "less noise": ("certificate.json", less_noise, "its mechanisms give"),
    "a smaller group": ("certificate.json", smaller_group, "sensitivity"),
    "a mechanism left out": ("certificate.json", forgotten, "lists the mechanisms"),
    "another text": ("certificate.txt", garbled, "certificate.txt"),
    "other metrics": ("metrics.json", lambda text: text.replace('"secure": false', '"secure": true'), "metrics.json"),
    "no metrics": ("metrics.json", None, "metrics.json: is missing"),
    "metrics that are no JSON": ("metrics.json", lambda text: text[:50], "not JSON"),
    "a prediction left out": ("predictions.csv", lambda text: text.rsplit("\n", 2)[0] + "\n", "199 nodes"),
    "a prediction that is none": ("predictions.csv", lambda text: text.replace("\n7,", "\n7,9", 1), "row 7"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_a_problem(trained, tmp_path, name):
    file, change, words = TAMPERED[name]
    folder = tmp_path / "run"
    shutil.copytree(trained["dpdgc"], folder)
    if change is None:
        (folder / file).unlink()
    elif file == "certificate.json":
        change_certificate(folder, change)
    else:
        (folder / file).write_text(change((folder / file).read_text()))
    done = call("verify", folder)
    assert done.exit_code == 1
    assert words in done.stdout
