"""Rows of edges by one sort, and the cap on how often a node is read."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from graphveil.errors import InvalidInput
from graphveil.graph import Graph, adjacency, cap_degree
from graphveil.graph.adjacency import Repairs, canonical_csr, csr_from_edges, rows_of_pairs


@st.composite
def matrices(draw: st.DrawFn) -> sp.csr_array:
    n = draw(st.integers(1, 12))
    bits = draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))
    dense = np.array(bits, dtype=np.float32).reshape(n, n)
    np.fill_diagonal(dense, 0)
    return sp.csr_array(dense)


@given(matrices(), st.integers(1, 6), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_every_column_has_the_smaller_of_its_sum_and_the_cap(A: sp.csr_array, cap: int, seed: int) -> None:
    B = cap_degree(A, cap, seed)
    assert B.shape == A.shape
    assert B.sum(axis=0).tolist() == np.minimum(A.sum(axis=0), cap).tolist()
    assert ((A - B).toarray() >= 0).all()
    assert np.array_equal(B.toarray(), cap_degree(A, cap, seed).toarray())


def test_entries_are_chosen_uniformly() -> None:
    star = sp.csr_array((np.ones(5), (np.arange(1, 6), np.zeros(5, dtype=int))), shape=(6, 6))
    kept = sum(cap_degree(star, 2, seed).toarray()[:, 0] for seed in range(3000))
    assert kept[0] == 0
    assert np.abs(kept[1:] - 1200).max() < 5 * np.sqrt(3000 * 0.4 * 0.6)


def test_the_last_node_is_read_and_reads_like_any_other() -> None:
    n = 30
    complete = sp.csr_array(1 - np.eye(n))
    rows = sum(cap_degree(complete, 3, seed).toarray() for seed in range(400))
    assert rows[-1].sum() > 0
    assert abs(rows[-1].sum() - 3 * 400) < 200
    assert rows[:, -1].sum() == 3 * 400


def test_empty_rows_keep_their_place() -> None:
    A = sp.csr_array(np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]], dtype=float)[:, [0, 1, 2]])
    B = cap_degree(sp.csr_array(np.pad(A.toarray(), ((0, 0), (0, 1)))), 1, seed=0)
    assert B.shape == (4, 4)
    assert B.nnz == 1
    assert B[0].sum() == 0


def test_both_reading_directions_of_a_graph() -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_edge_index(rng.integers(0, 40, (2, 600)), num_nodes=40, directed=True,
                                  drop_self_loops=True, merge_duplicates=True)  # fmt: skip
    for direction in ("out", "in"):
        assert cap_degree(graph.reads(direction), 4, 0).sum(axis=0).max() == 4
    assert graph.num_edges == graph.reads("out").nnz


def test_a_graph_without_edges_and_wrong_caps() -> None:
    assert cap_degree(sp.csr_array((3, 3)), 1).nnz == 0
    for wrong in (0, -1, 1.5):
        with pytest.raises(InvalidInput, match=f"max_degree = {wrong}"):
            cap_degree(sp.csr_array((3, 3)), wrong)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_one_sort_gives_the_rows_of_the_checked_way(
    pairs: list[tuple[int, int]], drop: bool, merge: bool, symmetrize: bool
) -> None:
    edges = np.array(pairs, np.int32).reshape(-1, 2).T
    repairs = Repairs(drop, merge, symmetrize)
    rows = rows_of_pairs(edges[0], edges[1], 6, repairs)
    try:
        indptr, indices, _ = canonical_csr(*csr_from_edges(edges, 6, repairs)[:2])
    except InvalidInput:
        assert rows is None
        return
    assert rows is not None
    for ours, usual in zip(rows, (indptr, indices), strict=True):
        assert (ours.dtype, ours.tolist(), ours.flags.writeable) == (usual.dtype, usual.tolist(), False)


def test_one_sort_of_more_entries_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjacency, "_AT_ONCE", 3)
    source, target = np.array([4, 0, 2, 3, 1, 0, 2], np.int32), np.array([0, 3, 1, 4, 2, 1, 4], np.int32)
    rows = rows_of_pairs(source, target, 5, Repairs(symmetrize=True))
    assert rows is not None
    indptr, indices, _ = canonical_csr(*csr_from_edges([source, target], 5, Repairs(symmetrize=True))[:2])
    assert [part.tolist() for part in rows] == [indptr.tolist(), indices.tolist()]
    assert rows_of_pairs(np.append(source, 2), np.append(target, 4), 5, Repairs(symmetrize=True)) is None
