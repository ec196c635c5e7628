"""The default: its branches, their plans and certificates, and what a branching plan costs."""

import functools
import itertools
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.auditing.recording import ledger_on_branch
from graphveil.auditing.verify import check_certificate
from graphveil.errors import BudgetExceeded
from graphveil.execution import Ledger
from graphveil.graph import csbm
from graphveil.methods import defaults, linear_features, neighbor_head
from graphveil.methods.auto_plan import counted
from graphveil.methods.spending import Settings, make_plan
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.mechanisms import ClippedTraining

FACTS = PublicFacts(nodes=1000, train_nodes=750, features=8, classes=2)
LEVELS = [gv.KNeighbor(1), gv.KNeighbor(5), gv.Node(30)]
BRANCHES = ["features", "sums", "balanced", "graph"]
READING = ["balanced", "graph"]
SHARED = ["statistics", "class sums", "first features", "expectation"]
LATER = {
    "features": ["more features"],
    "sums": ["more class sums", "sums head"],
    "balanced": ["balanced sums", "balanced responses", "balanced release", "balanced head"],
    "graph": ["graph responses", "graph release", "graph head"],
}
# Levels, whether links have directions, and what a plan lists then: what is shared, and the branches.
DIRECTED_LATER = {
    **{branch: LATER[branch] for branch in ("features", "sums")},
    "balanced": ["balanced sums", "neighbors", "release", "head"],
}
JOINT = {"joint": ["joint responses", "joint release", "joint head"]}
WIDE_LATER = {
    **{branch: LATER[branch] for branch in ("features", "sums", "balanced")},
    **JOINT,
    "graph": LATER["graph"],
}
UNREAD_LATER = {branch: LATER[branch] for branch in ("features", "sums")}
SHAPES = {
    "N_1": (gv.KNeighbor(1), False, SHARED, LATER),
    "N_1, zero-out": (gv.KNeighbor(1, unit="zero-out"), False, SHARED, LATER),
    "node": (gv.Node(80), False, SHARED, LATER),
    "N_1, wide": (gv.KNeighbor(1), False, SHARED, WIDE_LATER),
    "node, wide": (gv.Node(80), False, SHARED, WIDE_LATER),
    "directed, N_1": (gv.KNeighbor(1), True, SHARED, DIRECTED_LATER),
    "directed, node": (gv.Node(80), True, SHARED[1:], UNREAD_LATER),
    "directed, node, zero-out": (gv.Node(80, unit="zero-out"), True, SHARED[1:], UNREAD_LATER),
}
SHAPES_AND_BRANCHES = [(shape, branch) for shape, (_, _, _, later) in SHAPES.items() for branch in later]


def auto(level=LEVELS[0], epsilon=8.0, **options):
    return gv.Auto(**{"level": level, "epsilon": epsilon, "seed": 0, "show_progress": False, **options})


def changed(graph, **fields):
    """This graph with other features, labels or masks."""
    given = {"features": graph.features, "labels": graph.labels, "num_classes": graph.num_classes, **fields}
    masks = {f"{part}_mask": getattr(graph, f"{part}_mask") for part in ("train", "val", "test")}
    return gv.Graph.from_scipy(graph.to_scipy(), given.pop("features"), given.pop("labels"), **given, **masks)


@functools.cache
def led_to(branch):
    """A graph that leads to this branch, and its model.

    Links say nothing, beside features of which only differences tell, or beside words; or as much as features, or all.
    """
    phi, epsilon = {"features": (0.0, 8.0), "sums": (0.0, 4.0), "balanced": (0.5, 16.0), "graph": (1.0, 8.0)}[branch]
    graph = csbm(phi, n=1000, f=8, d=12, seed=0)
    rng, labels = np.random.default_rng(0), graph.labels.numpy()
    if branch == "features":
        common, apart = rng.normal(size=(1000, 4)), 0.2 * (labels[:, None] - 0.5)
        graph = changed(graph, features=np.hstack([common + apart, common - apart]))
    if branch == "sums":
        usual = rng.uniform(0.01, 0.1, size=200) * np.exp(0.5 * rng.normal(size=(2, 200)))
        graph = changed(graph, features=(rng.random((1000, 200)) < usual[labels]).astype(np.float32))
    return graph, auto(epsilon=epsilon).fit(graph)


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


