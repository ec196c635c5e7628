"""Several processes: the first one's refusals are everybody's, and one fit gives one artifact."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import graphveil as gv
from graphveil import storage
from graphveil.checkpoint.folder import ARTIFACT, STATE
from graphveil.cli import train_sharded
from graphveil.cli.train import Options
from graphveil.cli.train_sharded import _train
from graphveil.distributed import Group, JobEnded, ShardedCheckpoint
from graphveil.distributed.parts import write_parts
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from graphveil.methods.dpdgc import DPDGC
from graphveil.privacy.levels import KNeighbor
from support.distributed_fits import graph
from support.jobs import together, torchrun

pytestmark = pytest.mark.slow


def train(group, out, budget=None, checkpoint=None, resume=False, fails=None):
    """What is said, and how many draws were made."""
    drawn, book, write, discard = [], Ledger._book, storage._write, ShardedCheckpoint.discard

    def counted(self, name, expected):
        drawn.append(name)
        return book(self, name, expected)

    def full(path, data):
        if fails == "disk" and path.is_relative_to(out.parent):
            raise OSError(28, os.strerror(28))
        write(path, data)

    def killed(self):
        raise KeyboardInterrupt

    Ledger._book, storage._write = counted, full
    if fails == "kill":
        ShardedCheckpoint.discard = killed
    os.chdir(out.parent.parent)
    model = DPDGC(level=KNeighbor(k=1), epsilon=8.0, seed=5, steps=3, table="trained", hidden=8)
    try:
        _train(model, Options("csbm", graph, out, budget, checkpoint, resume=resume, as_json=True), group)
        return "", len(drawn)
    except (InvalidInput, KeyboardInterrupt) as error:
        return str(error), len(drawn)
    finally:
        Ledger._book, storage._write, ShardedCheckpoint.discard = book, write, discard


def test_refusals_come_before_the_first_draw(tmp_path):
    out = tmp_path / "runs" / "run"
    for budget, place in ((1.0, out), (None, Path("/proc/x/run"))):
        outcomes = together(2, train, place, budget)
        assert outcomes[0] == outcomes[1]
        assert outcomes[0][0].startswith("budget = 1.0" if budget else "out = '/proc/x/run': cannot be written")
        assert outcomes[0][1] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_disk_that_fills_up_after_the_fit(tmp_path):
    (tmp_path / "runs").mkdir()
    outcomes = together(2, train, tmp_path / "runs" / "run", None, None, False, "disk")
    [place] = tmp_path.glob("graphveil-unsaved-*/run")
    assert [said for said, _ in outcomes] == [outcomes[0][0]] * 2
    assert f"the finished run is in {place} instead" in outcomes[0][0]
    assert sorted(tmp_path.iterdir()) == sorted([place.parent, tmp_path / "runs"])
    gv.load(place)


@pytest.mark.slow
def test_a_fit_gives_one_artifact(tmp_path):
    (tmp_path / "runs").mkdir()
    out, second, kept = (tmp_path / "runs" / name for name in ("run", "second", "kept"))
    together(2, train, out, None, kept, False, "kill")
    assert (kept / ARTIFACT).exists()
    outcomes = together(2, train, second, None, kept, True)
    assert [drawn for _, drawn in outcomes] == [0, 0]
    assert f"its fit is finished and saved in {out}; the checkpoint is removed" in outcomes[1][0]
    assert not kept.exists()
    assert not second.exists()


@pytest.mark.slow
def test_with_a_checkpoint_the_finished_fit_goes_elsewhere(tmp_path):
    out, second, kept = tmp_path / "disk" / "run", tmp_path / "runs" / "second", tmp_path / "kept"
    (tmp_path / "runs").mkdir()
    outcomes = together(2, train, out, None, kept, False, "disk")
    assert "the finished fit is kept in" in outcomes[0][0]
    assert together(2, train, second, None, kept, True) == [("", 0)] * 2
    assert not kept.exists()
    gv.load(second)


def test_a_lost_process_before_and_after_the_first_version_of_a_checkpoint(tmp_path, monkeypatch):
    """To go on is offered where there is something to go on from."""

    def lost(*_):
        raise JobEnded("another process of this job has ended")

    monkeypatch.setattr(train_sharded, "check_job", lambda: None)
    monkeypatch.setattr(train_sharded.Group, "joined", lost)
    kept, model = tmp_path / "kept", DPDGC(level=KNeighbor(k=1), epsilon=8.0, table="trained")
    options = Options("csbm", graph, None, None, kept, 60.0, False, True, "", False)
    with pytest.raises(JobEnded, match="no checkpoint was complete yet: start again without --resume"):
        train_sharded.train_sharded(model, options)
    kept.mkdir()
    (kept / STATE).touch()
    with pytest.raises(JobEnded, match=r"go on from .*kept with --resume"):
        train_sharded.train_sharded(model, options)


def said(group, words):
    return group.has_to_say(words[group.rank]) if words[group.rank] else None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["full", "full", "full"], [True, False, False]),
        (["full", "full", "lost"], [True, False, True]),
        (["", "full", ""], [None, True, None]),
    ],
)
def test_an_error_that_all_processes_have_is_said_once(words, expected):
    assert together(3, said, words) == expected
    assert Group(0, 1).has_to_say("full")


@pytest.mark.slow
def test_what_every_process_finds_wrong_is_one_line(tmp_path):
    write_parts(graph(), tmp_path / "parts", 2)
    command = ["-m", "graphveil", "train", tmp_path / "parts", "--steps", "2", "--epsilon", "8"]
    with torchrun(2, *command, "--checkpoint", tmp_path / "none", "--resume") as job:
        _, errors = job.communicate(timeout=120)
    assert job.returncode != 0
    lines = [line for line in errors.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, errors
    assert "there is no such folder to resume from" in lines[0]
