"""Audits of a plan that branches: both branches, the choice between them, and runs that follow the recorded one."""

from functools import partial

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.auditing import audit
from graphveil.auditing.arithmetic import _decided
from graphveil.auditing.bounds import Branches, lower_bound
from graphveil.auditing.canaries import canary_of, copies
from graphveil.auditing.end_to_end import recorded_fit, replayed_fit, run_trials
from graphveil.auditing.instruments import log_likelihood_ratio
from graphveil.auditing.one_run import one_run_scores
from graphveil.auditing.pairs import adjacent_graphs, small_part
from graphveil.auditing.scores import Scores, toss
from graphveil.auditing.subject import KIND, Subject, held_at
from graphveil.execution import Ledger
from graphveil.graph import Graph, csbm
from graphveil.methods.spending import make_plan
from graphveil.privacy.accounting import Gaussian, compose
from graphveil.privacy.facts import PublicFacts

GRAPH = csbm(0.5, n=300, f=6, d=4, seed=2)
LEVEL = gv.KNeighbor(1)
FACTS = PublicFacts(nodes=1000, train_nodes=750, features=20, classes=3)


def directed_graph():
    """GRAPH with a part of its entries, each by itself."""
    entries = GRAPH.to_scipy().tocoo()
    kept = np.random.default_rng(0).random(entries.nnz) < 0.7
    masks = {name: getattr(GRAPH, name) for name in ("train_mask", "val_mask", "test_mask")}
    edges = np.stack([entries.coords[0][kept], entries.coords[1][kept]])
    return Graph.from_edge_index(edges, x=GRAPH.features, y=GRAPH.labels, directed=True, **masks)


def maker(level=LEVEL, epsilon=8.0):
    options = {"seed": 0, "steps": 3, "epochs": 5, "hidden": 8, "delta": 1e-3, "show_progress": False}
    return lambda: gv.Auto(level=level, epsilon=epsilon, **options)


def test_auto_is_audited_in_both_branches():
    report = audit("auto", LEVEL, 4.0, graph=GRAPH, attacks=["gradient", "release", "response", "joint"],
                   trials=20_000, steps=20, seed=1)  # fmt: skip
    assert report.verdict == "consistent"
    assert 2.5 <= report.lower_bound <= 4.0
    together = [finding.target for finding in report.findings if finding.attack == "joint"]
    assert together == ["features + choice + labels + release + head", "features + choice + more features"]
    assert {"choice", "more features"} <= {finding.target for finding in report.findings}
    assert all(finding.claimed_epsilon <= report.certified_epsilon for finding in report.findings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "epsilon", "directed"),
    [(gv.Edge(), 4.0, False), (LEVEL, 1.0, False), (LEVEL, 8.0, True)],
    ids=str,
)
def test_whole_fits_of_auto_are_consistent(level, epsilon, directed):
    graph = directed_graph() if directed else GRAPH
    attacks = ["joint", "one-run", "links", *(["end-to-end"] if level == LEVEL else [])]  # with free training: long
    report = audit("auto", level, epsilon, graph=graph, attacks=attacks, trials=2000, fits=40, steps=5,
                   epochs=3, folds=2, confidence=0.99, seed=1)  # fmt: skip
    assert report.verdict == "consistent"
    assert {finding.attack for finding in report.findings} & {"one-run", "end-to-end"}
    assert report.leaks


@pytest.mark.parametrize("outcome", [True, False])
def test_a_replay_follows_the_recorded_branch(outcome):
    """The choice is post-processing of what was released, so both graphs follow it, whatever they would have chosen."""
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), LEVEL, seed=3)
    recorder, model = recorded_fit(maker(), pair.after, 5, partial(_decided, outcome, Ledger))
    assert ("release" in recorder.used) == outcome
    assert ("more features" in recorder.used) != outcome
    assert [m.name for m in model.certificate_.mechanisms] == list(recorder.used)
    same, other = (replayed_fit(maker(), graph, recorder, None) for graph in (pair.after, pair.before))
    assert all(torch.equal(entry.given, given) for entry, given in zip(recorder.entries, same.given, strict=True))
    assert set(same.used) == set(other.used) == set(recorder.used)
    assert np.isfinite(log_likelihood_ratio(recorder, same, other, pair.own))
    assert log_likelihood_ratio(recorder, same, same, pair.own) == 0


