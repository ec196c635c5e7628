"""A, with its columns divided among processes: both products, exchanged some rows at a time."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from graphveil.distributed.group import Group
from graphveil.distributed.layout import Layout
from graphveil.distributed.memory import give_back
from graphveil.distributed.source import RowShard
from graphveil.execution.sparse_rows import Product, SparseLinear, SparseRows, TransposedSums
from graphveil.execution.sums import Factor

# Rows of all processes together that are exchanged at a time: at width 64, 8 MiB sent and as much received.
ROWS_AT_ONCE = 2**15


class Batch(SparseRows):
    """Some rows of each process. This one holds their entries in its own columns, and answers for its own rows.

    `counts` says how many rows are whose, in the order of `entries`; `squared_norms` is about own rows.
    """

    def __init__(self, entries: SparseRows, counts: list[int], own: torch.Tensor, group: Group) -> None:
        self._entries, self._of, self._group = entries, counts, group
        self.squared_norms = own
        self.shape = (counts[group.rank], entries.shape[1])
        self.device = entries.device
        self._spread: tuple[torch.Tensor, SparseRows] | None = None

    @property
    def binary(self) -> bool:
        return self._entries.binary

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        return self._group.add_for_owners(self._entries.times(weight), self._of)

    def exact_times(self, table: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        assert out is None
        return self._group.add_for_owners(self._entries.exact_times(table), self._of)

    def transposed_times(self, value: torch.Tensor) -> torch.Tensor:
        return self.exact_transposed_times(value).float()

    def exact_transposed_times(self, table: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(self.shape[1], table.shape[1], dtype=torch.float64, device=self.device)
        self.add_transposed(table, found)
        return found.as_subclass(RowShard)

    def transposed_sums(self, product: Product) -> TransposedSums:
        return ExchangedSums()

    def add_transposed(self, value: torch.Tensor, out: torch.Tensor) -> None:
        """Adds what each own column's readers say, whoever owns them, to `out`, in float64."""
        everyone = self._group.gathered(value, self._of)
        if self._spread is None:
            self._spread = _by_column(self._entries)
        columns, readers = self._spread
        out.index_add_(0, columns, readers.exact_times(everyone))


class ShardedRows(SparseRows):
    """A for the nodes of this process as readers; of everybody's rows it holds the entries in its own columns."""

    def __init__(self, matrix: sp.csr_array, layout: Layout, group: Group, device: str) -> None:
        self._entries, self._layout, self._group = SparseRows(matrix, device), layout, group
        self._span = layout.span(group.rank)
        self.shape = (self._span.count, self._span.count)
        self.device = self._entries.device
        self._taken = WeakIdKeyDictionary()
        self.squared_norms = group.add_for_owners(self._entries.squared_norms, layout.counts)
        del self._entries.squared_norms  # has an entry for every node of the graph

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        out = weight.new_empty(len(self), weight.shape[1])
        for mine, parts in self._rounds():
            partial = torch.cat([self._entries.times_of_rows(weight, first, last) for first, last in parts])
            out[mine] = self._group.add_for_owners(partial, [last - first for first, last in parts])
        return out

    def exact_times(self, table: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        if out is None:
            out = torch.empty(len(self), table.shape[1], dtype=torch.float64, device=self.device)
        for mine, parts in self._rounds():
            counts = [last - first for first, last in parts]
            out[mine] = self._group.add_for_owners(self._entries_of(parts).exact_times(table), counts)
        return out

    def exact_transposed_times(self, table: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(len(self), table.shape[1], dtype=torch.float64, device=self.device)
        for mine, parts in self._rounds():
            counts = [last - first for first, last in parts]
            entries = self._entries_of(parts)
            Batch(entries, counts, entries.squared_norms, self._group).add_transposed(table[mine], out)
        return out

    def _entries_of(self, parts: list[tuple[int, int]]) -> SparseRows:
        """The entries of these rows, by first and last."""
        rows = torch.cat([torch.arange(first, last, device=self.device) for first, last in parts])
        return self._entries.take_rows(rows)

    def layer(self, outputs: int) -> SparseLinear:
        return ShardedLinear(self._layout, self._group.rank, outputs)

    def take_rows(self, rows: torch.Tensor) -> SparseRows:
        counts = self._group.each(len(rows))
        all_rows = self._group.gathered(rows + self._span.first, counts)
        return Batch(self._entries.take_rows(all_rows), counts, self.squared_norms.index_select(0, rows), self._group)

    def _rounds(self) -> list[tuple[slice, list[tuple[int, int]]]]:
        """Own rows, and everybody's rows by first and last, that are exchanged together."""
        size = max(1, ROWS_AT_ONCE // self._group.size)
        counts = self._layout.counts
        found = []
        for low in range(0, max(counts), size):
            parts = [
                (start + min(low, count), start + min(low + size, count))
                for start, count in zip(self._layout.starts[:-1], counts, strict=True)
            ]
            found.append((slice(min(low, len(self)), min(low + size, len(self))), parts))
        return found


class ShardedLinear(SparseLinear):
    """The rows of a sparse layer's weight that belong to this process, with the values that one process would draw."""

    def __init__(self, layout: Layout, rank: int, outputs: int) -> None:
        nn.Module.__init__(self)
        span = layout.span(rank)
        bound = span.total**-0.5
        mine = torch.empty(span.count, outputs)
        for before in range(0, span.first, ROWS_AT_ONCE):  # others' rows are drawn and forgotten
            torch.empty(min(ROWS_AT_ONCE, span.first - before), outputs).uniform_(-bound, bound)
        mine.uniform_(-bound, bound)
        after = span.total - span.first - span.count
        for done in range(0, after, ROWS_AT_ONCE):
            torch.empty(min(ROWS_AT_ONCE, after - done), outputs).uniform_(-bound, bound)
        self.weight = nn.Parameter(mine)
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))


class ExchangedSums(TransposedSums):
    """Adds the clipped output gradients of every block to the rows of W that they are about, as soon as they come."""

    def __init__(self) -> None:
        self._fresh = True

    def add(self, rows: SparseRows, outputs: Factor) -> torch.Tensor:
        assert isinstance(rows, Batch)
        scaled = outputs.rounded()
        if self._fresh and not hasattr(self, "_sum"):
            self._sum = torch.zeros(rows.shape[1], scaled.shape[1], dtype=torch.float64, device=scaled.device)
        elif self._fresh:
            self._sum.zero_()
        self._fresh = False
        rows.add_transposed(scaled, self._sum)
        return scaled

    def weight_sum(self) -> torch.Tensor:
        self._fresh = True
        give_back()  # what blocks have taken one after the other, before the step that needs most
        return self._sum.as_subclass(RowShard)


def _by_column(entries: SparseRows) -> tuple[torch.Tensor, SparseRows]:
    """The columns that have entries, and for each of them the rows: few columns of a wide matrix take little room."""
    matrix = entries.matrix
    columns, places = np.unique(matrix.indices, return_inverse=True)
    turned = sp.csr_array((matrix.data, places, matrix.indptr), shape=(matrix.shape[0], len(columns))).T.tocsr()
    return torch.from_numpy(columns.astype(np.int64)).to(entries.device), SparseRows(turned, entries.device)
