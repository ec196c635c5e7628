"""The adjacency matrix: from lists of edges to one canonical CSR form, its checks, and the degree cap.

The matrix has entries 0 and 1, or weights between them (`graphveil.graph.links`), and an empty diagonal. The privacy
analysis rests on both: a duplicate edge would double the sensitivity of `A W`, and a self-loop would make a node read
itself, which the analysis excludes. So neither is repaired unless the caller asks.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput

DUPLICATE = "the edge {source} -> {target} is listed more than once; merge_duplicates=True makes one of them"
SELF_LOOP = "node {node} has an edge to itself; drop_self_loops=True removes such edges"
ONE_WAY = (
    "the edge {source} -> {target} has no way back, but the graph is declared undirected; "
    "declare directed=True, or symmetrize=True adds the missing entries"
)
TWO_WEIGHTS = (
    "the edge {source} -> {target} has another weight than its way back, but the graph is declared undirected; "
    "declare directed=True, or merge_duplicates=True with symmetrize=True adds the two"
)
# Entries that are looked at together; temporary arrays of more would cost new memory each time.
_AT_ONCE = 2**17


@dataclass(frozen=True)
class Repairs:
    """What may be repaired in a list of edges. What is not asked for is an error.

    Args:
        drop_self_loops: Remove edges from a node to itself.
        merge_duplicates: Make one of equal edges; where edges have weights, these are added.
        symmetrize: Add the reverse of every edge.
    """

    drop_self_loops: bool = False
    merge_duplicates: bool = False
    symmetrize: bool = False


def csr_from_edges(
    edge_index: Any, num_nodes: int, repairs: Repairs, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(indptr, indices, data)` of the edges `edge_index[0] -> edge_index[1]`, targets sorted within each row.

    `data` has the edges' weights, added up where edges are merged. Without weights every listed edge counts 1.
    """
    source, target = _edge_ends(edge_index, num_nodes)
    given = np.ones(len(source), dtype=np.int32) if weights is None else weights
    loops = source == target
    if loops.any():
        if not repairs.drop_self_loops:
            node = int(source[loops][0])
            raise InvalidInput("edge_index", (node, node), SELF_LOOP.format(node=node))
        source, target, given = source[~loops], target[~loops], given[~loops]
    # scipy adds entries at the same place: fewer entries than edges means duplicates.
    A = sp.coo_array((given, (source, target)), shape=(num_nodes, num_nodes)).tocsr()
    if A.nnz < len(source) and not repairs.merge_duplicates:
        i, j = _first_duplicate(source, target, num_nodes)
        raise InvalidInput("edge_index", (i, j), DUPLICATE.format(source=i, target=j))
    if repairs.symmetrize:
        back = A.T.tocsr()
        A = A + back if weights is None or repairs.merge_duplicates else _in_both_directions(A, back)
    return A.indptr, A.indices, A.data


def rows_of_pairs(
    source: np.ndarray, target: np.ndarray, num_nodes: int, repairs: Repairs
) -> tuple[np.ndarray, np.ndarray] | None:
    """The canonical rows of edges without weights whose ends are nodes, by one sort; None if that cannot be done.

    That is so where an edge needs a repair that was not asked for, and where row and column do not fit into 64 bits.
    `csr_from_edges` and `canonical_csr` give the same rows, or the error.
    """
    if len(source) >= 2**30 or num_nodes >= 2**31:
        return None
    keys = _keys(source, target, repairs)
    if keys is None:
        return None
    keys.sort()
    repeated = _repeated(keys)
    if repeated is not None:
        # In an undirected graph an edge may be listed once in each direction.
        listed = _keys(source, target, Repairs(drop_self_loops=True)) if repairs.symmetrize else keys
        assert listed is not None
        listed.sort()
        if not repairs.merge_duplicates and _repeated(listed) is not None:
            return None
        keys = keys[~repeated]
    return _read_only(_row_ends(keys, num_nodes)), _read_only(_lower_halves(keys))


