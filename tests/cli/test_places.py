"""Where a run goes is checked before anything is spent, and what was spent is never lost."""

import json
import os
import resource
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

import graphveil as gv
from graphveil import storage
from graphveil.artifact import saving
from graphveil.checkpoint.folder import ARTIFACT, STATE
from graphveil.execution import Ledger
from graphveil.graph import csbm, write_graph

FIT = ["--seed", "7", "--steps", "3", "--method", "dpdgc"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "graph.npz"
    write_graph(csbm(0.5, n=200, f=6, seed=0), path)
    return path


@pytest.fixture
def draws(monkeypatch):
    """The draws of noise that were made."""
    made, book = [], Ledger._book

    def counted(self, name, expected):
        made.append(name)
        return book(self, name, expected)

    monkeypatch.setattr(Ledger, "_book", counted)
    return made


@pytest.fixture
def refused(run, graph, draws, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def refused(*words, message):
        before = sorted(tmp_path.rglob("*"))
        done = run("train", graph, *FIT, *words)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert draws == []
        assert sorted(tmp_path.rglob("*")) == before

    return refused


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("file/run", "cannot be written"),
        ("/proc/run", "cannot be written"),
        ("/sys/below/run", "cannot be written"),
        ("y" * 300, "File name too long"),
        # Files are written beside their place first, under a longer name.
        ("y" * 250, "File name too long"),
        ("a/" * 2040 + "run", "File name too long"),
        ("folder", "exists already"),
        ("dangling", "exists already"),
        ("folder/..", "exists already"),
        (".", "exists already"),
    ],
)
def test_a_place_that_cannot_be_written(refused, tmp_path, out, message):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    refused("--out", out, message=message)


@pytest.mark.parametrize(
    ("out", "checkpoint"),
    [
        ("run", "run"),
        ("run", "run/kept"),
        ("kept/run", "kept"),
        ("run", "folder/../run/kept"),
        ("link/run", "folder/run"),
    ],
)
def test_run_and_checkpoint_are_apart(refused, tmp_path, out, checkpoint):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    refused("--out", out, "--checkpoint", checkpoint, message="checkpoint = ")


@pytest.mark.parametrize("checkpoint", ["file/kept", "/proc/kept", "y" * 300])
def test_a_checkpoint_that_cannot_be_written(refused, tmp_path, checkpoint):
    (tmp_path / "file").write_text("")
    refused("--out", "run", "--checkpoint", checkpoint, message="checkpoint = ")


@pytest.mark.parametrize("budget", ["nan", "inf", "0", "-1", "1e-3", "7.5"])
def test_budgets(refused, budget):
    refused("--out", "run", "--budget", budget, message="budget = ")


def test_a_budget_that_the_certificate_keeps_to(run, graph, tmp_path):
    """What is certified is a little less than what was asked for."""
    asked = json.loads(run("train", graph, *FIT, "--json").stdout)["epsilon"]
    assert asked < 8
    done = run("train", graph, *FIT, "--out", tmp_path / "run", "--budget", (asked + 8) / 2)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["--out", "run"], ["--checkpoint", "kept"]], ids=" ".join)
def test_a_full_disk(refused, monkeypatch, words):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=2**20))
    refused(*words, message="are free there; nothing was spent")


@pytest.mark.slow
def test_the_estimate_is_enough(run, graph, tmp_path):
    """The files of a run take no more than was asked of the disk."""
    for method in ("dpdgc", "gap", "mlp"):
        model = gv.load(_trained(run, graph, tmp_path / method, method))
        weights, rows = saving._sizes(model, model.plan_)
        kept = {path.name: path.stat().st_size for path in (tmp_path / method).rglob("*.safetensors")}
        assert weights <= kept["weights.safetensors"] <= weights + 2**14
        assert rows <= kept["state.safetensors"] <= rows + 2**14
        lines = (tmp_path / method / "predictions.csv").stat().st_size
        assert lines <= 200 * (saving._PER_NODE + saving._PER_CLASS * 2)


