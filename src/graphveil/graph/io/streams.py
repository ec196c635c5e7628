"""Tables that are too long for memory: in one file or in a folder of files, here or at any fsspec address.

A table is `nodes.parquet`, `nodes.csv`, or a folder `nodes/` of such files, which count in the order of their names.
They are read some rows at a time, and errors name the file and the row in it. Before the first row of a table of nodes
can be encoded, some things have to be known of all rows: the types of CSV columns, the values of text columns and of
labels. One pass over the table makes a `Survey` of them. The checks, and what becomes of each column, are those of
`read_graph`: a `Survey` is a `Table` that answers for all rows without holding them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from graphveil.errors import InvalidInput
from graphveil.graph.io.columns import Table
from graphveil.graph.io.declared import DECLARATIONS
from graphveil.graph.io.sources import FORMATS, GAP_WORDS, NUMBER, ODD_TIME, TRUTH, ColumnFacts, csv_form, is_text
from graphveil.validate import decoding

# Bytes of a CSV file that are parsed at a time.
_BLOCK = 2**24


class Folder:
    """A folder of tables: a path, or an address that fsspec understands, such as s3://bucket/graph."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.name = PurePosixPath(address.rstrip("/")).name
        self._files: Any = None
        self._root = address
        if "://" in address:
            with decoding(Path(address), "an address"):
                import fsspec  # type: ignore[import-untyped]

                self._files, self._root = fsspec.core.url_to_fs(address)
        elif Path(address).is_file():
            raise InvalidInput("path", address, self._why_no_folder(Path(address)))

    @staticmethod
    def _why_no_folder(path: Path) -> str:
        if path.suffix[1:] not in FORMATS:
            return "is a file, and tables that are read in parts (--memory) are in a folder"
        named = "" if path.stem == "nodes" else f", and write its name as node_table into {DECLARATIONS} there"
        return f"is a file; give the folder that it is in, {path.parent}{named}"

    def find(self, stem: str, called: str | None = None) -> tuple[str, ...]:
        """The files of a table, by their paths below this folder; `called` is its name if that is not `stem`."""
        below = self._below(called or stem)
        names = [f"{stem}.{ending}" for ending in FORMATS] if called is None else [called]
        single = [name for name in self._below("") if name in names and PurePosixPath(name).suffix[1:] in FORMATS]
        endings = {PurePosixPath(name).suffix for name in below}
        if called is not None and (not (single or below) or len(endings) > 1):
            why = f"must be a .csv or .parquet file, or a folder of files of one kind, in {self.address}"
            raise InvalidInput(f"{stem[:-1]}_table", called, why)
        if len(single) + bool(below) != 1 or len(endings) > 1:
            why = f"needs one of {stem}.parquet, {stem}.csv and a folder {stem}/ of files of one kind"
            raise InvalidInput("path", self.address, f"{why}: {'more' if single or below else 'none'} is there")
        for name in below:
            if "=" in name:
                why = "is a partition by value: its column must be in the files, not in their names"
                raise InvalidInput("path", name, why)
        return tuple(single or below)

    def text(self, name: str) -> str | None:
        """The content of a file of text; None if there is none."""
        if name not in self._below(""):
            return None
        with decoding(Path(name), "text"), self.opened(name) as file:
            return str(file.read().decode("utf-8"))

    def identity(self, name: str) -> list[Any]:
        """What changes if a file is replaced by another."""
        if self._files is None:
            state = (Path(self._root) / name).stat()
            return [name, state.st_size, state.st_mtime_ns]
        told = self._files.info(f"{self._root}/{name}")
        return [name, *(str(told.get(key)) for key in ("size", "mtime", "LastModified", "ETag", "created"))]

    def size(self, name: str) -> int:
        """The bytes of a file."""
        place = f"{self._root}/{name}"
        return os.stat(place).st_size if self._files is None else int(self._files.size(place))

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """A file, to read bytes from."""
        place = f"{self._root}/{name}"
        with open(place, "rb") if self._files is None else self._files.open(place, "rb") as file:
            yield file

    def _below(self, stem: str) -> list[str]:
        """Tables and other files in this folder, or all tables anywhere below the folder `stem`."""
        if self._files is None:
            place = Path(self._root) / stem
            found = (place.rglob("*") if stem else place.glob("*")) if place.is_dir() else ()
            names = [path.relative_to(self._root).as_posix() for path in found if path.is_file()]
        else:
            with decoding(Path(self.address), "a folder"):
                at = f"{self._root}/{stem}" if stem else self._root
                there = self._files.find(at, maxdepth=None if stem else 1) if self._files.isdir(at) else ()
            names = [PurePosixPath(path).relative_to(PurePosixPath(self._root)).as_posix() for path in there]
        hidden = [name for name in names if any(word.startswith(("_", ".")) for word in name.split("/"))]
        kept = [name for name in names if name not in hidden]
        return sorted(name for name in kept if not stem or PurePosixPath(name).suffix[1:] in FORMATS)


