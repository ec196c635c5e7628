"""Tables of edges: some rows at a time, where memory does not hold them, and plain ones looked up while they are read.

A long table is sorted in blocks, and mapped to files without a name. At any time there are some millions of edges in
memory, and a few numbers for each node. A file without a name is gone
with the last array that is mapped to it, however the process ends: nothing half-written is left, nothing stale can be
used again, and nothing of a private graph stays behind. Checks and error messages are those of the usual reader.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from graphveil.errors import InvalidInput
from graphveil.graph.adjacency import Repairs
from graphveil.graph.io.columns import DUPLICATE, SELF_LOOP, Table
from graphveil.graph.io.ids import NodeIds, plain_words
from graphveil.graph.io.sources import FORMATS, LONGEST_HEADER, csv_form, shortest_spelling
from graphveil.graph.validation import LONGEST_ID
from graphveil.validate import decoding

# Rows of a Parquet file, edges, and entries of the matrix that are in memory at a time.
_ROWS_AT_ONCE = 2**20
_EDGES_AT_ONCE = 2**20
_ENTRIES_AT_ONCE = 2**22
# How many bytes of a file are read to estimate its number of rows.
_SAMPLE = 2**16


def mapped_rows(
    edges: EdgeStream, ids: NodeIds, repairs: Repairs, folder: Path
) -> tuple[tuple[np.ndarray, np.ndarray], int]:
    """The adjacency of a long table of edges.

    Args:
        edges: The table.
        ids: The ids of all nodes.
        repairs: What may be repaired.
        folder: A folder on a disk with room for 32 bytes per edge.

    Returns:
        `(indptr, indices)`, mapped to files in `folder`, and the number of edges that the table lists.

    Raises:
        InvalidInput: An id is missing or unknown, or an edge needs a repair that was not asked for.
    """
    source, target = (_positions(edges, column, ids, folder) for column in edges.ends)
    if len(source) != len(target):
        raise InvalidInput("path", str(edges.path), "cannot be read as Parquet: its columns differ in length")
    if not repairs.drop_self_loops:
        _check_self_loops(edges, source, target)
    rows = _csr_in_files(source, target, len(ids), folder, repairs)
    if rows.repeats and not repairs.merge_duplicates:
        earlier, again = _first_repeat(source, target, len(ids), rows.repeats)
        raise edges.cell_error(edges.ends[0], again, DUPLICATE.format(earlier=earlier + 1))
    return (rows.indptr, rows.indices), len(source)


def _positions(edges: EdgeStream, column: str, ids: NodeIds, folder: Path) -> np.ndarray:
    """The node of each id of a column. A missing id anywhere is reported before an unknown one, as usual."""
    positions = ScratchArray(folder, np.int32)
    unknown: InvalidInput | None = None
    for part in edges.parts(column):
        values = part.ids(column, numbers=True)
        if unknown is None:
            try:
                positions.append(part.positions(column, values, ids))
            except InvalidInput as error:
                unknown = error
    if unknown is not None:
        raise unknown
    return positions.mapped()


def _check_self_loops(edges: EdgeStream, source: np.ndarray, target: np.ndarray) -> None:
    for at in range(0, len(source), _EDGES_AT_ONCE):
        loops = source[at : at + _EDGES_AT_ONCE] == target[at : at + _EDGES_AT_ONCE]
        if loops.any():
            raise edges.cell_error(edges.ends[0], at + int(np.argmax(loops)), SELF_LOOP)


class EdgeStream:
    """An edge table whose two columns of ids, `ends`, are read in parts.

    Parquet is read a million rows at a time. A CSV file is read at once: the type of a column follows from all of it.
    """

    def __init__(self, path: Path, ends: tuple[str, str]) -> None:
        self.path, self.ends = path, ends
        if path.suffix == ".csv":
            self._whole = Table(path, ends)
            return
        with decoding(path, FORMATS["parquet"]), pyarrow.parquet.ParquetFile(path) as file:
            self._empty = file.schema_arrow.empty_table()
        Table.part(path, self._empty, 0).check_columns(ends)

    @property
    def column_names(self) -> list[str]:
        names: list[str] = (self._whole.table if self.path.suffix == ".csv" else self._empty).column_names
        return names

    def parts(self, column: str) -> Iterator[Table]:
        """The parts of one column in order; at least one, so that an empty column's type is seen too."""
        if self.path.suffix == ".csv":
            yield self._whole
            return
        first = 0
        with decoding(self.path, FORMATS["parquet"]), pyarrow.parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[column], use_threads=False):
                table = pa.Table.from_batches([batch])
                table.validate(full=True)
                yield Table.part(self.path, table, first)
                first += len(table)
        if first == 0:
            yield Table.part(self.path, self._empty, 0)

    def cell_error(self, column: str, row: int, why: str) -> InvalidInput:
        part = next(part for part in self.parts(column) if row < part.first + len(part))
        return part.cell_error(column, row - part.first, why)


