"""`Graph`: what is legal, what is an error, and which way it reads."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphveil.errors import InvalidInput
from graphveil.graph import Direction, Graph


def path_graph(**changes: Any) -> Graph:
    """0 -> 1 -> 2, two classes; `changes` break it."""
    fields: dict[str, Any] = {
        "edge_index": [[0, 1], [1, 2]],
        "x": np.eye(3, 2, dtype=np.float32),
        "y": [0, 1, 0],
        "train_mask": [True, True, False],
        "test_mask": [False, False, True],
        "directed": True,
    }
    return Graph.from_edge_index(**(fields | changes))


def features_with(value: float) -> np.ndarray:
    x = np.zeros((3, 2), dtype=np.float32)
    x[2, 1] = value
    return x


BROKEN = {
    "NaN feature": ({"x": features_with(np.nan)}, r"features\[2, 1\] = nan"),
    "infinite feature": ({"x": features_with(-np.inf)}, r"features\[2, 1\] = -inf"),
    "feature that overflows float32": ({"x": features_with(1.0).astype(float) * 1e300}, r"features\[2, 1\] = 1e\+300"),
    "NaN in sparse features": ({"x": sp.csr_array(features_with(np.nan))}, r"features\[2, 1\] = nan"),
    "text features": ({"x": [["a"], ["b"], ["c"]]}, "features = '<U1': must be numbers"),
    "ragged features": ({"x": [[1.0], [2.0, 3.0], [4.0]]}, "features = 'list': has rows of different lengths"),
    "complex sparse features": ({"x": sp.csr_array(np.ones((3, 2), complex))}, "features = 'complex128'"),
    "complex features": ({"x": torch.zeros(3, 2, dtype=torch.complex64)}, "features = 'torch.complex64'"),
    "features of one dimension": ({"x": [1.0, 2.0, 3.0]}, r"features = \(3,\): must have shape \(3,"),
    "too few feature rows": ({"x": np.zeros((2, 2)), "num_nodes": 3}, r"features = \(2, 2\)"),
    "label too large": ({"num_classes": 2, "y": [0, 1, 2]}, r"labels\[2\] = 2: classes run from 0 to 1"),
    "label below -1": ({"y": [0, 1, -2]}, r"labels\[2\] = -2"),
    "fractional labels": ({"y": [0.0, 1.0, 0.5]}, "labels = 'torch.float64': must be integers"),
    "one-hot labels": ({"y": np.eye(3, dtype=int)}, r"labels = \(3, 3\)"),
    "too few labels": ({"y": [0, 1]}, r"labels = \(2,\)"),
    "more classes than nodes": ({"y": [0, 1, 10**12]}, "labels = 1000000000000: counts more classes"),
    "a single class": ({"y": [0, 0, 0]}, "needs at least 2 classes"),
    "a single class, not the first": ({"y": [1, 1, 1]}, "needs at least 2 classes"),
    "a single declared class": ({"num_classes": 1, "y": [0, 0, 0]}, "num_classes = 1: needs at least 2 classes"),
    "id too large": ({"edge_index": [[0, 1], [1, 3]]}, r"edge_index\[1, 1\] = 3: node ids run from 0 to 2"),
    "negative id": ({"edge_index": [[-1, 1], [1, 2]]}, r"edge_index\[0, 0\] = -1"),
    "fractional id": ({"edge_index": [[0.5], [1.0]]}, "edge_index = 'float64': node ids must be integers"),
    "edges of the wrong shape": ({"edge_index": [[0, 1, 2]]}, r"edge_index = \(1, 3\)"),
    "duplicate edge": ({"edge_index": [[1, 0, 1], [2, 1, 2]]}, "the edge 1 -> 2 is listed more than once"),
    "self-loop": ({"edge_index": [[0, 1], [1, 1]]}, "node 1 has an edge to itself"),
    "one-way edge in an undirected graph": ({"directed": False}, "the edge 0 -> 1 has no way back"),
    "direction that is not a boolean": ({"directed": "yes"}, "directed = 'yes'"),
    "empty training set": ({"train_mask": [False] * 3}, "train_mask = 0: the training set is empty"),
    "test set without a training set": ({"train_mask": None}, "train_mask = None: is missing although"),
    "overlapping masks": ({"test_mask": [True, False, True]}, "train_mask = 0: this node is in test_mask too"),
    "mask of the wrong length": ({"train_mask": [True, False]}, r"train_mask = \(2,\)"),
    "mask of numbers": ({"train_mask": [0, 1, 2]}, "train_mask = 'torch.int64': must be boolean"),
    "training node without a label": ({"y": [0, -1, 1]}, "train_mask = 1: this node has no label"),
    "ids given twice": ({"node_ids": ["a", "b", "a"]}, "node_ids = 'a': this id is given to more than one node"),
    "ids of the same text": ({"node_ids": np.array([1, "1", 2], dtype=object)}, "node_ids = '1': this id is given to"),
    "an id with blanks": ({"node_ids": ["a", "b ", "c"]}, "node_ids = 'b ': has blanks around it"),
    "an empty id": ({"node_ids": ["a", "", "c"]}, "node_ids = '': an id is missing"),
    "too few ids": ({"node_ids": ["a", "b"]}, r"node_ids = \(2,\)"),
    "too few class names": ({"num_classes": 2, "class_names": ["a"]}, "class_names"),
    "no nodes": ({"num_nodes": 0, "x": None, "y": None}, "num_nodes = 0: a graph needs at least one node"),
    "unknown number of nodes": ({"x": None, "y": None}, "num_nodes = None: is needed"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_graphs_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        path_graph(**change)
    assert "\n" not in str(caught.value)


def test_csr_arrays_are_checked_too() -> None:
    with pytest.raises(InvalidInput, match=r"indices\[0\] = 5"):
        Graph([0, 1, 1], [5], directed=True)
    with pytest.raises(InvalidInput, match="indptr"):
        Graph([0, 2, 1], [1], directed=True)
    with pytest.raises(InvalidInput, match="listed more than once"):
        Graph([0, 2, 2], [1, 1], directed=True)
    with pytest.raises(InvalidInput, match="edge to itself"):
        Graph([0, 1, 1], [0], directed=True)
    with pytest.raises(InvalidInput, match="at least one node"):
        Graph([0], [])
    for wrong in (([0, 1.5], [0]), ([0, 1, 1], [1.0]), ([0, 1, 1], [[1]])):
        with pytest.raises(InvalidInput, match="one-dimensional integer array"):
            Graph(*wrong, directed=True)
    assert Graph([0, 2, 2, 2], [2, 1], directed=True).indices.tolist() == [1, 2]


def test_the_caller_keeps_a_writable_array_and_the_graph_a_read_only_one() -> None:
    indptr, indices = np.array([0, 1, 2], dtype=np.int32), np.array([1, 0], dtype=np.int32)
    graph = Graph(indptr, indices)
    indices[0] = 1
    indices[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        graph.indices[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.directed = True  # type: ignore[misc]


def test_labels_and_masks_are_copied() -> None:
    y = torch.tensor([0, 1, 0])
    graph = path_graph(y=y)
    y[0] = 1
    assert graph.labels.tolist() == [0, 1, 0]


def test_isolated_nodes_and_graphs_without_edges_are_legal() -> None:
    graph = path_graph(edge_index=np.zeros((2, 0), dtype=int))
    assert graph.num_edges == 0
    for direction in ("out", "in"):
        assert graph.reads(direction).toarray().tolist() == [[0, 0, 0]] * 3
    lonely = path_graph(edge_index=[[0], [1]])
    assert lonely.reads("in").sum(axis=1).tolist() == [0, 1, 0]
    assert path_graph(edge_index=torch.zeros(2, 0)).num_edges == 0


def test_without_masks_a_graph_can_be_built_but_not_trained_on() -> None:
    graph = path_graph(train_mask=None, test_mask=None)
    assert not graph.has_split
    with pytest.raises(InvalidInput, match="no training set"):
        graph.check_trainable()
    graph.with_split(seed=0).check_trainable()


def test_without_labels_there_are_no_classes() -> None:
    graph = path_graph(y=None, train_mask=None, test_mask=None)
    assert graph.num_classes == 0
    assert graph.labels.tolist() == [-1, -1, -1]
    assert graph.replace(name="other").name == "other"
    with pytest.raises(InvalidInput, match="no node has a label"):
        graph.with_split(seed=0)


def test_reads_says_who_reads_whom() -> None:
    graph = path_graph()
    assert graph.reads("out").toarray().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert graph.reads("in").toarray().tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    with pytest.raises(InvalidInput, match="direction = 'both'"):
        graph.reads("both")  # type: ignore[arg-type]


def test_an_undirected_graph_has_one_matrix(triangle: Graph) -> None:
    assert triangle.reads("in") is triangle.reads("out")


def test_indices_are_int32() -> None:
    graph = path_graph()
    assert graph.indices.dtype == graph.indptr.dtype == np.int32
    assert graph.reads("in").indices.dtype == np.int32
    assert graph.reads("in").data.dtype == np.float32


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[int, np.ndarray]:
    n = draw(st.integers(1, 8))
    node = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=30))
    return n, np.array(pairs, dtype=np.int64).reshape(-1, 2).T


@given(edge_lists(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_repairs_on_request_give_the_dense_answer(edges: tuple[int, np.ndarray], symmetrize: bool) -> None:
    n, edge_index = edges
    dense = np.zeros((n, n))
    dense[edge_index[0], edge_index[1]] = 1
    np.fill_diagonal(dense, 0)
    dense = np.maximum(dense, dense.T) if symmetrize else dense
    graph = Graph.from_edge_index(
        edge_index,
        num_nodes=n,
        directed=not symmetrize,
        drop_self_loops=True,
        merge_duplicates=True,
        symmetrize=symmetrize,
    )
    expectations: list[tuple[Direction, np.ndarray]] = [("out", dense), ("in", dense.T)]
    for direction, expected in expectations:
        assert np.array_equal(graph.reads(direction).toarray(), expected)


@given(edge_lists())
@settings(max_examples=200, deadline=None)
def test_nothing_is_repaired_unasked(edges: tuple[int, np.ndarray]) -> None:
    n, edge_index = edges
    pairs = list(zip(*edge_index.tolist(), strict=True))
    clean = len(set(pairs)) == len(pairs) and all(i != j for i, j in pairs)
    symmetric = all((j, i) in pairs for i, j in pairs)
    for directed in (True, False):
        if clean and (directed or symmetric):
            assert Graph.from_edge_index(edge_index, num_nodes=n, directed=directed).num_edges == len(pairs)
        else:
            with pytest.raises(InvalidInput):
                Graph.from_edge_index(edge_index, num_nodes=n, directed=directed)


def test_sparse_features_stay_sparse_and_agree_with_dense_ones() -> None:
    x = np.array([[0, 1.5], [0, 0], [-2, 0]])
    sparse, dense = path_graph(x=sp.coo_array(x)), path_graph(x=x)
    assert sp.issparse(sparse.features)
    assert sparse.features_torch().layout == torch.sparse_csr
    assert torch.equal(sparse.features_torch().to_dense(), dense.features_torch())
    assert torch.equal(path_graph(x=torch.from_numpy(x).to_sparse()).features_torch().to_dense(), dense.features)


def test_dense_float32_features_are_not_copied() -> None:
    x = torch.zeros(3, 2)
    assert path_graph(x=x).features.data_ptr() == x.data_ptr()


def test_subgraph_keeps_order_classes_and_split(triangle: Graph) -> None:
    part = triangle.replace(node_ids=["a", "b", "c", "d"]).subgraph([True, False, True, True])
    assert part.node_ids is not None
    assert part.node_ids.tolist() == ["a", "c", "d"]
    assert part.reads("out").toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert part.labels.tolist() == [0, 1, -1]
    assert part.train_mask.tolist() == [True, False, False]
    assert part.num_classes == 2
    assert not triangle.subgraph([False, False, True, True]).has_split
    with pytest.raises(InvalidInput, match="keep"):
        triangle.subgraph([0, 2])


def test_a_pickled_graph_leaves_its_cached_matrices_behind(triangle: Graph) -> None:
    triangle.reads("out")
    again = pickle.loads(pickle.dumps(triangle))
    assert "_reads_out" not in again.__dict__
    assert np.array_equal(again.reads("out").toarray(), triangle.reads("out").toarray())


def test_repr_is_one_line(triangle: Graph) -> None:
    assert repr(triangle) == (
        "Graph('triangle': 4 nodes, 6 stored edges, undirected, 2 features, 2 classes, 2/0/1 in train/val/test)"
    )


@pytest.mark.parametrize("name", ["drop_self_loops", "merge_duplicates", "symmetrize", "directed"])
def test_words_and_numbers_are_no_truth_values(name):
    for value in ("no", 1, None):
        with pytest.raises(InvalidInput, match=f"{name} = .*True or False"):
            Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2, **{name: value})