@pytest.mark.parametrize("branch", BRANCHES)
def test_each_branch_is_reached(branch):
    _, model = led_to(branch)
    assert model.certificate_.followed == branch
    assert names(model) == SHARED + LATER[branch]
    assert model.graph_used_ == (branch in READING)


@pytest.mark.parametrize(("branch", "gain"), [("features", -0.05), ("sums", -0.05), ("balanced", 0.05), ("graph", 0.2)])
def test_a_graph_that_helps_is_worth_it(branch, gain):
    graph, model = led_to(branch)
    alone = gv.MLP(level=LEVELS[0], epsilon=model.epsilon, seed=0, show_progress=False).fit(graph)
    assert model.score(graph.test_mask) > alone.score(graph.test_mask) + gain


def test_neighbors_that_differ_tell_as_much():
    graph = csbm(-1.0, n=1000, f=8, d=12, seed=0)
    model = auto(epsilon=16.0).fit(graph)
    assert model.graph_used_
    assert "nodes link to their own class only 0." in model.certificate_.learnt[0]
    assert model.score(graph.test_mask) > 0.85


@pytest.mark.parametrize("level", LEVELS[1:], ids=str)
def test_other_levels_read_a_strong_graph_and_leave_a_useless_one(level):
    for phi in (0.0, 1.0):
        model = auto(level, 16.0).fit(csbm(phi, n=1000, f=8, d=12, seed=0))
        assert model.graph_used_ == (phi == 1)
        assert 15.8 < model.certificate_.epsilon <= 16.0


@pytest.mark.parametrize("branch", BRANCHES)
def test_certificates_say_what_was_learnt(branch):
    _, model = led_to(branch)
    links, expected = model.certificate_.learnt
    assert links.startswith("A node has about 1")
    assert ("links hardly depend on classes" in links) == (branch not in READING)
    assert expected.startswith("The graph was used: " if branch in READING else "The graph was not used, because")
    assert links in str(model.certificate_)
    assert expected in str(model.certificate_)


@pytest.mark.parametrize("shared", [True, False])
def test_directed_graphs_are_read_if_co_readers_are_alike(shared):
    model = auto(epsilon=16.0).fit(directed(shared))
    followed = model.certificate_.followed
    assert (followed == "balanced") == shared
    assert names(model) == SHARED + DIRECTED_LATER[followed]
    assert model.graph_used_ == shared
    links, expected = model.certificate_.learnt
    assert links.startswith("A node links to about ")
    assert ("nodes that link to the same node belong to the same class 2.0 times as often" in links) == shared
    assert expected.startswith("The graph was used: " if shared else "The graph was not used, because")


def test_co_readers_are_worth_it():
    graph = directed(True)
    alone = gv.MLP(level=LEVELS[0], epsilon=16.0, seed=0, show_progress=False).fit(graph)
    assert auto(epsilon=16.0).fit(graph).score(graph.test_mask) > alone.score(graph.test_mask) + 0.1


