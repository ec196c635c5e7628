"""The inputs of a method where each process has a part: A with its columns divided, features and labels of own nodes.

Products with A are exchanged some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from graphveil.distributed.group import Group
from graphveil.distributed.shard import Layout, RowShard, Shard, return_free_memory
from graphveil.execution.sparse_rows import CsrRows, Links, Product, SparseLinear, SparseRows, TransposedSums
from graphveil.execution.sums import Factor
from graphveil.methods.inputs import Inputs
from graphveil.methods.training import Target

# Rows of all processes together that are exchanged at a time: at width 64, 8 MiB sent and as much received.
ROWS_AT_ONCE = 2**15


class DividedRows(SparseRows):
    """Rows whose entries are divided among processes by column. `_entries` are those in own columns."""

    _entries: CsrRows

    @property
    def binary(self) -> bool:
        return self._entries.binary

    def transposed_times(self, value: torch.Tensor) -> torch.Tensor:
        return self.exact_transposed_times(value).float()

    def column_largest(self) -> torch.Tensor:
        return torch.zeros(0, device=self.device)

    def rounded_to_nearest(self, shifts: torch.Tensor) -> SparseRows:
        del shifts
        assert self.binary
        return self

    def transposed_sums(self, product: Product) -> TransposedSums:
        return ExchangedSums()


class Batch(DividedRows):
    """Some rows of each process. This process has their entries in its own columns, and gets the products of its rows.

    Args:
        entries: The rows of all processes, one process's below the other's, with entries in own columns.
        counts: How many of these rows belong to each process.
        squared_norms: Of own rows.
        group: All processes.
    """

    def __init__(self, entries: CsrRows, counts: list[int], squared_norms: torch.Tensor, group: Group) -> None:
        super().__init__()
        self._entries, self._counts, self._group = entries, counts, group
        self.squared_norms = squared_norms
        self.shape = (counts[group.rank], entries.shape[1])
        self.device = entries.device
        self._by_column: tuple[torch.Tensor, CsrRows] | None = None

    def take_rows(self, rows: torch.Tensor) -> SparseRows:
        raise NotImplementedError("rows are taken from all rows, not from a batch")

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        return self._group.add_for_owners(self._entries.times(weight), self._counts)

    def exact_times(self, table: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        assert out is None
        return self._group.add_for_owners(self._entries.exact_times(table), self._counts)

    def exact_transposed_times(self, table: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(self.shape[1], table.shape[1], dtype=torch.float64, device=self.device)
        self.add_transposed(table, total)
        return total.as_subclass(RowShard)

    def add_transposed(self, value: torch.Tensor, out: torch.Tensor) -> None:
        """Add the transposed product with the `value` of all processes, in float64, to `out`, which has own columns."""
        everyone = self._group.gathered(value, self._counts)
        if self._by_column is None:
            self._by_column = _transposed(self._entries)
        columns, readers = self._by_column
        out.index_add_(0, columns, readers.exact_times(everyone))


class ShardedRows(DividedRows):
    """The rows of A for the nodes of this process, which has the entries of all rows in its own columns.

    Args:
        matrix: A row for each node of the graph, over own columns.
        layout: Which nodes belong to which process.
        group: All processes.
        device: Where tensors are.
    """

    def __init__(self, matrix: sp.csr_array, layout: Layout, group: Group, device: str) -> None:
        super().__init__()
        self._entries, self._layout, self._group = CsrRows(matrix, device), layout, group
        self._span = layout.span(group.rank)
        self.shape = (self._span.count, self._span.count)
        self.device = self._entries.device
        self.squared_norms = group.add_for_owners(self._entries.squared_norms, layout.counts)
        del self._entries.squared_norms  # as long as there are nodes in the graph

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

    def _entries_of(self, parts: list[tuple[int, int]]) -> CsrRows:
        """The entries of these rows, given as ranges from first to last."""
        rows = torch.cat([torch.arange(first, last, device=self.device) for first, last in parts])
        return self._entries.take_rows(rows)

    def layer(self, outputs: int) -> SparseLinear:
        return ShardedLinear(self._layout, self._group.rank, outputs)

    def links_among(self, nodes: torch.Tensor) -> Links:
        return _DividedLinks(self, nodes)

    def entries_in(self, nodes: torch.Tensor) -> np.ndarray:
        assert self.binary
        return self.squared_norms[nodes].cpu().numpy().astype(np.int64)

    def entries_with(self, nodes: torch.Tensor, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        placed = np.zeros((len(self), 1 + values.shape[1]), values.dtype)
        placed[nodes.cpu().numpy()] = np.concatenate([np.ones((len(nodes), 1), values.dtype), values], axis=1)
        found = [
            (rows[rows[:, 0] > 0, 1:], columns[rows[:, 0] > 0]) for rows, _, columns in self._entries_by_row(placed)
        ]
        return np.concatenate([rows for rows, _ in found]), np.concatenate([columns for _, columns in found])

    def pairs_with(self, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each entry in own columns whose column comes after its row, the values of its row and of its column.

        Args:
            values: A row for each node of this process.
        """
        for of_rows, rows, columns in self._entries_by_row(values):
            once = rows < columns + self._span.first
            yield of_rows[once], values[columns[once]]

    def _entries_by_row(self, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Entries in own columns, some at a time: the values of their rows, their rows' numbers, and their columns."""
        for mine, parts in self._rounds():
            counts = [last - first for first, last in parts]
            of_rows = self._group.gathered(torch.from_numpy(values[mine]), counts).numpy()
            numbers = np.concatenate([np.arange(first, last) for first, last in parts])
            entries = self._entries_of(parts).matrix.tocoo()
            row, column = entries.coords
            yield of_rows[row], numbers[row], column

    def take_rows(self, rows: torch.Tensor) -> SparseRows:
        counts = self._group.each(len(rows))
        all_rows = self._group.gathered(rows + self._span.first, counts)
        return Batch(self._entries.take_rows(all_rows), counts, self.squared_norms.index_select(0, rows), self._group)

    def _rounds(self) -> list[tuple[slice, list[tuple[int, int]]]]:
        """The rows that are exchanged together: a range of own rows, and one range of rows of each process."""
        size = max(1, ROWS_AT_ONCE // self._group.size)
        counts = self._layout.counts
        rounds = []
        for low in range(0, max(counts), size):
            parts = [
                (start + min(low, count), start + min(low + size, count))
                for start, count in zip(self._layout.starts[:-1], counts, strict=True)
            ]
            rounds.append((slice(min(low, len(self)), min(low + size, len(self))), parts))
        return rounds


class _DividedLinks(Links):
    """Links among some nodes of each process, in a graph whose entries are 1 and that is symmetric.

    A process counts the pairs whose second node is its own. All processes ask together.
    """

    def __init__(self, rows: ShardedRows, nodes: torch.Tensor) -> None:
        assert rows.binary
        self._rows, self._nodes = rows, nodes.cpu().numpy()
        self._among = torch.zeros(len(rows), 1, device=rows.device)
        self._among[nodes] = 1
        self.degrees = rows.exact_times(self._among)[nodes, 0].cpu().numpy()

    def pairs(self, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        placed = np.full((len(self._rows), 1 + values.shape[1]), 0.0)
        placed[self._nodes, 0], placed[self._nodes, 1:] = 1, values
        for first, second in self._rows.pairs_with(placed):
            among = (first[:, 0] * second[:, 0]) > 0
            yield first[among, 1:], second[among, 1:], np.ones(int(among.sum()))


class ShardedLinear(SparseLinear):
    """The rows of a sparse layer's weight that belong to this process, with the values that one process would draw."""

    divided = True

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
    """Adds the gradients of each block to the rows of W that it reads, as soon as they come."""

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
        return_free_memory()  # of the blocks, before the part of a step that needs most memory
        return self._sum.as_subclass(RowShard)


def _transposed(entries: CsrRows) -> tuple[torch.Tensor, CsrRows]:
    """The columns that have entries, and the transpose over these columns alone: a batch has few of them."""
    matrix = entries.matrix
    columns, places = np.unique(matrix.indices, return_inverse=True)
    narrow = sp.csr_array((matrix.data, places, matrix.indptr), shape=(matrix.shape[0], len(columns)))
    return torch.from_numpy(columns.astype(np.int64)).to(entries.device), CsrRows(narrow.T.tocsr(), entries.device)


@dataclass(frozen=True)
class ShardedTarget(Target):
    """Labels of own nodes; all processes together train one model."""

    group: Group
    of: list[int] = field(init=False)
    nodes_of: list[int] = field(init=False)

    def __post_init__(self) -> None:
        # Training nodes, and all nodes, by rank.
        object.__setattr__(self, "of", self.group.each(len(self.train)))
        object.__setattr__(self, "nodes_of", self.group.each(len(self.labels)))

    @property
    def count(self) -> int:
        return sum(self.of)

    def blocks(self, rows_at_once: int) -> Sequence[torch.Tensor]:
        """As many for every process, because blocks are exchanged; some may be empty."""
        size = max(1, ROWS_AT_ONCE // len(self.of))
        return [self.train[low : low + size] for low in range(0, max(self.of), size)]

    @property
    def first(self) -> int:
        return sum(self.of[: self.group.rank])

    def largest(self, value: torch.Tensor) -> torch.Tensor:
        return self.group.largest(value)

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """Rows of W are complete already: they belong to one process."""
        return value.as_subclass(torch.Tensor) if isinstance(value, RowShard) else self.group.total(value)

    @property
    def validates(self) -> bool:
        return self.group.any(len(self.validation) > 0)

    def accuracy(self, logits: torch.Tensor) -> float:
        right = int((logits.argmax(1) == self.labels[self.validation]).sum())
        all_right, count = self.group.total(torch.tensor([right, len(logits)])).tolist()
        return all_right / count

    @property
    def first_node(self) -> int:
        return sum(self.nodes_of[: self.group.rank])

    def gathered(self, rows: torch.Tensor) -> torch.Tensor:
        return self.group.gathered(rows, self.group.each(len(rows)))


class ShardedInputs(Inputs):
    """Own nodes' features and labels, and A with own columns."""

    def __init__(
        self,
        shard: Shard,
        group: Group,
        device: str,
        feature_norm: float | None = None,
        scales: torch.Tensor | None = None,
    ) -> None:
        self._group = group
        super().__init__(shard, sp.csr_array((0, 0)), device, None, feature_norm, scales)
        self.nodes = shard.span.count
        ones = np.ones(len(shard.indices), np.float32)
        matrix = sp.csr_array((ones, shard.indices, shard.indptr), shape=(shard.num_nodes, shard.span.count))
        self.adjacency = ShardedRows(matrix, shard.layout, group, device)
        own = self.target
        self.target = ShardedTarget(own.labels, own.train, own.validation, group)

    def count(self, rows: torch.Tensor) -> int:
        return sum(self._group.each(len(rows)))

    def longest(self, rows: torch.Tensor) -> torch.Tensor:
        return self._group.largest(rows.norm(dim=1).max())
