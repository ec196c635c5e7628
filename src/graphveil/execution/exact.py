"""Results that do not depend on order, blocks, threads or processes: exact sums, and layers that work row by row.

Training on several processes or threads divides rows and columns differently from training on one, and must give the
same bits. A floating-point sum rounds relative to its partial sums, not to its sensitivity: one changed term can move
it by far more than the term's size (docs/theory.md, section 8.4). Here every term is a multiple of a step that follows
from public facts, and the sum of all absolute values stays below 2^53 steps. Then no addition in float64 rounds, in any
order, and the bounds of `graphveil.privacy.sensitivity` hold on the machine as they do on paper.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.execution.sums import ByRow, Factor, add_outer, column_largest, column_sums, row_lengths
from graphveil.privacy.mechanisms import bits_of, table_step

# A row is shortened to a little less than its bound, which covers the rounding of its length and of the scaling.
INWARD = 1 - 1e-6
# Longer or shorter rows of a table count as zero: their factors would leave the range of float32.
_SHORTEST_ROW, _LONGEST_ROW = 2.0**-100, 2.0**120
# More bits than this cannot be kept by adding and subtracting a shift.
_NEAREST_BITS = 51
# Libraries compute matrix products of different shapes by different routines, whose last bits differ: rows at odd
# places, few rows, few columns, columns at the end of a thread's share. Products of at least so many rows and a
# multiple of so many columns are computed alike for each row (tested); others are padded with zeros.
_LEAST_ROWS, _COLUMNS = 16, 16
# The constants of Klambauer et al. 2017 (arXiv:1706.02515), as torch has them.
_SCALE, _ALPHA = 1.0507009873554805, 1.6732632423543772
# How many numbers a vector routine takes at a time; a remainder at the end is computed by another routine, and so is
# that of each thread. Torch gives a thread at least so many numbers.
_AT_ONCE, _LEAST_SHARE = 32, 2**15


class Arithmetic:
    """How the sums are made that a mechanism releases.

    Formal guarantee (docs/theory.md, section 8.4): products and sums are exact, and no row is longer than its bound.

    Methods are given an instance, so that an audit can replace it by one with a known mistake.
    """

    def lengths(self, rows: Rows) -> torch.Tensor:
        """The norm of each row, in float64: its relative error is below 1e-9 for up to 2^20 columns."""
        if isinstance(rows, SparseRows):
            return rows.squared_norms.sqrt()
        return row_lengths(rows)

    def table(self, rows: torch.Tensor, norm: float, terms: int, *, stretch: bool = False) -> torch.Tensor:
        """Rows of norm at most `norm` on the lattice of `mechanisms.table_step`, in float32.

        Entries are rounded towards zero. A row that is not finite, longer than 2^120 or shorter than 2^-100 becomes
        zero.

        Args:
            rows: The rows.
            norm: The largest norm; longer rows are shortened to it.
            terms: The largest number of rows that are added.
            stretch: Bring all rows but zeros to the norm.
        """
        step = table_step(norm, terms)
        made = [self._table_rows(some, norm * INWARD, step, stretch) for some in rows.split(2**16)]
        return torch.cat(made) if made else rows.float()

    def _table_rows(self, rows: torch.Tensor, norm: float, step: float, stretch: bool) -> torch.Tensor:
        lengths = self.lengths(rows)
        usable = (lengths <= _LONGEST_ROW) & (lengths >= _SHORTEST_ROW)
        factors = norm / (lengths if stretch else lengths.clamp_min(norm)) / step
        steps = torch.full_like(lengths, step, dtype=torch.float32)
        return Factor(rows.float(), ByRow(torch.where(usable, factors, 0.0).float(), steps)).rounded()

    def product(self, rows: SparseRows, table: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """rows @ table in float64, for entries and a table on a lattice."""
        return rows.exact_times(table, out)

    def transposed_product(self, rows: SparseRows, table: torch.Tensor) -> torch.Tensor:
        """rows^T @ table in float64, likewise."""
        return rows.exact_transposed_times(table)

    def add_outer(self, total: torch.Tensor, outputs: Factor, inputs: Factor, bias: torch.Tensor | None = None) -> None:
        """Add the sum of outputs[r] inputs[r]^T to `total` and that of outputs[r] to `bias`; both are on lattices."""
        add_outer(total, outputs, inputs, bias)

    def total(self, rows: torch.Tensor) -> torch.Tensor:
        """The sum of rows that are on a lattice."""
        return column_sums(rows)


EXACT = Arithmetic()


def power_above(numbers: torch.Tensor) -> torch.Tensor:
    """The least power of two above each of these non-negative float64 numbers: their next exponent."""
    return (numbers.view(torch.int64) >> 52).add_(1).bitwise_left_shift_(52).view(torch.float64)


def nearest_shifts(largest: torch.Tensor, bits: int) -> torch.Tensor:
    """The shifts of `sums.ByColumn` for columns with these largest sizes: steps are so many bits below them."""
    return power_above(largest.double()) * (1.5 * 2.0 ** (52 - bits))


def rounded_weights(weights: torch.Tensor, terms: int) -> torch.Tensor:
    """Weights of any size on a lattice on which sums of `terms` of them are exact: for tables that need no protection.

    To the nearest multiple of 2^-24; weights beyond 2^28 / terms are cut.
    """
    largest, shift = 2.0 ** (28 - bits_of(terms)), 1.5 * 2.0**28
    return (weights.double().clamp_(-largest, largest) + shift).sub_(shift).float()


def column_totals(rows: torch.Tensor, count: int, largest: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The sum of float32 rows that are not on a lattice, in float64, the same for any order and division of all rows.

    For sums that are not released. Entries are rounded to a lattice that follows from the largest one.

    Args:
        rows: This process's rows.
        count: How many rows all processes have together.
        largest: The largest of what all processes give.
    """
    shifts = nearest_shifts(largest(column_largest(rows)), min(_NEAREST_BITS, 53 - bits_of(count)))
    return (rows.double() + shifts).sub_(shifts).sum(0)


