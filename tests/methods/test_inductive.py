"""Another graph, and new nodes that attach to the training graph."""

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.graph import csbm
from graphveil.methods import method_class
from graphveil.noise import NoiseSource


@pytest.fixture(scope="module")
def graph():
    return csbm(0.6, n=500, f=8, d=8, seed=1)


@pytest.fixture(scope="module")
def other():
    return csbm(0.6, n=120, f=8, d=8, seed=9)


def fitted(graph, method, level, **options):
    epsilon = None if isinstance(level, gv.Public) else 8.0
    words = {"level": level, "epsilon": epsilon, "seed": 0, "steps": 5, "epochs": 30, "max_degree": 40}
    return method_class(method)(**{**words, "reserved_readers": 3, **options}).fit(graph)


NEW = {"ids": ["a", "b", "c"], "features": np.ones((3, 8)), "neighbors": [[0, 5, 7], [], [3]]}


@pytest.mark.parametrize("method", ["dpdgc", "gap", "caribou", "progap", "mlp", "sage", "dp-sage"])
def test_another_graph(graph, other, method):
    level = gv.Public() if method == "sage" else gv.KNeighbor(1)
    found = fitted(graph, method, level).predict_on(other)
    assert found.shape == (120, 2)
    assert found.sum(1) == pytest.approx(np.ones(120), abs=1e-5)


@pytest.mark.slow
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


@pytest.mark.parametrize("method", ["dpdgc", "gap", "caribou", "progap", "mlp", "sage", "dp-sage"])
def test_new_nodes(graph, method):
    model = fitted(graph, method, gv.Public() if method == "sage" else gv.KNeighbor(1))
    found = model.predict_new(**NEW)
    assert found.shape == (3, 2)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("method", ["dpdgc", "gap", "caribou", "progap", "dp-sage"])
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
    for method in ("dpdgc", "gap", "progap", "sage", "mlp"):
        model = fitted(graph, method, gv.Public())
        A = graph.reads(model.direction)
        twin = 17
        neighbors = A.indices[A.indptr[twin] : A.indptr[twin + 1]].tolist()
        found = model.predict_new(["twin"], graph.features[twin : twin + 1].numpy(), [neighbors])
        assert found[0] == pytest.approx(model.predict_proba([twin])[0], abs=1e-5)


def crowded(graph, node, readers):
    """The same graph, but with so many more readers of one node."""
    A = graph.to_scipy().tolil()
    free = [i for i in range(graph.num_nodes) if i != node and A[i, node] == 0][:readers]
    for i in free:
        A[i, node] = A[node, i] = 1
    A = A.tocsr()
    return graph.replace(indptr=A.indptr, indices=A.indices)


def refusals(graph, method, level, node, **options):
    """What a model says to seven new nodes that read the same old one."""
    model = fitted(graph, method, level, **options)
    said = []
    for name in "abcdefg":
        try:
            model.predict_new([name], np.ones((1, 8)), [[node]])
            said.append(None)
        except gv.InvalidInput as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("method", ["dpdgc", "gap", "caribou", "progap", "dp-sage"])
@pytest.mark.parametrize("reserved", [0, 2])
def test_refusals_do_not_depend_on_private_degrees(graph, method, reserved):
    promise, node = 60, 11
    options = {"reserved_readers": reserved, **({"table": "labels"} if method == "dpdgc" else {})}
    level = gv.Node(promise)
    degree = int(np.bincount(graph.indices)[node])
    full = crowded(graph, node, promise - reserved - degree)
    assert np.bincount(full.indices)[node] == promise - reserved
    first = refusals(graph, method, level, node, **options)
    assert first == refusals(full, method, level, node, **options)
    assert [said is None for said in first] == [place < reserved for place in range(7)]
    if reserved:
        with pytest.raises(gv.InvalidInput, match="reserved_readers = 2: and the promise leave 58 readers"):
            fitted(crowded(full, node, 1), method, level, **options)


def test_a_graph_is_cut_to_what_is_not_reserved(graph):
    model = gv.GAP(level=gv.Node(10), epsilon=8.0, seed=0, steps=2, cap_degrees=True, reserved_readers=4).fit(graph)
    assert np.bincount(model._adjacency(graph, NoiseSource(0)).indices).max() == 6


