"""Sparse rows as the input of a linear layer: one sparse product forward, one back, nothing dense of their width."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from graphveil.execution.sums import Factor, row_sums

# Rows times a table, in float64, into the third argument or into a new tensor.
Product = Callable[["SparseRows", torch.Tensor, torch.Tensor | None], torch.Tensor]
_PAIRS_AT_ONCE = 2**20


class SparseRows(ABC):
    """Rows of a sparse matrix as inputs of a linear layer, held by one process (`CsrRows`) or divided among several.

    `squared_norms` are the squared norms of the rows, in float64.
    """

    shape: tuple[int, int]
    device: torch.device
    squared_norms: torch.Tensor

    def __init__(self) -> None:
        self._taken = WeakIdKeyDictionary()

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: torch.Tensor) -> SparseRows:
        """Some of the rows, cached while `rows` exists: full-batch training asks for the same ones at every step."""
        if rows not in self._taken:
            self._taken[rows] = self.take_rows(rows)
        taken: SparseRows = self._taken[rows]
        return taken

    @property
    @abstractmethod
    def binary(self) -> bool:
        """Whether all entries are 1."""

    @abstractmethod
    def take_rows(self, rows: torch.Tensor) -> SparseRows:
        """Some of the rows, by their indices."""

    @abstractmethod
    def times(self, weight: torch.Tensor) -> torch.Tensor:
        """The product with a table, in float32."""

    @abstractmethod
    def exact_times(self, table: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """The product in float64; it does not round if entries and table are on a lattice (`execution.exact`)."""

    @abstractmethod
    def transposed_times(self, value: torch.Tensor) -> torch.Tensor:
        """The transposed product in float32: for training that needs no protection."""

    @abstractmethod
    def exact_transposed_times(self, table: torch.Tensor) -> torch.Tensor:
        """The product of the transpose in float64, likewise."""

    @abstractmethod
    def transposed_sums(self, product: Product) -> TransposedSums:
        """Transposed products over many blocks of rows like these, step after step."""

    @abstractmethod
    def column_largest(self) -> torch.Tensor:
        """The largest size in each column. Empty where columns are divided among processes: all entries are 1 there."""

    @abstractmethod
    def rounded_to_nearest(self, shifts: torch.Tensor) -> SparseRows:
        """The same rows with entries rounded as `sums.ByColumn` does, for columns of `column_largest`."""

    @property
    def matrix(self) -> sp.csr_array:
        """The rows as a scipy matrix, where one process holds all of them."""
        raise NotImplementedError

    def rounded(self, steps: torch.Tensor, kept: torch.Tensor) -> SparseRows:
        """The same rows with entries rounded towards zero to multiples of each row's step, a power of two.

        Rows that are not `kept` become zero.
        """
        raise NotImplementedError

    def links_among(self, nodes: torch.Tensor) -> Links:
        """The links among some of the nodes, where rows and columns are nodes and each reads the other or neither."""
        raise NotImplementedError

    def entries_in(self, nodes: torch.Tensor) -> np.ndarray:
        """How many entries each of these rows has."""
        raise NotImplementedError

    def entries_with(self, nodes: torch.Tensor, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each entry of these rows in a column that this process has: the values of its row, and its column."""
        raise NotImplementedError

    def product(self, weight: torch.Tensor, *, exact: bool = False) -> torch.Tensor:
        """The product with a gradient for `weight`; `exact` uses `exact_times`."""
        product: torch.Tensor = _Product.apply(weight, self, exact)
        return product

    def layer(self, outputs: int) -> SparseLinear:
        """A linear layer that reads such rows."""
        return SparseLinear(int(self.shape[1]), outputs)


