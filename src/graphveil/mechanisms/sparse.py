"""Sparse rows as the input of a linear layer: one sparse product forward, one back, nothing dense in their width."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary


class SparseRows:
    """Rows of a sparse matrix with what training needs: both products and the squared norm of each row.

    Products are sums of table rows (`embedding_bag`), which torch does two to three times faster than a CSR product.
    On the processor the matrix's own memory is read, which may be a mapped file: nobody may change it.
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

    def _set(self, starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor | None, width: int) -> None:
        self._starts, self._columns, self._values = starts, columns, values
        self.shape = (len(starts) - 1, width)
        self.device = starts.device
        self._transposed: SparseRows | None = None
        self._taken = WeakIdKeyDictionary()
        self._counts = counts = starts.diff()
        if values is None:
            self.squared_norms = counts.float()
        else:
            owners = torch.repeat_interleave(counts)
            self.squared_norms = torch.zeros(len(counts), device=self.device).index_add_(0, owners, values.square())

    @property
    def matrix(self) -> sp.csr_array:
        values = np.ones(len(self._columns), np.float32) if self._values is None else self._values.cpu().numpy()
        return sp.csr_array((values, self._columns.cpu().numpy(), self._starts.cpu().numpy()), shape=self.shape)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: torch.Tensor) -> SparseRows:
        """Some of the rows, kept for as long as `rows` lives: a full-batch training asks for them every step."""
        if rows not in self._taken:
            self._taken[rows] = self._take(rows)
        taken: SparseRows = self._taken[rows]
        return taken

    def _take(self, rows: torch.Tensor) -> SparseRows:
        first = self._starts.index_select(0, rows)
        counts = self._counts.index_select(0, rows)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0, dtype=counts.dtype)])
        places = torch.arange(int(starts[-1]), dtype=counts.dtype, device=self.device)
        places += torch.repeat_interleave(first - starts[:-1], counts)
        taken = object.__new__(SparseRows)
        values = None if self._values is None else self._values.index_select(0, places)
        taken._set(starts, self._columns.index_select(0, places), values, self.shape[1])
        return taken

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        return self._times(weight, 0, len(self))

    @torch.no_grad()
    def times_into(self, out: torch.Tensor, weight: torch.Tensor, rows_at_once: int) -> None:
        """`times` into a tensor that is there already, with nothing large beside it."""
        for first in range(0, len(self), rows_at_once):
            last = min(first + rows_at_once, len(self))
            out[first:last] = self._times(weight, first, last)

    @torch.no_grad()
    def _times(self, weight: torch.Tensor, first: int, last: int) -> torch.Tensor:
        starts = self._starts[first : last + 1]
        columns, values = self._columns, self._values
        if (first, last) != (0, len(self)):
            low, high = int(starts[0]), int(starts[-1])
            starts, columns = starts - low, columns[low:high]
            values = None if values is None else values[low:high]
        return functional.embedding_bag(
            columns, weight.contiguous(), starts, mode="sum", include_last_offset=True, per_sample_weights=values
        )

    def product(self, weight: torch.Tensor) -> torch.Tensor:
        """`times` with a gradient for `weight`."""
        product: torch.Tensor = _Product.apply(weight, self)
        return product

    def transposed_times(self, value: torch.Tensor) -> torch.Tensor:
        """A few rows are added where they belong; for many, the transpose is laid out once."""
        if len(self) < self.shape[1] // 8:
            each = value.index_select(0, torch.repeat_interleave(self._counts))
            if self._values is not None:
                each *= self._values[:, None]
            # By 64-bit indices torch adds three times as fast.
            return value.new_zeros(self.shape[1], value.shape[1]).index_add_(0, self._columns.long(), each)
        if self._transposed is None:
            self._transposed = transpose_of([self])
        return self._transposed.times(value)

    def weight_sum(self, scaled: torch.Tensor) -> torch.Tensor:
        """The gradient of a layer's weight, from the gradients of its outputs for these rows."""
        return self.transposed_times(scaled)

    def transposed_sums(self) -> TransposedSums:
        """`weight_sum` over many blocks of rows like these."""
        return TransposedSums()

    def layer(self, outputs: int) -> SparseLinear:
        """A linear layer that reads such rows."""
        return SparseLinear(int(self.shape[1]), outputs)


class TransposedSums:
    """Collects the clipped output gradients of a sparse layer over all blocks, for one transposed product a step."""

    def __init__(self) -> None:
        self._rows: list[SparseRows] = []
        self._scaled: list[torch.Tensor] = []
        self._next = 0
        self._transposed: SparseRows | None = None

    def add(self, rows: SparseRows, scaled: torch.Tensor) -> None:
        if self._transposed is None:
            self._rows.append(rows)
            self._scaled.append(scaled)
            return
        self._outputs[self._next : self._next + len(rows)] = scaled
        self._next += len(rows)

    def weight_sum(self, rows_at_once: int) -> torch.Tensor:
        if self._transposed is None:
            self._transposed = transpose_of(self._rows)
            self._outputs = torch.cat(self._scaled)
            self._sum = self._outputs.new_empty(len(self._transposed), self._outputs.shape[1])
            self._rows, self._scaled = [], []
        self._next = 0
        self._transposed.times_into(self._sum, self._outputs, rows_at_once)
        return self._sum


def _shared(array: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def transpose_of(blocks: Sequence[SparseRows]) -> SparseRows:
    """The transpose of these rows, one block below the other."""
    stacked = sp.vstack([block.matrix for block in blocks], format="csr")
    return SparseRows(sp.csr_array(stacked.T), blocks[0].device)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, rows: SparseRows) -> torch.Tensor:
        ctx.rows = rows
        return rows.times(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.rows.transposed_times(gradients[0].contiguous()), None


class SparseLinear(nn.Module):
    """rows @ weight + bias for `SparseRows`; the weight has one row for each input, as in the paper's W."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, rows: SparseRows) -> torch.Tensor:
        return rows.product(self.weight) + self.bias


Rows = torch.Tensor | SparseRows


class KeptRows:
    """Some rows, kept for as long as their index lives: a full-batch training asks for the same ones at every step."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._kept = WeakIdKeyDictionary()

    def __call__(self, index: torch.Tensor | None) -> Rows:
        if index is None or isinstance(self._rows, SparseRows):  # those keep theirs
            return self._rows if index is None else self._rows[index]
        if index not in self._kept:
            self._kept[index] = self._rows[index]
        kept: torch.Tensor = self._kept[index]
        return kept


def dense(rows: Rows) -> torch.Tensor:
    """The same rows as an ordinary tensor."""
    if isinstance(rows, SparseRows):
        return torch.from_numpy(rows.matrix.toarray()).to(rows.device)
    return rows


def linear(inputs: Rows, outputs: int) -> nn.Module:
    """The linear layer that fits these inputs, sparse or dense; of no inputs it is its bias."""
    if isinstance(inputs, SparseRows):
        return inputs.layer(outputs)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors is a no-op", UserWarning)
        return nn.Linear(int(inputs.shape[1]), outputs)
