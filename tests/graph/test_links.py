"""Weights of links and several relations: what becomes of an entry, and what is refused."""

import json

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data, HeteroData

from graphveil.errors import InvalidInput
from graphveil.graph import Fingerprint, Graph, cap_degree, column_sums, read_graph, write_graph
from graphveil.graph.links import Relations, total

EDGES = np.array([[0, 1, 2, 0], [1, 2, 0, 2]])


def directed(edges=EDGES, **options):
    return Graph.from_edge_index(edges, num_nodes=3, directed=True, **options)


def dense(graph, direction="out", **options):
    return graph.reads(direction, **options).toarray()


def test_a_weight_is_a_part_of_the_declared_maximum():
    graph = directed(edge_weight=[5.0, 20.0, 2.5, 0.001], max_weight=10.0)
    assert dense(graph).tolist() == [[0, 0.5, 0], [0, 0, 1], [0.25, 0, 0]], "cut at 1; what rounds to 0 is no link"
    assert (graph.num_edges, graph.max_weight) == (3, 10.0)
    assert dense(graph, "in").tolist() == dense(graph).T.tolist()


def test_weights_are_multiples_of_a_step():
    weights = np.random.default_rng(0).random(4)
    graph = directed(edge_weight=weights, max_weight=1.0)
    assert np.all(graph.weights * 1024 == np.rint(graph.weights * 1024))
    assert np.abs(np.sort(graph.weights) - np.sort(weights)).max() <= 2**-11


def test_merged_edges_add_their_weights():
    edges = np.array([[0, 0, 1], [1, 1, 2]])
    merged = directed(edges, edge_weight=[1.0, 2.0, 9.0], max_weight=4.0, merge_duplicates=True)
    assert dense(merged).tolist() == [[0, 0.75, 0], [0, 0, 1], [0, 0, 0]]


def test_merged_edges_without_weights_are_counted():
    edges = np.array([[0, 0, 1], [1, 1, 2]])
    assert dense(directed(edges, max_weight=4.0, merge_duplicates=True))[:2].tolist() == [[0, 0.5, 0], [0, 0, 0.25]]
    assert dense(directed(edges, merge_duplicates=True))[:2].tolist() == [[0, 1, 0], [0, 0, 1]]


def test_an_undirected_graph_adds_both_directions_if_they_are_merged():
    edges, weights = [[0, 1, 1], [1, 0, 2]], [1.0, 2.0, 4.0]
    options = {"num_nodes": 3, "edge_weight": weights, "max_weight": 4.0, "symmetrize": True}
    graph = Graph.from_edge_index(edges, merge_duplicates=True, **options)
    assert dense(graph).tolist() == [[0, 0.75, 0], [0.75, 0, 1], [0, 1, 0]]
    with pytest.raises(InvalidInput, match="another weight than its way back"):
        Graph.from_edge_index(edges, **options)
    same = Graph.from_edge_index(edges, **{**options, "edge_weight": [2.0, 2.0, 4.0]})
    assert dense(same)[0].tolist() == [0, 0.5, 0], "listed in both directions, it is still one link"


def test_an_undirected_graph_has_one_weight_for_both_directions():
    with pytest.raises(InvalidInput, match="another weight than its way back"):
        Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2, edge_weight=[1.0, 2.0], max_weight=4.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edge_weight": [1, 1, 1, 1]}, "max_weight = None: declare"),
        ({"max_weight": 3.0}, "there are no weights"),
        ({"edge_weight": [1, 1, -1, 1], "max_weight": 3.0}, r"edge_weight\[2\] = -1: must be a finite number"),
        ({"edge_weight": [1, np.nan, 1, 1], "max_weight": 3.0}, r"edge_weight\[1\] = nan"),
        ({"edge_weight": [1, 1], "max_weight": 3.0}, "must be 4 numbers"),
        ({"edge_weight": ["a"] * 4, "max_weight": 3.0}, "must be 4 numbers"),
        ({"edge_weight": [1, 1, 1, 1], "max_weight": 0.0}, "max_weight"),
        ({"edge_relation": [0, 0, 1, 1]}, "declare the names"),
        ({"relations": ["a", "b"]}, "say which one"),
        ({"edge_relation": [0, 0, 1, 2], "relations": ["a", "b"]}, r"\[3\] = 2: relations count from 0 to 1"),
        ({"edge_relation": ["a", "b", "c", "a"], "relations": ["a", "b"]}, r"\[2\] = 'c': is not one of the declared"),
        ({"edge_relation": [0], "relations": ["a", "b"]}, "one relation for each edge"),
        ({"edge_relation": [0, 0, 1, 1], "relations": ["a", "a"]}, "'a': is listed twice"),
        ({"edge_relation": [0, 0, 1, 1], "relations": "ab"}, "must be a list of names"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        directed(**options)


def test_relations_are_kept_apart_and_added_up():
    edges = np.array([[0, 0, 1], [1, 1, 2]])
    graph = directed(edges, edge_relation=["call", "pay", "pay"], relations=["pay", "call"])
    assert graph.relations.names == ("pay", "call")
    assert [matrix.toarray().tolist() for matrix in graph.relations.matrices()] == [
        [[0, 1, 0], [0, 0, 1], [0, 0, 0]],
        [[0, 1, 0], [0, 0, 0], [0, 0, 0]],
    ]
    assert dense(graph).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]], "their sum is cut at 1"
    assert (graph.num_edges, graph.weights) == (3, None)
    backwards = dense(graph, "in", by_relation=True)
    assert backwards.tolist() == np.concatenate([matrix.toarray().T for matrix in graph.relations.matrices()]).tolist()