@dataclass(frozen=True)
class _Rows:
    """Sorted rows without duplicates, and the blocks of rows `(from, to)` in which an edge was listed twice."""

    indptr: np.ndarray
    indices: np.ndarray
    repeats: list[tuple[int, int]]


def _csr_in_files(source: np.ndarray, target: np.ndarray, n: int, folder: Path, repairs: Repairs) -> _Rows:
    """The rows of the edges `source -> target` among `n` nodes.

    Entries are sorted by key, one block of rows after the other; a block has about `_ENTRIES_AT_ONCE` entries.
    """
    ends = np.zeros(n + 1, np.int64)
    for rows, _ in _entries(source, target, n, repairs):
        ends[1:] += np.bincount(rows, minlength=n)
    np.cumsum(ends, out=ends)
    total = int(ends[-1])
    bounds = np.unique([0, *np.searchsorted(ends[1:], np.arange(_ENTRIES_AT_ONCE, total, _ENTRIES_AT_ONCE)), n])
    starts = ends[bounds]
    keys = _keys_by_block(_entries(source, target, n, repairs), bounds, starts, folder)

    dtype = np.int32 if max(n, total) < 2**31 else np.int64  # as `adjacency.canonical_csr` has it
    indices = ScratchArray(folder, dtype)
    indptr = np.zeros(n + 1, dtype)
    repeats: list[tuple[int, int]] = []
    for block, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        rows, columns, repeated = _sorted_entries(keys.read(int(starts[block]), int(starts[block + 1])), n)
        if repeated:
            repeats.append((low, high))
        indptr[low + 1 : high + 1] = np.bincount(rows - low, minlength=high - low)
        indices.append(columns)
    np.cumsum(indptr, out=indptr)
    mapped = ScratchArray(folder, dtype)
    mapped.append(indptr)
    return _Rows(mapped.mapped(), indices.mapped(), repeats)


