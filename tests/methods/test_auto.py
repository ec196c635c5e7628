"""The paid choice: both branches, their plans and certificates, and what a branching plan costs."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.errors import BudgetExceeded
from graphveil.execution import Ledger
from graphveil.graph import csbm
from graphveil.methods.spending import Settings, make_plan
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.facts import PublicFacts

FACTS = PublicFacts(nodes=1000, train_nodes=750, features=8, classes=2)
LEVELS = [gv.KNeighbor(1), gv.KNeighbor(5), gv.Node(30)]


def fitted(phi, level=LEVELS[0], **options):
    graph = csbm(phi, n=1000, f=8, d=12, seed=0)
    return graph, gv.Auto(level=level, epsilon=8.0, seed=0, show_progress=False, **options).fit(graph)


@pytest.fixture(scope="module")
def useful():
    return fitted(0.7)


@pytest.fixture(scope="module")
def useless():
    return fitted(0.0)


def directed(shared, seed=0):
    """600 nodes of two classes that read three of forty others: of their class's twenty if `shared`, else of all."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=640)
    features = rng.normal(size=(640, 4)) + 0.3 * labels[:, None]
    readers = np.repeat(np.arange(600), 3)
    half = rng.integers(20, size=len(readers)) + 600
    side = labels[readers] if shared else rng.integers(2, size=len(readers))
    edges = np.unique(np.stack([readers, half + 20 * side]), axis=1)
    return gv.Graph.from_edge_index(edges, features, labels, directed=True, **random_masks(640))


