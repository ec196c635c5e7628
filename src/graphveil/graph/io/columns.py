"""One Parquet or CSV file, and what its columns become: ids, labels, masks, numbers, categories.

Errors name the file, the row and the column.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphveil.errors import InvalidInput
from graphveil.graph.io.ids import NodeIds, plain_words
from graphveil.graph.io.sources import (
    FORMATS,
    GAP_WORDS,
    NUMBER,
    ODD_TIME,
    TRUTH,
    days_if_all_are,
    is_text,
    odd_time,
    plain_integers,
    read_whole,
    with_gaps,
)
from graphveil.graph.splits import SPLITS
from graphveil.graph.summary import ColumnKind
from graphveil.graph.validation import LONGEST_ID, why_no_id
from graphveil.validate import decoding

SELF_LOOP = "this edge leads back to its own node; drop_self_loops (--drop-self-loops) removes such edges"
DUPLICATE = "this edge was already listed in row {earlier}; merge_duplicates (--merge-duplicates) makes one of them"
# A number as many countries write it, which is no number here.
_DECIMAL_COMMA = r"^\s*-?[0-9]+,[0-9]+\s*$"
_TIME = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}"
# A date as many countries write it, which is no time here: 31.1.2024, 1/31/2024.
_OTHER_DATE = r"^\s*[0-9]{1,2}([./-])[0-9]{1,2}\1([0-9]{2}){1,2}\b"
_IN_WORDS = {"timestamp": "a time", "date": "a date", "boolean": "true or false", "numeric": "a number"}
# So many distinct texts may be categories even where there are few rows.
_FEW = 20
# What to do if a column with the usual name is not there.
_ADVICE = {
    "id": "; name the column of ids: id_column (--id-column)",
    "source": "; name it: source_column (--source-column)",
    "target": "; name it: target_column (--target-column)",
    "neighbors": ": names of nodes that the new node reads, with spaces between; its cells may be empty",
}


class Table:
    """A Parquet or CSV file.

    Args:
        path: The file.
        keys: The columns of ids, which must be there.
        text: Columns of a CSV file that hold text, whatever they look like.
        in_chunks: Leave columns in the chunks in which they are read, for tables whose columns are looked at once.

    Raises:
        InvalidInput: The file cannot be read, or a column is not there.
    """

    # How many rows of the file come before those of this table.
    first = 0
    text: tuple[str, ...] = ()

    def __init__(self, path: Path, keys: Sequence[str], text: Sequence[str] = (), *, in_chunks: bool = False) -> None:
        self.path, self.text = path, (*keys, *text)
        # Columns that were encoded, with the table that they were read from.
        self._encoded: dict[str, tuple[pa.Table, tuple[np.ndarray, list[Any]]]] = {}
        with decoding(self.path, FORMATS[self.path.suffix[1:]]):
            table = read_whole(path, self.text)
            self.table = table if in_chunks else table.combine_chunks()
        self.check_columns(keys)

    @classmethod
    def part(cls, path: Path, table: pa.Table, first: int) -> Self:
        """Some rows of the file, from row `first` on, or a table in memory, whose name is `path`.

        Errors count rows from the file's beginning.
        """
        part = object.__new__(cls)
        part.path, part.table, part.first, part._encoded = path, table, first, {}
        return part

    def check_columns(self, keys: Sequence[str]) -> None:
        """Names are text and unique, and `keys` are among them."""
        with decoding(self.path, FORMATS.get(self.path.suffix[1:], "a table")):
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
        # To list all names would take as long as there are columns, for each column that is read.
        if not self.table.schema.get_all_field_indices(column):
            advice = _ADVICE.get(column, "")
            raise self.error("columns", self.table.column_names, f"there is no column {column!r}{advice}")

    def ids(self, column: str, *, numbers: bool = False) -> pa.Array:
        """A column of ids as int64 or text; with `numbers`, text that spells integers as usual is int64 too."""
        values = self.array(column)
        if pa.types.is_null(values.type) and len(values) == 0:
            return values.cast(pa.large_string())
        if values.null_count:
            raise self.cell_error(column, int(np.argmax(pc.is_null(values))), "an id is missing")
        if pa.types.is_integer(values.type):
            with decoding(self.path, "ids"):
                return values.cast(pa.int64())
        if not is_text(values.type):
            raise self.error(f"column {column!r}", str(values.type), "ids must be integers or strings")
        plain = plain_integers(values.cast(pa.large_string())) if numbers else None
        if plain is not None:
            return plain
        if plain_words(values.cast(pa.large_string()), LONGEST_ID):
            return values.cast(pa.large_string())
        ids = pc.utf8_trim_whitespace(values.cast(pa.large_string()))
        length = pc.utf8_length(ids).to_numpy(zero_copy_only=False)
        wrong = (length == 0) | (length > LONGEST_ID)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self.cell_error(column, row, why_no_id(ids[row].as_py()) or "is no id")
        return ids

    def looked_up(self, column: str, ids: NodeIds) -> np.ndarray:
        """Which node each id of a column is. A missing id anywhere is reported before an unknown one."""
        self.require(column)
        chunks = self.table.column(column).chunks or [self.array(column)]
        nodes, row, unknown = np.empty(len(self), np.int32), 0, None
        for chunk in chunks:
            part = Table.part(self.path, pa.table({column: chunk}), self.first + row)
            part.text = self.text
            values = part.ids(column, numbers=True)
            if unknown is None:
                try:
                    nodes[row : row + len(chunk)] = part.positions(column, values, ids)
                except InvalidInput as error:
                    unknown = error
            row += len(chunk)
        if unknown is not None:
            raise unknown
        return nodes

    def positions(self, column: str, values: pa.Array, ids: NodeIds) -> np.ndarray:
        """Which node each of the `values` is, which are the ids of a column."""
        position = ids.positions(values)
        if len(position) and position.min() < 0:
            raise self.cell_error(column, int(np.argmax(position < 0)), "there is no node with this id")
        return position

    def labels(self, column: str, classes: Sequence[Any] | None, limit: int) -> tuple[np.ndarray, list[Any]]:
        """Class numbers, -1 for an empty cell, and the classes: the declared ones, or those in the column, sorted.

        Floats that are whole are the integers that they are: pandas writes labels so where some are missing.
        """
        if classes is None:
            self._check_one_kind(column, "leave it empty if there is no label, or declare all classes")
        codes, values = self._encode(column)
        if classes is None:
            if len(values) > limit:
                raise self.error(f"column {column!r}", len(values), f"more than max_categories = {limit} classes")
            labelled = self.given(column)
            if len(values) > max(_FEW, labelled / 2):
                why = f"distinct labels of {labelled} nodes, as amounts or names have; name another label_column"
                raise self.error(f"column {column!r}", len(values), f"{why}, or declare all classes (--classes)")
            self._check_class_names(column, codes, values)
            classes = sorted({int(value) for value in values} if all(map(_is_whole, values)) else values)
        number = {str(value): i for i, value in enumerate(classes)}
        gaps = {str(value): -1 for value in values if str(value).strip().lower() in ("", *GAP_WORDS)}
        number = {**gaps, **number}
        spelled = [_spelled(value, number) for value in values]
        numbers = np.array([number.get(name, -2) for name in spelled] + [-1], dtype=np.int64)
        y = numbers[codes]  # code -1, an empty cell, picks the -1 at the end
        if (y == -2).any():
            raise self.cell_error(column, int(np.argmax(y == -2)), "is not one of the declared classes")
        return y, list(classes)

    def whole_floats(self, column: str, classes: Sequence[Any]) -> bool:
        """Whether some labels are floats that are read as the integers that they are."""
        names = set(map(str, classes))
        return any(_spelled(value, names) != str(value) for value in self._encode(column)[1])

    def _check_class_names(self, column: str, codes: np.ndarray, values: Sequence[Any]) -> None:
        """Refuse labels that a reader would not take for classes."""
        for code, value in enumerate(values):
            why = None
            if isinstance(value, float) and not np.isfinite(value):
                why = "is not a label; leave the cell empty"
            elif isinstance(value, str) and value.strip().lower() in ("", *GAP_WORDS):
                why = "says that a label is missing; leave the cell empty, or declare all classes (--classes)"
            elif isinstance(value, str) and value != value.strip():
                why = "has blanks around it; remove them, or declare all classes (--classes)"
            if why is not None:
                raise self.cell_error(column, int(np.argmax(codes == code)), why)

    def masks(self, column: str, y: np.ndarray | None) -> dict[str, np.ndarray]:
        """The three masks of a split column."""
        codes, values = self._encode(column)
        for code, value in enumerate(values):
            if value not in SPLITS:
                raise self.cell_error(column, int(np.argmax(codes == code)), "must be train, val, test or empty")
        lost = (codes >= 0) & (y < 0 if y is not None else True)
        if lost.any():
            raise self.cell_error(column, int(np.argmax(lost)), "this node has no label, so it cannot be in a set")
        return {f"{name}_mask": codes == (values.index(name) if name in values else -2) for name in SPLITS}

    def numbers(self, column: str, *, gaps: bool = True) -> np.ndarray:
        """A column of numbers in float64, each a finite float32 number; NaN where one is missing, if `gaps` may be."""
        self.check_kind(column, "numeric")
        values = self.array(column)
        x = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
        given = pc.is_valid(values).to_numpy(zero_copy_only=False) & ~np.isnan(x)
        if not gaps and not given.all():
            raise self.cell_error(column, int(np.argmin(given)), "a feature value is missing")
        with np.errstate(over="ignore"):
            wrong = given & ~np.isfinite(x.astype(np.float32))
        if wrong.any():
            raise self.cell_error(column, int(np.argmax(wrong)), "must be a finite float32 number")
        return x

    def found_categories(self, column: str, limit: int) -> tuple[str, ...]:
        """The values of a text column, sorted; an error if there are too many to be categories."""
        values = sorted(value for value in self._encode(column)[1])
        self._check_no_numbers(column, values)
        advice = f"drop the column: drop_columns (--drop-columns {column}), or declare its categories"
        if len(values) > limit:
            why = f"distinct values, more than max_categories = {limit}; {advice}"
            raise self.error(f"column {column!r}", len(values), why)
        if len(values) > max(_FEW, len(self) / 2):
            why = f"distinct values in {len(self)} rows, as names or free text have; {advice}"
            raise self.error(f"column {column!r}", len(values), why)
        return tuple(values)

    def _check_no_numbers(self, column: str, values: Sequence[str]) -> None:
        """Refuse text of which most is numbers or times in a form that is not read."""
        amounts = [value for value in values if re.match(_DECIMAL_COMMA, value)]
        if 2 * len(amounts) > len(values):
            raise self.error(f"column {column!r}", amounts[0], "decimals have a point here: write 1.5 and not 1,5")
        dates = [value for value in values if re.match(_OTHER_DATE, value)]
        if 2 * len(dates) > len(values):
            why = "write dates as 2024-01-31, or declare the column's categories if it is text"
            raise self.error(f"column {column!r}", dates[0], why)
        others = [value for value in values if not re.match(_TIME, value)]
        if 2 * len(others) <= len(values):
            why = "is not a time in the form of most of this column; declare the column's categories if it is text"
            raise self.error(f"column {column!r}", (others or values)[0], why)

    def codes(self, column: str, categories: Sequence[str]) -> np.ndarray:
        """A text column as positions in its categories, -1 where a value is missing."""
        codes, values = self._encode(column)
        gaps = {value: -1 for value in values if str(value).strip().lower() in GAP_WORDS}
        place = {**gaps, **{value: i for i, value in enumerate(categories)}}
        places = np.array([place.get(str(value), -2) for value in values] + [-1], dtype=np.int64)[codes]
        if (places == -2).any():
            why = "is not one of the declared categories"
            raise self.cell_error(column, int(np.argmax(places == -2)), why)
        return places

    def kind_of(self, column: str) -> ColumnKind:
        """What a feature column holds, by its type."""
        kind = self.array(column).type
        if pa.types.is_null(kind):
            why = f"all of its values are missing; drop it: drop_columns (--drop-columns {column})"
            raise self.error(f"column {column!r}", "empty", why)
        if kind == pa.bool_():
            return "boolean"
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return "numeric"
        if pa.types.is_timestamp(kind):
            return "timestamp"
        if pa.types.is_date(kind):
            return "date"
        if is_text(kind):
            self._check_one_kind(column, "declare the column's categories if it is text")
            return "categorical"
        advice = f"drop it: drop_columns (--drop-columns {column})"
        raise self.error(f"column {column!r}", str(kind), f"must be numbers, text, true and false, or times; {advice}")

    def check_kind(self, column: str, kind: ColumnKind) -> None:
        """Refuse a column of another kind, if it has a value; a boolean is a number too."""
        values = self.array(column)
        if values.null_count == len(values):
            return
        if kind == "numeric" and is_text(values.type):
            raise self._first_other(column, values, NUMBER, "must be a number")
        given = self.kind_of(column)
        allowed = {"numeric": ("numeric", "boolean"), "timestamp": ("timestamp", "date")}.get(kind, (kind,))
        if given not in allowed:
            raise self.cell_error(column, 0, f"must be {_IN_WORDS.get(kind, kind)}")

    def _check_one_kind(self, column: str, advice: str) -> None:
        """Refuse a CSV column in which at least half of the cells, but not all, are numbers or are true and false.

        Such a column is numeric, and its other cells are errors: one person's cell must not turn it into text.
        """
        values = self.array(column)
        if self.path.suffix != ".csv" or not is_text(values.type):
            return
        given = len(values) - values.null_count
        for pattern, what in ((NUMBER, "a number"), (TRUTH, "true or false")):
            fitting = pc.sum(pc.match_substring_regex(values, pattern)).as_py() or 0
            if given > fitting >= given / 2:
                raise self._first_other(column, values, pattern, f"is not {what}, as most of this column; {advice}")

    def _first_other(self, column: str, values: pa.Array, pattern: str, why: str) -> InvalidInput:
        """The error of the first cell that does not have this form."""
        fitting = pc.match_substring_regex(values, pattern).fill_null(True).to_numpy(zero_copy_only=False)
        return self.cell_error(column, int(np.argmin(fitting)), why)

    def array(self, column: str) -> pa.Array:
        """The values of a column; in a CSV file, words for a missing value are missing values, except among text."""
        self.require(column)
        chunks = self.table.column(column)
        # To combine one chunk would copy it.
        values = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
        values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        if self.path.suffix == ".csv" and column not in self.text and is_text(values.type):
            values = with_gaps(values)
        if self.path.suffix == ".csv" and pa.types.is_timestamp(values.type):
            return self._days_or_times(column, values)
        return values

    def _days_or_times(self, column: str, values: pa.Array) -> pa.Array:
        odd = odd_time(values)
        if odd is not None:
            raise self.cell_error(column, odd, ODD_TIME)
        return days_if_all_are(values)

    def given(self, column: str) -> int:
        """How many cells of a column have a value."""
        values = self.array(column)
        return len(values) - int(values.null_count)

    def kind_by_cells(self, column: str) -> bool:
        """Whether the cells of a column say what it holds, and not the type that the table gives it."""
        return self.path.suffix == ".csv" or is_text(self.array(column).type)

    def _encode(self, column: str) -> tuple[np.ndarray, list[Any]]:
        """Codes with -1 for an empty cell, and the distinct values in the order of their first appearance."""
        kept = self._encoded.get(column)
        if kept is None or kept[0] is not self.table:
            kept = self._encoded[column] = self.table, self._encoded_anew(column)
        return kept[1]

    def _encoded_anew(self, column: str) -> tuple[np.ndarray, list[Any]]:
        values = self.array(column)
        if pa.types.is_null(values.type):
            return np.full(len(values), -1), []
        if pa.types.is_nested(values.type):
            raise self.error(f"column {column!r}", str(values.type), "must hold single values")
        encoded = values.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return codes, encoded.dictionary.to_pylist()


def _is_whole(value: object) -> bool:
    return isinstance(value, float) and abs(value) < 2**53 and value.is_integer()


def _spelled(value: Any, names: Collection[str]) -> str:
    """A label as text; a float that is whole as an integer, if that is one of the names and the float is not."""
    name = str(value)
    return str(int(value)) if name not in names and _is_whole(value) and str(int(value)) in names else name
