"""Attacks on whole fits tell graphs apart where noise is small, and sound fits pass them."""

import math
from functools import partial

import numpy as np
import pytest

import graphveil as gv
from graphveil.auditing import audit
from graphveil.auditing.adjacent import adjacent_graphs, small_part
from graphveil.auditing.bounds import Scores, toss
from graphveil.auditing.recording import ledger_on_branch, recorded_fit
from graphveil.auditing.whole_fits import one_run_bound, one_run_p_value, one_run_scores, run_trials
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from support.audits import GRAPH, directed_graph, maker

LEVEL = gv.KNeighbor(1)
AUTO = {"epochs": 5, "delta": 1e-3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "level", "options"),
    [
        ("dpdgc", gv.KNeighbor(1), {}),
        ("dpdgc", gv.KNeighbor(1), {"table": "labels+neighbors"}),
        ("dp-sage", gv.Node(8), {}),
        ("mlp", gv.Edge("undirected"), {}),
    ],
    ids=str,
)
def test_sound_fits_are_consistent(method, level, options):
    report = audit(method, level, 2.0, graph=GRAPH, attacks=["end-to-end"], fits=40, confidence=0.99, seed=1, **options)
    assert report.verdict == "consistent"


@pytest.mark.slow
def test_the_transcript_tells_the_graphs_apart_where_noise_is_small():
    level = gv.KNeighbor(1)
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), level, seed=3)
    trials = run_trials(maker("dpdgc", level, epsilon=200.0, delta=1e-3), pair, 40, seed=1)
    assert trials.scores()["transcript"].auc > 0.95


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


def test_trials_that_take_different_branches_have_rows_of_one_length():
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), LEVEL, seed=3)
    branches = iter(["graph", "features", "balanced", "sums"] * 3)
    taken = []

    def alternating(plan, source):
        taken.append(next(branches))
        return ledger_on_branch(taken[-1], Ledger, plan, source)

    trials = run_trials(maker("auto", LEVEL, 8.0, **AUTO), pair, 12, 1, alternating, replay=False)
    assert set(taken) == {"graph", "features", "balanced", "sums"}
    assert {len(view) for view in trials.views.values()} == {12}
    assert {"released", "weights", "predictions", "query"} == set(trials.scores())


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


def test_what_the_adversary_sees_of_a_fit():
    """Noisy gradient sums, released rows of the others, their predictions, and answers about the replaced node."""
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), LEVEL, seed=3)
    make = maker("dpdgc", LEVEL, table="labels")
    trials = run_trials(make, pair, 4, 1, replay=False)
    recorder, model = recorded_fit(make, pair.before, 1)
    numbers = {entry.name: 0 for entry in recorder.entries}
    for entry in recorder.entries:
        numbers[entry.name] += entry.got.numel()
    others, classes = len(pair.others), model.logits_.shape[1]
    assert set(numbers) == {"features", "labels", "release", "head"}
    assert {name: view.shape for name, view in trials.views.items()} == {
        "weights": (4, numbers["features"] + numbers["head"]),
        "released": (4, numbers["release"] // (others + 1) * others),
        "predictions": (4, others * classes),
        "query": (4, 2 * classes),
    }