def test_weights_of_relations_are_added_up_and_cut():
    edges = np.array([[0, 0, 1, 1], [1, 1, 2, 2]])
    options = {"edge_relation": [0, 1, 0, 1], "relations": ["a", "b"], "max_weight": 4.0}
    graph = directed(edges, edge_weight=[1, 2, 3, 3], **options)
    assert dense(graph).tolist() == [[0, 0.75, 0], [0, 0, 1], [0, 0, 0]]
    assert graph.relations.stacked.toarray().max() == 0.75


def test_each_relation_of_an_undirected_graph_is_symmetric():
    stacked = sp.csr_array(np.array([[0, 1], [0, 0], [0, 0], [1, 0]], dtype=np.float32))
    with pytest.raises(InvalidInput, match="no way back"):
        Graph(relations=Relations(("a", "b"), stacked))


def test_a_subgraph_keeps_weights_and_relations():
    graph = directed(edge_weight=[1, 2, 3, 4], max_weight=4.0, edge_relation=[0, 1, 0, 1], relations=["a", "b"])
    keep = np.array([True, False, True])
    part = graph.subgraph(keep)
    assert dense(part).tolist() == dense(graph)[keep][:, keep].tolist()
    assert dense(part, by_relation=True).tolist() == [[0, 0], [0.75, 0], [0, 1], [0, 0]]


def test_weights_that_are_no_parts_are_refused():
    with pytest.raises(InvalidInput, match=r"weights\[0\] = 0.3"):
        Graph([0, 1, 1], [1], weights=[0.3], max_weight=1.0, directed=True)
    with pytest.raises(InvalidInput, match="declares what they are parts of"):
        Graph([0, 1, 1], [1], weights=[0.5], directed=True)


def test_a_fingerprint_knows_weights_and_relations():
    one = directed(edge_weight=[1, 2, 3, 4], max_weight=4.0)
    other = directed(edge_weight=[1, 2, 4, 4], max_weight=4.0)
    assert Fingerprint.of(one, "s") != Fingerprint.of(other, "s")
    split = directed(edge_relation=[0, 1, 0, 1], relations=["a", "b"])
    turned = directed(edge_relation=[1, 0, 1, 0], relations=["a", "b"])
    assert Fingerprint.of(split, "s") != Fingerprint.of(turned, "s") != Fingerprint.of(directed(), "s")


@pytest.mark.parametrize("power", [0, 1, 2])
def test_a_cap_adds_up_weights(power):
    rng = np.random.default_rng(power)
    A = sp.csr_array(np.where(rng.random((60, 20)) < 0.6, rng.integers(1, 1025, (60, 20)) / 1024, 0))
    capped = cap_degree(A, 5, seed=1, power=power)
    sums, before = column_sums(capped, power), column_sums(A, power)
    assert sums.max() <= 5
    assert (sums[before > 5] > 3).all(), "no more is dropped than has to be"
    assert (capped.toarray()[:, before <= 5] == A.toarray()[:, before <= 5]).all()


