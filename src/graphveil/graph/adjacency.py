"""The adjacency matrix: from lists of edges to one canonical CSR form, its checks, and the degree cap.

The matrix has entries 0 and 1 and an empty diagonal. The privacy analysis rests on both: a duplicate edge would double
the sensitivity of `A W`, and a self-loop would make a node read itself, which the analysis excludes. So neither is
repaired unless the caller asks.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput

DUPLICATE = "the edge {source} -> {target} is listed more than once; drop_duplicates=True keeps one"
SELF_LOOP = "node {node} has an edge to itself; drop_self_loops=True removes such edges"
ONE_WAY = (
    "the edge {source} -> {target} has no way back, but the graph is declared undirected; "
    "declare directed=True, or symmetrize=True adds the missing entries"
)


@dataclass(frozen=True)
class Repairs:
    """What may be repaired in a list of edges. What is not asked for is an error.

    Args:
        drop_self_loops: Remove edges from a node to itself.
        drop_duplicates: Keep one of equal edges.
        symmetrize: Add the reverse of every edge.
    """

    drop_self_loops: bool = False
    drop_duplicates: bool = False
    symmetrize: bool = False


def csr_from_edges(edge_index: Any, num_nodes: int, repairs: Repairs) -> tuple[np.ndarray, np.ndarray]:
    """`(indptr, indices)` of the edges `edge_index[0] -> edge_index[1]`, targets sorted within each row."""
    source, target = _edge_ends(edge_index, num_nodes)
    loops = source == target
    if loops.any():
        if not repairs.drop_self_loops:
            node = int(source[loops][0])
            raise InvalidInput("edge_index", (node, node), SELF_LOOP.format(node=node))
        source, target = source[~loops], target[~loops]
    # scipy sums entries at the same place: a count above 1 is a duplicate. int32 cannot overflow here.
    ones = np.ones(len(source), dtype=np.int32)
    A = sp.coo_array((ones, (source, target)), shape=(num_nodes, num_nodes)).tocsr()
    if A.nnz < len(source) and not repairs.drop_duplicates:
        at = int(np.argmax(A.data > 1))
        i, j = row_of(A.indptr, at), int(A.indices[at])
        raise InvalidInput("edge_index", (i, j), DUPLICATE.format(source=i, target=j))
    if repairs.symmetrize:
        A = A + A.T.tocsr()
    return A.indptr, A.indices


def edges_from_csr(indptr: Any, indices: Any) -> np.ndarray:
    """The (2, edges) array of a CSR pattern, in its order."""
    indptr, indices = _csr_arrays(indptr, indices)
    return np.stack([np.repeat(np.arange(len(indptr) - 1, dtype=indices.dtype), np.diff(indptr)), indices])


def canonical_csr(indptr: Any, indices: Any) -> tuple[np.ndarray, np.ndarray]:
    """Check a CSR pattern once and return it with sorted rows, read-only, in the smallest index type that fits."""
    indptr, indices = _csr_arrays(indptr, indices)
    n, stored = len(indptr) - 1, len(indices)
    if stored and (indices.min() < 0 or indices.max() >= n):
        at = int(np.argmax((indices < 0) | (indices >= n)))
        raise InvalidInput(f"indices[{at}]", int(indices[at]), f"node ids run from 0 to {n - 1}")
    # One type for both arrays, as scipy and torch ask; int32 halves the memory and is what MKL multiplies with.
    dtype = np.int32 if max(n, stored) < 2**31 else np.int64
    indptr, indices = indptr.astype(dtype, copy=False), indices.astype(dtype, copy=False)

    rows = np.repeat(np.arange(n, dtype=dtype), np.diff(indptr))
    loops = rows == indices
    if loops.any():
        node = int(rows[np.argmax(loops)])
        raise InvalidInput("indices", (node, node), SELF_LOOP.format(node=node))
    same_row = rows[1:] == rows[:-1]
    if np.any(same_row & (indices[1:] < indices[:-1])):
        A = sp.csr_array((np.ones(stored, dtype=np.int8), indices.copy(), indptr.copy()), shape=(n, n))
        A.sort_indices()
        indices = A.indices
    repeated = same_row & (indices[1:] == indices[:-1])
    if repeated.any():
        at = int(np.argmax(repeated))
        i, j = int(rows[at]), int(indices[at])
        raise InvalidInput("indices", (i, j), DUPLICATE.format(source=i, target=j))
    return _read_only(indptr), _read_only(indices)


def check_symmetric(indptr: np.ndarray, indices: np.ndarray) -> None:
    """A graph that is declared undirected stores every edge in both directions."""
    n = len(indptr) - 1
    A = sp.csr_array((np.ones(len(indices), dtype=np.int8), indices, indptr), shape=(n, n))
    back = A.T.tocsr()
    if np.array_equal(back.indptr, indptr) and np.array_equal(back.indices, indices):
        return
    one_way = (A - back).tocoo()
    at = int(np.argmax(one_way.data > 0))
    i, j = int(one_way.coords[0][at]), int(one_way.coords[1][at])
    raise InvalidInput("edge_index", (i, j), ONE_WAY.format(source=i, target=j))


def row_of(indptr: np.ndarray, position: int) -> int:
    """The row in which the stored entry at `position` lies."""
    return int(np.searchsorted(indptr, position, side="right")) - 1


def as_scipy(indptr: np.ndarray, indices: np.ndarray) -> sp.csr_array:
    """The pattern with float32 ones, sharing the index arrays."""
    n = len(indptr) - 1
    ones = np.broadcast_to(np.float32(1), len(indices))  # one number, however many edges there are
    A = sp.csr_array((ones, indices, indptr), shape=(n, n), copy=False)
    A.has_sorted_indices = A.has_canonical_format = True  # established by canonical_csr; saves a scan per use
    return A


def as_torch(A: sp.csr_array) -> torch.Tensor:
    """A scipy CSR matrix as `torch.sparse_csr`, sharing the memory of its indices."""
    with warnings.catch_warnings():
        # torch remarks that CSR is in beta and that our index arrays are read-only; both are known and harmless.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(
            torch.from_numpy(A.indptr),
            torch.from_numpy(A.indices),
            torch.from_numpy(np.ascontiguousarray(A.data)),
            size=A.shape,
            check_invariants=False,
        )


def cap_degree(A: Any, max_degree: int, seed: int | None = None) -> sp.csr_array:
    """Keep at most `max_degree` entries of every column of A, chosen uniformly at random.

    Args:
        A: The matrix `graph.reads(...)`: row i lists the nodes that node i reads, column j the nodes that read node j.
        max_degree: The cap.
        seed: The same seed keeps the same entries. None: a new choice each time.

    Returns:
        A matrix of the same shape. Columns within the cap are unchanged. Entries are dropped one by one: of a symmetric
        A one direction of an edge may stay while the other goes.

    Raises:
        InvalidInput: The cap is not a positive integer.

    Formal guarantee: no column of the result has more than `max_degree` entries. Nothing is promised about the raw
    graph: removing a node makes room in other columns, so adjacency must then be defined on capped graphs
    (docs/theory.md, section 2).

    Example:
        >>> star = sp.csr_array(np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0]]))
        >>> cap_degree(star, max_degree=1, seed=0).sum(axis=0).tolist()
        [1, 0, 0]
    """
    if not isinstance(max_degree, (int, np.integer)) or max_degree < 1:
        raise InvalidInput("max_degree", max_degree, "must be a positive integer")
    coo = sp.csr_array(A).tocoo()
    row, column = coo.coords
    counts = np.bincount(column, minlength=A.shape[1])
    crowded = np.flatnonzero((counts > max_degree)[column])  # all other entries are kept
    # Sorting by column + fraction orders each column's entries at random, in one pass. Fractions stay below 0.5, so
    # that rounding cannot move an entry into the next column.
    key = column[crowded] + 0.5 * np.random.default_rng(seed).random(len(crowded))
    order = crowded[np.argsort(key)]
    in_crowded = np.where(counts > max_degree, counts, 0)
    first = np.cumsum(in_crowded) - in_crowded
    rank = np.arange(len(order)) - first[column[order]]
    keep = np.ones(len(column), dtype=bool)
    keep[order[rank >= max_degree]] = False
    return sp.csr_array((coo.data[keep], (row[keep], column[keep])), shape=A.shape)


def _edge_ends(edge_index: Any, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    edges = edge_index.detach().cpu().numpy() if isinstance(edge_index, torch.Tensor) else np.asarray(edge_index)
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise InvalidInput("edge_index", edges.shape, "must have shape (2, number of edges)")
    if edges.size == 0:
        edges = edges.astype(np.int32)
    if edges.dtype.kind not in "iu":
        raise InvalidInput("edge_index", str(edges.dtype), "node ids must be integers")
    if edges.size and (edges.min() < 0 or edges.max() >= num_nodes):
        end, at = np.argwhere((edges < 0) | (edges >= num_nodes))[0].tolist()
        raise InvalidInput(f"edge_index[{end}, {at}]", int(edges[end, at]), f"node ids run from 0 to {num_nodes - 1}")
    return edges[0], edges[1]


def _csr_arrays(indptr: Any, indices: Any) -> tuple[np.ndarray, np.ndarray]:
    indptr, indices = _integers("indptr", indptr), _integers("indices", indices)
    if len(indptr) < 2:
        raise InvalidInput("indptr", indptr.tolist(), "a graph needs at least one node")
    if indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise InvalidInput("indptr", (int(indptr[0]), int(indptr[-1])), f"must rise from 0 to {len(indices)}")
    return indptr, indices


def _integers(field: str, values: Any) -> np.ndarray:
    array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidInput(field, (array.shape, str(array.dtype)), "must be a one-dimensional integer array")
    return array if array.size else array.astype(np.int32)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()  # a view, so that the caller's own array stays writable
    view.flags.writeable = False
    return view
