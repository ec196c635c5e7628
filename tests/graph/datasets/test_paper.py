"""The contextual stochastic block model against its law, and edge density and homophily of graphs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import homophily as pyg_homophily

from graphveil.errors import InvalidInput
from graphveil.graph import Graph, csbm, statistics
from graphveil.graph.datasets.paper import _pairs_between, _pairs_within

SIGMAS = 5  # a right generator fails one of these checks with probability below 1e-5


def close(count: float, trials: float, p: float) -> bool:
    """Whether a binomial count lies within SIGMAS standard deviations of its mean."""
    return abs(count - trials * p) <= SIGMAS * math.sqrt(trials * p * (1 - p)) + 1


def test_the_paper_size_is_the_default() -> None:
    graph = csbm()
    assert (graph.num_nodes, graph.num_features, graph.num_classes, graph.directed) == (10_000, 200, 2, False)
    assert graph.labels.bincount().tolist() == [5000, 5000]
    assert [int(m.sum()) for m in (graph.train_mask, graph.val_mask, graph.test_mask)] == [7500, 1000, 1500]


@pytest.mark.parametrize("phi", [-1.0, -0.5, 0.0, 0.25, 0.75, 1.0])
def test_degree_and_edge_probabilities(phi: float) -> None:
    n, d = 10_000, 5.0
    graph = csbm(phi, seed=11)
    strength = math.sqrt(4.25) * math.sin(phi * math.pi / 2)
    y = graph.labels.numpy()
    source, target = graph.to_scipy().tocoo().coords
    upper = source < target
    same = y[source] == y[target]
    within = 2 * (n // 2) * (n // 2 - 1) / 2
    across = (n // 2) ** 2
    assert close(int((upper & same).sum()), within, (d + strength * math.sqrt(d)) / n)
    assert close(int((upper & ~same).sum()), across, (d - strength * math.sqrt(d)) / n)
    assert abs(graph.num_edges / n - d) < 0.15


def test_degrees_are_poisson_like() -> None:
    degree = np.diff(csbm(0.5, seed=5).indptr)
    assert abs(degree.mean() - 5) < 0.15
    assert abs(degree.var() - 5) < 0.4
    assert close(int((degree == 0).sum()), 10_000, math.exp(-5))


@pytest.mark.parametrize("phi", [-0.6, 0.0, 0.6])
def test_feature_statistics(phi: float) -> None:
    n, f = 10_000, 200
    graph = csbm(phi, seed=3)
    x = graph.features.numpy().astype(np.float64)
    v = 2.0 * graph.labels.numpy() - 1
    mu = math.sqrt(n / f * 4.25) * math.cos(phi * math.pi / 2)
    # The mean of v_i b_i is sqrt(mu / n) u, up to noise of variance 1 / (f n) per coordinate.
    mean = (v[:, None] * x).mean(axis=0)
    rest = x - v[:, None] * mean
    assert np.allclose(rest.var(), 1 / f, rtol=0.01)
    assert abs(rest.mean()) < 5 / math.sqrt(n * f * f)
    # |u|^2 has mean 1 and variance 2 / f.
    signal = (mean**2).sum() - 1 / n
    assert abs(signal - mu / n) < (mu / n) * 5 * math.sqrt(2 / f) + 10 * math.sqrt(mu / n) / math.sqrt(f * n)


def test_pure_topology_has_no_signal_in_the_features() -> None:
    x = csbm(1.0, n=2000, f=50).features
    v = torch.cat([torch.ones(1000), -torch.ones(1000)])
    assert float((v @ x / 2000).pow(2).sum()) < 3 / 2000


def test_seeds() -> None:
    a, b, c = (csbm(n=400, f=4, seed=s) for s in (1, 1, 2))
    assert np.array_equal(a.indices, b.indices)
    assert torch.equal(a.features, b.features)
    assert not torch.equal(a.features, c.features)
    assert not torch.equal(csbm(n=400, f=4, seed=1, split_seed=9).train_mask, a.train_mask)


@given(st.integers(2, 60))
@settings(max_examples=40, deadline=None)
def test_every_pair_can_be_drawn_once(m: int) -> None:
    rng = np.random.default_rng(0)
    within = _pairs_within(m, 1.0, rng)
    assert {tuple(p) for p in within.T.tolist()} == {(i, j) for j in range(m) for i in range(j)}
    between = _pairs_between(m, 1.0, rng)
    assert len({tuple(p) for p in between.T.tolist()}) == m * m == between.shape[1]


def test_the_triangle_root_is_exact_for_large_communities() -> None:
    pairs = _pairs_within(50_000_000, 2e-12, np.random.default_rng(1))
    assert pairs.shape[1] > 1000
    assert (pairs[0] >= 0).all()
    assert (pairs[0] < pairs[1]).all()
    assert (pairs[1] < 50_000_000).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"phi": 1.5}, "phi = 1.5"),
        ({"phi": math.nan}, "phi = nan"),
        ({"n": 7}, "n = 7"),
        ({"f": 0}, "f = 0"),
        ({"epsilon": -2.0}, "epsilon"),
        ({"d": 1.0, "phi": 1.0}, "d = 1.0: gives edge probabilities"),
        ({"d": -1.0}, "d = -1.0"),
    ],
)
def test_wrong_arguments(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        csbm(**arguments)  # type: ignore[arg-type]


def test_by_hand() -> None:
    # Class 0: nodes 0 and 1; class 1: node 2. Of the 3 edges leaving class 0 two stay, of the one leaving 1 none.
    graph = Graph.from_edge_index([[0, 1, 0, 2], [1, 0, 2, 0]], y=[0, 0, 1])
    measured = statistics(graph)
    assert measured.homophily == pytest.approx(max(0, 2 / 3 - 2 / 3) + max(0, 0 - 1 / 3))
    assert measured.edge_density == pytest.approx(2 * 4 / (3 * 2))
    clique = Graph.from_edge_index([[0, 1, 2, 3], [1, 0, 3, 2]], y=[0, 0, 1, 1])
    assert statistics(clique).homophily == 1.0


def test_agrees_with_pyg_where_source_and_target_do_not_matter() -> None:
    graph = csbm(0.7, n=2000, f=2)
    data = graph.to_pyg()
    assert statistics(graph).homophily == pytest.approx(
        pyg_homophily(data.edge_index, data.y, method="edge_insensitive"), abs=1e-6
    )


def test_edges_count_by_the_class_they_leave() -> None:
    graph = Graph.from_edge_index([[0, 0], [1, 2]], y=[0, 0, 1], directed=True)
    assert statistics(graph).homophily == pytest.approx(max(0, 1 / 2 - 2 / 3))
    turned = Graph.from_edge_index([[1, 2], [0, 0]], y=[0, 0, 1], directed=True)
    assert statistics(turned).homophily == pytest.approx(1 - 2 / 3)


def test_nothing_to_count() -> None:
    empty = np.zeros((2, 0), dtype=int)
    assert statistics(Graph.from_edge_index(empty, y=[0, 1])).homophily == 0.0
    lonely = statistics(Graph.from_edge_index(empty, num_nodes=1))
    assert (lonely.edge_density, lonely.homophily) == (0.0, 0.0)


def test_unlabelled_nodes_do_not_count() -> None:
    graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], y=[0, 0, -1], num_classes=2)
    assert statistics(graph).homophily == 0.0
    graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], y=[0, 0, -1, 1])
    assert statistics(graph).homophily == pytest.approx(1 - 2 / 3)
