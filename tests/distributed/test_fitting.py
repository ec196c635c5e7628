"""1, 2 and 3 processes give the model that one process gives without torchrun, bit for bit, and the same names.

A process that dies ends the job with a line, and the job goes on from its checkpoint.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import graphveil as gv
from graphveil import storage
from graphveil.checkpoint import folder
from graphveil.cli import app
from graphveil.distributed import Group, Shard, ShardedCheckpoint, fit, save
from graphveil.distributed.parts import read_part, write_parts
from graphveil.errors import InvalidInput
from graphveil.graph import write_graph
from graphveil.graph.summary import Undeclared
from graphveil.methods.dpdgc import DPDGC
from graphveil.privacy.levels import KNeighbor
from graphveil.privacy.plan import Plan
from support.distributed_fits import CASES, graph, led, linked
from support.jobs import together, torchrun

# Made here once; calibration takes longer than these fits.
plan_of = cache(lambda name: (lambda data, model: model.plan(data))(*CASES[name]()))


@cache
def alone(name):
    """The model that one process gives without torchrun."""
    data, model = CASES[name]()
    with led(name):
        return model.execute(data, plan_of(name))


def fitted(group: Group, plans: dict[str, Plan]) -> dict[str, dict[str, object]]:
    results = {}
    for name, plan in plans.items():
        data, model = CASES[name]()
        shard = Shard.of(data, group, model.direction)
        assert shard.facts(group, edges=None) == plan.facts
        with led(name):
            fit(model, shard, group, plan=plan)
        rows = {"logits": model.logits_, **({"table": model._table} if hasattr(model, "_table") else {})}
        whole = {key: group.gathered(tensor, shard.layout.counts).numpy() for key, tensor in rows.items()}
        results[name] = {**whole, "certificate": model.certificate_.to_json()}
    return results


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "names"),
    [
        (1, [*CASES]),
        (2, [*CASES]),
        (3, [*CASES.keys() - {"sampled"}]),
    ],
)
def test_as_without_torchrun(processes, names):
    plans = {name: plan_of(name) for name in names}
    results = together(processes, fitted, plans)[0]
    for name in plans:
        model = alone(name)
        ours = {key: torch.from_numpy(value) for key, value in results[name].items() if key != "certificate"}
        assert results[name]["certificate"] == model.certificate_.to_json(), name
        assert torch.equal(ours["logits"], model.logits_), name
        assert "table" not in ours or torch.equal(ours["table"], model._table), name


def refused(group, seeds):
    model = gv.MLP(gv.KNeighbor(k=1), 8.0, seed=seeds[group.rank], steps=2)
    try:
        fit(model, Shard.of(graph(), group), group)
    except gv.GraphveilError as error:
        return str(error)


@pytest.mark.slow
def test_a_cluster_of_eight():
    plans = {
        name: plan_of(name)
        for name in ("auto", "auto at nodes", "auto at edges", "tables", "mlp", "gap", "gap at edges")
    }
    results = together(8, fitted, plans)
    for name in plans:
        model = alone(name)
        assert all(result[name]["certificate"] == model.certificate_.to_json() for result in results), name
        assert torch.equal(torch.from_numpy(results[0][name]["logits"]), model.logits_), name


@pytest.mark.slow
def test_the_default_on_the_command_line_gives_the_same_files(tmp_path):
    write_graph(linked(), tmp_path / "graph.npz")
    write_parts(linked(), tmp_path / "parts", 3)
    words = ["train", "--epsilon", "8", "--seed", "0", "--steps", "5", "--out"]
    with torchrun(2, "-m", "graphveil", *words, tmp_path / "two", tmp_path / "parts") as job:
        printed, errors = job.communicate(timeout=120)
    assert job.returncode == 0, errors[-3000:]
    assert "The graph was used" in printed
    said = CliRunner().invoke(app, [*words, str(tmp_path / "one"), str(tmp_path / "graph.npz")])
    assert said.exit_code == 0, said.output
    own = {"manifest.json", "metrics.json", "report.html", "owner/graph.json"}  # times, and a new salt
    one, two = (
        {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
        for run in (tmp_path / "one", tmp_path / "two")
    )
    assert one == two
    for name in one - own:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_other_options_than_those_of_the_first_process():
    first, second = together(2, refused, [0, 1])
    assert second == "seed = 1: is not what the first process was given"
    assert "another process of this job has ended" in first


def test_degrees_beyond_the_promise():
    one, level = Group(0, 1), gv.Node(max_degree=2)
    model = gv.DPDGC(level, 8.0, seed=0, steps=2, table="labels", cap_degrees=True)
    with pytest.raises(gv.InvalidInput, match="cap_degrees = True: does not run on several processes"):
        fit(model, Shard.of(graph(), one), one)
    with pytest.raises(gv.InvalidInput, match="max_degree = 2"):
        fit(model.set_params(cap_degrees=False), Shard.of(graph(), one), one)


def test_a_place_that_takes_no_folder(tmp_path):
    one, model = Group(0, 1), gv.MLP(gv.KNeighbor(k=1), 8.0, seed=0, steps=2)
    fit(model, Shard.of(graph(), one), one)
    (tmp_path / "file").touch()
    with pytest.raises(gv.InvalidInput, match=r"out = .*run': cannot be written"):
        save(model, tmp_path / "file" / "run", one, also={})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def named():
    ids = [f"p{i}" for i in range(502)]
    return graph().replace(node_ids=ids, class_names=["a, b", "node"], undeclared=Undeclared(classes=2))


def saved(group, folder, parts):
    model = gv.MLP(gv.KNeighbor(k=1), 8.0, seed=0, steps=2)
    fit(model, Shard.of(named(), group) if parts is None else read_part(parts, group), group)
    save(model, folder, group, also={})


@pytest.mark.slow
@pytest.mark.parametrize("divided", [False, True])
def test_predictions_are_by_name(tmp_path, divided):
    parts = tmp_path / "parts" if divided else None
    if divided:
        write_parts(named(), parts, 2)
    together(2, saved, tmp_path / "run", parts)
    with (tmp_path / "run/predictions.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["node", "prediction", "p(a, b)", "p(node)"]
    assert [row[0] for row in rows[1:]] == [f"p{i}" for i in range(502)]
    model = gv.load(tmp_path / "run")
    expected = model.predict_proba()
    assert [[float(p) for p in row[2:]] for row in rows[1:]] == pytest.approx(expected, abs=1e-7)
    assert [row[1] for row in rows[1:]] == [["a, b", "node"][best] for best in expected.argmax(1)]
    for name in ("certificate.json", "public/config.json", "public/model_card.md"):
        assert "a, b" not in (tmp_path / "run" / name).read_text()
    assert gv.load(tmp_path / "run", graph=named()).score(named().test_mask) > 0
    with pytest.raises(gv.InvalidInput, match="is not the graph that this model was trained on"):
        gv.load(tmp_path / "run", graph=named().with_split(9))


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

    monkeypatch.setattr("graphveil.checkpoint.folder.replace_file", dies)
    with pytest.raises(KeyboardInterrupt), ShardedCheckpoint(kept, Group(0, 1), every=1) as checkpoint:
        fit(model, shard, Group(0, 1), checkpoint)
    monkeypatch.undo()
    state = json.loads((kept / "checkpoint.json").read_text())
    assert (kept / "rank-0000-of-0001" / f"generation-{state['generation']}.json").exists()
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
    damaged = state.read_text().replace('"generation": ', '"generation": 1')
    state.write_text(damaged)
    with pytest.raises(InvalidInput, match="it was changed"), ShardedCheckpoint(kept, group, resume=True):
        pass
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter").touch()
    with pytest.raises(InvalidInput, match="with other files in it, such as letter"), ShardedCheckpoint(other, group):
        pass


def full(group, kept, plan):
    """The disk of the second process is full after some versions."""
    real, left = storage.replace_file, iter(range(4))

    def replace(path, data):
        if group.rank and next(left, None) is None:
            raise OSError(28, os.strerror(28))
        real(path, data)

    folder.replace_file = replace
    data, model = CASES["trained"]()
    try:
        with ShardedCheckpoint(kept, group, every=1) as checkpoint:
            fit(model, Shard.of(data, group, model.direction), group, checkpoint, plan)
    except InvalidInput as error:
        return str(error), error.everywhere
    finally:
        folder.replace_file = real


@pytest.mark.slow
def test_a_checkpoint_on_a_full_disk(tmp_path):
    first, second = together(2, full, tmp_path / "kept", plan_of("trained"))
    assert first == second
    assert "cannot be written: No space left on device" in first[0]
    _, logits, _ = together(2, resumed, "trained", tmp_path / "kept", plan_of("trained"))[0]
    assert torch.equal(torch.from_numpy(logits), alone("trained").logits_)


class Ended(BaseException):
    pass


def begun(group, name, kept, writes, plan):
    """A fit that ends after so many versions of its checkpoint."""
    data, model = CASES[name]()
    shard, left = Shard.of(data, group, model.direction), iter(range(writes))

    class Short(ShardedCheckpoint):
        def _keep(self, *words):
            super()._keep(*words)
            if next(left, None) is None:
                raise Ended

    with suppress(Ended), Short(kept, group, every=1) as checkpoint:
        fit(model, shard, group, checkpoint, plan)


def resumed(group, name, kept, plan, parts=None):
    data, model = CASES[name]()
    shard = Shard.of(data, group, model.direction) if parts is None else read_part(parts, group)
    try:
        with ShardedCheckpoint(kept, group, every=2, resume=True) as checkpoint:
            fit(model, shard, group, checkpoint, plan)
            left = sorted(path.name for path in kept.iterdir())
            checkpoint.discard()
    except InvalidInput as error:
        return str(error)
    return left, group.gathered(model.logits_, shard.layout.counts).numpy(), model.certificate_.to_json()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "writes"), [("trained", 4), ("tables", 5), ("gap", 8), ("folds", 30), ("auto", 12)])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_any_number_of_processes_goes_on(tmp_path, name, writes, before, after):
    kept = tmp_path / "kept"
    together(before, begun, name, kept, writes, plan_of(name))
    outcome = together(after, resumed, name, kept, plan_of(name))[0]
    assert not isinstance(outcome, str), outcome
    left, logits, certificate = outcome
    model = alone(name)
    assert left == ["checkpoint.json", *(f"rank-{rank:04d}-of-{after:04d}" for rank in range(after))]
    assert torch.equal(torch.from_numpy(logits), model.logits_)
    assert certificate == model.certificate_.to_json()
    assert not kept.exists()


@pytest.mark.slow
def test_as_many_processes_with_other_rows(tmp_path):
    together(2, begun, "trained", tmp_path / "kept", 3, plan_of("trained"))
    write_parts(graph(), tmp_path / "parts", 3)
    said = together(2, resumed, "trained", tmp_path / "kept", plan_of("trained"), tmp_path / "parts")
    assert all("as many processes have begun with other rows" in each for each in said)
