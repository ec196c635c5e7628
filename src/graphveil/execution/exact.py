"""Exact sums, which do not depend on order, blocks, threads or processes.

A floating-point sum rounds relative to its partial sums, not to its sensitivity: one changed term can move it by far
more than the term's size (docs/theory.md, section 8.4). Here every term is a multiple of a step that follows from
public facts, and the sum of all absolute values stays below 2^53 steps. Then no addition in float64 rounds, in any
order, and the bounds of `graphveil.privacy.sensitivity` hold on the machine as they do on paper.
"""

from __future__ import annotations

import torch

from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.execution.sums import column_sums, rounded_rows, row_lengths
from graphveil.privacy.lattice import table_step

# A row is shortened to a little less than its bound, which covers the rounding of its length and of the scaling.
INWARD = 1 - 1e-6
# Rows of a table, or of a layer's input, that are converted to float64 at a time.
_ROWS_AT_ONCE = 2**11
# Longer inputs of a layer, and longer or shorter rows of a table, count as zero: their factors would leave the range of
# float32.
_LONGEST_INPUT = 2.0**60
_SHORTEST_ROW, _LONGEST_ROW = 2.0**-100, 2.0**120


class Scratch:
    """Memory for a few rows in float64, kept between calls: new memory costs more than the conversion."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], torch.Tensor] = {}

    def double(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """These rows in float64; valid until the next call with this name."""
        if rows.dtype == torch.float64:
            return rows
        key = name, rows.shape[1]
        if key not in self._kept:
            self._kept[key] = torch.empty(_ROWS_AT_ONCE, rows.shape[1], dtype=torch.float64, device=rows.device)
        return self._kept[key][: len(rows)].copy_(rows)


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
        rounded = rounded_rows(rows.float(), factors.float(), torch.full_like(lengths, step, dtype=torch.float32))
        return rounded if bool(usable.all()) else torch.where(usable[:, None], rounded, 0.0)

    def product(self, rows: SparseRows, table: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """rows @ table in float64, for entries and a table on a lattice."""
        return rows.exact_times(table, out)

    def transposed_product(self, rows: SparseRows, table: torch.Tensor) -> torch.Tensor:
        """rows^T @ table in float64, likewise."""
        return rows.exact_transposed_times(table)

    def add_outer(self, total: torch.Tensor, outputs: torch.Tensor, inputs: torch.Tensor, scratch: Scratch) -> None:
        """Add outputs^T @ inputs to `total`, for factors on a `lattice.GradientLattice`."""
        for some, others in zip(outputs.split(_ROWS_AT_ONCE), inputs.split(_ROWS_AT_ONCE), strict=True):
            total.addmm_(scratch.double("outputs", some).T, scratch.double("inputs", others))

    def total(self, rows: torch.Tensor) -> torch.Tensor:
        """The sum of rows that are on a lattice."""
        return column_sums(rows)


EXACT = Arithmetic()


def input_scales(lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For inputs of these lengths: the s of `lattice.GradientLattice`, and whether the row takes part.

    Args:
        lengths: of (a, 1), in float64.
    """
    usable = lengths <= _LONGEST_INPUT  # False for NaN
    _, exponents = torch.frexp(torch.where(usable, lengths, 1.0))
    return torch.ldexp(torch.ones_like(lengths), exponents), usable


def on_steps(
    rows: torch.Tensor, steps: torch.Tensor, scales: torch.Tensor | None = None, *, in_place: bool = False
) -> torch.Tensor:
    """float32 rows, each rounded towards zero to multiples of its own step, a power of two; after scaling, if asked."""
    factors = 1 / steps if scales is None else scales / steps
    return rounded_rows(rows, factors.float(), steps.float(), in_place=in_place)