def _sorted_entries(key: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Rows and columns of a block's entries without duplicates, and whether an edge was listed twice."""
    key.sort()
    listed = (key[1:] & 1) == 0
    repeated = bool(np.any(listed & (key[1:] == key[:-1])))
    key >>= 1
    first = np.ones(len(key), np.bool_)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    rows, columns = np.divmod(key[first], n)
    return rows, columns, repeated


def _first_repeat(source: np.ndarray, target: np.ndarray, n: int, repeats: list[tuple[int, int]]) -> tuple[int, int]:
    """The first edge that was listed before: where that was, and where it is; `repeats` as in `_Rows`, not empty."""
    earlier, again = 0, len(source)
    for low, high in repeats:
        places, keys = [], []
        for at in range(0, again, _EDGES_AT_ONCE):
            part = slice(at, min(at + _EDGES_AT_ONCE, again))
            proper = source[part] != target[part]  # edges to themselves are left out, however often they are listed
            here = np.flatnonzero(proper & (source[part] >= low) & (source[part] < high))
            places.append(at + here)
            keys.append(source[part][here].astype(np.int64) * n + target[part][here])
        place, key = np.concatenate(places), np.concatenate(keys)
        order = np.argsort(key, kind="stable")
        equal = np.flatnonzero(key[order[1:]] == key[order[:-1]])
        if len(equal):
            at = int(equal[np.argmin(order[equal + 1])])
            earlier, again = int(place[order[at]]), int(place[order[at + 1]])
    return earlier, again


def _entries(
    source: np.ndarray, target: np.ndarray, n: int, repairs: Repairs
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of some entries, and their keys 2 (row n + column), plus 1 for the reverse of an edge."""
    for at in range(0, len(source), _EDGES_AT_ONCE):
        i = source[at : at + _EDGES_AT_ONCE].astype(np.int64)
        j = target[at : at + _EDGES_AT_ONCE].astype(np.int64)
        if repairs.drop_self_loops:
            i, j = i[i != j], j[i != j]
        yield i, 2 * (i * n + j)
        if repairs.symmetrize:
            yield j, 2 * (j * n + i) + 1


def _keys_by_block(
    entries: Iterator[tuple[np.ndarray, np.ndarray]], bounds: np.ndarray, starts: np.ndarray, folder: Path
) -> ScratchArray:
    """All keys, those of a block of rows together; the keys of block b begin at `starts[b]`."""
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


class ScratchArray:
    """One-dimensional numbers in a nameless file in `folder`: written once, then mapped.

    They are written as a file, not through the map: on a full disk, writing a file is an error, but writing to a map
    ends the process.
    """

    def __init__(self, folder: Path, dtype: Any) -> None:
        self._folder, self.dtype = folder, np.dtype(dtype)
        with _using(folder):
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (`mapped` closes it)

    def append(self, values: np.ndarray) -> None:
        with _using(self._folder):
            self._file.write(np.ascontiguousarray(values, self.dtype).data)

    def put(self, place: int, values: np.ndarray) -> None:
        """Write `values` from `place` on."""
        with _using(self._folder):
            self._file.seek(place * self.dtype.itemsize)
        self.append(values)

    def read(self, start: int, stop: int) -> np.ndarray:
        """A part as an ordinary array, whose memory is free again after use; that of a map stays with the process."""
        with _using(self._folder):
            self._file.seek(start * self.dtype.itemsize)
            values = np.empty(stop - start, self.dtype)
            if self._file.readinto(values.data) < values.nbytes:
                raise OSError("what was written there is gone")
        return values

    def mapped(self) -> np.ndarray:
        """All that was written, read-only; nothing can be written from now on."""
        with _using(self._folder):
            self._file.flush()
            self._file.seek(0, 2)
            empty = self._file.tell() == 0  # an empty file cannot be mapped
            array = np.empty(0, self.dtype) if empty else np.asarray(np.memmap(self._file, self.dtype, "r"))
            self._file.close()  # the map keeps it
        array.flags.writeable = False
        return array


def check_folder(folder: Path) -> None:
    """Refuse a folder in which no file can be made."""
    if not folder.is_dir():
        raise InvalidInput("mmap", str(folder), "there is no such folder")
    ScratchArray(folder, np.int8).mapped()


@contextmanager
def _using(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput("mmap", str(folder), f"cannot be used: {error.strerror or error}") from None


def plain_edges(path: Path, columns: tuple[str, str], ids: NodeIds) -> tuple[np.ndarray, np.ndarray] | None:
    """The nodes at both ends of all edges of a CSV file.

    Args:
        path: The file.
        columns: The columns of ids.
        ids: The ids of all nodes.

    Returns:
        The nodes of both columns. None: the file has other columns, or some cell is no id of a node, no integer of 0
        and more, not spelled as usual ("007", " 7", "7.0"), or, where ids are words, no word of plain letters; whoever
        reads the file as a whole sees what is there.
    """
    with decoding(path, FORMATS["csv"]), path.open("rb") as file:
        form = csv_form(file)
        header = file.readline(LONGEST_HEADER)
        if not ids.are_words and not file.read(1).isdigit():
            return None
    for kind in (pa.large_string(),) if ids.are_words else (pa.int32(), pa.int64()):
        with suppress(pa.ArrowException):  # a number may need 64 bits
            return _read(path, columns, ids, _batches(path, columns, kind, form), header)
    return None


def _batches(
    path: Path, columns: tuple[str, str], kind: pa.DataType, form: pyarrow.csv.ParseOptions
) -> Iterator[list[pa.Array]]:
    """The two columns, some rows at a time; nothing if the file has others."""
    one_thread = pyarrow.csv.ReadOptions(use_threads=False)
    types = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(columns, kind), null_values=[])
    with pyarrow.csv.open_csv(path, read_options=one_thread, parse_options=form, convert_options=types) as batches:
        if sorted(batches.schema.names) == sorted(columns):
            for batch in batches:
                yield [batch.column(column) for column in columns]


def _read(
    path: Path, columns: tuple[str, str], ids: NodeIds, batches: Iterator[list[pa.Array]], header: bytes
) -> tuple[np.ndarray, np.ndarray] | None:
    most = _likely_rows(path)
    nodes = np.empty(most, np.int32), np.empty(most, np.int32)
    rows = digits = 0
    for batch in batches:
        count = len(batch[0])
        for values, ends in zip(batch, nodes, strict=True):
            if not ids.are_words:
                digits += shortest_spelling(values.to_numpy())
            elif not plain_words(values, LONGEST_ID):
                return None
            found = ids.positions(values)
            if found.min(initial=0) < 0:
                return None
            if rows + count > len(ends):
                ends.resize((rows + count) * 3 // 2, refcheck=False)
            ends[rows : rows + count] = found
        rows += count
    if rows == 0 or not (ids.are_words or _usually_spelled(path, header, digits + rows * len(columns))):
        return None
    return nodes[0][:rows], nodes[1][:rows]


def _likely_rows(path: Path) -> int:
    """A few more rows than a file has if all of them are as long as the first."""
    with path.open("rb") as file:
        sample = file.read(_SAMPLE)
    return path.stat().st_size * sample.count(b"\n") // max(1, len(sample)) * 5 // 4 + 1


def _usually_spelled(path: Path, header: bytes, shortest: int) -> bool:
    """Whether the integers of a file are written as usual, which takes so many bytes with what stands between them.

    If the file is as short as that, it has no zeros in front, blanks or quotes. Only hexadecimal numbers may be as
    short.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        unfinished = content[-1:] != b"\n"
        if len(content) != len(header) + shortest - unfinished or header.endswith(b"\r\n"):
            return False
        letters = np.frombuffer(content, np.uint8)
        largest = int(letters[len(header) :].max(initial=0))
        del letters  # a map that is still looked at cannot be closed
        return largest < ord("X")


def relations_of(edges: Table, column: str, names: Sequence[str] | None) -> np.ndarray:
    """The number of each edge's relation among the declared names."""
    edges.require(column)
    values = edges.array(column).cast(pa.large_string())
    if values.null_count:
        raise edges.cell_error(column, int(np.argmax(pc.is_null(values))), "a relation is missing")
    if names is None:
        there = ", ".join(sorted(pc.unique(values).to_pylist())[:10])
        raise InvalidInput("relations", None, f"declare the names of all relations; column {column!r} has {there}")
    numbers = pc.index_in(values, value_set=pa.array(names, pa.large_string())).fill_null(-1)
    found: np.ndarray = numbers.to_numpy(zero_copy_only=False)
    if (found < 0).any():
        raise edges.cell_error(column, int(np.argmax(found < 0)), "is not one of the declared relations")
    return found
