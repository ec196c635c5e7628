"""Where tables come from: Parquet and CSV files, and tables in memory. All of them become Arrow tables.

What a column of a CSV file holds follows from all of its cells: `ColumnFacts` adds up what is known of some at a time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from graphveil.errors import InvalidInput

FORMATS = {"parquet": "Parquet", "csv": "CSV"}
# What to do if no table has the usual name.
_NO_TABLE = {
    "nodes": "; name the table of nodes itself, or as node_table in graph.json",
    "edges": "; name the table of edges: edge_table (--edges)",
}
# What may separate cells of a CSV file.
_MARKS = ",;\t"
# How many bytes of a header are read at most.
LONGEST_HEADER = 2**24
# How many bytes of a CSV file are read at a time.
_BLOCK = 2**22
# Types of columns of times, in the order in which they are tried on text.
TIMES = (pa.date32(), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
NUMBER = r"^\s*-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
# The cells of a CSV column of true and false, which is numeric.
TRUTH = "^(true|True|TRUE|false|False|FALSE)$"
# Words for a missing value, which may stand among the numbers of a CSV column.
GAP_WORDS = ["na", "n/a", "nan", "null", "none"]
ODD_TIME = "has a time of day, unlike most of this column; write dates alone, or times everywhere"
# Types that a CSV column can have besides text, in the order in which they are preferred.
_TYPES = {str(kind): kind for kind in (pa.int64(), pa.bool_(), *TIMES, pa.float64())}
_NUMBERS, _TRUTHS, _GAPS, _DAYS = range(4)
# A cell without a time of day.
_DAY = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([ T]00:00(:00(\.0+)?)?)?\s*$"


def find_table(folder: Path, stem: str, name: str | None = None) -> Path:
    """`<folder>/<stem>.parquet` or `.csv`, whichever is there, or the file with this name."""
    if name is not None:
        path = folder / name
        if path.suffix[1:] not in FORMATS or not path.is_file():
            raise InvalidInput(f"{stem[:-1]}_table", name, f"must be a .csv or .parquet file in {folder}")
        return path
    there = [path for ending in FORMATS if (path := folder / f"{stem}.{ending}").is_file()]
    if len(there) != 1:
        why = "both are there; remove one" if there else f"neither is there{_NO_TABLE[stem]}"
        raise InvalidInput("path", str(folder), f"needs one of {stem}.parquet and {stem}.csv: {why}")
    return there[0]


def arrow_table(field: str, value: Any) -> pa.Table:
    """An Arrow table of a pandas, polars or Arrow table, a dictionary of arrays, or what else speaks Arrow.

    Neither pandas nor polars has to be installed: tables are recognised by their methods. A named index of a pandas
    table is a column; one without a name is left out.

    Raises:
        InvalidInput: It is none of these, or its columns differ in length.
    """
    try:
        if isinstance(value, Mapping):
            return pa.Table.from_arrays([_arrow_array(each) for each in value.values()], [str(name) for name in value])
        if isinstance(value, pa.Table):
            return value
        if type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns"):
            table = pa.Table.from_pandas(value)
            nameless = [name for name in table.column_names if name.startswith("__index_level_")]
            return table.drop_columns(nameless)
        if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
            return _without_views(pa.table(value))
        if hasattr(value, "to_arrow"):
            return _without_views(pa.table(value.to_arrow()))
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidInput(field, type(value).__name__, f"cannot be read as a table: {error}") from None
    why = "must be a pandas, polars or Arrow table, or a dictionary of arrays"
    raise InvalidInput(field, type(value).__name__, why)


def _without_views(table: pa.Table) -> pa.Table:
    """The same table with text in the form that all functions of Arrow understand."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return pa.dictionary(kind.index_type, plain(kind.value_type))
        return pa.large_string() if pa.types.is_string_view(kind) else kind

    return table.cast(pa.schema([(field.name, plain(field.type)) for field in table.schema]))


def _arrow_array(values: Any) -> pa.Array:
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu().numpy()
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        array = pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
        return _without_views(pa.table({"": array})).column(0)
    return pa.array(values, from_pandas=True)


def with_times(table: pa.Table, others: Collection[str | None]) -> pa.Table:
    """A table in memory whose columns of times that are written as text are times, as they are in a CSV file.

    A column is one of times if all of its values are: 2024-01-31, or 2024-01-31 08:00:00. `others` stay as they are.
    """
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if name in others or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        for kind in TIMES:
            with suppress(pa.ArrowException):
                if column.null_count < len(column):
                    table = table.set_column(place, name, _as_times(name, column.cast(kind).combine_chunks()))
                    break
    return table


def odd_time(values: pa.Array) -> int | None:
    """The place of the first time of day in a column where at least half of the cells are days; None: there is none.

    One person's cell must not decide whether a column is one of days or of times: it shows in the number of features.
    """
    day = pc.equal(pc.floor_temporal(values, unit="day"), values)
    days, given = pc.sum(day).as_py() or 0, len(values) - values.null_count
    if days == given or days < given / 2:
        return None
    return int(np.argmin(day.fill_null(True).to_numpy(zero_copy_only=False)))


