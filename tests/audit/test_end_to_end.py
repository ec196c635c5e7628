"""Attacks on whole fits: what they may see, and that sound fits survive them."""

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.auditing import audit
from graphveil.auditing.black_box import infer_membership, steal_links
from graphveil.auditing.end_to_end import recorded_fit, replayed_fit, run_trials
from graphveil.auditing.instruments import Entry, Recorder, log_likelihood_ratio
from graphveil.auditing.one_run import one_run_scores
from graphveil.auditing.pairs import adjacent_graphs, small_part
from graphveil.execution import Ledger
from graphveil.graph import csbm
from graphveil.methods import method_class

GRAPH = csbm(0.5, n=300, f=6, d=4, seed=2)


def maker(method, level, epsilon=4.0, **options):
    fixed = {"seed": 0, "steps": 3, "epochs": 10, "hidden": 8, "show_progress": False}
    return lambda: method_class(method)(level=level, epsilon=epsilon, **(fixed | options))


@pytest.mark.parametrize(
    "level", [gv.Edge("undirected"), gv.KNeighbor(1), gv.KNeighbor(3), gv.Node(8), gv.KNeighbor(2, False)], ids=str
)
def test_pairs_are_adjacent(level):
    part = small_part(GRAPH, 40, 0, most_links=7)
    pair = adjacent_graphs(part, level, seed=3)
    A, B = (graph.to_scipy().toarray() for graph in (pair.before, pair.after))
    rows, columns = np.nonzero(A != B)
    assert len(rows)
    if pair.own is None:
        assert len(rows) == 2
        assert (pair.before.features == pair.after.features).all()
        return
    assert ((rows == pair.own) | (columns == pair.own)).all()
    others = np.arange(part.num_nodes) != pair.own
    same = [
        (pair.before.features == pair.after.features).all(1).numpy(),
        (pair.before.labels == pair.after.labels).numpy(),
    ]
    assert all(each[others].all() for each in same)
    assert same[1][pair.own] == (not level.attributes)
    if isinstance(level, gv.KNeighbor):
        assert (rows == pair.own).sum() <= level.k
        assert (columns == pair.own).sum() <= level.k
    else:
        assert max(A.sum(0).max(), B.sum(0).max()) <= level.max_degree


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
    make, books = maker("mlp", gv.KNeighbor(1)), []

    def make_ledger(plan, source):
        books.append(Recorder(Ledger(plan, source)))
        return books[-1]

    plan = make().plan(GRAPH)
    watched = make().execute(GRAPH, plan, make_ledger)
    assert books[0].planned is plan
    assert len(books[0].entries) == 3
    assert torch.equal(watched.logits_, make().fit(GRAPH).logits_)
    assert len(books) == 1


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
    loud = one_run_scores(maker("dpdgc", level, epsilon=500.0), GRAPH, level, seed=1)
    assert len(loud) == 150
    assert loud.auc > 0.95
    quiet = one_run_scores(maker("dpdgc", level, epsilon=0.1), GRAPH, level, seed=1)
    assert quiet.auc < 0.7


def test_links_are_stolen_where_nothing_protects_them():
    open_book = steal_links(maker("sage", gv.Public(), None), GRAPH, gv.Public(), seed=1)
    by_name = {leak.statistic: leak.scores.auc for leak in open_book}
    assert by_name["influence"] > 0.95
    level = gv.Edge("undirected")
    (private,) = steal_links(maker("dpdgc", level, 1.0), GRAPH, level, seed=1)
    assert private.scores.auc < 0.62


@pytest.mark.slow
def test_members_are_found_where_nothing_protects_them():
    options = {"epochs": 150, "hidden": 32, "dropout": 0.0}
    open_book = infer_membership(maker("mlp", gv.Public(), None, **options), GRAPH, gv.Public(), seed=1, fits=8)
    private = infer_membership(maker("mlp", gv.KNeighbor(1), 1.0), GRAPH, gv.KNeighbor(1), seed=1, fits=8)
    assert open_book.scores.auc > private.scores.auc + 0.05
    assert private.scores.auc < 0.56
