"""One pass over a long table of nodes: what has to be known of all rows before the first one can be encoded.

These are the types of CSV columns and the values of text columns and of labels. The checks, and what becomes of each
column, are those of `read_graph`: a `Survey` is a `Table` that answers for all rows without holding them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphveil.errors import InvalidInput
from graphveil.graph.io.columns import Table
from graphveil.graph.io.sources import GAP_WORDS, NUMBER, ODD_TIME, TIMES, TRUTH, is_text
from graphveil.graph.io.streams import LongTable, cells_as

# Types that a CSV column can have besides text, in the order in which they are preferred.
_TYPES = {str(kind): kind for kind in (pa.int64(), pa.bool_(), *TIMES, pa.float64())}
_NUMBERS, _TRUTHS, _GAPS, _DAYS = range(4)
# A cell without a time of day.
_DAY = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([ T]00:00(:00(\.0+)?)?)?\s*$"


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


class Survey(Table):
    """A table of nodes of which no row is held: what all rows have in common, and the checks of `Table` on that.

    Args:
        nodes: The table.
        id_column: The column of ids.
        text: Columns of CSV files that hold text, whatever they look like.
        keep: How many distinct values of a column are kept; a column with more has too many.
    """

    def __init__(self, nodes: LongTable, id_column: str, text: Iterable[str], keep: int) -> None:
        self.nodes, self._id, self._keep = nodes, id_column, keep + 1
        self.path = Path(nodes.name)
        self.table, self.text = nodes.schema.empty_table(), (id_column, *text)
        self.columns: dict[str, ColumnFacts] = {}
        # The rows of each file.
        self.counts = [0] * len(nodes.files)

    def __len__(self) -> int:
        return sum(self.counts)

    def asked(self, label: str | None) -> list[str]:
        """The columns that have to be looked at: all of CSV files, and otherwise ids, the label and text."""
        names = self.nodes.schema.names
        return [name for name in names if self.nodes.is_csv or name in (self._id, label) or self._is_text(name)]

    def _is_text(self, name: str) -> bool:
        kind = self.nodes.schema.field(name).type
        return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)

    def take(self, file: int, part: Table) -> None:
        """Look at some rows, which come in order."""
        for name in part.table.column_names:
            cells = part.table.column(name).combine_chunks()
            cells = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
            if name != self._id and not pa.types.is_null(cells.type) and not pa.types.is_nested(cells.type):
                facts = self.columns.setdefault(name, ColumnFacts())
                facts.take(cells, len(self), self._keep, csv=self.nodes.is_csv and name not in self.text)
        self.counts[file] += len(part)

    def finish(self) -> None:
        """Tell the table the types of its CSV columns."""
        if self.nodes.is_csv:
            for name, facts in self.columns.items():
                if name not in self.text and facts.has_odd_times():
                    raise self.error(f"column {name!r}", "a cell", ODD_TIME)
            typed = {name: facts.csv_type() for name, facts in self.columns.items() if name not in self.text}
            self.nodes.types = {name: kind for name, kind in typed.items() if not is_text(kind)}

    def to_dict(self) -> dict[str, Any]:
        """What was seen, as JSON."""
        for name, facts in self.columns.items():
            for value in facts.values:
                if not isinstance(value, str | int | float | bool):
                    raise self.error(f"column {name!r}", str(value), "must be text or numbers to be labels or text")
        return {"counts": self.counts, "columns": {name: asdict(facts) for name, facts in self.columns.items()}}

    def restore(self, seen: dict[str, Any]) -> Self:
        """Take what `to_dict` gave for the same table."""
        self.counts = seen["counts"]
        self.columns = {name: ColumnFacts(**facts) for name, facts in seen["columns"].items()}
        self.finish()
        return self

    def array(self, column: str) -> pa.Array:
        self.require(column)
        kind = self.nodes.schema.field(column).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        facts = self.columns.get(column, ColumnFacts())
        if not self.nodes.is_csv or column in self.text:
            return pa.array(facts.values, kind)
        if column not in self.nodes.types:
            return pa.array(facts.values, pa.large_string())
        return cells_as(pa.array(facts.values, pa.large_string()), self.nodes.types[column])

    def cell_error(self, column: str, row: int, why: str) -> InvalidInput:
        """An error about the cell with the first appearance of value number `row`."""
        facts = self.columns[column]
        file, at = self.place(facts.rows[row])
        where = f"{Path(self.nodes.files[file]).name}, row {at + 1}, column {column!r}"
        return InvalidInput(where, facts.values[row], why)

    def place(self, row: int) -> tuple[int, int]:
        """The number of the file that has this row, and its row there."""
        ends = np.cumsum(self.counts)
        file = int(np.searchsorted(ends, row, side="right"))
        return file, row - int(ends[file] - self.counts[file])

    def _check_one_kind(self, column: str, advice: str) -> None:
        facts = self.columns.get(column, ColumnFacts())
        if not self.nodes.is_csv or column in self.text or facts.kinds or column in self.nodes.types:
            return
        for place, what in ((_NUMBERS, "a number"), (_TRUTHS, "true or false")):
            if facts.given > facts.fitting[place] >= facts.given / 2:
                why = f"is not {what}, as most of this column; {advice}"
                for _, part in self.nodes.parts([column], 2**20):
                    fitting = pc.match_substring_regex(part.table.column(column), (NUMBER, TRUTH)[place])
                    others = np.flatnonzero(~fitting.fill_null(True).to_numpy())
                    if len(others):
                        raise part.cell_error(column, int(others[0]), why)

    def given(self, column: str) -> int:
        facts = self.columns.get(column, ColumnFacts())
        # Words for a missing value are counted in columns of other types too, where they are no numbers.
        return facts.given - (facts.fitting[_GAPS] if column in self.nodes.types else 0)

    def _encode(self, column: str) -> tuple[np.ndarray, list[Any]]:
        if pa.types.is_nested(self.nodes.schema.field(column).type):
            raise self.error(f"column {column!r}", str(self.nodes.schema.field(column).type), "must hold single values")
        values = [value for value in self.array(column).to_pylist() if value is not None]
        distinct = list(dict.fromkeys(values))
        return np.arange(len(distinct)), distinct


def _can_be(cells: pa.Array, kind: pa.DataType) -> bool:
    """Whether all of these cells of a CSV file can be read in a type."""
    if kind == pa.bool_():
        return bool(pc.all(pc.match_substring_regex(cells, TRUTH)).as_py() in (True, None))
    try:
        pc.utf8_trim_whitespace(cells).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
