"""Recorded fits, and replays of them on other graphs."""

import math
from functools import partial

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.auditing.adjacent_fits import adjacent_graphs, small_part
from graphveil.auditing.recording import (
    Entry,
    Recorder,
    ledger_on_branch,
    log_likelihood_ratio,
    recorded_fit,
    replayed_fit,
)
from graphveil.execution import Ledger
from graphveil.privacy.mechanisms import Responses
from support.audits import GRAPH, directed_graph, maker

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


@pytest.mark.parametrize("branch", ["features", "sums", "balanced", "graph"])
def test_a_replay_follows_the_recorded_branch(branch):
    """The choice is post-processing of what was released, so both graphs follow it, whatever they would have chosen."""
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), LEVEL, seed=3)
    recorder, model = recorded_fit(
        maker("auto", LEVEL, 8.0, **AUTO), pair.after, 5, partial(ledger_on_branch, branch, Ledger)
    )
    assert model.certificate_.followed == branch
    assert (f"{branch} release" in recorder.used) == model.graph_used_ == (branch in ("balanced", "graph"))
    assert ("more features" in recorder.used) == (branch == "features")
    assert ("more class sums" in recorder.used) == (branch == "sums")
    assert [m.name for m in model.certificate_.mechanisms] == list(recorder.used)
    same, other = (
        replayed_fit(maker("auto", LEVEL, 8.0, **AUTO), graph, recorder, None) for graph in (pair.after, pair.before)
    )
    assert all(torch.equal(entry.given, given) for entry, given in zip(recorder.entries, same.given, strict=True))
    assert set(same.used) == set(other.used) == set(recorder.used)
    assert np.isfinite(log_likelihood_ratio(recorder, same, other, pair.own))
    assert log_likelihood_ratio(recorder, same, same, pair.own) == 0


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("level", [gv.KNeighbor(0), LEVEL, gv.Node(20), gv.Node(20, unit="zero-out")], ids=str)
@pytest.mark.parametrize(("epsilon", "width"), [(0.5, 6), (16.0, 6), (4.0, 40)])
def test_every_branch_can_be_forced(level, directed, epsilon, width):
    graph = directed_graph() if directed else GRAPH
    wide = torch.randn(graph.num_nodes, width, generator=torch.Generator().manual_seed(0))
    graph = graph.replace(features=wide) if width > 6 else graph
    make = maker("auto", level, epsilon, max_degree=20, **AUTO)
    branches = [branch.name for branch in make().plan(graph).branches]
    assert branches[:2] == ["features", "sums"]
    if directed:
        assert branches[2:] == ([] if isinstance(level, gv.Node) else ["balanced"])
    else:
        assert branches[2:] == (["balanced", "graph"] if width == 6 else ["balanced", "joint", "graph"])
    for branch in branches:
        model = make().execute(graph, make_ledger=partial(ledger_on_branch, branch, Ledger))
        assert model.certificate_.followed == branch


@pytest.mark.parametrize("level", [gv.Edge("undirected"), gv.KNeighbor(2)], ids=str)
def test_the_ratio_is_that_of_the_densities(level):
    """Normal densities of every draw, and probabilities of responses, in the rows that the adversary sees."""
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), level, seed=3)
    make = maker("dpdgc", level, table="labels")
    recorder, _ = recorded_fit(make, pair.after, seed=5)
    heads, tails = (replayed_fit(make, graph, recorder, pair.own) for graph in (pair.after, pair.before))
    seen = torch.from_numpy(pair.others)

    def log_density(given):
        total = 0.0
        for entry, value in zip(recorder.entries, given, strict=True):
            mechanism = recorder.plan[entry.name]
            got = entry.got
            if isinstance(mechanism, Responses):
                right = math.exp(mechanism.epsilon) / (math.exp(mechanism.epsilon) + mechanism.classes - 1)
                wrong = (1 - right) / (mechanism.classes - 1)
                total += float(torch.where(got == value, math.log(right), math.log(wrong)).sum())
                continue
            if mechanism.role == "release" and pair.own is not None:
                got, value = got[seen], value[seen]
            normal = torch.distributions.Normal(value.double(), mechanism.noise)
            total += float(normal.log_prob(got.double()).sum())
        return total

    expected = log_density(heads.given) - log_density(tails.given)
    assert abs(expected) > 0.01
    assert log_likelihood_ratio(recorder, heads, tails, pair.own) == pytest.approx(expected, rel=1e-6)
