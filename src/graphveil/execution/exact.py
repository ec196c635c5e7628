"""Exact sums, which do not depend on order, blocks, threads or processes.

A floating-point sum rounds relative to its partial sums, not to its sensitivity: one changed term can move it by far
more than the term's size (docs/theory.md, section 8.4). Here every term is a multiple of a step that follows from
public facts, and the sum of all absolute values stays below 2^53 steps. Then no addition in float64 rounds, in any
order, and the bounds of `graphveil.privacy.sensitivity` hold on the machine as they do on paper.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.execution.sums import ByRow, Factor, add_outer, column_largest, column_sums, row_lengths
from graphveil.privacy.lattice import bits_of, table_step

# A row is shortened to a little less than its bound, which covers the rounding of its length and of the scaling.
INWARD = 1 - 1e-6
# Longer or shorter rows of a table count as zero: their factors would leave the range of float32.
_SHORTEST_ROW, _LONGEST_ROW = 2.0**-100, 2.0**120
# More bits than this cannot be kept by adding and subtracting a shift.
_NEAREST_BITS = 51


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
        """Rows of norm at most `norm` on the lattice of `lattice.table_step`, in float32.

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