def _row_ends(keys: np.ndarray, num_nodes: int) -> np.ndarray:
    """0, and where each row ends among the sorted keys."""
    indptr = np.zeros(num_nodes + 1, np.int32)
    for at in range(0, len(keys), _AT_ONCE):
        # Where each row of this block ends. If its last row goes on, the next block overwrites that end.
        rows = (keys[at : at + _AT_ONCE] >> np.uint64(32)).view(np.int64)
        last = np.append(np.flatnonzero(rows[1:] != rows[:-1]), len(rows) - 1)
        indptr[rows[last] + 1] = last + (at + 1)
    np.maximum.accumulate(indptr, out=indptr)  # rows without entries end where the row before them does
    return indptr


def _lower_halves(keys: np.ndarray) -> np.ndarray:
    """The columns that keys have in their lower half, in the memory of the keys, which are lost."""
    count = len(keys)
    columns = keys.view(np.int32)[:count]
    for at in range(0, count, _AT_ONCE):
        np.copyto(columns[at : at + _AT_ONCE], keys[at : at + _AT_ONCE], casting="unsafe")
    del columns  # `resize` may move the memory that this is a view of
    keys.resize((count + 1) // 2, refcheck=False)
    return keys.view(np.int32)[:count]


def _keys(source: np.ndarray, target: np.ndarray, repairs: Repairs) -> np.ndarray | None:
    """A number for each entry by which entries are sorted; None if there is an edge to itself that has to stay."""
    count, size = len(source), 0
    keys = np.empty(2 * count if repairs.symmetrize else count, np.uint64)
    for at in range(0, count, _AT_ONCE):
        ends = [end[at : at + _AT_ONCE].astype(np.uint64) for end in (source, target)]
        loops = ends[0] == ends[1]
        if loops.any():
            if not repairs.drop_self_loops:
                return None
            ends = [end[~loops] for end in ends]
        for row, column in (ends, ends[::-1]) if repairs.symmetrize else (ends,):
            np.bitwise_or(row << np.uint64(32), column, out=keys[size : size + len(row)])
            size += len(row)
    keys.resize(size, refcheck=False)
    return keys


def _repeated(keys: np.ndarray) -> np.ndarray | None:
    """Which of these sorted keys are the same as the one before; None if there are none."""
    before, after = keys[:-1], keys[1:]
    blocks = (slice(at, at + _AT_ONCE) for at in range(0, len(after), _AT_ONCE))
    if not any((before[block] == after[block]).any() for block in blocks):
        return None
    repeated = np.zeros(len(keys), bool)
    np.equal(before, after, out=repeated[1:])
    return repeated


def _in_both_directions(A: sp.csr_array, back: sp.csr_array) -> sp.csr_array:
    """The entries of both; where both have one it must be the same."""
    both = A.maximum(back)
    other = A.sign().multiply(back.sign()).multiply(A - back).tocoo()
    if other.nnz and other.data.any():
        at = int(np.argmax(other.data != 0))
        i, j = (int(end[at]) for end in other.coords)
        raise InvalidInput("edge_weight", (i, j), TWO_WEIGHTS.format(source=i, target=j))
    return both


def _first_duplicate(source: np.ndarray, target: np.ndarray, num_nodes: int) -> tuple[int, int]:
    ones = np.ones(len(source), dtype=np.int32)
    counts = sp.coo_array((ones, (source, target)), shape=(num_nodes, num_nodes)).tocsr()
    at = int(np.argmax(counts.data > 1))
    return row_of(counts.indptr, at), int(counts.indices[at])


def edges_from_csr(indptr: Any, indices: Any) -> np.ndarray:
    """The (2, edges) array of a CSR pattern, in its order."""
    indptr, indices = _csr_arrays(indptr, indices)
    return np.stack([np.repeat(np.arange(len(indptr) - 1, dtype=indices.dtype), np.diff(indptr)), indices])


def canonical_csr(
    indptr: Any, indices: Any, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Check a CSR pattern once and return it with sorted rows, read-only, in the smallest index type that fits.

    `weights` are those of the entries, which are sorted with them; None: there are none.
    """
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
        data = np.ones(stored, dtype=np.int8) if weights is None else weights.copy()
        A = sp.csr_array((data, indices.copy(), indptr.copy()), shape=(n, n))
        A.sort_indices()
        indices, weights = A.indices, None if weights is None else A.data
    repeated = same_row & (indices[1:] == indices[:-1])
    if repeated.any():
        at = int(np.argmax(repeated))
        i, j = int(rows[at]), int(indices[at])
        raise InvalidInput("indices", (i, j), DUPLICATE.format(source=i, target=j))
    return _read_only(indptr), _read_only(indices), None if weights is None else _read_only(weights)


def check_symmetric(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None = None) -> None:
    """A graph that is declared undirected stores every edge in both directions, with one weight."""
    ones = np.ones(len(indices), dtype=np.int8)
    for data, why in ((ones, ONE_WAY), (weights, TWO_WEIGHTS)):
        if data is None:
            continue
        A = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, len(indptr) - 1))
        back = A.T.tocsr()
        if all(np.array_equal(getattr(A, part), getattr(back, part)) for part in ("indptr", "indices", "data")):
            continue
        differ = (A - back).tocoo()
        at = int(np.argmax(differ.data > 0))
        i, j = int(differ.coords[0][at]), int(differ.coords[1][at])
        raise InvalidInput("edge_index", (i, j), why.format(source=i, target=j))


def row_of(indptr: np.ndarray, position: int) -> int:
    """The row in which the stored entry at `position` lies."""
    return int(np.searchsorted(indptr, position, side="right")) - 1


def as_scipy(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None = None) -> sp.csr_array:
    """The matrix with float32 weights, by default ones, sharing the index arrays."""
    n = len(indptr) - 1
    # Without weights one number, however many edges there are.
    data = np.broadcast_to(np.float32(1), len(indices)) if weights is None else weights
    A = sp.csr_array((data, indices, indptr), shape=(n, n), copy=False)
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


def column_sums(A: sp.csr_array, power: int = 0) -> np.ndarray:
    """A sum over each column of a matrix, which is exact for weights on their lattice.

    Args:
        A: The matrix.
        power: 1 adds up entries, 2 their squares; 0 counts the stored ones.

    Returns:
        A number for each column: at 0, how many nodes read the column's node.
    """
    powers = None if power == 0 else A.data.astype(np.float64) ** power
    return np.bincount(A.indices, powers, minlength=A.shape[1])


def cap_degree(A: Any, max_degree: int, seed: int | None = None, *, power: int = 0) -> sp.csr_array:
    """Keep at most `max_degree` entries of every column of A, chosen uniformly at random.

    Args:
        A: The matrix `graph.reads(...)`: row i lists the nodes that node i reads, column j the nodes that read node j.
        max_degree: The cap.
        seed: The same seed keeps the same entries. None: a new choice each time.
        power: Where entries are weights, what is added up: 1 for weights, 2 for their squares, 0 counts entries.

    Returns:
        A matrix of the same shape. Columns within the cap are unchanged. Entries are dropped one by one: of a symmetric
        A one direction of an edge may stay while the other goes.

    Raises:
        InvalidInput: The cap is not a positive integer.

    Formal guarantee: no column of the result has more than `max_degree` entries (weights, squares). Nothing is promised
    about the raw graph: removing a node makes room in other columns, so adjacency must then be defined on capped graphs
    (docs/theory.md, section 2).

    Example:
        >>> star = sp.csr_array(np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0]]))
        >>> cap_degree(star, max_degree=1, seed=0).sum(axis=0).tolist()
        [1, 0, 0]
    """
    if not isinstance(max_degree, (int, np.integer)) or max_degree < 1:
        raise InvalidInput("max_degree", max_degree, "must be a positive integer")
    A = sp.csr_array(A)
    coo = A.tocoo()
    row, column = coo.coords
    sums = column_sums(A, power)
    too_many = sums > max_degree
    crowded = np.flatnonzero(too_many[column])  # all other entries are kept
    # Sorting by column + fraction orders each column's entries at random, in one pass. Fractions stay below 0.5, so
    # that rounding cannot move an entry into the next column.
    key = column[crowded] + 0.5 * np.random.default_rng(seed).random(len(crowded))
    order = crowded[np.argsort(key)]
    counted = coo.data[order].astype(np.float64) ** power
    in_crowded = np.where(too_many, sums, 0)
    before = np.cumsum(in_crowded) - in_crowded
    reached = np.cumsum(counted) - before[column[order]]
    keep = np.ones(len(column), dtype=bool)
    keep[order[reached > max_degree]] = False
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
