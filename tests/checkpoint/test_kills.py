"""SIGKILL at random moments of fit and save, twenty times and more: nothing is lost, overspent or corrupt."""

import json
import multiprocessing
import os
import random
import signal
import time

import pytest
import torch

import graphveil as gv
from graphveil.checkpoint import Checkpoint
from graphveil.checkpoint.folder import STATE
from graphveil.execution import Ledger
from support.checkpoints import GRAPH, make

FORK = multiprocessing.get_context("fork")
LONG = {"steps": 32}


def fit_and_save(case, seed, folder, out, log):
    """One life, with steps that take a while; `log` gets a line for each draw."""
    book = Ledger._book

    def slow(self, name, expected):
        log.write(f"{name} {self.used[name]}\n")
        log.flush()
        time.sleep(0.003)
        return book(self, name, expected)

    Ledger._book = slow
    with Checkpoint(folder, every=3, resume=(folder / STATE).exists()) as kept:
        model = make(case, seed, **LONG).fit(GRAPH, checkpoint=kept)
        model.save(out)
        kept.discard()


def counts(folder):
    try:
        return json.loads((folder / STATE).read_text())["ledger"]
    except FileNotFoundError:
        return {}


def killed_until_finished(case, seed, tmp_path, draw):
    """The saved model, the number of kills, and the counts that each life began with beside what it drew."""
    folder, out, kills, lives = tmp_path / "unfinished", tmp_path / "run", 0, []
    while not out.exists():
        begun = counts(folder)
        with (tmp_path / "log").open("w") as log:
            process = FORK.Process(target=fit_and_save, args=(case, seed, folder, out, log))
            process.start()
            process.join(draw.uniform(0.02, 0.3) * (1 + kills / 10))  # patience, on a busy machine
            if process.is_alive():
                kills += 1
                os.kill(process.pid, signal.SIGKILL)
            process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        lives.append((begun, [line.split() for line in (tmp_path / "log").read_text().splitlines()]))
    return gv.load(out), kills, lives


@pytest.mark.slow
@pytest.mark.usefixtures("quick_disk")  # a kill loses nothing that was written
def test_twenty_kills(tmp_path):
    draw, kills = random.Random(0), 0
    expected = {case: make(case, **LONG).fit(GRAPH) for case in ("dpdgc trained", "gap")}
    for number in range(20):
        case = ("dpdgc trained", "gap")[number % 2]
        seed = expected[case].seed if number % 4 < 2 else None
        place = tmp_path / str(number)
        place.mkdir()
        model, killed, lives = killed_until_finished(case, seed, place, draw)
        kills += killed
        assert model.certificate_.epsilon == expected[case].certificate_.epsilon
        if seed is not None:
            assert torch.equal(model.logits_, expected[case].logits_)
            assert model.certificate_ == expected[case].certificate_
        for begun, drawn in lives:
            first = {name: int(count) for name, count in reversed(drawn)}
            assert all(count == begun.get(name, 0) for name, count in first.items())
            assert all(int(count) < model.plan_[name].uses for name, count in drawn)
        if kills >= 20 and number >= 3:
            return
    pytest.fail(f"only {kills} kills")