def test_trials_that_take_different_branches_have_rows_of_one_length():
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), LEVEL, seed=3)
    branches = iter([True, False] * 5)
    taken = []

    def alternating(plan, source):
        taken.append(next(branches))
        return _decided(taken[-1], Ledger, plan, source)

    trials = run_trials(maker(), pair, 10, 1, alternating, replay=False)
    assert set(taken) == {True, False}
    assert {len(view) for view in trials.views.values()} == {10}
    assert {"released", "weights", "predictions", "query"} == set(trials.scores())


def test_one_run_reads_the_release_where_the_graph_is_read():
    scores = {
        outcome: one_run_scores(maker(epsilon=200.0), GRAPH, LEVEL, 1, partial(_decided, outcome, Ledger))
        for outcome in (True, False)
    }
    assert scores[True].auc > 0.8
    assert not scores[False].values.any()


def test_the_claim_of_a_branching_plan_is_the_larger_one_at_its_part_of_delta():
    plan = make_plan("auto", LEVEL, FACTS, epsilon=4.0, delta=1e-5)
    claim = Subject.sound(plan).whole_claim()
    assert isinstance(claim, Branches)
    assert claim.epsilon(1e-5) == pytest.approx(max(plan.epsilon_by_kind().values()))
    assert claim.delta(claim.epsilon(1e-5)) <= 1e-5 * (1 + 1e-9)
    assert claim.delta(0.0) <= 1


def test_a_branch_with_too_little_noise_is_seen_by_the_whole_claim():
    """Coins that are told apart better than either branch allows."""
    rng = np.random.default_rng(0)
    coins = toss(4000, rng)
    claim = Branches((compose([Gaussian(1.0)]), compose([Gaussian(0.8)])))
    for mu, most in ((1.0, True), (3.5, False)):
        scores = Scores(coins, mu * (rng.normal(size=4000) + mu * (coins - 0.5)))
        assert (lower_bound(scores, 1e-5, 0.99, claim).epsilon <= claim.epsilon(1e-5)) == most


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("level", [gv.KNeighbor(1), gv.KNeighbor(5), gv.Node(8)], ids=str)
def test_the_canary_of_the_choice_is_a_pair_of_graphs(level, directed):
    """By the method's own sums; no pair attains the sum of the bounds of all terms, these come near."""
    if directed and isinstance(level, gv.Node):
        return  # such a graph is left without asking
    facts = PublicFacts(1000, 750, 20, 3, directed=directed)
    plan = make_plan("auto", level, facts, epsilon=16.0, delta=1e-5)
    canary, query = canary_of(plan, plan["choice"], held_at)
    values = [query(copies(canary, np.array([heads]))) for heads in (False, True)]
    moved = float((values[1] - values[0]).norm())
    claimed = plan["choice"].sensitivity.of(KIND)
    assert 0.6 * claimed < moved <= claimed


def test_the_canary_of_the_choice_runs_the_methods_own_sums(monkeypatch):
    """With a mistake in them it moves farther than is claimed: links counted without weights."""
    plan = make_plan("auto", gv.KNeighbor(5), FACTS, epsilon=16.0, delta=1e-5)
    monkeypatch.setattr("graphveil.methods.choice.np.minimum", lambda a, b: np.ones_like(b))
    canary, _ = canary_of(plan, plan["choice"], held_at)
    assert np.linalg.norm(canary.table_after - canary.table) > 1.5 * plan["choice"].sensitivity.of(KIND)
