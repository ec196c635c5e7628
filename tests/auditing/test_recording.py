"""Recorded fits, and replays of them on other graphs."""

from functools import partial

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.auditing.adjacent import adjacent_graphs, small_part
from graphveil.auditing.recording import (
    Entry,
    Recorder,
    ledger_with_choice,
    log_likelihood_ratio,
    recorded_fit,
    replayed_fit,
)
from graphveil.execution import Ledger
from support.audits import GRAPH, maker

LEVEL = gv.KNeighbor(1)
AUTO = {"epochs": 5, "delta": 1e-3}


def test_the_ratio_does_not_depend_on_the_row_that_the_adversary_must_not_see():
    level = gv.KNeighbor(2)
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), level, seed=3)
    make = maker("dpdgc", level)
    recorder, _ = recorded_fit(make, pair.after, seed=5)

    def ratio():
        heads, tails = (replayed_fit(make, graph, recorder, pair.own) for graph in (pair.after, pair.before))
        return log_likelihood_ratio(recorder, heads, tails, pair.own)

    before = ratio()
    for place, entry in enumerate(recorder.entries):
        if entry.name == "release":
            got = entry.got.clone()
            got[pair.own] = 1e6
            recorder.entries[place] = Entry(entry.name, entry.given, got)
    assert ratio() == before


def test_a_replay_of_the_same_graph_puts_in_the_same():
    level = gv.Edge("undirected")
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), level, seed=3)
    recorder, _ = recorded_fit(maker("dpdgc", level), pair.after, seed=5)
    again = replayed_fit(maker("dpdgc", level), pair.after, recorder, None)
    assert all(torch.equal(entry.given, given) for entry, given in zip(recorder.entries, again.given, strict=True))


def test_plan_and_ledger_are_handed_in():
    make, ledgers = maker("mlp", gv.KNeighbor(1)), []

    def make_ledger(plan, source):
        ledgers.append(Recorder(Ledger(plan, source)))
        return ledgers[-1]

    plan = make().plan(GRAPH)
    watched = make().execute(GRAPH, plan, make_ledger)
    assert ledgers[0].planned is plan
    assert len(ledgers[0].entries) == 3
    assert torch.equal(watched.logits_, make().fit(GRAPH).logits_)
    assert len(ledgers) == 1


@pytest.mark.parametrize("outcome", [True, False])
def test_a_replay_follows_the_recorded_branch(outcome):
    """The choice is post-processing of what was released, so both graphs follow it, whatever they would have chosen."""
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), LEVEL, seed=3)
    recorder, model = recorded_fit(
        maker("auto", LEVEL, 8.0, **AUTO), pair.after, 5, partial(ledger_with_choice, outcome, Ledger)
    )
    assert ("release" in recorder.used) == outcome
    assert ("more features" in recorder.used) != outcome
    assert [m.name for m in model.certificate_.mechanisms] == list(recorder.used)
    same, other = (
        replayed_fit(maker("auto", LEVEL, 8.0, **AUTO), graph, recorder, None) for graph in (pair.after, pair.before)
    )
    assert all(torch.equal(entry.given, given) for entry, given in zip(recorder.entries, same.given, strict=True))
    assert set(same.used) == set(other.used) == set(recorder.used)
    assert np.isfinite(log_likelihood_ratio(recorder, same, other, pair.own))
    assert log_likelihood_ratio(recorder, same, same, pair.own) == 0
