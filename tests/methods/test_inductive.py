"""Another graph, and new nodes that attach to the training graph."""

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.graph import csbm
from graphveil.methods import method_class


@pytest.fixture(scope="module")
def graph():
    return csbm(0.6, n=500, f=8, d=8, seed=1)


@pytest.fixture(scope="module")
def other():
    return csbm(0.6, n=120, f=8, d=8, seed=9)


def fitted(graph, method, level, **options):
    epsilon = None if isinstance(level, gv.Public) else 8.0
    words = {"level": level, "epsilon": epsilon, "seed": 0, "steps": 5, "epochs": 30, "max_degree": 40, **options}
    return method_class(method)(**words).fit(graph)


NEW = {"ids": ["a", "b", "c"], "features": np.ones((3, 8)), "neighbors": [[0, 5, 7], [], [3]]}


@pytest.mark.parametrize("method", ["dpdgc", "gap", "mlp", "sage", "dp-sage"])
def test_another_graph(graph, other, method):
    level = gv.Public() if method == "sage" else gv.KNeighbor(1)
    found = fitted(graph, method, level).predict_on(other)
    assert found.shape == (120, 2)
    assert found.sum(1) == pytest.approx(np.ones(120), abs=1e-5)


def test_another_graph_is_understood(graph):
    """Same model, another sample of the same communities: the hops carry over."""
    train = csbm(0.7, n=1500, f=40, d=12, seed=1)
    fresh = csbm(0.7, n=1500, f=40, d=12, seed=1).with_split(seed=5)
    model = fitted(train, "gap", gv.Public(), epochs=100)
    guess = model.predict_on(fresh).argmax(1)
    assert (guess == fresh.labels.numpy()).mean() > 0.75


def test_a_graph_with_other_features_is_refused(graph):
    with pytest.raises(gv.InvalidInput, match="features = 9"):
        fitted(graph, "mlp", gv.Public()).predict_on(csbm(0.5, n=50, f=9, seed=0))


@pytest.mark.parametrize("method", ["dpdgc", "gap", "mlp", "sage", "dp-sage"])
def test_new_nodes(graph, method):
    model = fitted(graph, method, gv.Public() if method == "sage" else gv.KNeighbor(1))
    found = model.predict_new(**NEW)
    assert found.shape == (3, 2)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("method", ["dpdgc", "gap", "dp-sage"])
def test_asking_again_does_not_average_the_noise_away(graph, method):
    model = fitted(graph, method, gv.KNeighbor(1))
    first = model.predict_new(**NEW)
    assert np.array_equal(model.predict_new(**NEW), first)
    with pytest.raises(gv.InvalidInput, match="ids = 'a': was answered before with other data"):
        model.predict_new(["a"], np.ones((1, 8)), [[0, 5]])
    # Somebody else with the same data gets noise of their own.
    again = model.predict_new(["d", "e", "f"], NEW["features"], NEW["neighbors"])
    assert not np.array_equal(again, first)


def test_the_askers_own_row_needs_no_noise(graph):
    model = fitted(graph, "dpdgc", gv.KNeighbor(1))
    first = model.predict_new(["x"], np.ones((1, 8)), [[1, 2]], from_graph=False)
    second = model.predict_new(["y"], np.ones((1, 8)), [[1, 2]], from_graph=False)
    assert np.array_equal(first, second)


def test_without_privacy_a_new_node_is_treated_like_an_old_one(graph):
    """A new node with an old node's features and links gets that node's prediction."""
    for method in ("dpdgc", "gap", "sage", "mlp"):
        model = fitted(graph, method, gv.Public())
        A = graph.reads(model.direction)
        twin = 17
        neighbors = A.indices[A.indptr[twin] : A.indptr[twin + 1]].tolist()
        found = model.predict_new(["twin"], graph.features[twin : twin + 1].numpy(), [neighbors])
        assert found[0] == pytest.approx(model.predict_proba([twin])[0], abs=1e-5)


def test_new_readers_count_towards_the_degree_promise(graph):
    largest = int(np.bincount(graph.indices).max())
    model = fitted(graph, "gap", gv.Node(largest))
    busiest = int(np.bincount(graph.indices).argmax())
    with pytest.raises(gv.InvalidInput, match="max_degree"):
        model.predict_new(["n"], np.ones((1, 8)), [[busiest]])


def test_new_nodes_need_a_finished_release(graph):
    model = fitted(graph, "randedge", gv.Edge())
    with pytest.raises(gv.InvalidInput, match="randedge"):
        model.predict_new(**NEW)
    with pytest.raises(gv.BudgetExceeded):
        fitted(graph, "mlp", gv.KNeighbor(1))._ledger.release_new_rows("head", torch.zeros(1).double())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"features": np.ones((3, 7))}, "features"),
        ({"features": np.full((3, 8), np.nan)}, "finite"),
        ({"neighbors": [[0], [1]]}, "ids"),
        ({"neighbors": [[0, 0], [1], []]}, "names a node twice"),
        ({"neighbors": [[500], [1], []]}, "nodes = 500"),
        ({"ids": ["a", "a", "b"]}, "unique"),
    ],
)
def test_bad_new_nodes_are_named(graph, words, message):
    model = fitted(graph, "dpdgc", gv.KNeighbor(1))
    with pytest.raises(gv.InvalidInput, match=message):
        model.predict_new(**{**NEW, **words})
