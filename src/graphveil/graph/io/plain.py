"""Edges in a CSV file with nothing else, between nodes that have numbers or plain words: looked up while it is read."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from graphveil.graph.io.ids import NodeIds, plain_words
from graphveil.graph.io.sources import FORMATS, LONGEST_HEADER, csv_form, shortest_spelling
from graphveil.graph.validation import LONGEST_ID
from graphveil.storage.decoding import decoding

# How many bytes of a file are read to estimate its number of rows.
_SAMPLE = 2**16


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