def days_if_all_are(values: pa.Array) -> pa.Array:
    """Times as days where no cell has a time of day."""
    day = pc.equal(pc.floor_temporal(values, unit="day"), values)
    return values.cast(pa.date32()) if pc.all(day).as_py() in (True, None) else values


def _as_times(name: str, values: pa.Array) -> pa.Array:
    """Days or times, by all cells together."""
    if pa.types.is_date(values.type):
        return values
    odd = odd_time(values)
    if odd is not None:
        raise InvalidInput(f"row {odd + 1}, column {name!r}", str(values[odd]), ODD_TIME)
    return days_if_all_are(values)


def with_gaps(values: pa.Array) -> pa.Array:
    """A column of text as numbers, truth values or times, if all other cells are words for a missing value."""
    gap = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(values)), value_set=pa.array(GAP_WORDS, values.type))
    if not pc.any(gap).as_py():
        return values
    rest = pc.if_else(gap, pa.scalar(None, values.type), values)
    if rest.null_count == len(rest):
        return pa.nulls(len(values))
    rest = pc.utf8_trim_whitespace(rest)
    if pc.all(pc.match_substring_regex(rest, NUMBER)).as_py():
        kinds: tuple[pa.DataType, ...] = (pa.int64(), pa.float64())
    elif pc.all(pc.match_substring_regex(rest, TRUTH)).as_py():
        kinds = (pa.bool_(),)
    else:
        kinds = TIMES
    for kind in kinds:
        with suppress(pa.ArrowInvalid):
            return rest.cast(kind)
    return values


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def csv_form(file: BinaryIO) -> pyarrow.csv.ParseOptions:
    """What separates the cells of a CSV file: a comma, or, where its header has none, a semicolon or a tab.

    The header alone decides, which is no private value.

    Raises:
        ValueError: What is in its place is no header.
    """
    first = file.readline(LONGEST_HEADER)
    second = file.readline(LONGEST_HEADER)
    file.seek(0)
    try:
        header = first.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("its header is not text in UTF-8; save the table in this encoding") from None
    bare = re.sub('"[^"]*"', "", header)
    if re.fullmatch(r'"?sep=.?"?\s*', header, re.IGNORECASE):
        raise ValueError(f"its first line is {header.strip()!r}; remove it: the header comes first")
    below = re.sub('"[^"]*"', "", second.decode("utf-8", "replace"))
    mark = next((mark for mark in _MARKS if mark in below), "")
    # A name of a column may begin with # too, but then the header has as many cells as the next line.
    if bare.lstrip().startswith("#") and mark and '"' not in below and bare.count(mark) != below.count(mark):
        raise ValueError("its first line is a comment; remove it: the header comes first")
    return pyarrow.csv.ParseOptions(delimiter=next((mark for mark in _MARKS if mark in bare), ","))


def read_whole(path: Path, text: Sequence[str]) -> pa.Table:
    """All of a file. Columns of a CSV file in `text` are text, whatever they look like."""
    table = _read_csv(path, text) if path.suffix == ".csv" else _read_parquet(path)
    for column in table.schema if path.suffix == ".csv" else ():
        if pa.types.is_binary(column.type):
            why = "is not text in UTF-8; save the table in this encoding"
            raise InvalidInput(f"{path.name}, column {column.name!r}", "bytes", why)
    return table


def _read_csv(path: Path, text: Sequence[str]) -> pa.Table:
    with path.open("rb") as file:
        form = csv_form(file)
    # Ids stay text here: "007" and "7" differ, and a type guessed per file need not be the same in both.
    types = pyarrow.csv.ConvertOptions(
        column_types={name: pa.large_string() for name in text},
        null_values=[""],
        strings_can_be_null=True,
        # Without 0 and 1: those are numbers, and one "true" among them must not make truth values of them.
        true_values=["true", "True", "TRUE"],
        false_values=["false", "False", "FALSE"],
    )
    # The type of a column follows from all of it, however many blocks there are. One thread, so that errors carry the
    # row; errors in words are those of one block.
    for block in (_BLOCK, min(max(path.stat().st_size + 1, 1 << 16), 2**31 - 1)):
        form.newlines_in_values = block == _BLOCK
        options = pyarrow.csv.ReadOptions(use_threads=False, block_size=block)
        try:
            return pyarrow.csv.read_csv(path, read_options=options, parse_options=form, convert_options=types)
        except pa.ArrowException:
            if block != _BLOCK:
                raise
    raise AssertionError


def shortest_spelling(numbers: np.ndarray) -> int:
    """How many characters these integers take; of a negative one at least one."""
    most = int(numbers.max(initial=0))
    return len(numbers) + sum(int(np.count_nonzero(numbers >= 10**k)) for k in range(1, len(str(most))))


