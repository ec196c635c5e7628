"""The division of long tables that is not complete: its folder, its state on disk, how much memory it may use.

Its files are written some rows at a time, and its edges are sorted on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from graphveil.errors import InvalidInput
from graphveil.storage import lock_at_once, put_in_place, replace_file
from graphveil.validate import check_rendered, decoding, parse_checksummed, render_checksummed

_STATE = "graphveil-division/1"
# How many edges that are listed twice are remembered.
_MOST_REPEATS = 2**20
# What Python and its libraries take by themselves, and the least that is of use beside it.
_LIBRARIES, _LEAST = 400 * 2**20, 64 * 2**20
# Called with what is done, how much of it, and how much there is in all (None: nobody knows yet).
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Memory:
    """How much of the memory each piece of work may use.

    Args:
        total: Bytes of the whole process.
    """

    total: int

    @property
    def free(self) -> int:
        """Bytes beside those of Python and its libraries."""
        return self.total - _LIBRARIES

    @property
    def database(self) -> int:
        return self.free // 3

    @property
    def edges_at_once(self) -> int:
        """An edge takes about 400 bytes while its ids are looked up."""
        return min(2**22, self.free // 1600)

    @property
    def entries_at_once(self) -> int:
        """An entry takes about 60 bytes while it is sorted and written."""
        return self.free // 128

    def nodes_at_once(self, columns: int) -> int:
        """A cell takes about 40 bytes while it is encoded, a cell of text more."""
        return max(1, min(2**18, self.free // (400 * (columns + 4))))


def parse_memory(text: str) -> Memory:
    """Bytes, from a number with a unit: 4GiB, 500MB, 2e9.

    Raises:
        InvalidInput: It is no such number, or too little to work with.
    """
    units = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
    units |= {f"{letter}ib": units[letter] for letter in "kmgt"}
    word = text.strip().lower()
    digits = word.rstrip("bikmgt")
    unit = word[len(digits) :]
    try:
        memory = int(float(digits) * units[unit])
    except (ValueError, KeyError, OverflowError):
        raise InvalidInput("memory", text, "must be a number of bytes, such as 4GiB or 500MB") from None
    if memory < _LIBRARIES + _LEAST:
        least = f"{(_LIBRARIES + _LEAST) // 2**20}MiB"
        raise InvalidInput("memory", text, f"is less than {least}, which Python and its libraries need")
    return Memory(memory)


class Unfinished:
    """The folder of a division that is not complete, and its state on disk."""

    def __init__(self, folder: Path, state: dict[str, Any]) -> None:
        self.folder, self.state = folder, state

    @classmethod
    @contextmanager
    def opened(cls, out: Path, asked: dict[str, Any]) -> Iterator[Unfinished]:
        """The folder for `out`, new or as an earlier division has left it, held by this process alone."""
        folder = out.parent / f".{out.name}.unfinished"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder, os.O_RDONLY)
        try:
            if not lock_at_once(handle):
                raise InvalidInput("out", str(out), "another process is writing it")
            path = folder / "state.json"
            state = {"asked": asked}
            if path.exists():
                with decoding(path, "the state of a division"):
                    data = path.read_bytes()
                    state = parse_checksummed(_STATE, data)
                    state = {key: value for key, value in state.items() if key not in ("format", "sha256")}
                    check_rendered(render_checksummed(_STATE, state), data)
            if state["asked"] != asked:
                why = "is the unfinished division of other tables or with other options; remove it to start again"
                raise InvalidInput("out", str(folder), why)
            yield cls(folder, state)
        finally:
            os.close(handle)

    def keep(self, **done: Any) -> None:
        """Write down what is done, in place of what was said before."""
        self.state |= done
        replace_file(self.folder / "state.json", render_checksummed(_STATE, self.state))


class RowGroups:
    """A Parquet file that is written some rows at a time, in row groups of equal length: its bytes do not depend on how
    many rows come at a time. The file appears when it is complete.

    Args:
        path: The file.
        rows: The length of a row group.
    """

    def __init__(self, path: Path, rows: int = 2**20) -> None:
        self._path, self._rows = path, rows
        # Always the same name: who goes on with an ended division writes over it.
        self._unfinished = path.with_name(f"{path.name}-unfinished")
        self._waiting: list[pa.Table] = []
        self._count = 0
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def add(self, table: pa.Table) -> None:
        """Take some rows."""
        self._waiting.append(table)
        self._count += len(table)
        while self._count >= self._rows:
            self._write(self._rows)

    def _write(self, rows: int) -> None:
        whole = pa.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(self._unfinished, whole.schema)
        self._writer.write_table(whole.slice(0, rows).combine_chunks(), row_group_size=self._rows)
        self._waiting, self._count = [whole.slice(rows)], len(whole) - rows

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and (self._count or self._writer is None):
            self._write(self._count)
        if self._writer is not None:
            self._writer.close()
        if kind is None:
            put_in_place(self._unfinished, self._path)


def node_rows_at_once(features: int) -> int:
    """The length of a row group of nodes: 64 MiB of features at most."""
    return max(1, min(2**20, 2**24 // max(1, features)))


class EdgeBuckets:
    """Files of entries of A, a range of targets in each: entries are sorted bucket by bucket.

    An entry is a number: the key 2 (target n + source), with the target counted from the bucket's first, plus 1 if it
    is the reverse of an edge that was listed.

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