def test_directed_graphs_are_not_read_at_node_level_and_links_are_counted_by_request():
    """Nodes of one class link to one other node, those of the other class to ten."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=1000)
    edges = np.array([(i, j) for i in range(1000) for j in rng.choice(1000, 10 if labels[i] else 1) if i != j]).T
    features = rng.normal(size=(1000, 4)) + 0.2 * labels[:, None]
    graph = gv.Graph.from_edge_index(np.unique(edges, axis=1), features, labels, directed=True, **random_masks(1000))
    alone = auto(gv.Node(30), 16.0).fit(graph)
    assert names(alone) == SHARED[1:] + UNREAD_LATER[alone.certificate_.followed]
    assert not alone.graph_used_
    assert not any("than 30 others" in each for each in alone.certificate_.assumptions)
    links, expected = alone.certificate_.learnt
    assert links.startswith("The graph was not used, because at this level")
    assert expected.startswith("About ")
    assert expected.endswith(" % right were expected with features.")
    counted = gv.DPDGC(level=gv.Node(30), epsilon=16.0, seed=0, table="degrees", show_progress=False).fit(graph)
    assert names(counted) == ["features", "release", "head"]
    assert any("than 30 others" in each for each in counted.certificate_.assumptions)
    assert counted.score(graph.test_mask) > alone.score(graph.test_mask) + 0.03


@pytest.mark.parametrize("level", [gv.KNeighbor(1), gv.KNeighbor(0), gv.Node(80)], ids=str)
@pytest.mark.parametrize("shared", [True, False])
def test_models_of_directed_graphs_are_saved_and_answer_new_nodes(shared, level, tmp_path):
    reserved = {"reserved_readers": 1} if isinstance(level, gv.Node) else {}
    model = auto(level, 16.0, **reserved).fit(directed(shared))
    model.save(tmp_path / "run")
    loaded = gv.load(tmp_path / "run")
    assert loaded.certificate_ == model.certificate_
    assert loaded.graph_used_ == model.graph_used_
    assert np.array_equal(loaded.predict_proba(np.arange(50)), model.predict_proba(np.arange(50)))
    new = loaded.predict_new(["a", "b"], np.ones((2, 4)), [[601, 602, 603], []])
    assert new.shape == (2, 2)
    assert np.allclose(new.sum(1), 1)


def shaped(shape, branch):
    """A fit at this level whose noise leads to this branch."""
    level, is_directed, *_ = SHAPES[shape]
    graph = directed(True) if is_directed else csbm(0.7, n=300, f=50 if "wide" in shape else 8, d=6, seed=0)
    reserved = {"reserved_readers": 1} if isinstance(level, gv.Node) else {}
    model = auto(level, 16.0, steps=4, **reserved)
    return graph, model.execute(graph, make_ledger=partial(ledger_on_branch, branch, Ledger))


@pytest.mark.parametrize("shape", SHAPES)
def test_plans_list_what_is_shared_and_all_branches(shape):
    level, is_directed, shared, later = SHAPES[shape]
    facts = replace(FACTS, directed=is_directed, features=50 if "wide" in shape else 8)
    plan = make_plan("auto", level, facts, epsilon=8.0, delta=1e-4)
    assert [each.name for each in plan.shared] == shared
    assert {each.name: [m.name for m in each.mechanisms] for each in plan.branches} == later
    expectation = plan["expectation"]
    reading = [branch for branch in later if branch in READING]
    assert expectation.sensitivity.of("training") == pytest.approx(len(counted(reading)) ** 0.5)
    for outcome in plan.outcomes():
        spent = max(outcome.composition(kind).epsilon(1e-4 / len(later)) for kind in ("training", "unlabelled"))
        assert 7.9 < spent <= 8.0
    # Where the graph is not read, nodes without a label pay nothing.
    unlabelled = plan.epsilon_by_kind()["unlabelled"]
    assert unlabelled > 1 if reading and not is_directed and "zero-out" not in shape else unlabelled < 8


@pytest.mark.parametrize(("shape", "branch"), SHAPES_AND_BRANCHES)
def test_forced_branches_are_certified_and_come_back_from_a_file(shape, branch, tmp_path):
    _, _, shared, later = SHAPES[shape]
    graph, model = shaped(shape, branch)
    certificate = model.certificate_
    assert certificate.followed == branch
    assert [each.name for each in certificate.branches] == list(later)
    assert names(model) == shared + later[branch]
    assert model.graph_used_ == (branch not in UNREAD_LATER)
    assert check_certificate(certificate) == []
    assert certificate.plan().epsilon_by_kind() == certificate.epsilon_by_kind
    assert 15.8 < certificate.epsilon <= 16.0
    assert len(certificate.learnt) == 2
    assert model.logits_.isfinite().all()
    model.save(tmp_path / "run")
    loaded = gv.load(tmp_path / "run")
    assert loaded.certificate_ == certificate
    assert loaded.graph_used_ == model.graph_used_
    assert loaded.plan_.epsilon_by_kind() == certificate.epsilon_by_kind
    assert torch.equal(loaded.logits_, model.logits_)
    everybody = np.arange(graph.num_nodes)
    assert np.array_equal(loaded.predict_proba(everybody), model.predict_proba(everybody))
    features = graph.features.numpy()[:3]
    given = (["a", "b", "c"], features, [[1, 2, 3], [], [5]])
    fresh = loaded.predict_new(*given, from_graph=False)
    assert fresh == pytest.approx(model.predict_new(*given, from_graph=False), abs=1e-6)
    assert np.allclose(fresh.sum(1), 1)
    if not model.graph_used_:
        assert fresh == pytest.approx(loaded.predict_proba(everybody[:3]), abs=1e-5), "a function of the own row alone"


@pytest.mark.parametrize("links", ["none", "all"])
def test_directed_graphs_without_links_and_with_all(links):
    rng = np.random.default_rng(0)
    A = np.zeros((80, 80)) if links == "none" else 1 - np.eye(80)
    y = rng.integers(3, size=80)
    for features in (4, 0):
        x = rng.normal(size=(80, features))
        graph = gv.Graph.from_scipy(sp.csr_array(A), x, y, directed=True, **random_masks(80))
        model = auto(gv.KNeighbor(2), epsilon=4.0).fit(graph)
        assert model.logits_.isfinite().all()
        assert model.certificate_.epsilon <= 4.0


@pytest.mark.parametrize("branch", BRANCHES)
def test_certificates_say_that_there_was_a_choice(branch):
    _, model = led_to(branch)
    certificate = Certificate.from_json(model.certificate_.to_json())
    assert certificate == model.certificate_
    wide = model.fitted_.ledger.plan.facts.features > defaults.NARROW_FEATURES
    assert [each.name for each in certificate.branches] == list(WIDE_LATER if wide else LATER)
    assert certificate.plan().epsilon == pytest.approx(certificate.epsilon)
    assert 0.99 * model.epsilon < certificate.epsilon <= model.epsilon
    assert certificate.followed == branch
    assert f"led to the branch {branch}" in str(certificate)
    assert certificate.epsilon_by_kind["unlabelled"] > 1
    assert model.plan_.epsilon == certificate.epsilon


@pytest.mark.parametrize("dropped", BRANCHES[1:])
def test_a_certificate_cannot_hide_the_choice(dropped):
    """With more of delta for each branch the recomputed epsilon would be smaller than what was spent."""
    certificate = led_to("features")[1].certificate_
    hidden = replace(certificate, branches=tuple(each for each in certificate.branches if each.name != dropped))
    assert hidden.plan().epsilon < certificate.epsilon
    data = json.loads(certificate.to_json())
    with pytest.raises(gv.InvalidInput, match=f"branch = '{dropped}': is not one of"):
        Certificate.from_json(json.dumps({**data, "branches": [each for each in BRANCHES if each != dropped]}))


@pytest.mark.parametrize("branch", BRANCHES)
def test_all_branches_are_saved_and_answer_new_nodes(branch, tmp_path):
    graph, kept = led_to(branch)
    model = auto(epsilon=kept.epsilon).fit(graph)
    model.save(tmp_path / "run")
    loaded = gv.load(tmp_path / "run")
    assert loaded.certificate_ == model.certificate_
    assert loaded.graph_used_ == model.graph_used_
    assert loaded.plan_.epsilon_by_kind() == loaded.certificate_.epsilon_by_kind
    assert loaded.fitted_.ledger.used == model.fitted_.ledger.used
    assert np.array_equal(loaded.predict_proba(np.arange(50)), model.predict_proba(np.arange(50)))
    new = loaded.predict_new(["a", "b"], np.ones((2, graph.num_features)), [[1, 2, 3], []])
    assert new.shape == (2, 2)
    assert np.allclose(new.sum(1), 1)


@pytest.mark.parametrize("branch", READING)
def test_new_nodes_are_told_apart_by_their_links(branch, tmp_path):
    """Features that say nothing, and many links to one class: the answer follows the links."""
    graph, kept = led_to(branch)
    auto(epsilon=kept.epsilon).fit(graph).save(tmp_path / "run")
    loaded = gv.load(tmp_path / "run")
    of_class = [np.flatnonzero((graph.labels == c).numpy() & graph.train_mask.numpy())[:40].tolist() for c in (0, 1)]
    new = loaded.predict_new([f"new {i}" for i in range(20)], np.zeros((20, 8)), of_class * 10)
    assert (new.argmax(1) == np.tile([0, 1], 10)).mean() > 0.8


@pytest.mark.parametrize("branch", BRANCHES)
def test_seeds_reproduce_each_branch(branch):
    graph, model = led_to(branch)
    again = auto(epsilon=model.epsilon).fit(graph)
    assert torch.equal(again.logits_, model.logits_)
    assert again.certificate_ == model.certificate_
    other = auto(epsilon=model.epsilon, seed=1).fit(graph)
    assert not torch.equal(other.logits_, model.logits_)


@pytest.mark.parametrize("phi", [0.0, 1.0])
def test_without_features(phi, tmp_path):
    graph = csbm(phi, n=1000, f=8, d=12, seed=0)
    graph = changed(graph, features=np.zeros((1000, 0), dtype=np.float32))
    model = auto(epsilon=16.0).fit(graph)
    assert model.logits_.isfinite().all()
    assert model.graph_used_ or phi == 0
    assert model.score(graph.test_mask) > (0.85 if phi else 0.4)
    model.save(tmp_path / "run")
    assert gv.load(tmp_path / "run").predict_new(["a"], np.zeros((1, 0)), [[1]]).shape == (1, 2)


@pytest.mark.parametrize("phi", [0.0, 1.0])
def test_where_only_attributes_are_replaced(phi):
    """At k = 0 the product has no noise, so it needs no share."""
    graph = csbm(phi, n=1000, f=8, d=12, seed=0)
    model = auto(gv.KNeighbor(0)).fit(graph)
    assert 7.9 < model.certificate_.epsilon <= 8.0
    assert model.plan_["graph release"].noise == 0
    assert model.graph_used_ == (phi == 1)
    assert model.score(graph.test_mask) > (0.85 if phi else 0.6)


def test_a_class_without_training_nodes():
    graph = csbm(1.0, n=1000, f=8, d=12, seed=0)
    model = auto(epsilon=16.0).fit(changed(graph, num_classes=5))
    assert model.logits_.isfinite().all()
    assert model.graph_used_
    assert (model.predict(graph.test_mask) < 2).mean() > 0.9


@pytest.mark.parametrize("links", ["none", "all"])
def test_graphs_without_links_and_with_all(links):
    rng = np.random.default_rng(0)
    A = np.zeros((80, 80)) if links == "none" else 1 - np.eye(80)
    y = rng.integers(3, size=80)
    graph = gv.Graph.from_scipy(sp.csr_array(A), rng.normal(size=(80, 4)), y, directed=False, **random_masks(80))
    model = auto(epsilon=4.0).fit(graph)
    assert model.logits_.isfinite().all()
    assert model.certificate_.epsilon <= 4.0


def test_degrees_can_be_cut():
    graph = csbm(1.0, n=1000, f=8, d=12, seed=0)
    model = auto(gv.Node(8), 16.0, cap_degrees=True).fit(graph)
    assert model.certificate_.epsilon <= 16.0
    assert any("differ after the capping" in each for each in model.certificate_.assumptions)


def test_batches_have_no_statistics():
    model = auto(batch_size=100, steps=5).fit(csbm(1.0, n=1000, f=8, d=12, seed=0))
    assert not model.plan_.branches
    assert model.graph_used_
    assert model.certificate_.epsilon <= 8.0


@pytest.mark.parametrize("epsilon", [4.0, 16.0])
def test_stated_steps_bound_all_trainings(epsilon):
    usual, few = (
        make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=epsilon, settings=Settings(steps=steps))
        for steps in (None, 7)
    )
    trainings = [each.name for each in usual.all_mechanisms if isinstance(each, ClippedTraining)]
    assert trainings == ["first features", "more features", "sums head", "balanced head", "graph head"]
    assert {name: usual[name].steps for name in trainings} == {
        name: defaults.JOIN_STEPS if "head" in name else defaults.LINEAR_STEPS for name in trainings
    } | {"more features": defaults.steps_for(epsilon)}
    assert {few[name].steps for name in trainings} == {7}


@pytest.mark.parametrize("level", [*LEVELS[1:], gv.KNeighbor(0)], ids=str)
def test_each_branch_costs_what_was_asked_at_its_part_of_delta(level):
    plan = make_plan("auto", level, FACTS, epsilon=8.0, delta=1e-4)
    assert [each.name for each in plan.branches] == BRANCHES
    for outcome in plan.outcomes():
        spent = max(outcome.composition(kind).epsilon(1e-4 / 4) for kind in ("training", "unlabelled"))
        assert 7.9 < spent <= 8.0
        assert max(outcome.followed_epsilon_by_kind().values()) == pytest.approx(spent)


def test_a_table_cannot_be_given():
    with pytest.raises(gv.InvalidInput, match="table = 'labels'"):
        auto(table="labels").fit(led_to("graph")[0])


def test_only_one_branch_can_be_drawn():
    plan = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=8.0)
    labels = torch.zeros(750, dtype=torch.int64)
    book = Ledger(plan, NoiseSource(seed=0))
    for draw in (
        lambda: book.noisy_sum("more features", [torch.zeros(3).double()]),
        lambda: book.respond("graph responses", labels),
    ):
        with pytest.raises(BudgetExceeded, match="belongs to a branch of the plan that is not followed"):
            draw()
    book.follow("graph")
    book.respond("graph responses", labels)
    with pytest.raises(BudgetExceeded, match="features: the branch graph is followed already"):
        book.follow("features")
    with pytest.raises(BudgetExceeded, match="balanced responses: belongs to a branch of the plan that is not"):
        book.respond("balanced responses", labels)
    book = Ledger(plan, NoiseSource(seed=0))
    with pytest.raises(gv.InvalidInput, match="branch = 'main'"):
        book.follow("main")
    book.release("expectation", torch.zeros(5).double())
    book.follow("features")
    book.follow("features")
    book.noisy_sum("more features", [torch.zeros(3).double()])
    with pytest.raises(BudgetExceeded, match="graph responses: belongs to a branch of the plan that is not followed"):
        book.respond("graph responses", labels)
    with pytest.raises(BudgetExceeded, match="graph release: there is no finished release"):
        book.release_new_rows("graph release", torch.zeros(2).double())
    with pytest.raises(BudgetExceeded, match="expectation: all 1"):
        book.release("expectation", torch.zeros(5).double())


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


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_scale_of_a_new_nodes_features_says_nothing(branch, tmp_path):
    """Rows of features have one norm in training, so new ones have it too."""
    graph, kept = led_to(branch)
    auto(epsilon=kept.epsilon).fit(graph).save(tmp_path / "run")
    loaded = gv.load(tmp_path / "run")
    x = graph.features.numpy()[:1]
    answers = [
        loaded.predict_new([name], scale * x, [[]], from_graph=False) for name, scale in (("a", 1.0), ("b", 1000.0))
    ]
    assert answers[0] == pytest.approx(answers[1], abs=1e-5)


def test_a_second_fit_forgets_what_the_first_one_learnt():
    graph = csbm(0.5, n=300, f=8, seed=0)
    model = gv.Auto(level=gv.KNeighbor(1), epsilon=8.0, seed=0, steps=2).fit(graph)
    assert model.certificate_.learnt
    model.set_params(level=gv.Edge(), epochs=2).fit(graph)
    assert model.certificate_.learnt == ()


def test_the_head_reads_rows_in_blocks_of_any_size(monkeypatch):
    graph = csbm(0.9, n=502, f=3, d=20, seed=0)
    whole = auto(steps=3).fit(graph)
    assert whole.certificate_.followed == "graph"
    sizes, likelihoods = [], neighbor_head.log_likelihoods

    def counted(counts, *others):
        sizes.append(len(counts))
        return likelihoods(counts, *others)

    monkeypatch.setattr(neighbor_head, "log_likelihoods", counted)
    monkeypatch.setattr(neighbor_head, "ROWS_AT_ONCE", 100)
    assert torch.equal(auto(steps=3).fit(graph).logits_, whole.logits_)
    assert max(sizes) == 100


def test_features_are_judged_without_memory_for_gradients(monkeypatch):
    """Of 10^7 nodes it took 11 GiB of products of features."""
    passes = []
    usual = linear_features.LinearClassifier.forward

    def watched(self, x):
        passes.append(torch.is_grad_enabled())
        return usual(self, x)

    monkeypatch.setattr(linear_features.LinearClassifier, "forward", watched)
    auto().fit(csbm(1.0, n=300, f=8, d=12, seed=0))
    assert passes
    assert not any(passes)
