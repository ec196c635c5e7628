"""CSR arrays of more edges than memory holds: entries are dealt out to blocks of rows, and each block is sorted.

At any time there are some millions of entries in memory and a few numbers for each node; the rest is in nameless
files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphveil.graph.scratch import ScratchArray

_EDGES_AT_ONCE = 2**20
_ENTRIES_AT_ONCE = 2**22


@dataclass(frozen=True)
class Rows:
    """Sorted rows without duplicates, and the blocks of rows `(from, to)` in which an edge was listed twice."""

    indptr: np.ndarray
    indices: np.ndarray
    repeats: list[tuple[int, int]]


def csr_in_files(
    source: np.ndarray, target: np.ndarray, n: int, folder: Path, *, symmetrize: bool, drop_self_loops: bool
) -> Rows:
    """The rows of the edges `source -> target` among `n` nodes, mapped to files in `folder`."""
    ends = np.zeros(n + 1, np.int64)
    for rows, _ in _entries(source, target, n, symmetrize):
        ends[1:] += np.bincount(rows, minlength=n)
    np.cumsum(ends, out=ends)
    total = int(ends[-1])
    bounds = np.unique([0, *np.searchsorted(ends[1:], np.arange(_ENTRIES_AT_ONCE, total, _ENTRIES_AT_ONCE)), n])
    starts = ends[bounds]
    keys = _dealt_out(_entries(source, target, n, symmetrize), bounds, starts, folder)

    dtype = np.int32 if max(n, total) < 2**31 else np.int64  # as `adjacency.canonical_csr` has it
    indices = ScratchArray(folder, dtype)
    indptr = np.zeros(n + 1, dtype)
    repeats = []
    for block, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        key = keys.read(int(starts[block]), int(starts[block + 1]))
        key.sort()
        listed = (key[1:] & 1) == 0
        if np.any(listed & (key[1:] == key[:-1])):
            repeats.append((low, high))
        key >>= 1
        first = np.ones(len(key), np.bool_)
        np.not_equal(key[1:], key[:-1], out=first[1:])
        rows, columns = np.divmod(key[first], n)
        if drop_self_loops:
            proper = rows != columns
            rows, columns = rows[proper], columns[proper]
        indptr[low + 1 : high + 1] = np.bincount(rows - low, minlength=high - low)
        indices.append(columns)
    np.cumsum(indptr, out=indptr)
    mapped = ScratchArray(folder, dtype)
    mapped.append(indptr)
    return Rows(mapped.mapped(), indices.mapped(), repeats)


def first_repeat(source: np.ndarray, target: np.ndarray, n: int, repeats: list[tuple[int, int]]) -> tuple[int, int]:
    """Which edge is the first that was listed before, and where; `repeats` as in `Rows`, not empty."""
    found = (0, len(source))
    for low, high in repeats:
        places, keys = [], []
        for at in range(0, found[1], _EDGES_AT_ONCE):
            part = slice(at, min(at + _EDGES_AT_ONCE, found[1]))
            here = np.flatnonzero((source[part] >= low) & (source[part] < high))
            places.append(at + here)
            keys.append(source[part][here].astype(np.int64) * n + target[part][here])
        place, key = np.concatenate(places), np.concatenate(keys)
        order = np.argsort(key, kind="stable")
        again = np.flatnonzero(key[order[1:]] == key[order[:-1]])
        if len(again):
            at = int(again[np.argmin(order[again + 1])])
            found = (int(place[order[at]]), int(place[order[at + 1]]))
    return found


def _entries(
    source: np.ndarray, target: np.ndarray, n: int, symmetrize: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of some entries, and their keys 2 (row n + column), plus 1 for the way back of an edge."""
    for at in range(0, len(source), _EDGES_AT_ONCE):
        i = source[at : at + _EDGES_AT_ONCE].astype(np.int64)
        j = target[at : at + _EDGES_AT_ONCE].astype(np.int64)
        yield i, 2 * (i * n + j)
        if symmetrize:
            yield j, 2 * (j * n + i) + 1


def _dealt_out(
    entries: Iterator[tuple[np.ndarray, np.ndarray]], bounds: np.ndarray, starts: np.ndarray, folder: Path
) -> ScratchArray:
    """All keys, those of the same block of rows together, in the place that `starts` has for them."""
    keys = ScratchArray(folder, np.int64)
    free = starts.copy()
    for rows, key in entries:
        block = (np.searchsorted(bounds, rows, side="right") - 1).astype(np.int16 if len(bounds) < 2**15 else np.int64)
        key = key[np.argsort(block, kind="stable")]
        cuts = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=len(bounds) - 1))])
        for at in np.flatnonzero(np.diff(cuts)):
            keys.put(int(free[at]), key[cuts[at] : cuts[at + 1]])
        free[:-1] += np.diff(cuts)
    return keys