def random_masks(n):
    order = np.random.default_rng(7).permutation(n)
    return {
        f"{name}_mask": np.isin(np.arange(n), part)
        for name, part in zip(("train", "val", "test"), np.split(order, [n * 3 // 4, n * 17 // 20]), strict=True)
    }


def names(model):
    return [mechanism.name for mechanism in model.certificate_.mechanisms]


def test_a_graph_that_helps_is_read(useful):
    graph, model = useful
    assert names(model) == ["features", "choice", "labels", "release", "head"]
    alone = gv.MLP(level=LEVELS[0], epsilon=8.0, seed=0, show_progress=False).fit(graph)
    assert model.score(graph.test_mask) > alone.score(graph.test_mask) + 0.05


def test_a_graph_that_does_not_help_is_left(useless):
    graph, model = useless
    assert names(model) == ["features", "choice", "more features"]
    alone = gv.MLP(level=LEVELS[0], epsilon=8.0, seed=0, show_progress=False).fit(graph)
    assert model.score(graph.test_mask) > alone.score(graph.test_mask) - 0.04


@pytest.mark.parametrize("shared", [True, False])
def test_directed_graphs_are_read_if_co_readers_are_alike(shared):
    model = gv.Auto(level=gv.KNeighbor(1), epsilon=16.0, seed=0, show_progress=False).fit(directed(shared))
    assert ("release" in names(model)) == shared
    assert ("more features" in names(model)) != shared


@pytest.mark.slow
def test_directed_graphs_are_left_at_node_level():
    """Then nothing has to be promised about degrees, and nothing is capped."""
    graph, level = directed(True), gv.Node(2)
    model = gv.Auto(level=level, epsilon=16.0, seed=0, show_progress=False).fit(graph)
    assert names(model) == ["features"]
    assert not any("than 2 others" in each for each in model.certificate_.assumptions)
    alone = gv.MLP(level=level, epsilon=16.0, seed=0, show_progress=False).fit(graph)
    assert np.array_equal(model.predict(graph.test_mask), alone.predict(graph.test_mask))


@pytest.mark.parametrize("which", ["useful", "useless"])
def test_certificates_say_that_there_was_a_choice(which, request):
    _, model = request.getfixturevalue(which)
    found = Certificate.from_json(model.certificate_.to_json())
    assert [branch.name for branch in found.branches] == ["graph", "features"]
    assert found.plan().epsilon == pytest.approx(found.epsilon)
    assert 7.9 < found.epsilon <= 8.0
    assert found.followed == ("graph" if which == "useful" else "features")
    assert f"led to the branch {found.followed}" in str(found)
    assert found.epsilon_by_kind["unlabelled"] > 1
    assert model.plan_.epsilon == found.epsilon


def test_a_certificate_cannot_hide_the_choice(useful):
    """With all of delta for one branch the recomputed epsilon would be smaller than what was spent."""
    certificate = useful[1].certificate_
    hidden = replace(certificate, branches=certificate.branches[:1])
    assert hidden.plan().epsilon < certificate.epsilon
    data = json.loads(certificate.to_json())
    with pytest.raises(gv.InvalidInput, match="branch = 'features': is not one of graph"):
        Certificate.from_json(json.dumps({**data, "branches": ["graph"]}))


@pytest.mark.parametrize("which", ["useful", "useless"])
def test_both_branches_are_saved_and_answer_new_nodes(which, request, tmp_path):
    _, model = request.getfixturevalue(which)
    model.save(tmp_path / "run")
    loaded = gv.load(tmp_path / "run")
    assert loaded.certificate_ == model.certificate_
    assert loaded.plan_.epsilon_by_kind() == loaded.certificate_.epsilon_by_kind
    assert loaded.fitted_.ledger.used == model.fitted_.ledger.used
    assert np.array_equal(loaded.predict_proba(np.arange(50)), model.predict_proba(np.arange(50)))
    new = loaded.predict_new(["a", "b"], np.ones((2, 8)), [[1, 2, 3], []])
    assert new.shape == (2, 2)


BELOW_NOISE = [(gv.KNeighbor(1), 1.0), (gv.KNeighbor(25), 2.0), (gv.Node(100), 4.0)]


@pytest.mark.parametrize(("level", "epsilon"), BELOW_NOISE, ids=str)
def test_where_everything_is_below_the_noise_it_is_the_mlp(level, epsilon):
    plan, alone = (make_plan(method, level, FACTS, epsilon=epsilon) for method in ("auto", "mlp"))
    assert [mechanism.name for mechanism in plan.mechanisms] == ["features"]
    assert not plan.branches
    assert plan["features"].noise_multiplier == alone["head"].noise_multiplier
    assert make_plan("auto", level, FACTS, epsilon=4 * epsilon).branches


@pytest.mark.parametrize("epsilon", [4.0, 16.0])
def test_many_nodes_take_fewer_first_steps(epsilon):
    few, many = (
        make_plan("auto", gv.KNeighbor(1), replace(FACTS, nodes=2 * n, train_nodes=n), epsilon=epsilon)
        for n in (4999, 5000)
    )
    alone = make_plan("mlp", gv.KNeighbor(1), FACTS, epsilon=epsilon)["head"].steps
    assert few["features"].steps == few["more features"].steps == many["more features"].steps == alone
    assert many["features"].steps == min(100, alone)
    asked = make_plan("auto", many.level, many.facts, epsilon=epsilon, settings=Settings(steps=7))
    assert asked["features"].steps == asked["more features"].steps == 7


@pytest.mark.parametrize("level", LEVELS[1:], ids=str)
def test_each_branch_costs_what_was_asked_at_half_of_delta(level):
    plan = make_plan("auto", level, FACTS, epsilon=8.0, delta=1e-4)
    for outcome in plan.outcomes():
        spent = max(outcome.composition(kind).epsilon(0.5e-4) for kind in ("training", "unlabelled"))
        assert 7.9 < spent <= 8.0
        assert max(outcome.followed_epsilon_by_kind().values()) == pytest.approx(spent)


def test_a_table_cannot_be_given():
    with pytest.raises(gv.InvalidInput, match="table = 'labels'"):
        fitted(0.5, table="labels")


def test_only_one_branch_can_be_drawn():
    plan = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=8.0)
    labels = torch.zeros(750, dtype=torch.int64)
    book = Ledger(plan, NoiseSource(seed=0))
    for draw in (
        lambda: book.noisy_sum("more features", [torch.zeros(3).double()]),
        lambda: book.respond("labels", labels),
    ):
        with pytest.raises(BudgetExceeded, match="belongs to a branch of the plan that is not followed"):
            draw()
    book.follow("graph")
    book.respond("labels", labels)
    with pytest.raises(BudgetExceeded, match="features: the branch graph is followed already"):
        book.follow("features")
    book = Ledger(plan, NoiseSource(seed=0))
    with pytest.raises(gv.InvalidInput, match="branch = 'main'"):
        book.follow("main")
    book.release("choice", torch.zeros(4).double())
    book.follow("features")
    book.follow("features")
    book.noisy_sum("more features", [torch.zeros(3).double()])
    with pytest.raises(BudgetExceeded, match="labels: belongs to a branch of the plan that is not followed"):
        book.respond("labels", labels)
    with pytest.raises(BudgetExceeded, match="release: there is no finished release"):
        book.release_new_rows("release", torch.zeros(2).double())
    with pytest.raises(BudgetExceeded, match="choice: all 1"):
        book.release("choice", torch.zeros(4).double())


@pytest.mark.parametrize("level", [gv.Edge(), gv.KNeighbor(2, attributes=False)], ids=str)
def test_with_public_attributes_nothing_has_to_be_chosen(level):
    plan = make_plan("auto", level, FACTS, epsilon=2.0)
    default = make_plan("dpdgc", level, FACTS, epsilon=2.0, settings=Settings(table="auto"))
    assert plan.branches == ()
    assert plan.mechanisms == default.mechanisms


def divergence(p, q, epsilon):
    return sum(max(0.0, p[o] - np.exp(epsilon) * q[o]) for o in p)


def then(shared, branches):
    """Outputs of a shared answer and of the branch that it leads to, as a distribution."""
    return {(o, t): shared[o] * branches[o][t] for o in shared for t in branches[o]}


def test_delta_has_to_be_divided_among_branches():
    """Exactly, on mechanisms with few outputs: the sum over branches always covers the whole, the largest does not."""
    rng = np.random.default_rng(0)
    exceeded = 0
    for _ in range(400):
        shared = [dict(enumerate(rng.dirichlet(np.ones(2)))) for _ in range(2)]
        first, second = ([dict(enumerate(rng.dirichlet(np.ones(2)))) for _ in range(2)] for _ in range(2))
        whole = [then(shared[w], {0: first[w], 1: second[w]}) for w in range(2)]
        each = [[then(shared[w], dict.fromkeys((0, 1), b[w])) for w in range(2)] for b in (first, second)]
        for epsilon, (x, y) in itertools.product((0.0, 0.5, 1.0), ((0, 1), (1, 0))):
            parts = [divergence(b[x], b[y], epsilon) for b in each]
            total = divergence(whole[x], whole[y], epsilon)
            assert total <= sum(parts) + 1e-12
            exceeded += total > max(parts) + 1e-9
    assert exceeded, "else nothing would have to be divided"
