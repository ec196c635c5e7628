"""Killed at every write, a fit ends as if it had never been killed."""

import json
import random
from functools import partial

import pytest
import torch

from graphveil.checkpoint.folder import STATE
from graphveil.methods import defaults
from graphveil.methods.networks import Best
from support.checkpoints import CASES, GRAPH, fit_until_finished, make

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_disk")]


def same(model, expected):
    assert torch.equal(model.logits_, expected.logits_)
    assert model.certificate_ == expected.certificate_
    for name, value in vars(expected).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(model, name), value), name
        if isinstance(value, torch.nn.Module):
            ours, theirs = getattr(model, name).state_dict(), value.state_dict()
            assert all(torch.equal(ours[key], theirs[key]) for key in theirs), name


def watching(folder, plan):
    """At every death: counts that are no larger than planned and never go back."""
    before = dict.fromkeys((m.name for m in plan.mechanisms), 0)

    def watch():
        if not (folder / STATE).exists():
            return
        state = json.loads((folder / STATE).read_text())
        for mechanism in plan.mechanisms:
            # A branch is in the counts from when it was chosen.
            count = state["ledger"].get(mechanism.name, 0)
            assert before.get(mechanism.name, 0) <= count <= mechanism.uses
        before.update(state["ledger"])

    return watch


@pytest.mark.parametrize("case", CASES)
def test_killed_after_every_step_and_stage(case, folder, monkeypatch, uninterrupted):
    expected = uninterrupted(case)
    # The first two files are the start; in later lives the first two are one step, one draw, or one stage.
    model, lives = fit_until_finished(
        monkeypatch, folder, lambda life: (2, "after"), lambda: make(case), watch=watching(folder, expected.plan_)
    )
    assert lives > 3
    same(model, expected)
    assert not folder.exists()


@pytest.mark.parametrize("case", ["dpdgc trained", "dpdgc at edge level", "randedge"])
def test_killed_between_files(case, folder, monkeypatch, uninterrupted):
    draw = random.Random(0)
    model, lives = fit_until_finished(
        monkeypatch,
        folder,
        lambda life: (draw.randint(1, 6), draw.choice(["before", "after"])),
        lambda: make(case),
        watch=watching(folder, uninterrupted(case).plan_),
    )
    assert lives > 3
    same(model, uninterrupted(case))


@pytest.mark.parametrize("case", ["dpdgc labels", "gap at edge level"])
def test_killed_in_the_middle_of_a_training(case, folder, monkeypatch, uninterrupted):
    """Work since the last checkpoint is lost and done again, with the same noise."""
    model, _ = fit_until_finished(monkeypatch, folder, lambda life: (4, "before"), lambda: make(case), every=2)
    same(model, uninterrupted(case))


@pytest.mark.parametrize("writes", [(2, "after"), (3, "before"), (5, "after")])
def test_a_training_that_ends_early_is_not_continued(writes, folder, monkeypatch):
    """Training of features stops after an epoch that is no better, also in the life after it."""
    monkeypatch.setattr(defaults, "PATIENCE", 1)
    steps = []
    offer = Best.offer
    monkeypatch.setattr(Best, "offer", lambda self, score: (steps.append(score), offer(self, score))[1])
    make_model = partial(make, "dpdgc at edge level", epochs=9, free_learning_rate=0.3)
    expected = make_model().fit(GRAPH)
    assert 0 < len(steps) < 2 * 9, "both folds must end early"
    model, lives = fit_until_finished(monkeypatch, folder, lambda life: writes, make_model)
    assert lives > 3
    same(model, expected)


def test_a_checkpoint_changes_nothing(folder, uninterrupted):
    same(make("dpdgc labels").fit(GRAPH, checkpoint=folder), uninterrupted("dpdgc labels"))
    assert not folder.exists()


@pytest.mark.parametrize("case", ["dpdgc trained", "dpdgc labels", "dpdgc at node level", "gap", "randedge"])
def test_without_a_seed(case, folder, monkeypatch, uninterrupted):
    """Each life has a key of its own; what was drawn is kept, and no key is."""
    plan = uninterrupted(case).plan_
    released = {}

    def watch():
        watching(folder, plan)()
        for path in folder.glob("stage-*"):
            released.setdefault(path.name, path.read_bytes())
            assert path.read_bytes() == released[path.name]

    model, lives = fit_until_finished(
        monkeypatch, folder, lambda life: (2, "after"), lambda: make(case, seed=None), watch=watch
    )
    assert lives > 3
    assert model.certificate_.secure
    assert model.certificate_.epsilon == uninterrupted(case).certificate_.epsilon