@pytest.mark.parametrize(
    ("level", "reserved", "message"),
    [
        (gv.Node(40), 40, "must be less than the promise, 40"),
        (gv.Node(40), -1, "must be at least 0"),
        (gv.KNeighbor(1), 2, "there is none"),
    ],
)
def test_what_cannot_be_reserved(graph, level, reserved, message):
    with pytest.raises(gv.InvalidInput, match=message):
        gv.DPDGC(level=level, epsilon=8.0, reserved_readers=reserved).fit(graph)


def test_new_nodes_need_a_finished_release(graph):
    model = fitted(graph, "randedge", gv.Edge())
    with pytest.raises(gv.InvalidInput, match="randedge"):
        model.predict_new(**NEW)
    with pytest.raises(gv.BudgetExceeded):
        fitted(graph, "mlp", gv.KNeighbor(1)).fitted_.ledger.release_new_rows("head", torch.zeros(1).double())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"features": np.ones((3, 7))}, "features"),
        ({"features": np.full((3, 8), np.nan)}, "finite"),
        ({"neighbors": [[0], [1]]}, "ids"),
        ({"neighbors": [[0, 0], [1], []]}, "names a node twice"),
        ({"neighbors": [torch.tensor([0, 0]), [1], []]}, "names a node twice"),
        ({"neighbors": [[500], [1], []]}, "neighbors = 500"),
        ({"neighbors": [["n1"], [1], []]}, "neighbors = .ndarray.: must be lists of row numbers$"),
        ({"neighbors": [[0.5], [1], []]}, "neighbors = .torch.float64.: must be row numbers$"),
        ({"ids": ["a", "a", "b"]}, "unique"),
        ({"ids": ["a", " a", "b"]}, "unique"),
        ({"ids": ["a", 17, "b"]}, "ids = '17': is a node of the training graph"),
        ({"ids": ["a", " 0 ", "b"]}, "ids = '0': is a node of the training graph"),
        ({"ids": ["a", " ", "b"]}, "an id is missing"),
        ({"ids": ["a", "b" * 1025, "c"]}, "1024 characters at most"),
        ({"ids": ["a", "\ud800", "c"]}, "half a character"),
    ],
)
def test_bad_new_nodes_are_named(graph, words, message):
    model = fitted(graph, "dpdgc", gv.KNeighbor(1))
    with pytest.raises(gv.InvalidInput, match=message):
        model.predict_new(**{**NEW, **words})


@pytest.mark.parametrize("name", ["from_graph", "update"])
def test_a_word_is_no_truth_value(graph, name):
    with pytest.raises(gv.InvalidInput, match=f"{name} = 'no': must be True or False"):
        fitted(graph, "mlp", gv.Public()).predict_new(**NEW, **{name: "no"})


WRONG = [7, 0.5, "abc", b"abc", {"a": 1}, [[1, [2]], 3], object(), [object()] * 3, [None] * 3, [float("nan")] * 3]


@pytest.mark.parametrize("field", ["ids", "features", "neighbors"])
@pytest.mark.parametrize("wrong", [None, *WRONG, torch.zeros(3, 2, 2), [[10**30]] * 3])
def test_wrong_types_for_new_nodes_are_refused(graph, field, wrong):
    model = fitted(graph, "mlp", gv.Public())
    if field == "ids" and isinstance(wrong, list) and len(wrong) == 3:
        wrong = [[]] * 3 + wrong  # anything that can be printed is a name; the number is wrong then
    with pytest.raises(gv.InvalidInput):
        model.predict_new(**{**NEW, field: wrong})


@pytest.mark.parametrize("row", ["01", [0.5], [True, False], {0: 1}, 3, None, ["x"], [[1], [2, 3]], torch.zeros(2)])
def test_a_wrong_list_of_neighbors_is_named(graph, row):
    model = fitted(graph, "mlp", gv.Public())
    with pytest.raises(gv.InvalidInput, match=r"^neighbors = "):
        model.predict_new(["a"], np.ones((1, 8)), [row])


@pytest.mark.parametrize(
    "wrong",
    [
        *WRONG,
        torch.zeros(2),
        torch.zeros(2, dtype=torch.complex64),
        np.array([1j]),
        [True],
        [[1, 2], [3, 4]],
        [10**30],
        {3},
        np.array([None]),
        [1, None],
    ],
)
@pytest.mark.parametrize("ask", ["predict", "predict_proba", "predict_table", "score", "evaluate"])
def test_wrong_types_for_nodes_name_the_field(graph, ask, wrong):
    model = fitted(graph, "mlp", gv.Public())
    if isinstance(wrong, int):
        wrong = -wrong
    with pytest.raises(gv.InvalidInput, match=r"^nodes = "):
        getattr(model, ask)(wrong)
