"""A process that dies ends the job with a line, and the job goes on from its checkpoint."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from graphveil.distributed import Group, Shard, ShardedCheckpoint, fit, save
from graphveil.distributed.parts import write_parts
from graphveil.errors import InvalidInput
from graphveil.methods.dpdgc import DPDGC
from graphveil.privacy.levels import KNeighbor
from graphveil.storage import files as storage
from support.distributed_fits import graph
from support.jobs import together, torchrun

STEPS = 100
WORDS = f"--method dpdgc --table trained --steps {STEPS} --seed 5 --epsilon 8".split()


def uninterrupted(group, out):
    model = DPDGC(level=KNeighbor(k=1), epsilon=8.0, seed=5, steps=STEPS, table="trained")
    fit(model, Shard.of(graph(), group), group)
    save(model, out, group, also={})


def process_of(job, rank):
    """The id of a process that torchrun has started."""
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    wanted = f"\0RANK={rank}\0".encode()
    return next(int(pid) for pid in children if wanted in Path(f"/proc/{pid}/environ").read_bytes())


def wait_for(job, checkpoint, generation):
    end = time.monotonic() + 90
    while time.monotonic() < end and job.poll() is None:
        state = checkpoint / "checkpoint.json"
        if state.exists() and json.loads(state.read_text())["generation"] >= generation:
            return
        time.sleep(0.05)
    job.kill()
    raise AssertionError(f"the job came to nothing: {job.communicate()}")


@pytest.mark.slow
def test_a_killed_process_and_the_same_model_in_the_end(tmp_path):
    parts, checkpoint, out = tmp_path / "parts", tmp_path / "unfinished", tmp_path / "run"
    write_parts(graph(), parts, 2)
    command = ["-m", "graphveil", "train", parts, *WORDS, "--checkpoint", checkpoint]
    with torchrun(2, *command, "--checkpoint-every", "2") as job:
        wait_for(job, checkpoint, 3)
        os.kill(process_of(job, 1), signal.SIGKILL)
        _, errors = job.communicate(timeout=60)
    assert job.returncode != 0
    lines = [line for line in errors.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, errors
    assert f"go on from {checkpoint} with --resume" in lines[0]

    with torchrun(2, *command, "--resume", "--out", out, "--json") as job:
        printed, errors = job.communicate(timeout=120)
    assert job.returncode == 0, errors[-3000:]
    assert json.loads(printed)["processes"] == 2
    assert not checkpoint.exists()
    together(2, uninterrupted, tmp_path / "whole")
    for name in ("certificate.json", "public/weights.safetensors", "owner/state.safetensors", "predictions.csv"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_generation_counts_when_it_is_complete(tmp_path, monkeypatch):
    model = DPDGC(level=KNeighbor(k=1), epsilon=8.0, seed=5, steps=3, table="trained", hidden=8)
    shard, kept, fresh = Shard.of(graph(), Group(0, 1)), tmp_path / "kept", tmp_path / "fresh"
    real, writes = storage.replace_file, []

    def dies(path, data):
        writes.append(path)
        if len(writes) == 11:  # within a generation, after its tensors
            raise KeyboardInterrupt
        real(path, data)

    for module in ("graphveil.distributed.checkpoint", "graphveil.checkpoint.folder"):
        monkeypatch.setattr(f"{module}.replace_file", dies)
    with pytest.raises(KeyboardInterrupt), ShardedCheckpoint(kept, Group(0, 1), every=1) as checkpoint:
        fit(model, shard, Group(0, 1), checkpoint)
    monkeypatch.undo()
    state = json.loads((kept / "checkpoint.json").read_text())
    assert (kept / "rank-0000" / f"generation-{state['generation']}.json").exists()
    with ShardedCheckpoint(kept, Group(0, 1), every=1, resume=True) as checkpoint:
        fit(model, shard, Group(0, 1), checkpoint)
        checkpoint.discard()
    resumed = model.logits_
    with ShardedCheckpoint(fresh, Group(0, 1), every=1) as checkpoint:
        fit(model, shard, Group(0, 1), checkpoint)
    assert torch.equal(resumed, model.logits_)
    assert not kept.exists()


def test_refusals(tmp_path):
    kept, group = tmp_path / "kept", Group(0, 1)
    model = DPDGC(level=KNeighbor(k=1), epsilon=8.0, seed=5, steps=3, table="trained", hidden=8)
    with ShardedCheckpoint(kept, group, every=1) as checkpoint:
        fit(model, Shard.of(graph(), group), group, checkpoint)
    with pytest.raises(InvalidInput, match="holds an unfinished fit that has spent"), ShardedCheckpoint(kept, group):
        pass
    state = kept / "checkpoint.json"
    damaged = state.read_text().replace('"processes": 1', '"processes": 2')
    state.write_text(damaged)
    with pytest.raises(InvalidInput, match="it was changed"), ShardedCheckpoint(kept, group, resume=True):
        pass
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter").touch()
    with pytest.raises(InvalidInput, match="with other files in it, such as letter"), ShardedCheckpoint(other, group):
        pass


def as_many(group, kept):
    try:
        with ShardedCheckpoint(kept, group, resume=True):
            return ""
    except InvalidInput as error:
        return str(error)


@pytest.mark.slow
def test_as_many_processes_go_on_as_have_begun(tmp_path):
    kept, group = tmp_path / "kept", Group(0, 1)
    model = DPDGC(level=KNeighbor(k=1), epsilon=8.0, seed=5, steps=3, table="trained", hidden=8)
    with ShardedCheckpoint(kept, group, every=1) as checkpoint:
        fit(model, Shard.of(graph(), group), group, checkpoint)
    assert together(2, as_many, kept) == ["processes = 2: this checkpoint is of 1; resume with as many"] * 2
