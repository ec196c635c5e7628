"""The columns of an edge table a part at a time, so that a long table never is in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from graphveil.errors import InvalidInput
from graphveil.graph.table import FORMATS, Table
from graphveil.storage.decoding import decoding

_ROWS_AT_ONCE = 2**20


class EdgeStream:
    """An edge table whose columns of ids, `ends`, are read in parts.

    Parquet comes in parts of a million rows. A CSV file is read at once: the type of a column follows from all of it.
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
