"""Edges sorted on disk: each entry of A is a number, put into the bucket of its target, and sorted bucket by bucket.

An entry is the key 2 (target n + source), with the target counted from the bucket's first, plus 1 if it is the reverse
of an edge that was listed. A bucket is a file of such numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from graphveil.errors import InvalidInput

# How many edges that are listed twice are remembered.
_MOST_REPEATS = 2**20


class EdgeBuckets:
    """Files of entries, a range of targets in each.

    Args:
        folder: Where the files are.
        starts: The first target of each bucket, and at the end the number of nodes.
        both_ways: Whether an edge stands for its reverse too.
        at_once: How many entries may be sorted in memory.
    """

    def __init__(self, folder: Path, starts: Sequence[int], *, both_ways: bool, at_once: int) -> None:
        self._folder, self._starts = folder, np.array(starts, np.int64)
        self._nodes, self._both_ways, self._at_once = int(starts[-1]), both_ways, at_once
        folder.mkdir(exist_ok=True)

    def sizes(self) -> list[int]:
        """The bytes of each bucket."""
        paths = map(self._path, range(len(self._starts) - 1))
        return [path.stat().st_size if path.exists() else 0 for path in paths]

    def cut(self, sizes: Sequence[int]) -> None:
        """Return to earlier sizes: what was written later is dropped.

        Raises:
            InvalidInput: A bucket is shorter than it was.
        """
        for bucket, (size, there) in enumerate(zip(sizes, self.sizes(), strict=True)):
            if there < size:
                raise InvalidInput("out", str(self._path(bucket)), "is damaged; remove its folder and start again")
            if there > size:
                os.truncate(self._path(bucket), size)

    def add(self, source: np.ndarray, target: np.ndarray) -> None:
        """Write edges to their buckets, forced to disk."""
        keys, buckets = zip(
            *(self._keys(*ends) for ends in [(source, target, 0), (target, source, 1)][: 1 + self._both_ways]),
            strict=True,
        )
        key, bucket = np.concatenate(keys), np.concatenate(buckets)
        order = np.argsort(bucket, kind="stable")  # by radix: these are short numbers
        key = key[order]
        counts = np.bincount(bucket, minlength=len(self._starts) - 1)
        ends = np.cumsum(counts)
        for at in np.flatnonzero(counts):
            _append(self._path(int(at)), key[ends[at] - counts[at] : ends[at]])

    def _keys(self, source: np.ndarray, target: np.ndarray, reverse: int) -> tuple[np.ndarray, np.ndarray]:
        bucket = np.searchsorted(self._starts, target, side="right") - 1
        key = 2 * ((target - self._starts[bucket]) * self._nodes + source) + reverse
        return key, bucket.astype(np.uint16 if len(self._starts) < 2**16 else np.int64)

    def entries(self, bucket: int, repeats: list[tuple[int, int]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Sources and targets of a bucket, by target and then by source, without repetitions.

        Args:
            bucket: The bucket.
            repeats: Edges that were listed more than once are appended to it, some of them if there are very many.
        """
        path, first = self._path(bucket), int(self._starts[bucket])
        if not path.exists():
            return
        for key in self._sorted(path):
            again = key[1:][(key[1:] == key[:-1]) & (key[1:] & 1 == 0)]
            for each in np.unique(again)[: max(0, _MOST_REPEATS - len(repeats))].tolist():
                target, source = divmod(each >> 1, self._nodes)
                repeats.append((source, target + first))
            key >>= 1
            new = np.ones(len(key), np.bool_)
            np.not_equal(key[1:], key[:-1], out=new[1:])
            target, source = np.divmod(key[new], self._nodes)
            target += first
            yield source, target

    def _sorted(self, path: Path) -> Iterator[np.ndarray]:
        """The keys of a file in order, in pieces. Keys of one edge are in one piece."""
        count = path.stat().st_size // 8
        if count <= self._at_once:
            key = np.fromfile(path, np.int64)
            key.sort()
            yield key
            return
        # A bucket with nodes of very many neighbours: divide it by its keys.
        pieces = -(-2 * count // self._at_once)
        least, most = _range(path, self._at_once)
        if most >> 1 == least >> 1:  # one edge, listed very often
            yield np.array([least, least, most, most], np.int64)
            return
        cuts = np.unique(np.linspace(least >> 1, (most >> 1) + 1, pieces + 1).astype(np.int64) << 1)
        names = [path.with_name(f"{path.name}-{piece}") for piece in range(len(cuts) - 1)]
        for name in names:
            name.unlink(missing_ok=True)
        for key in _read(path, self._at_once):
            key.sort()
            for name, some in zip(names, np.split(key, np.searchsorted(key, cuts[1:-1])), strict=True):
                _append(name, some, force=False)
        for name in names:
            if name.exists():
                yield from self._sorted(name)
                name.unlink()

    def _path(self, bucket: int) -> Path:
        return self._folder / f"bucket-{bucket:05d}"


def _append(path: Path, key: np.ndarray, *, force: bool = True) -> None:
    with path.open("ab") as file:
        file.write(np.ascontiguousarray(key).data)
        if force:
            file.flush()
            os.fsync(file.fileno())


def _read(path: Path, at_once: int) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        while len(key := np.fromfile(file, np.int64, at_once)):
            yield key


def _range(path: Path, at_once: int) -> tuple[int, int]:
    ends = [(int(key.min()), int(key.max())) for key in _read(path, at_once)]
    return min(low for low, _ in ends), max(high for _, high in ends)