def product(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """rows @ matrix."""
    count, columns = len(rows), matrix.shape[1]
    missing_rows, missing_columns = max(0, _LEAST_ROWS - count), -columns % _COLUMNS
    if not missing_rows and not missing_columns:
        return rows @ matrix
    if missing_columns:
        matrix = functional.pad(matrix, (0, missing_columns))
    if missing_rows:
        rows = functional.pad(rows, (0, 0, 0, missing_rows))
    return (rows @ matrix)[:count, :columns].clone(memory_format=torch.contiguous_format)


class _Product(torch.autograd.Function):
    """`product` whose gradient for the rows is such a product too."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rows, matrix)
        return product(rows, matrix)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        rows, matrix = ctx.saved_tensors
        (gradient,) = gradients
        of_rows, of_matrix = ctx.needs_input_grad
        return (
            product(gradient, matrix.T) if of_rows else None,
            rows.T @ gradient if of_matrix else None,
        )


def times(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """rows @ matrix with gradients for both."""
    result: torch.Tensor = _Product.apply(rows, matrix)
    return result


class Linear(nn.Linear):
    """`torch.nn.Linear`, row by row."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return times(input, self.weight.T).add_(self.bias)  # in place: new memory costs more than the sum


class _Selu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        count, columns = rows.shape
        wide = columns + -columns % _AT_ONCE
        long = _divisible(count, wide)
        if (long, wide) != (count, columns):
            padded = functional.pad(rows, (0, wide - columns, 0, long - count))
            result = functional.selu(padded)[:count, :columns].contiguous()
        else:
            result = functional.selu(rows)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """From the result, without an exponential: for x <= 0, scale * alpha * e^x is result + scale * alpha."""
        (result,) = ctx.saved_tensors
        slopes: torch.Tensor = torch.ops.aten.elu_backward(gradients[0], _ALPHA, _SCALE, 1, True, result)
        return slopes


def selu(rows: torch.Tensor) -> torch.Tensor:
    """`torch.nn.functional.selu`, row by row: rows are padded so that there is no remainder."""
    result: torch.Tensor = _Selu.apply(rows)
    return result


# Up to so many classes, torch adds up a row's exponentials one after the other in both of its routines for softmax.
_FEW_CLASSES = 7


class _FewClasses(torch.autograd.Function):
    """Cross entropy whose columns are rows: torch takes many numbers of a column at once, and few of a short row."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, ignored: int) -> torch.Tensor:
        count, classes = logits.shape
        by_class = logits.new_zeros(classes, count + -count % _AT_ONCE)
        by_class[:, :count] = logits.T
        logarithms = torch.log_softmax(by_class, 0)
        labelled = labels != ignored
        places = torch.where(labelled, labels, 0)[None]
        ctx.save_for_backward(logarithms, places, labelled)
        losses = logarithms[:, :count].gather(0, places)[0].neg_()
        return torch.where(labelled, losses, 0.0)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logarithms, places, labelled = ctx.saved_tensors
        count = len(labelled)
        of_losses = torch.zeros_like(logarithms)
        of_losses[:, :count].scatter_(0, places, torch.where(labelled, -gradients[0], 0.0)[None])
        of_logits = torch.ops.aten._log_softmax_backward_data(of_losses, logarithms, 0, logarithms.dtype)
        return of_logits[:, :count].T.contiguous(), None, None


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, ignored: int) -> torch.Tensor:
    """`torch.nn.functional.cross_entropy` of each row, with the same bits; that of a row with label `ignored` is 0."""
    if logits.device.type == "cpu" and logits.dtype == torch.float32 and 0 < logits.shape[1] <= _FEW_CLASSES:
        result: torch.Tensor = _FewClasses.apply(logits, labels, ignored)
        return result
    return functional.cross_entropy(logits, labels, reduction="none", ignore_index=ignored)


def _divisible(count: int, width: int) -> int:
    """The least number of rows from `count` on that torch's threads share without a remainder."""
    while count % min(torch.get_num_threads(), max(1, -(-count * width // _LEAST_SHARE))):
        count += 1
    return count


def linear(inputs: Rows, outputs: int) -> nn.Module:
    """The linear layer for these inputs, sparse or dense; without any inputs it is its bias alone."""
    if isinstance(inputs, SparseRows):
        return inputs.layer(outputs)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors is a no-op", UserWarning)
        return Linear(int(inputs.shape[1]), outputs)