def test_the_sum_of_relations_moves_as_little_as_they_do():
    """One entry of one relation changes: the sum, cut at 1, moves in one entry by at most as much."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        stacked = np.where(rng.random((12, 4)) < 0.5, rng.integers(0, 1025, (12, 4)) / 1024, 0)
        changed = stacked.copy()
        changed[rng.integers(12), rng.integers(4)] = rng.integers(0, 1025) / 1024
        moved = total(sp.csr_array(changed)).toarray() - total(sp.csr_array(stacked)).toarray()
        assert np.abs(moved).sum() <= np.abs(changed - stacked).sum() <= 1


def weighted():
    """Three relations' worth of trouble: weights, two relations, a pair that is in both."""
    edges = np.array([[0, 0, 1, 3], [1, 1, 2, 0]])
    options = {"edge_relation": ["a", "b", "b", "a"], "relations": ["a", "b"], "y": [0, 1, 0, 1], "x": np.eye(4)}
    return Graph.from_edge_index(
        edges, edge_weight=[3.0, 7.0, 9.0, 1.0], max_weight=9.0, symmetrize=True, name="made", **options
    )


def same(one, other):
    assert dense(one, by_relation=True).tolist() == dense(other, by_relation=True).tolist()
    assert dense(one).tolist() == dense(other).tolist()
    assert one.max_weight == other.max_weight
    assert (one.relations and one.relations.names) == (other.relations and other.relations.names)


@pytest.mark.parametrize("path", ["graph.npz", "graph"])
def test_files_give_back_what_was_written(tmp_path, path):
    for graph in (weighted(), directed(edge_weight=[1, 2, 3, 4], max_weight=7.0, y=[0, 1, 1])):
        write_graph(graph, tmp_path / path, overwrite=True)
        same(graph, read_graph(tmp_path / path, seed=None))


def test_pyg_gives_back_what_it_was_given():
    graph = weighted()
    data = graph.to_pyg()
    assert data.edge_weight.max() == 9
    same(graph, Graph.from_pyg(data, max_weight=9.0, relations=["a", "b"]))
    assert Graph.from_pyg(directed().to_pyg(), directed=True).weights is None


def test_an_attribute_of_one_column_is_a_weight_if_that_is_asked_for():
    data = Data(edge_index=torch.tensor([[0], [1]]), edge_attr=torch.tensor([[2.0]]), num_nodes=2)
    assert Graph.from_pyg(data, directed=True, max_weight=8.0).weights.tolist() == [0.25]
    assert Graph.from_pyg(data, directed=True).weights is None
    data.edge_attr = torch.ones(1, 3)
    with pytest.raises(InvalidInput, match="must have one column"):
        Graph.from_pyg(data, directed=True, max_weight=8.0)


