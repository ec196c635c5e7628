"""Edge density and homophily."""

from __future__ import annotations

import numpy as np
import pytest
from torch_geometric.utils import homophily as pyg_homophily

from graphveil.graph import Graph, csbm, statistics


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
