"""Every method at every level on a small graph: it learns, keeps to its plan, and says what it cannot do."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.execution.sparse_rows import SparseLinear
from graphveil.graph import Graph, csbm
from graphveil.methods import METHODS as REGISTERED
from graphveil.methods import method_class
from support.method_levels import LEVELS, SUPPORTED

METHODS = list(SUPPORTED)


@pytest.fixture(scope="module")
def graph():
    return csbm(0.5, n=400, f=10, d=6, seed=1)


def model_for(method, level, **options):
    epsilon = None if isinstance(level, gv.Public) else 4.0
    words = {"level": level, "epsilon": epsilon, "seed": 0, "steps": 4, "epochs": 4, "max_degree": 20, **options}
    return method_class(method)(**words)


@pytest.mark.parametrize("batch_size", [None, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("level", LEVELS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_at_every_level(graph, method, level, batch_size):
    model = model_for(method, level, batch_size=batch_size)
    if level not in SUPPORTED[method]:
        with pytest.raises(gv.InvalidInput, match="level"):
            model.fit(graph)
        return
    assert model.fit(graph) is model
    certificate = model.certificate_
    if isinstance(level, gv.Public):
        assert certificate.epsilon == math.inf
    else:
        assert certificate.epsilon <= 4.0
        # Exactly what was planned, no more and no less: the ledger would not have certified otherwise.
        plan = model.plan(graph)
        branches = plan.outcomes()
        assert certificate.mechanisms in [branch.mechanisms for branch in branches]
    probabilities = model.predict_proba()
    assert probabilities.shape == (400, 2)
    assert np.isfinite(probabilities).all()
    assert probabilities.sum(1) == pytest.approx(np.ones(400), abs=1e-5)
    assert np.array_equal(model.predict([3, 5]), probabilities[[3, 5]].argmax(1))


def test_scores_and_answers_by_name(graph):
    parts = ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask")
    ids = [f"n{index}" for index in range(400)]
    named = Graph(*(getattr(graph, part) for part in parts), node_ids=ids, class_names=("ok", "fraud"))
    model = model_for("mlp", gv.KNeighbor(1)).fit(named)
    assert model.classes_.tolist() == ["ok", "fraud"]
    probabilities = model.predict_proba(["n7", "n3"])
    assert np.array_equal(probabilities, model.predict_proba([7, 3]))
    assert set(model.predict(threshold=0.0)) == {"fraud"}
    assert set(model.predict(threshold=0.0, positive="ok")) == {"ok"}
    assert model.predict("n7").tolist() == [model.classes_[probabilities[0].argmax()]]
    everyone = np.ones(400, bool)
    assert model.score(everyone) == pytest.approx((model.predict() == model.classes_[graph.labels]).mean())
    assert model.score(everyone, "recall", positive="fraud", threshold=0.0) == 1
    assert 0 <= model.score(everyone, "average_precision") <= 1
    assert model.evaluate(everyone).classes == ("ok", "fraud")
    for nodes, message in ((["n400"], "is not a node"), (["n1", 2], "not both")):
        with pytest.raises(gv.InvalidInput, match=message):
            model.predict(nodes)
    with pytest.raises(gv.InvalidInput, match="must be one of ok, fraud"):
        model.predict(positive="other")


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_model_and_no_seed_does_not(graph, method):
    level = SUPPORTED[method][-1] if method != "mlp" else gv.KNeighbor(1)
    first, second, other = (model_for(method, level, seed=seed).fit(graph).logits_ for seed in (7, 7, 8))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_asking_again_gives_the_same_answer(graph):
    model = model_for("dpdgc", gv.KNeighbor(1)).fit(graph)
    assert np.array_equal(model.predict_proba([1, 2]), model.predict_proba([1, 2]))


def test_no_seed_means_secure_noise(graph):
    assert model_for("dpdgc", gv.KNeighbor(1), seed=None).fit(graph).certificate_.secure
    assert not model_for("dpdgc", gv.KNeighbor(1), seed=3).fit(graph).certificate_.secure


@pytest.fixture(scope="module")
def telling():
    """A graph whose links say more than its features, and how far the features alone get."""
    graph = csbm(0.75, n=2000, f=20, d=10, seed=2)
    return graph, model_for("mlp", gv.Public(), epochs=100).fit(graph).score(graph.test_mask)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "least"), [("dpdgc", 0.9), ("gap", 0.75), ("caribou", 0.75), ("progap", 0.75), ("sage", 0.75)]
)
def test_without_privacy_the_graph_is_used(telling, method, least):
    graph, alone = telling
    score = model_for(method, gv.Public(), epochs=100).fit(graph).score(graph.test_mask)
    assert score > max(least, alone + 0.05)


def test_a_private_model_learns():
    graph = csbm(0.0, n=2000, f=20, seed=2)
    signal = (2 * graph.labels - 1).float()[:, None]
    graph = graph.replace(features=signal + torch.randn(2000, 20, generator=torch.Generator().manual_seed(0)))
    score = model_for("mlp", gv.KNeighbor(1), epsilon=8.0, steps=60).fit(graph).score(graph.test_mask)
    assert score > 0.95


@pytest.mark.parametrize("name", [method.class_name for method in REGISTERED.values()])
def test_parameters_in_the_way_of_scikit_learn(name):
    cls = getattr(gv, name)
    model = cls(gv.KNeighbor(2), epsilon=3.0, seed=4)
    params = model.get_params()
    again = cls(**params)
    assert all(again.get_params()[key] is value for key, value in params.items()), "as scikit-learn's clone checks it"
    assert model.set_params(epsilon=5.0).epsilon == 5.0
    assert model.set_params(level="edge").level == gv.Edge()
    with pytest.raises(gv.InvalidInput, match="parameter = 'nonsense'"):
        model.set_params(nonsense=1)


@pytest.mark.parametrize("name", [method.class_name for method in REGISTERED.values()])
def test_a_level_is_required(name):
    with pytest.raises(gv.InvalidInput, match=r"level = None: is missing; give Public\(\), Edge\(\), ") as error:
        getattr(gv, name)(epsilon=8.0)
    assert "\n" not in str(error.value)
    assert getattr(gv, name)("edge").level == gv.Edge()
    assert getattr(gv, name)("node", max_degree=4).level == gv.Node(4)


def test_a_level_without_protection_takes_no_epsilon(graph):
    with pytest.raises(gv.InvalidInput, match=r"epsilon = 8\.0: level none protects nothing"):
        gv.MLP(gv.Public(), 8.0).fit(graph)


def test_the_number_of_edges_is_declared_and_never_measured(graph):
    bound = 10 * graph.num_edges
    certificate = model_for("gap", gv.Edge(), public_edges=bound).fit(graph).certificate_
    assert certificate.facts.edges == bound
    assert f"Declared: at most {bound} stored edges." in str(certificate)
    assert certificate.delta * bound <= 0.1
    for text in (str(certificate), certificate.to_json()):
        assert str(graph.num_edges) not in text.replace(str(bound), "")
    exact = model_for("gap", gv.Edge(), public_edges=graph.num_edges).fit(graph)
    assert exact.certificate_.facts.edges == graph.num_edges
    broken = model_for("gap", gv.Edge(), public_edges=graph.num_edges - 1)
    with pytest.raises(gv.InvalidInput, match=f"public_edges = {graph.num_edges - 1}: the graph has more") as error:
        broken.fit(graph)
    assert str(graph.num_edges) not in str(error.value)
    assert not hasattr(broken, "certificate_")
    assert model_for("gap", gv.Edge()).plan(graph) == model_for("gap", gv.Edge()).plan(graph.replace(name="x"))


@pytest.mark.parametrize("bound", [True, False, 0, -3, 2.5, "many"])
def test_a_bound_on_edges_is_a_number(graph, bound):
    with pytest.raises(gv.InvalidInput, match=f"public_edges = {bound!r}"):
        model_for("gap", gv.Edge(), public_edges=bound).fit(graph)


def test_capping_without_a_bound_is_refused(graph):
    for method, level in (("mlp", gv.KNeighbor(1)), ("dpdgc", gv.KNeighbor(1)), ("gap", gv.Edge())):
        with pytest.raises(gv.InvalidInput, match="cap_degrees = True"):
            model_for(method, level, cap_degrees=True).fit(graph)
    needless = model_for("gap", gv.KNeighbor(1), max_degree=399, cap_degrees=True).fit(graph)
    assert not any("were capped" in line for line in needless.certificate_.assumptions)
    cut = model_for("gap", gv.KNeighbor(1), max_degree=2, cap_degrees=True).fit(graph)
    said = [[line.replace(bound, "D") for line in model.certificate_.assumptions] for model, bound in
            ((needless, "399"), (cut, "2"))]  # fmt: skip
    assert said[0][-1] == said[1][-1], "whether anything was cut is private"


def test_degree_promise(graph):
    with pytest.raises(gv.InvalidInput, match="max_degree = 2: the graph breaks this promise"):
        model_for("dpdgc", gv.Node(2)).fit(graph)
    capped = model_for("dpdgc", gv.Node(2), cap_degrees=True).fit(graph)
    assert any("all beyond 2 are dropped" in line for line in capped.certificate_.assumptions)
    with pytest.raises(gv.InvalidInput, match="max_degree"):
        model_for("gap", gv.KNeighbor(1), max_degree=None).fit(graph)


class TransposedLinear(SparseLinear):
    """Starts with the weights that a dense layer draws from the same state of the generator."""

    def __init__(self, inputs, outputs):
        torch.nn.Module.__init__(self)
        dense = torch.nn.Linear(inputs, outputs)
        self.weight, self.bias = torch.nn.Parameter(dense.weight.detach().T.contiguous()), dense.bias


@pytest.mark.parametrize(
    ("method", "level"),
    [(method, level) for method in METHODS for level in (gv.Public(), gv.KNeighbor(2)) if level in SUPPORTED[method]],
    ids=str,
)
def test_sparse_and_dense_features_agree(graph, method, level, monkeypatch):
    """With the same initial weights, and so little noise that it does not matter in which order it is drawn."""
    monkeypatch.setattr("graphveil.execution.sparse_rows.SparseLinear", TransposedLinear)
    dense = graph.replace(features=(graph.features > 0.05).float())
    sparse = graph.replace(features=sp.csr_array(dense.features.numpy()))
    options = {"dropout": 0.0, "epsilon": None if level == gv.Public() else 1e7}
    ours, theirs = (model_for(method, level, **options).fit(given).logits_ for given in (sparse, dense))
    assert (ours - theirs).abs().max() < (1e-5 if level == gv.Public() else 1e-2) < theirs.std()


@pytest.mark.parametrize("method", METHODS)
def test_graphs_without_edges_and_isolated_nodes(method):
    labels = torch.arange(40) % 2
    mask = torch.arange(40) < 30
    lonely = Graph.from_edge_index(
        torch.empty(2, 0, dtype=torch.long), x=torch.randn(40, 3), y=labels, train_mask=mask, test_mask=~mask
    )
    level = SUPPORTED[method][-1]
    assert np.isfinite(model_for(method, level, max_degree=3).fit(lonely).predict_proba()).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, r"epsilon = 0\.0"),
        ({"epsilon": None}, "epsilon = None"),
        ({"delta": 2.0}, r"delta = 2\.0"),
        ({"level": gv.KNeighbor(400)}, "k = 400"),
        ({"steps": 0}, "steps = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"clip": -1.0}, r"clip = -1\.0"),
        ({"seed": -3}, "seed = -3"),
        ({"shares": {"nothing": 1.0}}, "shares = 'nothing'"),
    ],
)
def test_bad_parameters_are_named_before_data_is_touched(graph, options, message):
    model = model_for("dpdgc", options.pop("level", gv.KNeighbor(1)), **options)
    with pytest.raises(gv.InvalidInput, match=message):
        model.fit(graph)
    assert not hasattr(model, "certificate_")


def test_bad_queries_are_named(graph):
    model = model_for("mlp", gv.Public())
    with pytest.raises(gv.InvalidInput, match="not fitted"):
        model.predict([0])
    model.fit(graph)
    short = graph.test_mask[:9]
    for nodes, message in [([400], "nodes = 400"), ([-1], "nodes = -1"), ([0.5], "nodes"), (short, "mask")]:
        with pytest.raises(gv.InvalidInput, match=message):
            model.predict(nodes)
    with pytest.raises(gv.InvalidInput, match="training set"):
        model.fit(graph.replace(train_mask=None, val_mask=None, test_mask=None))


def test_unknown_method():
    with pytest.raises(gv.InvalidInput, match="method = 'magic'"):
        method_class("magic")


@pytest.mark.parametrize("forgotten", ["embedding", "release", "head"])
def test_a_plan_that_forgets_a_mechanism_cannot_be_executed(graph, monkeypatch, forgotten):
    """The broken twin: the accounting leaves a mechanism out. The method must not run it without noise."""
    model = model_for("dpdgc", gv.KNeighbor(1)).set_params(table="trained")
    plan = model.plan(graph)
    broken = plan.changed(lambda mechanism: None if mechanism.name == forgotten else mechanism)
    monkeypatch.setattr(model, "plan", lambda graph: broken)
    with pytest.raises(gv.GraphveilError, match=forgotten):
        model.fit(graph)
    assert not hasattr(model, "certificate_")


@pytest.mark.parametrize("dropout", [-0.1, 0.999, 1.0, float("nan")])
def test_a_dropout_that_makes_no_sense_is_refused(dropout):
    with pytest.raises(gv.InvalidInput, match="dropout = "):
        gv.MLP(gv.Public(), dropout=dropout, epochs=1, show_progress=False).fit(csbm(0.5, n=60, f=4, seed=0))


@pytest.mark.parametrize("name", ["cap_degrees", "show_progress"])
def test_a_word_is_no_truth_value(name):
    model = gv.GAP(level=gv.Node(max_degree=3), epsilon=4.0, **{name: "no"})
    with pytest.raises(gv.InvalidInput, match=f"{name} = 'no': must be True or False"):
        model.fit(csbm(n=60, f=4, seed=0))


def test_a_word_does_not_resume_a_fit(tmp_path):
    with pytest.raises(gv.InvalidInput, match="resume = 'no': must be True or False"):
        gv.MLP(gv.Public()).fit(csbm(n=60, f=4, seed=0), checkpoint=tmp_path / "fit", resume="no")
