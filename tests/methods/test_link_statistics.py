"""What link statistics say about a graph whose links are planted."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.methods import defaults
from graphveil.methods.inputs import Inputs
from graphveil.methods.link_statistics import (
    CoLinkStatistics,
    LinkStatistics,
    _degree_spread,
    co_link_sums,
    link_sums,
)
from graphveil.methods.spending import make_plan
from graphveil.privacy.facts import PublicFacts

LEVELS = [gv.KNeighbor(0), gv.KNeighbor(1), gv.KNeighbor(5), gv.Node(60)]


def planted(shares, sizes, degree, seed=0):
    """A graph in which classes of these sizes are linked in proportion to `shares`, symmetric, all in training."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    chances = np.asarray(shares)[labels][:, labels]
    chances = chances * degree / chances.sum(1).mean()
    upper = np.triu(rng.random(chances.shape) < chances, 1)
    train = np.ones(len(labels), dtype=bool)
    masks = {"train_mask": train, "val_mask": ~train, "test_mask": ~train}
    features = np.zeros((len(labels), 1))
    return gv.Graph.from_scipy(sp.csr_array((upper | upper.T) * 1.0), features, labels, directed=False, **masks)


def statistics(graph, level, noise=0.0, seed=0):
    """What would be read off a release with little noise, and its plan."""
    classes = graph.num_classes
    facts = PublicFacts(nodes=graph.num_nodes, train_nodes=int(graph.train_mask.sum()), features=1, classes=classes)
    plan = make_plan("auto", level, facts, epsilon=8.0)
    scale = noise or 1e-9
    plan = plan.changed(lambda m: m.with_noise(scale / m.sensitivity.worst) if m.name == "statistics" else m)
    sums = link_sums(Inputs(graph, graph.to_scipy(), "cpu"), level)
    drawn = noise * torch.randn(len(sums), generator=torch.Generator().manual_seed(seed)).double()
    return LinkStatistics.of(sums + drawn, plan), plan


