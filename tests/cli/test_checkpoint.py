import json
import os
import signal
import subprocess
import sys
import time

import pytest

from graphveil.graph import csbm, write_graph

FIT = ["--seed", "7", "--steps", "400"]


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "graph.npz"
    write_graph(csbm(0.5, n=200, f=6, seed=0), path)
    return path


def steps_kept(folder):
    try:
        return sum(json.loads((folder / "checkpoint.json").read_text())["ledger"].values())
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_a_killed_run_goes_on(run, graph, tmp_path):
    folder, out, uninterrupted = tmp_path / "unfinished", tmp_path / "run", tmp_path / "uninterrupted"
    words = ["train", graph, *FIT, "--out", out, "--checkpoint", folder, "--checkpoint-every", "20"]
    process = subprocess.Popen([sys.executable, "-m", "graphveil", *map(str, words)])
    try:
        give_up = time.monotonic() + 120
        while steps_kept(folder) < 60 and time.monotonic() < give_up:
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert 60 <= steps_kept(folder) < 800
    assert not out.exists()

    again = run(*words)
    assert again.returncode == 2
    assert again.stderr.count("\n") == 1
    assert "has spent epsilon" in again.stderr
    assert run(*words, "--resume", "--epsilon", "3").stderr.startswith("error: epsilon = 3.0: this checkpoint has 8.0")

    done = run(*words, "--resume")
    assert done.returncode == 0, done.stderr
    assert not folder.exists()
    assert run("train", graph, *FIT, "--out", uninterrupted).returncode == 0
    for name in ("predictions.csv", "certificate.json", "public/weights.safetensors", "owner/state.safetensors"):
        assert (out / name).read_bytes() == (uninterrupted / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--resume"], "name the folder"),
        (["--resume", "--checkpoint", "nowhere"], "no such folder"),
        (["--checkpoint", "new", "--checkpoint-every", "often"], "checkpoint_every = 'often'"),
        (["--checkpoint", "new", "--checkpoint-every", "0"], "checkpoint_every = 0"),
        (["--checkpoint", "new", "--epsilon", "0"], "epsilon = 0.0"),
    ],
)
def test_bad_input(run, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("train", "csbm", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
