"""From and to PyG, scipy and NetworkX."""

from __future__ import annotations

import warnings

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data, HeteroData

from graphveil.errors import InvalidInput
from graphveil.graph import Graph
from support.graphs import assert_same_data


def test_pyg_there_and_back(triangle: Graph) -> None:
    data = triangle.to_pyg()
    assert data.validate()
    assert_same_data(Graph.from_pyg(data), triangle)


def test_pyg_with_several_splits() -> None:
    train = torch.tensor([[True, False], [False, True], [False, False]])
    data = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 0]), train_mask=train)
    assert Graph.from_pyg(data, split=1, directed=True).train_mask.tolist() == [False, True, False]
    with pytest.raises(InvalidInput, match="split = 2: train_mask holds the splits 0 to 1"):
        Graph.from_pyg(data, split=2, directed=True)


def test_weights_and_relations_are_not_left_out_silently() -> None:
    data = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Graph.from_pyg(data)
        data.edge_weight = torch.ones(2)
        Graph.from_pyg(data, max_weight=1.0)
    data.edge_type = torch.zeros(2, dtype=torch.long)
    with pytest.warns(UserWarning, match="not read: attribute 'edge_weight', attribute 'edge_type'; max_weight reads"):
        Graph.from_pyg(data)
    linked = nx.Graph([("a", "b", {"weight": 2.0})])
    with pytest.warns(UserWarning, match="not read: attribute 'weight' of edges"):
        Graph.from_networkx(linked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Graph.from_networkx(linked, max_weight=2.0)


def test_attributes_of_networkx_are_named() -> None:
    with pytest.raises(InvalidInput, match="attribute = 'list': must be the name of an attribute of the nodes"):
        Graph.from_networkx(nx.path_graph(2), features=[[1.0], [2.0]])  # type: ignore[arg-type]


def test_pyg_is_undirected_unless_declared_otherwise() -> None:
    data = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([[0], [1]]))
    with pytest.raises(InvalidInput, match="no way back"):
        Graph.from_pyg(data)
    assert Graph.from_pyg(data, directed=True).directed
    assert Graph.from_pyg(data, symmetrize=True).num_edges == 2
    with pytest.raises(InvalidInput, match="one type of node"):
        Graph.from_pyg(HeteroData())


def test_scipy_there_and_back(triangle: Graph) -> None:
    copy = triangle.to_scipy()
    copy.data[:] = 7
    assert triangle.to_scipy().data.max() == 1
    for form in (sp.csr_array, sp.coo_matrix, sp.csc_array):
        assert np.array_equal(Graph.from_scipy(form(triangle.to_scipy())).indices, triangle.indices)


def test_scipy_entries_must_be_ones() -> None:
    with pytest.raises(InvalidInput, match=r"adjacency\[0, 1\] = 0.5: must be 1"):
        Graph.from_scipy(sp.csr_array([[0, 0.5], [1, 0]]))
    stored_zero = sp.csr_array((np.array([0.0]), np.array([1]), np.array([0, 1, 1])), shape=(2, 2))
    with pytest.raises(InvalidInput, match=r"adjacency\[0, 1\] = 0.0"):
        Graph.from_scipy(stored_zero)
    with pytest.raises(InvalidInput, match="square"):
        Graph.from_scipy(sp.csr_array((2, 3)))
    twice = sp.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(2, 2))
    with pytest.raises(InvalidInput, match="more than once"):
        Graph.from_scipy(twice, directed=True)


def test_networkx_there_and_back(triangle: Graph) -> None:
    assert_same_data(Graph.from_networkx(triangle.to_networkx()), triangle)
    named = triangle.replace(node_ids=["a", "b", "c", "d"])
    back = Graph.from_networkx(named.to_networkx())
    assert_same_data(back, named)
    assert back.node_ids is not None
    assert back.node_ids.tolist() == ["a", "b", "c", "d"]


def test_the_networkx_class_declares_the_direction() -> None:
    ring = nx.cycle_graph(4, create_using=nx.DiGraph)
    assert Graph.from_networkx(ring).reads("out").toarray()[0].tolist() == [0, 1, 0, 0]
    assert not Graph.from_networkx(nx.cycle_graph(4)).directed
    with pytest.raises(InvalidInput, match="edge to itself"):
        Graph.from_networkx(nx.Graph([(0, 0)]))
    with pytest.raises(InvalidInput, match="more than once"):
        Graph.from_networkx(nx.MultiGraph([(0, 1), (0, 1)]))


def test_networkx_attributes_must_be_complete() -> None:
    graph = nx.Graph([("a", "b")])
    graph.nodes["a"]["y"] = 0
    with pytest.raises(InvalidInput, match="node 'b', y = None"):
        Graph.from_networkx(graph)
    graph.nodes["b"]["y"] = 1
    graph.nodes["b"]["split"] = "training"
    with pytest.raises(InvalidInput, match="node 'b', split = 'training'"):
        Graph.from_networkx(graph)
    graph.nodes["b"].pop("split")
    graph.nodes["a"]["x"], graph.nodes["b"]["x"] = [1.0], [1.0, 2.0]
    with pytest.raises(InvalidInput, match="same length"):
        Graph.from_networkx(graph)
