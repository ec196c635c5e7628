"""From lists of edges to one canonical CSR, and the checks that make it a 0/1 matrix with an empty diagonal.

Both conditions carry the privacy analysis: a duplicate edge doubles the sensitivity of `A W`, and a self-loop
breaks the split into "row r" and "all other rows". So neither is repaired unless the caller asks.
"""

from __future__ import annotations

import warnings
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


def csr_from_edges(
    edge_index: Any,
    num_nodes: int,
    *,
    drop_self_loops: bool = False,
    drop_duplicates: bool = False,
    symmetrize: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """`(indptr, indices)` of the edges `edge_index[0] -> edge_index[1]`, targets sorted within each row."""
    source, target = _edge_ends(edge_index, num_nodes)
    loops = source == target
    if loops.any():
        if not drop_self_loops:
            node = int(source[loops][0])
            raise InvalidInput("edge_index", (node, node), SELF_LOOP.format(node=node))
        source, target = source[~loops], target[~loops]
    # scipy sums entries at the same place: a count above 1 is a duplicate. int32 cannot overflow here.
    ones = np.ones(len(source), dtype=np.int32)
    A = sp.coo_array((ones, (source, target)), shape=(num_nodes, num_nodes)).tocsr()
    if A.nnz < len(source) and not drop_duplicates:
        at = int(np.argmax(A.data > 1))
        i, j = row_of(A.indptr, at), int(A.indices[at])
        raise InvalidInput("edge_index", (i, j), DUPLICATE.format(source=i, target=j))
    if symmetrize:
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