def plain_integers(texts: pa.Array) -> pa.Array | None:
    """Text without gaps as int64, if every cell is digits alone and does not begin with a 0 in vain; else None.

    These numbers are different where the texts are.
    """
    if len(texts) == 0:
        return None
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    first, end = int(offsets[0]), int(offsets[-1])
    letters = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[first:end]
    if len(letters) == 0 or letters.min() < ord("0") or letters.max() > ord("9"):
        return None
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:  # an empty cell, or a number of more than 64 bits
        return None
    # What is longer than it must be has a 0 in front.
    return numbers if shortest_spelling(numbers.to_numpy(zero_copy_only=False)) == end - first else None


def _read_parquet(path: Path) -> pa.Table:
    with pyarrow.parquet.ParquetFile(path) as file:
        table = file.read(use_threads=False)
    table.validate(full=True)
    return table


def first_rows(path: Path, rows: int) -> pa.Table:
    """The first rows of a file, and no more than has to be read to have them."""
    if path.suffix == ".csv":
        with path.open("rb") as file:
            form = csv_form(file)
            reader = pyarrow.csv.open_csv(file, parse_options=form)
            batch = next(iter(reader), None)
            return reader.schema.empty_table() if batch is None else pa.Table.from_batches([batch]).slice(0, rows)
    with pyarrow.parquet.ParquetFile(path) as file:
        batch = next(file.iter_batches(rows, use_threads=False), None)
        return file.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch])


@dataclass
class ColumnFacts:
    """What is known of one column.

    Args:
        values: Distinct values in the order of their first appearance, not more than a limit.
        rows: The row of the first appearance of each.
        kinds: Types in which all cells of a CSV column can be read.
        given: How many cells are not empty.
        fitting: How many of them look like a number, like true or false, like a word for a missing value, and
            like a day.
    """

    values: list[Any] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=lambda: list(_TYPES))
    given: int = 0
    fitting: list[int] = field(default_factory=lambda: [0, 0, 0, 0])

    def take(self, cells: pa.Array, first: int, keep: int, *, csv: bool) -> None:
        """Look at some more cells, which begin in row `first`."""
        if csv:
            self._take_types(cells)
        self.given += len(cells) - cells.null_count
        if len(self.values) >= keep:
            return
        encoded = cells.dictionary_encode()
        known = set(self.values)
        places = pc.index_in(encoded.dictionary, value_set=cells).to_pylist()
        for value, place in zip(encoded.dictionary.to_pylist(), places, strict=True):
            if value not in known and len(self.values) < keep:
                self.values.append(value)
                self.rows.append(first + place)

    def _take_types(self, cells: pa.Array) -> None:
        """Most columns can be read in some type; only of others cells are counted by what they look like."""
        before, self.kinds = self.kinds, [kind for kind in self.kinds if _can_be(cells, _TYPES[kind])]
        if before and not self.kinds:
            self.kinds = self._without_gaps(cells, before)
        if "timestamp[ns]" in self.kinds:
            self.fitting[_DAYS] += pc.sum(pc.match_substring_regex(cells, _DAY)).as_py() or 0
        if self.kinds:
            return
        if before:  # all cells until now could be read
            fitting = self.given - self.fitting[_GAPS]
            self.fitting[_NUMBERS] = fitting if "double" in before else 0
            self.fitting[_TRUTHS] = fitting if "bool" in before else 0
        for place, pattern in enumerate((NUMBER, TRUTH)):
            self.fitting[place] += pc.sum(pc.match_substring_regex(cells, pattern)).as_py() or 0
        gaps = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(cells)), value_set=pa.array(GAP_WORDS, cells.type))
        self.fitting[_GAPS] += pc.sum(gaps).as_py() or 0

    def _without_gaps(self, cells: pa.Array, before: list[str]) -> list[str]:
        """The types of a column that can be read but for words for a missing value, which are counted."""
        gaps = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(cells)), value_set=pa.array(GAP_WORDS, cells.type))
        rest = pc.if_else(gaps, pa.scalar(None, cells.type), cells)
        kinds = [kind for kind in before if _can_be(rest, _TYPES[kind])]
        if kinds:
            self.fitting[_GAPS] += pc.sum(gaps).as_py() or 0
        return kinds

    @property
    def gaps(self) -> int:
        """How many cells are words for a missing value."""
        return self.fitting[_GAPS]

    def csv_type(self) -> pa.DataType:
        """The type of a CSV column, as Arrow would find it in the whole column."""
        numbers, _, gaps, _ = self.fitting
        if self.given in (0, gaps):
            return pa.null()
        if self.kinds:
            return _TYPES[self.kinds[0]]
        return pa.float64() if gaps > 0 and numbers + gaps == self.given else pa.large_string()

    def has_odd_times(self) -> bool:
        """Whether some cells have a time of day where most are days (`columns.odd_time`)."""
        times = bool(self.kinds) and pa.types.is_timestamp(_TYPES[self.kinds[0]])
        return times and self.given > self.fitting[_DAYS] >= self.given / 2


def _can_be(cells: pa.Array, kind: pa.DataType) -> bool:
    """Whether all of these cells of a CSV file can be read in a type."""
    if kind == pa.bool_():
        return bool(pc.all(pc.match_substring_regex(cells, TRUTH)).as_py() in (True, None))
    try:
        pc.utf8_trim_whitespace(cells).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