@dataclass(frozen=True)
class Place:
    """A row of a table that is in several files."""

    file: int
    row: int


BEGINNING = Place(0, 0)


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table, perhaps of several of its files: parts, and where each begins."""

    parts: list[tuple[Place, Table]]

    @property
    def end(self) -> tuple[int, int]:
        """The file of the last row, and the row after it."""
        place, part = self.parts[-1]
        return place.file, place.row + len(part)

    def place(self, at: int) -> tuple[int, int]:
        """The file of row number `at` of these, and its row there."""
        place, _, row = self._part(at)
        return place.file, place.row + row

    def cell_error(self, column: str, at: int, why: str) -> InvalidInput:
        """An error about a cell of row number `at` of these."""
        _, part, row = self._part(at)
        return part.cell_error(column, row, why)

    def _part(self, at: int) -> tuple[Place, Table, int]:
        ends = np.cumsum([len(part) for _, part in self.parts])
        place, part = self.parts[number := int(np.searchsorted(ends, at, side="right"))]
        return place, part, at - int(ends[number]) + len(part)


class LongTable:
    """The files of one table, of which some rows are in memory at a time.

    Args:
        folder: Where they are.
        stem: "nodes" or "edges".
        keys: The columns of ids, which must be there.
        name: The file, or the folder of files, if it is not called as usual.

    Raises:
        InvalidInput: There is no such table, a file cannot be read, or files differ in their columns.
    """

    def __init__(self, folder: Folder, stem: str, keys: Sequence[str], name: str | None = None) -> None:
        self.folder, self.files = folder, folder.find(stem, name)
        # Of the file, or of the folder of files.
        self.name = Path(self.files[0]).parts[0]
        self.is_csv = self.files[0].endswith(".csv")
        self._kind = FORMATS["csv" if self.is_csv else "parquet"]
        # The types of columns of CSV files, once they are known: until then all cells are text.
        self.types: dict[str, pa.DataType] = {}
        # How many rows there are; None: only reading tells.
        self.rows: int | None = None if self.is_csv else 0
        self.schema: pa.Schema = self._checked_schema(keys)

    def _checked_schema(self, keys: Sequence[str]) -> pa.Schema:
        first: pa.Schema | None = None
        for name in self.files:
            path = Path(name)
            with decoding(path, self._kind), self.folder.opened(name) as file:
                if self.is_csv:
                    names = pyarrow.csv.open_csv(file, parse_options=csv_form(file)).schema.names
                    schema = pa.schema([(column, pa.large_string()) for column in names])
                else:
                    known = pyarrow.parquet.ParquetFile(file)
                    schema, self.rows = known.schema_arrow, (self.rows or 0) + known.metadata.num_rows
            table = Table.part(path, schema.empty_table(), 0)
            if first is None:
                table.check_columns(keys)
                first = schema
            elif not schema.equals(first):
                other = next(
                    (a.name for a, b in zip(schema, first, strict=False) if not a.equals(b)), f"{len(schema)} columns"
                )
                why = f"is not as in {self.files[0]}; all files of a table have the same columns with the same types"
                raise table.error("column", other, why)
        assert first is not None
        return first

    def bytes(self) -> int:
        """The size of all files."""
        return sum(self.folder.size(name) for name in self.files)

    def parts(self, columns: Sequence[str], at_once: int, start: Place = BEGINNING) -> Iterator[tuple[Place, Table]]:
        """Some rows at a time, at most `at_once`, from `start` on: where they begin, and they with these columns."""
        for number in range(start.file, len(self.files)):
            path, row = Path(self.files[number]), 0
            with decoding(path, self._kind), self.folder.opened(self.files[number]) as file:
                for batch in self._batches(file, columns, at_once):
                    skipped = max(0, start.row - row) if number == start.file else 0
                    if skipped < len(batch):
                        table = pa.Table.from_batches([batch.slice(skipped)])
                        if not self.is_csv:
                            table.validate(full=True)
                        yield Place(number, row + skipped), self._typed(Table.part(path, table, row + skipped))
                    row += len(batch)

    def chunks(self, columns: Sequence[str], at_once: int, start: Place) -> Iterator[Chunk]:
        """As many rows at a time, of several files where these are short."""
        some: list[tuple[Place, Table]] = []
        for place, part in self.parts(columns, at_once, start):
            if some and sum(len(each) for _, each in some) + len(part) > at_once:
                yield Chunk(some)
                some = []
            some.append((place, part))
        if some:
            yield Chunk(some)

    def row_in_words(self, file: int, row: int) -> str:
        """The number of a row for messages; with its file, if there are several."""
        return f"{row + 1}" if len(self.files) == 1 else f"{row + 1} of {Path(self.files[file]).name}"

    def _batches(self, file: Any, columns: Sequence[str], at_once: int) -> Iterator[pa.RecordBatch]:
        if not self.is_csv:
            yield from pyarrow.parquet.ParquetFile(file).iter_batches(at_once, columns=list(columns), use_threads=False)
            return
        reader = pyarrow.csv.open_csv(
            file,
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            parse_options=csv_form(file),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: pa.large_string() for name in columns},
                include_columns=list(columns),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        for batch in reader:
            for first in range(0, len(batch), at_once):
                yield batch.slice(first, at_once)

    def _typed(self, part: Table) -> Table:
        """The cells of CSV columns whose types are known, in these types."""
        for place, name in enumerate(part.table.column_names):
            if name in self.types:
                values = cells_as(part.table.column(name).combine_chunks(), self.types[name])
                part.table = part.table.set_column(place, name, values)
        part.text = tuple(part.table.column_names)
        return part


def cells_as(cells: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cells of a CSV file in another type than text; words for a missing value are missing values."""
    if pa.types.is_null(kind):
        return pa.nulls(len(cells))
    cells = pc.utf8_trim_whitespace(cells)
    gaps = pc.is_in(pc.utf8_lower(cells), value_set=pa.array(GAP_WORDS, cells.type))
    return pc.if_else(gaps, pa.scalar(None, cells.type), cells).cast(kind)


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
        for place, (pattern, what) in enumerate(((NUMBER, "a number"), (TRUTH, "true or false"))):
            if facts.given > facts.fitting[place] >= facts.given / 2:
                why = f"is not {what}, as most of this column; {advice}"
                for _, part in self.nodes.parts([column], 2**20):
                    fitting = pc.match_substring_regex(part.table.column(column), pattern)
                    others = np.flatnonzero(~fitting.fill_null(True).to_numpy())
                    if len(others):
                        raise part.cell_error(column, int(others[0]), why)

    def given(self, column: str) -> int:
        facts = self.columns.get(column, ColumnFacts())
        # Words for a missing value are counted in columns of other types too, where they are no numbers.
        return facts.given - (facts.gaps if column in self.nodes.types else 0)

    def _encode(self, column: str) -> tuple[np.ndarray, list[Any]]:
        if pa.types.is_nested(self.nodes.schema.field(column).type):
            raise self.error(f"column {column!r}", str(self.nodes.schema.field(column).type), "must hold single values")
        values = [value for value in self.array(column).to_pylist() if value is not None]
        distinct = list(dict.fromkeys(values))
        return np.arange(len(distinct)), distinct
