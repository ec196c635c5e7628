"""One Parquet or CSV file, and what its columns become: ids, labels, masks, numbers, categories.

Errors name the file, the row and the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from graphveil.errors import InvalidInput
from graphveil.graph.splits import SPLITS
from graphveil.graph.validation import LONGEST_ID, why_no_id
from graphveil.storage.decoding import decoding

FORMATS = {"parquet": "Parquet", "csv": "CSV"}
SELF_LOOP = "this edge leads back to its own node; drop_self_loops=True removes such edges"
DUPLICATE = "this edge was already listed in row {earlier}; drop_duplicates=True keeps one"
_NUMBER = r"^\s*-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
# The cells of a CSV column of true and false, which is numeric.
_TRUTH = "^(0|1|true|True|TRUE|false|False|FALSE)$"
# Integer ids that fill at least this part of their range are looked up in a table over the range.
_FILLED = 0.25


def find_table(folder: Path, stem: str) -> Path:
    """`<folder>/<stem>.parquet` or `.csv`, whichever is there."""
    there = [path for ending in FORMATS if (path := folder / f"{stem}.{ending}").is_file()]
    if len(there) != 1:
        why = "both are there; remove one" if there else "neither is there"
        raise InvalidInput("path", str(folder), f"needs one of {stem}.parquet and {stem}.csv: {why}")
    return there[0]


class Table:
    """A Parquet or CSV file.

    Args:
        path: The file.
        keys: The columns of ids, which must be there.
        text: Columns of a CSV file that hold text, whatever they look like.

    Raises:
        InvalidInput: The file cannot be read, or a column is not there.
    """

    # How many rows of the file come before those of this table.
    first = 0

    def __init__(self, path: Path, keys: Sequence[str], text: Sequence[str] = ()) -> None:
        self.path = path
        with decoding(self.path, FORMATS[self.path.suffix[1:]]):
            self.table = _read_csv(path, (*keys, *text)) if path.suffix == ".csv" else _read_parquet(path)
        self.check_columns(keys)

    @classmethod
    def part(cls, path: Path, table: pa.Table, first: int) -> Self:
        """Some rows of the file, from row `first` on; errors count rows from the file's beginning."""
        part = object.__new__(cls)
        part.path, part.table, part.first = path, table, first
        return part

    def check_columns(self, keys: Sequence[str]) -> None:
        """Names are text and unique, and `keys` are among them."""
        with decoding(self.path, FORMATS[self.path.suffix[1:]]):
            names = self.table.column_names  # raises if a name is not UTF-8
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self.error(f"column {twice!r}", names.count(twice), "this column name is used more than once")
        for key in keys:
            self.require(key)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def error(self, place: str, value: object, why: str) -> InvalidInput:
        """An error about a place in this file."""
        return InvalidInput(f"{self.path.name}, {place}", value, why)

    def cell_error(self, column: str, row: int, why: str) -> InvalidInput:
        """An error about one cell, which names its row, its column and its value."""
        value = self.table.column(column)[row].as_py()
        return self.error(f"row {self.first + row + 1}, column {column!r}", value, why)

    def require(self, column: str) -> None:
        """Refuse a table without this column."""
        if column not in self.table.column_names:
            raise self.error("columns", self.table.column_names, f"there is no column {column!r}")

    def ids(self, column: str) -> pa.Array:
        """A column of ids as int64 or text."""
        values = self._array(column)
        if pa.types.is_null(values.type) and len(values) == 0:
            return values.cast(pa.large_string())
        if values.null_count:
            raise self.cell_error(column, _first_null(values), "an id is missing")
        if pa.types.is_integer(values.type):
            with decoding(self.path, "ids"):
                return values.cast(pa.int64())
        if not _is_text(values.type):
            raise self.error(f"column {column!r}", str(values.type), "ids must be integers or strings")
        ids = pc.utf8_trim_whitespace(values.cast(pa.large_string()))
        length = pc.utf8_length(ids).to_numpy(zero_copy_only=False)
        wrong = (length == 0) | (length > LONGEST_ID)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self.cell_error(column, row, why_no_id(ids[row].as_py()) or "is no id")
        return ids

    def positions(self, column: str, values: pa.Array, ids: NodeIds) -> np.ndarray:
        """Which node each of the `values` is, which are the ids of a column."""
        position = ids.positions(values)
        if len(position) and position.min() < 0:
            raise self.cell_error(column, int(np.argmax(position < 0)), "there is no node with this id")
        return position

    def labels(self, column: str, classes: Sequence[Any] | None, limit: int) -> tuple[np.ndarray, list[Any]]:
        """Class numbers, -1 for an empty cell, and the classes: the declared ones, or those in the column, sorted."""
        if classes is None:
            self._check_one_kind(column, "leave it empty if there is no label, or declare all classes")
        codes, values = self._encode(column)
        if classes is None:
            if any(value != value for value in values):
                raise self.cell_error(column, int(np.argmax(codes == values.index(_nan(values)))), "is not a label")
            if len(values) > limit:
                raise self.error(f"column {column!r}", len(values), f"more than max_categories = {limit} classes")
            classes = sorted(values)
        number = {str(value): i for i, value in enumerate(classes)}
        numbers = np.array([number.get(str(value), -2) for value in values] + [-1], dtype=np.int64)
        y = numbers[codes]  # code -1, an empty cell, picks the -1 at the end
        if (y == -2).any():
            raise self.cell_error(column, int(np.argmax(y == -2)), "is not one of the declared classes")
        return y, list(classes)

    def masks(self, column: str, y: np.ndarray | None) -> dict[str, np.ndarray]:
        """The three masks of a split column."""
        codes, values = self._encode(column)
        for code, value in enumerate(values):
            if value not in SPLITS:
                raise self.cell_error(column, int(np.argmax(codes == code)), "must be train, val, test or empty")
        lost = (codes >= 0) & (y < 0 if y is not None else True)
        if lost.any():
            raise self.cell_error(column, int(np.argmax(lost)), "this node has no label, so it cannot be in a set")
        part = np.array([*values, None], dtype=object)[codes]
        return {f"{name}_mask": part == name for name in SPLITS}

    def numbers(self, column: str) -> np.ndarray:
        """A numeric feature column in float32."""
        values = self._array(column)
        if values.null_count:
            raise self.cell_error(column, _first_null(values), "a feature value is missing")
        with np.errstate(over="ignore"):
            x = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float32)
        if not np.isfinite(x).all():
            raise self.cell_error(column, int(np.argmin(np.isfinite(x))), "must be a finite float32 number")
        return x

    def categories(self, column: str, declared: Sequence[str] | None, limit: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """A text feature column as positions in its categories: the declared ones, or those in the column, sorted."""
        codes, values = self._encode(column)
        if (codes < 0).any():
            raise self.cell_error(column, int(np.argmax(codes < 0)), "a feature value is missing")
        if declared is not None:
            place = {value: i for i, value in enumerate(declared)}
            places = np.array([place.get(str(value), -1) for value in values], dtype=np.int64)[codes]
            if (places < 0).any():
                raise self.cell_error(column, int(np.argmax(places < 0)), "is not one of the declared categories")
            return places, tuple(declared)
        if len(values) > limit:
            why = f"distinct values, more than max_categories = {limit}; leave the column out, or raise the limit"
            raise self.error(f"column {column!r}", len(values), why)
        order = sorted(range(len(values)), key=values.__getitem__)
        rank = np.empty(len(values), dtype=np.int64)
        rank[order] = np.arange(len(values))
        return rank[codes], tuple(values[i] for i in order)

    def is_numeric(self, column: str) -> bool:
        """Whether a feature column holds numbers (True) or text (False)."""
        kind = self._array(column).type
        if pa.types.is_null(kind):
            raise self.cell_error(column, 0, "a feature value is missing")
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or kind == pa.bool_():
            return True
        if _is_text(kind):
            self._check_one_kind(column, "declare the column's categories if it is text")
            return False
        raise self.error(f"column {column!r}", str(kind), "a feature must be numbers or strings")

    def check_numbers(self, column: str, why: str) -> None:
        """Refuse a column of text, by its first cell that is no number."""
        values = self._array(column)
        if not _is_text(values.type):
            return
        if len(values):
            raise self._first_other(column, values, _NUMBER, why)

    def _check_one_kind(self, column: str, advice: str) -> None:
        """Refuse a CSV column in which at least half of the cells, but not all, are numbers or are true and false.

        Such a column is numeric, and its other cells are errors: one person's cell must not turn it into text.
        """
        values = self._array(column)
        if self.path.suffix != ".csv" or not _is_text(values.type):
            return
        given = len(values) - values.null_count
        for pattern, what in ((_NUMBER, "a number"), (_TRUTH, "true or false")):
            fitting = pc.sum(pc.match_substring_regex(values, pattern)).as_py() or 0
            if given > fitting >= given / 2:
                raise self._first_other(column, values, pattern, f"is not {what}, as most of this column; {advice}")

    def _first_other(self, column: str, values: pa.Array, pattern: str, why: str) -> InvalidInput:
        """The error of the first cell that does not have this form."""
        fitting = pc.match_substring_regex(values, pattern).fill_null(True).to_numpy(zero_copy_only=False)
        return self.cell_error(column, int(np.argmin(fitting)), why)

    def _array(self, column: str) -> pa.Array:
        self.require(column)
        values = self.table.column(column).combine_chunks()
        return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values

    def _encode(self, column: str) -> tuple[np.ndarray, list[Any]]:
        """Codes with -1 for an empty cell, and the distinct values in the order of their first appearance."""
        values = self._array(column)
        if pa.types.is_null(values.type):
            return np.full(len(values), -1), []
        if pa.types.is_nested(values.type):
            raise self.error(f"column {column!r}", str(values.type), "must hold single values")
        encoded = values.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return codes, encoded.dictionary.to_pylist()


class NodeIds:
    """Distinct ids, int64 or text, in the order of the nodes."""

    def __init__(self, ids: pa.Array) -> None:
        self.ids = ids
        self._places: np.ndarray | None = None
        if not pa.types.is_integer(ids.type):
            return
        numbers = ids.to_numpy(zero_copy_only=False)
        self._least, self._most = int(numbers.min()), int(numbers.max())
        if self._most - self._least < len(numbers) / _FILLED:
            self._places = np.full(self._most - self._least + 1, -1, np.int32)
            self._places[numbers - self._least] = np.arange(len(numbers))

    def __len__(self) -> int:
        return len(self.ids)

    def positions(self, values: pa.Array) -> np.ndarray:
        """The node of each of these ids, -1 where there is none."""
        if self._places is not None and pa.types.is_integer(values.type):
            numbers = values.to_numpy(zero_copy_only=False)
            known = (numbers >= self._least) & (numbers <= self._most)
            return np.where(known, self._places[np.where(known, numbers - self._least, 0)], np.int32(-1))
        ids = self.ids
        if values.type != ids.type:  # integers here, text there: compare as text
            values, ids = values.cast(pa.large_string()), ids.cast(pa.large_string())
        return pc.index_in(values, value_set=ids).fill_null(-1).to_numpy(zero_copy_only=False)


def _read_csv(path: Path, text: Sequence[str]) -> pa.Table:
    # One block, so that the type of a column follows from all of it; one thread, so that errors carry the row.
    block = min(max(path.stat().st_size + 1, 1 << 16), 2**31 - 1)
    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=block),
        # Ids stay text here: "007" and "7" differ, and a type guessed per file need not be the same in both.
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pa.large_string() for name in text}, null_values=[""], strings_can_be_null=True
        ),
    )


def _read_parquet(path: Path) -> pa.Table:
    with pyarrow.parquet.ParquetFile(path) as file:
        table = file.read(use_threads=False)
    table.validate(full=True)
    return table


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _first_null(values: pa.Array) -> int:
    return int(np.argmax(pc.is_null(values).to_numpy(zero_copy_only=False)))


def _nan(values: list[Any]) -> Any:
    return next(value for value in values if value != value)