def _trained(run, graph, out, method):
    done = run("train", graph, "--seed", 7, "--steps", 3, "--method", method, "--level", "edge", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def full(monkeypatch, out):
    """From now on, nothing can be written below this folder."""
    write = storage._write

    def refuse(path, data):
        if path.is_relative_to(out.parent):
            raise OSError(28, os.strerror(28))
        write(path, data)

    monkeypatch.setattr(storage, "_write", refuse)


def test_a_disk_that_fills_up_after_the_fit(run, graph, tmp_path, monkeypatch, draws):
    out, elsewhere = tmp_path / "disk" / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with monkeypatch.context() as patch:
        full(patch, out)
        done = run("train", graph, *FIT, "--out", out)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot be written: No space left on device; the finished run is in" in done.stderr
    [place] = elsewhere.glob("graphveil-unsaved-*/run")
    assert str(place) in done.stderr
    assert os.stat(place.parent).st_mode & 0o077 == 0
    assert list(out.parent.iterdir()) == []
    made = len(draws)
    assert gv.load(place).certificate_.epsilon <= 8
    assert (place / "predictions.csv").exists()
    assert len(draws) == made


def test_with_a_checkpoint_the_finished_fit_stays_there(run, graph, tmp_path, monkeypatch, draws):
    out, kept, other = tmp_path / "disk" / "run", tmp_path / "kept", tmp_path / "other"
    words = ["train", graph, *FIT, "--checkpoint", kept]
    with monkeypatch.context() as patch:
        full(patch, out)
        done = run(*words, "--out", out)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"the finished fit is kept in {kept}: go on with --resume and another --out" in done.stderr
    assert json.loads((kept / ARTIFACT).read_text())["folder"] == str(out)
    draws.clear()
    done = run(*words, "--out", other, "--resume")
    assert done.returncode == 0, done.stderr
    assert draws == []
    assert not kept.exists()
    gv.load(other)


@pytest.mark.slow
def test_a_file_size_limit_in_a_process_of_its_own(graph, tmp_path):
    """No patches: the system itself refuses to write."""
    words = ["train", graph, "--steps", 3, "--method", "mlp", "--level", "edge", "--out", tmp_path / "run"]
    done = subprocess.run(
        [sys.executable, "-m", "graphveil", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)),
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_written_costs_no_run(run, graph, tmp_path, monkeypatch):
    from graphveil import report

    def refuse(*_):
        raise gv.InvalidInput("out", "run", "cannot be written to")

    monkeypatch.setattr(report, "write_files", refuse)
    done = run("train", graph, *FIT, "--out", tmp_path / "run", "--checkpoint", tmp_path / "kept")
    assert done.returncode == 0
    assert "the run is complete, its report is not" in done.stderr
    assert not (tmp_path / "kept").exists()
    gv.load(tmp_path / "run")


@pytest.fixture
def killed_before_discarding(run, graph, tmp_path, monkeypatch):
    """A run that is complete, and its checkpoint, which is still there."""
    from graphveil.checkpoint import Checkpoint

    def die(self):
        raise KeyboardInterrupt

    out, kept = tmp_path / "run", tmp_path / "kept"
    words = ["train", graph, *FIT, "--checkpoint", kept]
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "discard", die)
        assert run(*words, "--out", out).returncode == 130
    assert (kept / STATE).exists()
    return SimpleNamespace(words=words, out=out, kept=kept)


@pytest.mark.parametrize("other", [False, True], ids=["same out", "another out"])
def test_a_fit_gives_one_artifact(run, killed_before_discarding, tmp_path, draws, other):
    left = killed_before_discarding
    whole = {path: path.read_bytes() for path in left.out.rglob("*") if path.is_file()}
    out = tmp_path / "second" if other else left.out
    done = run(*left.words, "--out", out, "--resume", "--json")
    assert done.returncode == 0, done.stderr
    assert f"its fit is finished and saved in {left.out}; the checkpoint is removed" in done.stderr
    assert json.loads(done.stdout)["epsilon"] == json.loads((left.out / "metrics.json").read_text())["epsilon"]
    assert draws == []
    assert not left.kept.exists()
    assert not (tmp_path / "second").exists()
    assert {path: path.read_bytes() for path in left.out.rglob("*") if path.is_file()} == whole


def test_a_new_fit_is_not_begun_over_one_that_is_saved(run, killed_before_discarding, tmp_path, draws):
    left = killed_before_discarding
    done = run(*left.words, "--out", tmp_path / "second")
    assert done.returncode == 2
    assert f"finished and saved in {left.out}; delete the folder" in done.stderr
    assert draws == []


def test_another_run_in_its_place_is_not_mistaken_for_it(run, graph, killed_before_discarding, tmp_path, draws):
    left = killed_before_discarding
    shutil.rmtree(left.out)
    assert run("train", graph, "--steps", 3, "--method", "mlp", "--out", left.out).returncode == 0
    draws.clear()
    assert "exists already" in run(*left.words, "--out", left.out, "--resume").stderr
    assert left.kept.exists()
    done = run(*left.words, "--out", tmp_path / "second", "--resume")
    assert done.returncode == 0, done.stderr
    assert draws == []
    assert gv.load(tmp_path / "second").method == "dpdgc"


def test_a_damaged_artifact_is_not_written_a_second_time(run, killed_before_discarding, tmp_path):
    left = killed_before_discarding
    (left.out / "certificate.txt").write_text("changed")
    done = run(*left.words, "--out", tmp_path / "second", "--resume")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr
    assert left.kept.exists()
    assert not (tmp_path / "second").exists()
