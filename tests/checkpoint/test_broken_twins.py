"""Mistakes that would break a resumed fit, each made on purpose and each noticed."""

import itertools
import os

import pytest
import torch
from safetensors.torch import load_file

from graphveil import checkpoint
from graphveil.checkpoint import Checkpoint
from graphveil.checkpoint.folder import STATE, CheckpointFolder
from graphveil.errors import BudgetExceeded
from graphveil.execution import Ledger
from graphveil.noise import NoiseSource
from support.checkpoints import GRAPH, fit_until_finished, make

pytestmark = pytest.mark.usefixtures("quick_disk")


def many_lives(monkeypatch, folder, case="dpdgc trained", seed=1):
    return fit_until_finished(monkeypatch, folder, lambda life: (2, "after"), lambda: make(case, seed=seed))[0]


@pytest.mark.parametrize("case", ["mlp", "dpdgc labels", "randedge"])
def test_counts_that_are_not_restored(case, folder, monkeypatch):
    monkeypatch.setattr(Ledger, "resume", lambda self, used: None)
    with pytest.raises(BudgetExceeded, match="was not executed as planned"):
        many_lives(monkeypatch, folder, case)


def test_a_keystream_that_begins_again(folder, monkeypatch):
    expected = make("dpdgc trained", seed=1).fit(GRAPH)
    assert torch.equal(many_lives(monkeypatch, folder).logits_, expected.logits_)
    monkeypatch.setattr(NoiseSource, "seek", lambda self, position: None)
    assert not torch.equal(many_lives(monkeypatch, folder).logits_, expected.logits_)


def test_a_generator_that_begins_again(folder, monkeypatch):
    """As without a seed, torch's generator begins elsewhere in every life but the first."""
    case = "dpdgc with public attributes"
    expected = make(case, seed=1).fit(GRAPH)
    begin = torch.manual_seed

    def lives():
        seeds = itertools.count(1)
        monkeypatch.setattr(torch, "manual_seed", lambda seed: begin(next(seeds)))
        return many_lives(monkeypatch, folder, case)

    assert torch.equal(lives().logits_, expected.logits_)
    monkeypatch.setattr(checkpoint.torch, "set_rng_state", lambda state: None)
    assert not torch.equal(lives().logits_, expected.logits_)


@pytest.mark.parametrize("case", ["dpdgc trained", "dpdgc labels", "gap", "randedge"])
def test_a_release_that_is_drawn_again(case, folder, monkeypatch):
    def draw(self, name, draw, fits):
        kept, value = self._reach(name), draw()
        if kept is None:
            self._keep(name, 1, 1, {"value": value})
        return value

    monkeypatch.setattr(Checkpoint, "draw", draw)
    with pytest.raises(BudgetExceeded):
        many_lives(monkeypatch, folder, case, seed=None)


def leaves_one_version(monkeypatch, folder):
    """Whether nothing but the last state and its stages is there whenever a fit draws."""
    complete = []

    def look(self, *rest):
        complete.append(set(os.listdir(folder)) == self.stages.inner._state.files | {STATE})
        return book(self, *rest)

    book = Ledger._book
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_book", look)
        fit_until_finished(
            monkeypatch,
            folder,
            lambda life: (4, ("before", "after")[life % 2]),
            lambda: make("gap", seed=None),
            every=2,
        )
    return all(complete)


def test_an_old_version_that_stays(folder, monkeypatch):
    assert leaves_one_version(monkeypatch, folder)
    monkeypatch.setattr(CheckpointFolder, "remove_the_rest", lambda self, kept: None)
    assert not leaves_one_version(monkeypatch, folder)


class KeptTooLate(Checkpoint):
    def draw(self, name, draw, fits):
        self._reach(name)
        self._keep(name, 1, 1, {})
        return draw()


def keeps_before_use(monkeypatch, folder, cls):
    """Whether every release is on disk when the method gets it."""
    kept, release = [], Ledger.release

    def look(self, name, value):
        got = release(self, name, value)
        files = [load_file(path) for path in folder.glob("stage-*")]
        kept.append(any("value" in each and torch.equal(each["value"], got) for each in files))
        return got

    with monkeypatch.context() as patch, cls(folder) as opened:
        patch.setattr(Ledger, "release", look)
        make("gap", seed=None).fit(GRAPH, checkpoint=opened)
        opened.discard()
    return all(kept)


def test_a_release_that_is_kept_too_late(folder, monkeypatch):
    assert keeps_before_use(monkeypatch, folder, Checkpoint)
    assert not keeps_before_use(monkeypatch, folder, KeptTooLate)