def hetero():
    data = HeteroData()
    data["person"].x, data["person"].y = torch.eye(3), torch.tensor([0, 1, 1])
    data["person", "calls", "person"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["person", "pays", "person"].edge_index = torch.tensor([[0], [2]])
    data["person", "calls", "person"].edge_weight = torch.tensor([1.0, 4.0])
    data["person", "pays", "person"].edge_weight = torch.tensor([2.0])
    return data


def test_edge_types_of_a_hetero_data_are_relations(tmp_path):
    graph = Graph.from_pyg(hetero(), directed=True, max_weight=4.0)
    assert graph.relations.names == ("calls", "pays")
    assert dense(graph, by_relation=True).tolist() == [[0, 0.25, 0], [0, 0, 1], [0] * 3, [0, 0, 0.5], [0] * 3, [0] * 3]
    torch.save(hetero(), tmp_path / "people.pt")
    read = read_graph(tmp_path / "people.pt", directed=True, max_weight=4.0, relations=["pays"])
    assert dense(read).tolist() == [[0, 0, 0.5], [0] * 3, [0] * 3]
    assert "edge type person/calls/person" in read.counts.unused
    two = hetero()
    two["shop"].x = torch.eye(2)
    with pytest.raises(InvalidInput, match="one type of node"):
        Graph.from_pyg(two)
    with pytest.raises(InvalidInput, match="one of the edge types calls, pays"):
        Graph.from_pyg(hetero(), relations=["writes"])


def test_networkx_gives_back_what_it_was_given():
    graph = weighted()
    same(graph, Graph.from_networkx(graph.to_networkx(), max_weight=9.0, relations=["a", "b"]))
    bare = nx.Graph([(0, 1)])
    with pytest.raises(InvalidInput, match=r"edge \(0, 1\), weight = None: is missing"):
        Graph.from_networkx(bare, max_weight=2.0)


def test_a_scipy_matrix_of_weights():
    A = sp.csr_array(np.array([[0, 2.0], [8.0, 0]]))
    assert dense(Graph.from_scipy(A, directed=True, max_weight=4.0)).tolist() == [[0, 0.5], [1, 0]]
    with pytest.raises(InvalidInput, match="declare max_weight"):
        Graph.from_scipy(A, directed=True)


PAYMENTS = "source,target,amount,kind,when\n0,1,30,card,1\n0,1,50,card,2\n1,2,500,wire,3\n0,2,10,wire,4\n"


def folder(path, edges=PAYMENTS):
    path.mkdir()
    (path / "nodes.csv").write_text("id,label\n0,a\n1,b\n2,a\n")
    (path / "edges.csv").write_text(edges)
    return path


def test_payments_of_a_table_become_weights(tmp_path):
    options = {"weight_column": "amount", "max_weight": 160, "merge_duplicates": True, "directed": True}
    graph = read_graph(folder(tmp_path / "g"), **options)
    assert dense(graph).tolist() == [[0, 0.5, 0.0625], [0, 0, 1], [0, 0, 0]]
    assert graph.counts.unused == ("edges.csv: column 'kind'", "edges.csv: column 'when'")
    assert "parts of 160, 1 of 3 links count fully; edges that are listed again are added up" in str(graph.counts)
    counted = read_graph(tmp_path / "g", max_weight=4, merge_duplicates=True, directed=True)
    assert dense(counted)[0].tolist() == [0, 0.5, 0.25]


def test_a_column_of_a_table_names_relations(tmp_path):
    options = {"relation_column": "kind", "relations": ["wire", "card"], "merge_duplicates": True, "directed": True}
    graph = read_graph(folder(tmp_path / "g"), **options)
    assert dense(graph, by_relation=True).tolist() == [[0, 0, 1], [0, 0, 1], [0] * 3, [0, 1, 0], [0] * 3, [0] * 3]
    assert "relations: wire (2), card (1)" in str(graph.counts)
    (tmp_path / "g" / "graph.json").write_text(json.dumps(options | {"weight_column": "amount", "max_weight": 100}))
    assert dense(read_graph(tmp_path / "g"))[0].tolist() == [0, 0.7998046875, 0.099609375]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_column": "amount"}, "max_weight = None: declare from which weight in column 'amount'"),
        ({"max_weight": 5}, "name the weight_column, or let merge_duplicates count"),
        ({"weight_column": "amounts", "max_weight": 5}, "there is no column 'amounts'"),
        ({"weight_column": "kind", "max_weight": 5}, "kind"),
        ({"relation_column": "kind"}, "declare the names of all relations; column 'kind' has card, wire"),
        ({"relation_column": "kind", "relations": ["card"]}, "row 3, column 'kind' = 'wire': is not one of"),
        ({"relations": ["card"]}, "name the relation_column"),
        ({"relation_column": "kind", "relations": ["card", "wire"]}, "this edge was already listed in row 1"),
    ],
)
def test_what_a_table_is_refused_for(tmp_path, options, message):
    with pytest.raises(InvalidInput, match=message):
        read_graph(folder(tmp_path / "g"), directed=True, **options)


def test_cells_that_are_no_weights(tmp_path):
    for name, cell, why in (("gap", "", "a weight is missing"), ("less", "-3", "a weight must be 0 or more")):
        path = folder(tmp_path / name, PAYMENTS.replace("500", cell))
        with pytest.raises(InvalidInput, match=f"row 3, column 'amount' = .*: {why}"):
            read_graph(path, directed=True, weight_column="amount", max_weight=9, merge_duplicates=True)


def test_weights_are_not_mapped_to_files(tmp_path):
    with pytest.raises(InvalidInput, match="weights and relations are read in memory"):
        read_graph(folder(tmp_path / "g"), mmap=tmp_path, weight_column="amount", max_weight=9, merge_duplicates=True)


def test_tables_in_memory_have_weights_and_relations():
    edges = {"source": [0, 1], "target": [1, 2], "amount": [5.0, 20.0], "kind": ["x", "y"]}
    options = {"weight_column": "amount", "max_weight": 10, "relation_column": "kind", "relations": ["y", "x"]}
    graph = Graph.from_tables({"id": [0, 1, 2]}, edges, directed=True, **options)
    assert dense(graph, by_relation=True).tolist() == [[0] * 3, [0, 0, 1], [0] * 3, [0, 0.5, 0], [0] * 3, [0] * 3]


def test_an_emptied_node_loses_its_links_of_all_relations():
    graph = weighted()
    emptied = graph.emptied(0)
    expected = dense(graph, by_relation=True)
    expected[:: graph.num_nodes] = 0
    expected[:, 0] = 0
    assert dense(emptied, by_relation=True).tolist() == expected.tolist()
    assert dense(graph.emptied(0, keep_links=True)).tolist() == dense(graph).tolist()
    plain = graph.replace(relations=None).emptied(0)
    assert dense(plain)[0].tolist() == [0] * graph.num_nodes