class CsrRows(SparseRows):
    """Sparse rows that this process holds.

    Products are sums of table rows (`embedding_bag`), which torch computes two to three times faster than a CSR
    product. On the CPU the memory of the matrix is used as it is, which may be a mapped file, so nobody may change it.
    """

    def __init__(self, matrix: sp.csr_array, device: torch.device | str = "cpu") -> None:
        matrix = sp.csr_array(matrix)
        values = matrix.data.astype(np.float32, copy=False)
        index = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else np.int64
        self._set(
            _shared(matrix.indptr.astype(index, copy=False)).to(device),
            _shared(matrix.indices.astype(index, copy=False)).to(device),
            None if values.min(initial=1) == values.max(initial=1) == 1 else _shared(values).to(device),
            matrix.shape[1],
        )

    def _set(self, starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor | None, width: int) -> Self:
        super().__init__()
        self._starts, self._columns, self._values = starts, columns, values
        self.shape = (len(starts) - 1, width)
        self.device = starts.device
        self._transposed: CsrRows | None = None
        if values is None:
            self.squared_norms = self._counts.double()
        else:
            owners = torch.repeat_interleave(self._counts)
            squares = values.double().square_()
            self.squared_norms = squares.new_zeros(len(self)).index_add_(0, owners, squares)
        return self

    @property
    def _counts(self) -> torch.Tensor:
        """How many entries each row has. It is not kept: on several processes there is a row for each node of all."""
        return self._starts.diff()

    @property
    def matrix(self) -> sp.csr_array:
        values = np.ones(len(self._columns), np.float32) if self._values is None else self._values.cpu().numpy()
        return sp.csr_array((values, self._columns.cpu().numpy(), self._starts.cpu().numpy()), shape=self.shape)

    def take_rows(self, rows: torch.Tensor) -> CsrRows:
        first = self._starts.index_select(0, rows)
        counts = self._starts.index_select(0, rows + 1) - first
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0, dtype=counts.dtype)])
        places = torch.arange(int(starts[-1]), dtype=counts.dtype, device=self.device)
        places += torch.repeat_interleave(first - starts[:-1], counts)
        values = None if self._values is None else self._values.index_select(0, places)
        return object.__new__(CsrRows)._set(starts, self._columns.index_select(0, places), values, self.shape[1])

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        return self.times_of_rows(weight, 0, len(self))

    @torch.no_grad()
    def exact_times(self, table: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        return row_sums(self._starts, self._columns, self._values, table.contiguous(), out)

    @torch.no_grad()
    def exact_transposed_times(self, table: torch.Tensor) -> torch.Tensor:
        if len(self) < self.shape[1] // 8:
            each = table.double().index_select(0, torch.repeat_interleave(self._counts))
            if self._values is not None:
                each *= self._values[:, None]
            # torch adds three times as fast with 64-bit indices.
            return each.new_zeros(self.shape[1], table.shape[1]).index_add_(0, self._columns.long(), each)
        if self._transposed is None:
            self._transposed = transpose_of([self])
        return self._transposed.exact_times(table)

    @property
    def binary(self) -> bool:
        return self._values is None

    def rounded(self, steps: torch.Tensor, kept: torch.Tensor) -> CsrRows:
        assert self._values is not None
        each, stays = (torch.repeat_interleave(of_row, self._counts) for of_row in (steps.float(), kept))
        values = torch.where(stays, (self._values / each).trunc_().mul_(each), 0.0)
        return object.__new__(CsrRows)._set(self._starts, self._columns, values, self.shape[1])

    def column_largest(self) -> torch.Tensor:
        zeros = torch.zeros(self.shape[1], device=self.device)
        return zeros.scatter_reduce_(0, self._columns.long(), self._entries().abs(), "amax")

    def rounded_to_nearest(self, shifts: torch.Tensor) -> CsrRows:
        each = shifts.index_select(0, self._columns)
        values = (self._entries().double() + each).sub_(each).float()
        kept = None if self._values is None and bool((values == 1).all()) else values
        return object.__new__(CsrRows)._set(self._starts, self._columns, kept, self.shape[1])

    def _entries(self) -> torch.Tensor:
        return torch.ones(len(self._columns), device=self.device) if self._values is None else self._values

    @torch.no_grad()
    def times_of_rows(self, weight: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """The product of rows `first` to `last - 1` with a table, in float32."""
        starts = self._starts[first : last + 1]
        columns, values = self._columns, self._values
        if (first, last) != (0, len(self)):
            low, high = int(starts[0]), int(starts[-1])
            starts, columns = starts - low, columns[low:high]
            values = None if values is None else values[low:high]
        return functional.embedding_bag(
            columns, weight.contiguous(), starts, mode="sum", include_last_offset=True, per_sample_weights=values
        )

    def transposed_times(self, value: torch.Tensor) -> torch.Tensor:
        if self._transposed is None:
            self._transposed = transpose_of([self])
        return self._transposed.times(value)

    def transposed_sums(self, product: Product) -> TransposedSums:
        return CollectedSums(product)

    def links_among(self, nodes: torch.Tensor) -> Links:
        return CsrLinks(self[nodes].matrix[:, nodes.cpu().numpy()])

    def entries_in(self, nodes: torch.Tensor) -> np.ndarray:
        return np.diff(self[nodes].matrix.indptr).astype(np.int64)

    def entries_with(self, nodes: torch.Tensor, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.repeat(values, self.entries_in(nodes), axis=0), self[nodes].matrix.indices


class Links(ABC):
    """Pairs of nodes, out of some nodes, that read each other; `degrees`: what the links of each weigh in all."""

    degrees: np.ndarray

    @abstractmethod
    def pairs(self, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Every pair once, some at a time: its ends' rows of `values`, which has one for each node, and its weight."""


class CsrLinks(Links):
    """Links of a matrix that this process holds."""

    def __init__(self, reads: sp.csr_array) -> None:
        *self._ends, self._weights = mutual_pairs(reads)
        both = np.concatenate([self._weights, self._weights])
        self.degrees = np.bincount(np.concatenate(self._ends), both, minlength=reads.shape[0])

    def pairs(self, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for low in range(0, len(self._weights), _PAIRS_AT_ONCE):
            some = slice(low, low + _PAIRS_AT_ONCE)
            yield values[self._ends[0][some]], values[self._ends[1][some]], self._weights[some]


def mutual_pairs(reads: sp.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both ends of every pair that reads each other, each pair once, and its weight, the lesser of its two entries.

    Where degrees were cut, one direction may be left, which is no link.
    """
    links = reads.minimum(reads.T).tocoo()
    once = links.coords[0] < links.coords[1]
    return links.coords[0][once], links.coords[1][once], links.data[once].astype(np.float64)


class TransposedSums(ABC):
    """The gradient of a sparse layer's weight, summed over blocks of rows that are the same at every step."""

    @abstractmethod
    def add(self, rows: SparseRows, outputs: Factor) -> torch.Tensor:
        """Add a block, given its inputs and the clipped gradients of its outputs; returns these on their lattice."""

    @abstractmethod
    def weight_sum(self) -> torch.Tensor:
        """The sum over all blocks of a step, in float64; the next step may overwrite it."""


# Numbers of clipped gradients that a processor's cache holds while they are added in the order of columns.
_NUMBERS_TOGETHER = 2**19


class CollectedSums(TransposedSums):
    """Collects the clipped gradients of all blocks, for a few transposed products a step.

    One product of many rows would read gradients from all over memory. More products than needed would add up the
    weight's sums too often. Sums are exact, so their order does not matter.
    """

    def __init__(self, product: Product) -> None:
        self._product = product
        self._rows: list[SparseRows] = []
        self._scaled: list[torch.Tensor] = []
        self._next = 0
        self._transposed: list[SparseRows] = []

    def add(self, rows: SparseRows, outputs: Factor) -> torch.Tensor:
        if not self._transposed:
            self._rows.append(rows)
            self._scaled.append(outputs.rounded())
            return self._scaled[-1]
        place = self._outputs[self._next : self._next + len(rows)]
        self._next += len(rows)
        return outputs.rounded(place)

    def weight_sum(self) -> torch.Tensor:
        if not self._transposed:
            self._outputs = torch.cat(self._scaled)
            self._transposed = [transpose_of(some) for some in self._together()]
            shape = len(self._transposed[0]), self._outputs.shape[1]
            self._sum = torch.empty(shape, dtype=torch.float64, device=self._outputs.device)
            self._rows, self._scaled = [], []
        self._next = 0
        parts = self._outputs.split([part.shape[1] for part in self._transposed])
        self._product(self._transposed[0], parts[0], self._sum)
        for part, outputs in zip(self._transposed[1:], parts[1:], strict=True):
            self._sum += self._product(part, outputs, None)
        return self._sum

    def _together(self) -> list[list[SparseRows]]:
        """Blocks that one product is made of: as many as a cache holds, and with several entries for each input."""
        groups: list[list[SparseRows]] = []
        numbers = entries = 0
        for block in self._rows:
            if not groups or (numbers >= _NUMBERS_TOGETHER and entries >= 4 * block.shape[1]):
                groups.append([])
                numbers = entries = 0
            groups[-1].append(block)
            numbers += len(block) * self._outputs.shape[1]
            entries += block.matrix.nnz
        return groups


def _shared(array: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def transpose_of(blocks: Sequence[SparseRows]) -> CsrRows:
    """The transpose of these rows, with the blocks stacked one below the other."""
    stacked = sp.vstack([block.matrix for block in blocks], format="csr")
    return CsrRows(sp.csr_array(stacked.T), blocks[0].device)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, rows: SparseRows, exact: bool) -> torch.Tensor:
        ctx.rows = rows
        return rows.exact_times(weight).float() if exact else rows.times(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.rows.transposed_times(gradients[0].contiguous()), None, None


class SparseLinear(nn.Module):
    """rows @ weight + bias for `SparseRows`; the weight has one row for each input, as the paper's W.

    With `exact`, the training keeps the weight on a lattice, and products do not round. `divided` says whether this
    process has some of the weight's rows, and other processes have the others.
    """

    exact = False
    divided = False

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, rows: SparseRows) -> torch.Tensor:
        return rows.product(self.weight, exact=self.exact).add_(self.bias)


Rows = torch.Tensor | SparseRows


def dense(rows: Rows) -> torch.Tensor:
    """The same rows as an ordinary tensor."""
    if isinstance(rows, SparseRows):
        return torch.from_numpy(rows.matrix.toarray()).to(rows.device)
    return rows
