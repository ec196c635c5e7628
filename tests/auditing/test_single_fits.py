"""Attacks on one model find planted canaries, links and members where noise is small, and sound fits pass them."""

import math
from functools import partial

import numpy as np
import pytest

import graphveil as gv
from graphveil.auditing import audit
from graphveil.auditing.adjacent_fits import adjacent_graphs, run_trials
from graphveil.auditing.bounds import Scores, toss
from graphveil.auditing.recording import ledger_on_branch
from graphveil.auditing.single_fits import (
    infer_membership,
    one_run_bound,
    one_run_p_value,
    one_run_scores,
    steal_links,
)
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from graphveil.methods.fitted import FittedModel
from support.audits import GRAPH, directed_graph, maker

LEVEL = gv.KNeighbor(1)
AUTO = {"epochs": 5, "delta": 1e-3}


def test_one_run_with_planted_canaries():
    level = gv.KNeighbor(1)
    clear = one_run_scores(maker("dpdgc", level, epsilon=500.0, table="labels"), GRAPH, level, seed=1)
    assert len(clear) == 150
    assert clear.auc > 0.95
    hidden = one_run_scores(maker("dpdgc", level, epsilon=0.1, table="labels"), GRAPH, level, seed=1)
    assert hidden.auc < 0.7


def test_one_run_p_values_match_the_published_ones():
    """Steinke et al. 2023, appendix D: 75 of 100 right at epsilon = log 3 is what randomised response gives."""
    assert one_run_p_value(100, 100, 75, math.log(3), 0.0) == pytest.approx(0.553, abs=1e-3)
    assert one_run_p_value(100, 100, 100, 0.0, 0.0) == pytest.approx(2.0**-100)
    assert one_run_p_value(1000, 100, 75, 1.0, 1e-4) > one_run_p_value(1000, 100, 75, 1.0, 0.0)


def test_one_run_reads_the_release_where_the_graph_is_read():
    scores = {
        branch: one_run_scores(
            maker("auto", LEVEL, 200.0, **AUTO), GRAPH, LEVEL, 1, partial(ledger_on_branch, branch, Ledger)
        )
        for branch in ("features", "sums", "balanced", "graph")
    }
    assert scores["balanced"].auc > 0.8
    assert scores["graph"].auc > 0.8
    assert not scores["features"].values.any()
    assert not scores["sums"].values.any()


def test_the_bound_of_one_run_grows_with_the_canaries():
    """Every guess is right: the bound is the epsilon at which that has probability 5 %."""
    bounds = []
    for count in (200, 2000):
        coins = toss(count, np.random.default_rng(0))
        bound = one_run_bound(Scores(coins, np.where(coins, 1.0, -1.0)), 0.0, 0.95)
        held_out = bound.trials
        assert held_out == count - int(0.3 * count)
        assert (bound.true_positive_rate, bound.false_positive_rate) == (1.0, 0.0)
        guesses = max(1, int(bound.threshold * held_out))
        assert one_run_p_value(held_out, guesses, guesses, bound.epsilon, 0.0) == pytest.approx(0.05, rel=1e-6)
        bounds.append(bound.epsilon)
    assert 2 < bounds[0] < bounds[1]


def test_one_run_needs_room_for_its_canaries():
    with pytest.raises(InvalidInput, match="room for"):
        one_run_scores(maker("dpdgc", gv.KNeighbor(20)), GRAPH, gv.KNeighbor(20), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "epsilon", "directed"),
    [(gv.Edge(), 4.0, False), (LEVEL, 1.0, False), (LEVEL, 8.0, True), (gv.Node(20), 4.0, True)],
    ids=str,
)
def test_whole_fits_of_auto_are_consistent(level, epsilon, directed):
    graph = directed_graph() if directed else GRAPH
    whole = [] if isinstance(level, gv.Edge) else ["end-to-end"]  # with free training: long
    attacks = ["joint", "one-run", "links", *whole]
    report = audit("auto", level, epsilon, graph=graph, attacks=attacks, trials=2000, fits=40, steps=5,
                   epochs=3, folds=2, confidence=0.99, seed=1)  # fmt: skip
    assert report.verdict == "consistent"
    assert {finding.attack for finding in report.findings} & {"one-run", "end-to-end"}
    assert report.leaks


def test_links_are_stolen_where_nothing_protects_them():
    public = steal_links(maker("sage", gv.Public(), None), GRAPH, gv.Public(), seed=1)
    by_name = {leak.statistic: leak.scores.auc for leak in public}
    assert by_name["influence"] > 0.95
    level = gv.Edge("undirected")
    (private,) = steal_links(maker("dpdgc", level, 1.0), GRAPH, level, seed=1)
    assert private.scores.auc < 0.62


def test_a_model_that_answers_nothing_about_a_node_without_links():
    """A method of another package need not: what its readers get is still attacked."""

    class Silent(gv.MLP):
        logits_on = FittedModel.logits_on

    def make():
        return Silent(level=gv.KNeighbor(1), epsilon=4.0, seed=0, steps=3, hidden=8, show_progress=False)

    assert steal_links(make, GRAPH, gv.KNeighbor(1), seed=1) == []
    assert len(infer_membership(make, GRAPH, gv.KNeighbor(1), seed=1, fits=4).scores) > 0
    with pytest.raises(gv.InvalidInput, match="answers nothing about a node without its links"):
        gv.audit(make(), graph=GRAPH, attacks=["links"])
    pair = adjacent_graphs(GRAPH, gv.KNeighbor(1), 1)
    assert "query" not in run_trials(make, pair, 2, 1, replay=False).views


@pytest.mark.slow
def test_members_are_found_where_nothing_protects_them():
    options = {"epochs": 150, "hidden": 32, "dropout": 0.0}
    public = infer_membership(maker("mlp", gv.Public(), None, **options), GRAPH, gv.Public(), seed=1, fits=8)
    private = infer_membership(maker("mlp", gv.KNeighbor(1), 1.0), GRAPH, gv.KNeighbor(1), seed=1, fits=8)
    assert public.scores.auc > private.scores.auc + 0.05
    assert private.scores.auc < 0.56
