"""Exact sums of clipped per-row gradients, without storing per-row gradients.

For a linear layer with input a and output gradient d, row i's gradient is d_i a_i^T: its norm is |d_i| |a_i|, and the
sum over rows of s_i d_i a_i^T is one product ("ghost clipping", Li et al. 2022, arXiv:2110.05679, and book-keeping,
Bu et al. 2023, arXiv:2210.00038). So one backward pass to the layers' outputs gives both the norms and the clipped
sum. For sparse rows the product is sparse, and no tensor of batch x inputs x outputs is ever made.

What row i adds to the sum depends on row i alone and is computed in float32. Its factors are then rounded to lattices
(`privacy.lattice.GradientLattice`), so that the products and the sum over rows are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from graphveil.execution.exact import EXACT, INWARD, Arithmetic, power_above
from graphveil.execution.recording import Call, Layer, recorded_pass
from graphveil.execution.sparse_rows import Rows, SparseLinear, SparseRows, TransposedSums
from graphveil.execution.sums import ByRow, Factor
from graphveil.privacy.lattice import GradientLattice

# Longer inputs of a layer count as zero: their factors would leave the range of float32.
_LONGEST_INPUT = 2.0**60


@dataclass(frozen=True)
class _Input:
    """What is known about a layer's input, whose rows are each on a lattice; `scales` are the s of `GradientLattice`.

    `rounded` are sparse rows on their lattices, None where they are as they are, or how to round dense ones. `lengths`
    are the norms of (a, 1) before rounding; `usable` says which rows take part, and `counted` which of them do in the
    gradient of the bias, whose input is 1: 1 is on the lattice unless the row is very long.
    """

    rounded: SparseRows | ByRow | None
    lengths: torch.Tensor
    scales: torch.Tensor
    usable: torch.Tensor
    counted: torch.Tensor | None  # None: all

    def on_lattice(self, rows: Rows) -> SparseRows | Factor:
        """The input itself, which is not kept here, so that it can end."""
        if isinstance(rows, SparseRows):
            return self.rounded if isinstance(self.rounded, SparseRows) else rows
        assert isinstance(self.rounded, ByRow)
        return Factor(rows.detach(), self.rounded)


class ClippedSums:
    """Sums over rows of the gradient of each row's loss, clipped to norm `clip`: one float64 tensor per parameter.

    All parameters must belong to linear layers that are used once per pass, and no row may influence another's loss.

    Args:
        model: the layers whose parameters are trained.
        clip: the norm to which a row's gradient is shortened.
        most_rows: how many rows can enter a sum; a public fact, from which the lattice follows.
        arithmetic: how sums are made.

    Formal guarantee (docs/theory.md, section 8.4): the sum of rows is exact, whatever their order, blocks and threads.
    A row whose pass is not finite adds nothing. Replacing g rows moves the sum by at most 2 g `clip` in L2.
    """

    def __init__(self, model: nn.Module, clip: float, most_rows: int, arithmetic: Arithmetic = EXACT) -> None:
        self._model, self._clip, self._arithmetic = model, clip, arithmetic
        self.lattice = GradientLattice(clip, max(1, most_rows))
        self._inputs = WeakIdKeyDictionary()
        self._sparse: dict[Layer, TransposedSums] = {}

    @torch.no_grad()
    def of(self, row_losses: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
        """The sum over one batch.

        Args:
            row_losses: Runs the model and returns one loss for each row.

        Returns:
            One float64 tensor for each parameter, in the model's order.
        """
        sums = self._zeros()
        for call, taken, outputs in self._clipped(row_losses):
            inputs = taken.on_lattice(call.rows)
            if isinstance(inputs, SparseRows):
                rounded = outputs.rounded()
                sums[id(call.layer.weight)] = self._arithmetic.transposed_product(inputs, rounded)
                self._add_bias(sums, call.layer, taken, rounded)
            else:
                self._add_dense(sums, call.layer, taken, inputs, outputs)
        return list(sums.values())

    @torch.no_grad()
    def over(
        self, blocks: Sequence[torch.Tensor], row_losses: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[torch.Tensor]:
        """The sum over all rows of `blocks`, which must be the same at every step.

        Only one block is worked on at a time. Sparse layers write into tensors that are reused at every step:
        allocating large tensors anew costs more time than the arithmetic.

        Args:
            blocks: Indices of rows.
            row_losses: Runs the model on the rows of a block and returns one loss for each.

        Returns:
            One float64 tensor for each parameter, in the model's order, valid until the next call.
        """
        sums = self._zeros()
        for block in blocks:
            for call, taken, outputs in self._clipped(partial(row_losses, block)):
                inputs = taken.on_lattice(call.rows)
                if isinstance(inputs, SparseRows):
                    if call.layer not in self._sparse:
                        self._sparse[call.layer] = inputs.transposed_sums(self._arithmetic.product)
                    rounded = self._sparse[call.layer].add(inputs, outputs)
                    self._add_bias(sums, call.layer, taken, rounded)
                else:
                    self._add_dense(sums, call.layer, taken, inputs, outputs)
        for layer, sparse in self._sparse.items():
            sums[id(layer.weight)] = sparse.weight_sum()
        return list(sums.values())

    def _zeros(self) -> dict[int, torch.Tensor]:
        """A zero for each trainable parameter, in the model's order; sparse layers fill in theirs later."""
        sparse = {id(layer.weight) for layer in self._model.modules() if isinstance(layer, SparseLinear)}
        trainable = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        return {
            id(each): each.new_zeros((0, 0) if id(each) in sparse else each.shape, dtype=torch.float64)
            for each in trainable
        }

    def _add_dense(
        self, sums: dict[int, torch.Tensor], layer: Layer, taken: _Input, inputs: Factor, outputs: Factor
    ) -> None:
        together = layer.bias is not None and taken.counted is None
        bias = sums[id(layer.bias)] if together else None
        self._arithmetic.add_outer(sums[id(layer.weight)], outputs, inputs, bias)
        if not together:
            self._add_bias(sums, layer, taken, outputs.rounded())

    def _add_bias(self, sums: dict[int, torch.Tensor], layer: Layer, taken: _Input, rounded: torch.Tensor) -> None:
        if layer.bias is not None:
            counted = rounded if taken.counted is None else rounded * taken.counted[:, None]
            sums[id(layer.bias)] += self._arithmetic.total(counted)

    def _clipped(self, row_losses: Callable[[], torch.Tensor]) -> list[tuple[Call, _Input, Factor]]:
        """Each layer's call, its input and the gradients of its outputs, both on their lattices.

        The gradients are scaled so that each row's whole gradient has norm at most `clip`.
        """
        calls, losses = recorded_pass(self._model, row_losses)
        taken = [self._taken(call.rows) for call in calls]
        squared = torch.zeros_like(losses, dtype=torch.float64)
        usable = torch.ones_like(losses, dtype=torch.bool)
        for each, call in zip(taken, calls, strict=True):
            squared += (self._arithmetic.lengths(call.gradient) * each.lengths).square_()
            usable &= each.usable
        usable &= squared.isfinite()
        scale = (self._clip * INWARD / squared.sqrt_().clamp_min_(1e-300)).clamp_(max=1.0)
        return [
            (call, each, self._outputs(each, call.gradient, scale, usable))
            for call, each in zip(calls, taken, strict=True)
        ]

    def _taken(self, rows: Rows) -> _Input:
        """What is known about a layer's input; where it does not depend on weights this is kept while it exists."""
        constant = isinstance(rows, SparseRows) or not rows.requires_grad
        if constant and rows in self._inputs:
            kept: _Input = self._inputs[rows]
            return kept
        bits = self.lattice.input_bits
        plain = rows if isinstance(rows, SparseRows) else rows.detach()
        lengths = (self._arithmetic.lengths(plain).square_() + 1).sqrt_()
        usable = lengths <= _LONGEST_INPUT  # False for NaN
        scales = power_above(torch.where(usable, lengths, 1.0))
        counted = scales <= 2.0**bits
        steps = scales * 2.0**-bits
        rounded: SparseRows | ByRow | None = None
        if not isinstance(plain, SparseRows):
            rounded = _by_row(steps, 1 / steps, usable)
        elif plain.binary:  # rounding towards zero leaves 1 as it is, or makes it 0
            usable = usable & counted
        else:
            rounded = plain.rounded(steps, usable)
        taken = _Input(rounded, lengths, scales, usable, None if bool(counted.all()) else counted)
        if constant:
            self._inputs[rows] = taken
        return taken

    def _outputs(self, taken: _Input, gradient: torch.Tensor, scale: torch.Tensor, usable: torch.Tensor) -> Factor:
        steps = self.lattice.step * 2.0**self.lattice.input_bits / taken.scales
        return Factor(gradient, _by_row(steps, scale / steps, usable))


def _by_row(steps: torch.Tensor, factors: torch.Tensor, usable: torch.Tensor) -> ByRow:
    """Rounding to multiples of `steps` after division by them; rows that are not usable become zero."""
    factors = factors.float()
    return ByRow(torch.where(usable & factors.isfinite(), factors, 0.0), steps.float())


@torch.no_grad()
def clipped_row_sum(rows: torch.Tensor, clip: float, most_rows: int) -> torch.Tensor:
    """The exact sum of rows that are shortened to norm `clip`, for gradients of so few parameters that they fit.

    Args:
        rows: One gradient for each row, in float64.
        clip: The largest norm.
        most_rows: How many rows can enter a sum; a public fact, from which the lattice follows.

    Formal guarantee (docs/theory.md, section 8.4): as that of `ClippedSums`. Entries are rounded towards zero.
    """
    lengths = torch.linalg.vector_norm(rows, dim=1)
    usable = lengths.isfinite()
    factors = (clip * INWARD / lengths.clamp_min(1e-300)).clamp_max(1.0)
    step = GradientLattice(clip, max(1, most_rows)).step
    scaled = torch.where(usable[:, None], rows * factors[:, None], 0.0) / step
    return scaled.trunc().long().sum(0).double() * step