def co_links(alike, noise=0.0, seed=0):
    """What is read off a directed graph whose 600 nodes read 4 of 60 others each: a part `alike` of them those of their
    class."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.repeat(np.arange(3), 200), np.zeros(60, dtype=int)])
    readers = np.repeat(np.arange(600), 4)
    favoured = np.where(rng.random(2400) < alike, labels[readers], rng.integers(3, size=2400))
    edges = np.unique(np.stack([readers, 600 + 20 * favoured + rng.integers(20, size=2400)]), axis=1)
    train = np.arange(660) < 600
    masks = {"train_mask": train, "val_mask": ~train, "test_mask": np.zeros(660, dtype=bool)}
    graph = gv.Graph.from_edge_index(edges, np.zeros((660, 1)), labels, directed=True, **masks)
    facts = PublicFacts(nodes=660, train_nodes=600, features=1, classes=3, directed=True)
    plan = make_plan("auto", gv.KNeighbor(1), facts, epsilon=8.0)
    scale = noise or 1e-9
    plan = plan.changed(lambda m: m.with_noise(scale / m.sensitivity.worst) if m.name == "statistics" else m)
    sums = co_link_sums(Inputs(graph, graph.to_scipy(), "cpu"), gv.KNeighbor(1))
    drawn = noise * torch.randn(len(sums), generator=torch.Generator().manual_seed(seed)).double()
    return CoLinkStatistics.of(sums + drawn, plan), plan, len(edges[0]) / 600


@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
def test_classes_of_co_readers_are_found_again(alike):
    about, _, degree = co_links(alike)
    assert about.degree == pytest.approx(degree)
    assert about.priors == pytest.approx(np.full(3, 1 / 3))
    # A reader of a favoured node is of its class with the part p, and two of them are alike by p^2 and more.
    own = alike + (1 - alike) / 3
    assert np.diag(about.compatibility) == pytest.approx(np.full(3, own**2 + (1 - own) ** 2 / 2), abs=0.02)


@pytest.mark.parametrize(
    ("alike", "words"),
    [
        (1.0, "nodes that link to the same node belong to the same class 3.0 times as often as chance would"),
        (0.0, "links to the same node hardly depend on classes, or noise hides that they do"),
    ],
)
def test_sentences_about_directed_graphs(alike, words):
    about, plan, _ = co_links(alike)
    (sentence,) = about.sentences(plan)
    assert sentence.startswith("A node links to about 3.")
    assert sentence.endswith(f"{words}.")


def counted_shares(graph):
    """For each class, the mean over its nodes and links of the classes of neighbours."""
    A, one_hot = graph.to_scipy().toarray() > 0, np.eye(graph.num_classes)[graph.labels.numpy()]
    table = one_hot.T @ A @ one_hot
    return table / table.sum(1, keepdims=True)


SHARES = [
    [[8, 1, 1], [1, 8, 1], [1, 1, 8]],
    [[1, 8, 1], [8, 1, 1], [1, 1, 8]],
    [[1, 5, 5], [5, 1, 5], [5, 5, 1]],
    [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
]


@pytest.mark.parametrize("level", LEVELS, ids=str)
@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_a_planted_matrix_is_found_again(level, shares):
    graph = planted(shares, (200, 200, 200), degree=20)
    about, _ = statistics(graph, level)
    assert about.compatibility == pytest.approx(counted_shares(graph), abs=0.02)
    assert about.compatibility.sum(1) == pytest.approx(np.ones(3))
    assert about.degree == pytest.approx(graph.num_edges / graph.num_nodes)
    assert about.priors == pytest.approx(np.full(3, 1 / 3))


@pytest.mark.parametrize(("own", "homophily"), [(8, 0.7), (1, 0.0), (0, -0.5)])
def test_homophily(own, homophily):
    shares = np.ones((3, 3)) + (own - 1) * np.eye(3)
    about, _ = statistics(planted(shares, (200, 200, 200), degree=20), LEVELS[1])
    assert about.homophily == pytest.approx(homophily, abs=0.05)


def test_classes_of_different_sizes():
    graph = planted(SHARES[0], (400, 150, 50), degree=20)
    about, _ = statistics(graph, LEVELS[1])
    assert about.priors == pytest.approx([400 / 600, 150 / 600, 50 / 600])
    assert about.compatibility.argmax(1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_not_taken_for_links(seed):
    """A graph without links, and much noise: nothing is learnt, and nothing breaks."""
    about, plan = statistics(planted(np.zeros((3, 3)) + 1, (200, 200, 200), degree=0), LEVELS[1], noise=20, seed=seed)
    assert abs(about.homophily) <= 1
    assert (about.compatibility > 0).all()
    assert about.compatibility.sum(1) == pytest.approx(np.ones(3))
    assert 0 <= about.degree < 1
    assert all(math.isfinite(value) for value in about.compatibility.flat)
    assert about.sentences(plan)


def test_little_noise_changes_little():
    graph = planted(SHARES[1], (200, 200, 200), degree=20)
    without, _ = statistics(graph, LEVELS[1])
    noisy, _ = statistics(graph, LEVELS[1], noise=1.0)
    assert noisy.compatibility == pytest.approx(without.compatibility, abs=0.05)


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        (SHARES[0], "nodes link to their own class 2.4 times as often as chance would"),
        (SHARES[2], "nodes link to their own class only 0.3 times as often as chance would"),
        (SHARES[3], "links hardly depend on classes, or noise hides that they do"),
    ],
    ids=["own", "other", "any"],
)
def test_sentences(shares, words):
    about, plan = statistics(planted(shares, (200, 200, 200), degree=20), LEVELS[1])
    (sentence,) = about.sentences(plan)
    assert sentence.endswith(f"{words}.")
    assert sentence.startswith(("A node has about 19", "A node has about 20"))


def test_hubs_count_as_one_node():
    """All of a node's links together weigh at most 1, so that a hub does not speak for the graph."""
    star = np.zeros((101, 101))
    star[0, 1:] = star[1:, 0] = 1
    masks = {"train_mask": np.ones(101, dtype=bool), "val_mask": np.zeros(101, dtype=bool)}
    labels = np.arange(101) % 2
    graph = gv.Graph.from_scipy(
        sp.csr_array(star), np.zeros((101, 1)), labels, directed=False, test_mask=np.zeros(101, dtype=bool), **masks
    )
    sums = link_sums(Inputs(graph, graph.to_scipy(), "cpu"), gv.KNeighbor(1)).numpy()
    assert sums[:3].sum() == pytest.approx(1)
    assert sums[3:].tolist() == [100, 51 / 2, 50 / 2]


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_how_degrees_vary_is_seen_in_the_weights(spread):
    """Random links between nodes whose expected degrees are log-normal."""
    rng, nodes = np.random.default_rng(0), 20_000
    chances = np.exp(spread * rng.standard_normal(nodes))
    ends = rng.choice(nodes, size=(2, 8 * nodes), p=chances / chances.sum())
    degrees = np.bincount(ends.ravel(), minlength=nodes)
    weight = 2 * (1 / np.maximum(degrees[ends[0]], degrees[ends[1]])).sum() / nodes
    assert _degree_spread(weight, 0.0, degrees.mean(), 1) == pytest.approx(spread, abs=0.25)
    assert _degree_spread(weight, 100.0, degrees.mean(), 1) == pytest.approx(defaults.USUAL_SPREAD[0])


def test_a_rare_class_that_keeps_to_itself_is_told():
    priors = np.array([0.97, 0.03])
    alike = np.array([[0.985, 0.015], [0.67, 0.33]])
    rare = LinkStatistics(priors, 5.0, alike, 0.3, 0.9)
    plan = make_plan(
        "auto", gv.KNeighbor(1), PublicFacts(nodes=400, train_nodes=300, features=4, classes=2), epsilon=8.0
    )
    assert "nodes of one class link to it 11.0 times as often as chance would" in rare.sentences(plan)[0]
    none = LinkStatistics(priors, 5.0, np.array([priors, priors]), 0.0, 0.9)
    assert "links hardly depend on classes" in none.sentences(plan)[0]
