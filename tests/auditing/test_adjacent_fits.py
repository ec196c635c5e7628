"""Adjacent graphs differ as they should; attacks tell fits on them apart where noise is small, and sound fits pass."""

import numpy as np
import pytest

import graphveil as gv
from graphveil.auditing import audit
from graphveil.auditing.adjacent_fits import adjacent_graphs, run_trials, small_part, with_links
from graphveil.auditing.recording import ledger_on_branch, recorded_fit
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from support.audits import GRAPH, maker

LEVEL = gv.KNeighbor(1)
AUTO = {"epochs": 5, "delta": 1e-3}


@pytest.mark.parametrize(
    "level",
    [
        gv.Edge("undirected"),
        gv.KNeighbor(1),
        gv.KNeighbor(3),
        gv.Node(8),
        gv.KNeighbor(2, False),
        gv.Node(8, unit="zero-out"),
    ],
    ids=str,
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


@pytest.mark.parametrize("level", [gv.KNeighbor(2, unit="zero-out"), gv.Node(8, unit="zero-out")], ids=str)
def test_an_emptied_node_has_nothing(level):
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), level, seed=3)
    empty, full = pair.before, pair.after
    assert not empty.features[pair.own].any()
    assert not empty.to_scipy().toarray()[pair.own].any()
    assert not empty.to_scipy().toarray()[:, pair.own].any()
    assert int(empty.labels[pair.own]) == -1
    assert bool(empty.train_mask[pair.own])
    assert full.to_scipy().toarray()[:, pair.own].sum() == (2 if isinstance(level, gv.KNeighbor) else 8)


def test_the_replaced_node_has_long_features_that_change_their_sign():
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), gv.KNeighbor(2), seed=3)
    before, after = (graph.features[pair.own] for graph in (pair.before, pair.after))
    assert bool(pair.before.train_mask[pair.own])
    assert (before == -after).all()
    assert float(before.norm()) > 10 * float(pair.before.features[pair.others].norm(dim=1).mean())


def test_a_validation_node_changes_its_label_and_nothing_else():
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), gv.KNeighbor(2), seed=3, validation=True)
    assert pair.before.val_mask.nonzero().tolist() == pair.after.val_mask.nonzero().tolist() == [[pair.own]]
    assert (pair.before.labels != pair.after.labels).nonzero().tolist() == [[pair.own]]
    assert (pair.before.features == pair.after.features).all()
    assert abs(pair.before.to_scipy() - pair.after.to_scipy()).nnz == 0


def test_a_part_has_few_nodes_and_few_links():
    part = small_part(GRAPH, 40, 0, most_links=3)
    assert part.num_nodes == 40
    degrees = part.to_scipy().sum(0)
    assert degrees.max() == 3
    assert degrees.mean() > 1.5, "it is grown along links"
    assert int(part.train_mask.sum()) > 5
    assert small_part(part, 60, 0, most_links=3).num_nodes == 40


def test_where_nothing_is_protected_no_graphs_are_adjacent():
    with pytest.raises(InvalidInput, match="level"):
        adjacent_graphs(GRAPH, gv.Public(), seed=0)


@pytest.mark.parametrize("relations", [None, ["a", "b"]])
def test_weights_and_relations_stay_where_links_do(relations):
    edges = np.array([[0, 1, 2, 4], [1, 2, 3, 5]])
    words = {"edge_weight": [2.0, 5.0, 10.0, 1.0], "max_weight": 8.0, "y": [0, 1] * 3, "x": np.eye(6)}
    if relations is not None:
        words |= {"relations": relations, "edge_relation": ["a", "b", "b", "a"]}
    graph = gv.Graph.from_edge_index(edges, symmetrize=True, **words)
    links = {(0, 1): 0.25, (2, 3): 1.0, (0, 4): 1.0}  # one is gone, one is new
    source, target = np.array([*links, *(pair[::-1] for pair in links)]).T
    made = with_links(graph, source, target)
    expected = np.zeros((6, 6))
    for (i, j), weight in links.items():
        expected[i, j] = expected[j, i] = weight
    assert made.reads("out").toarray().tolist() == expected.tolist()
    if relations is not None:
        one, other = (matrix.toarray() for matrix in made.relations.matrices())
        assert (one[0, 1], one[0, 4], other[2, 3], other[0, 4]) == (0.25, 1, 1, 0)


def test_a_graph_with_weights_is_audited():
    rng = np.random.default_rng(0)
    part = GRAPH.to_scipy().tocoo()
    upper = part.coords[0] < part.coords[1]
    edges, count = np.stack(part.coords)[:, upper], int(upper.sum())
    words = {"edge_weight": rng.uniform(0, 3, count), "max_weight": 2.0, "relations": ["a", "b"]}
    words |= {"edge_relation": rng.integers(2, size=count), "symmetrize": True, "num_classes": GRAPH.num_classes}
    graph = gv.Graph.from_edge_index(edges, GRAPH.features, GRAPH.labels, **words).with_split(0)
    for level in (gv.KNeighbor(2), gv.Node(9), gv.Edge("undirected")):
        pair = adjacent_graphs(small_part(graph, 40, 0, most_links=6), level, 0)
        A, B = (g.reads("out", by_relation=True).toarray() for g in (pair.before, pair.after))
        assert (A != B).any(), "the pair differs in its links"
        assert len(np.unique(A)) > 3, "weights are still there"


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


def test_trials_that_take_different_branches_have_rows_of_one_length():
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), LEVEL, seed=3)
    branches = iter(["graph", "features", "balanced"] * 4)
    taken = []

    def alternating(plan, source):
        taken.append(next(branches))
        return ledger_on_branch(taken[-1], Ledger, plan, source)

    trials = run_trials(maker("auto", LEVEL, 8.0, **AUTO), pair, 12, 1, alternating, replay=False)
    assert set(taken) == {"graph", "features", "balanced"}
    assert {len(view) for view in trials.views.values()} == {12}
    assert {"released", "weights", "predictions", "query"} == set(trials.scores())


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
