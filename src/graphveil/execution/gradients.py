"""Exact sums of the gradients of rows, clipped or not, without storing the gradient of any row.

For a linear layer with input a and output gradient d, row i's gradient is d_i a_i^T: its norm is |d_i| |a_i|, and the
sum over rows of s_i d_i a_i^T is one product ("ghost clipping", Li et al. 2022, arXiv:2110.05679, and book-keeping,
Bu et al. 2023, arXiv:2210.00038). So one backward pass to the layers' outputs gives both the norms and the sum. For
sparse rows the product is sparse, and no tensor of batch x inputs x outputs is ever made.

- `recorded_pass`: each layer's input and the gradient of its output, in one pass.
- `ClippedSums`, for private training: what row i adds to the sum depends on row i alone and is computed in float32. Its
  factors are then rounded to public lattices (`mechanisms.GradientLattice`), so that products and sum are exact.
- `ExactGradients`, for training that needs no protection. A sum in float32 depends on the order of its terms, which
  libraries choose by the number of threads. So the factors are rounded first, to as many bits below the largest entry
  of their column as leave the sum over all rows exact in float64: about 20 bits for 10,000 rows. Nothing here is
  private, so these lattices may depend on the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from graphveil.errors import InvalidInput
from graphveil.execution.exact import EXACT, INWARD, Arithmetic, nearest_shifts, power_above
from graphveil.execution.sparse_rows import Rows, SparseLinear, SparseRows, TransposedSums
from graphveil.execution.sums import ByColumn, ByRow, Factor, add_outer, column_largest, column_sums
from graphveil.privacy.mechanisms import GradientLattice, bits_of

Layer = nn.Linear | SparseLinear


@dataclass(frozen=True)
class Call:
    """One use of a layer: its input, and the gradient of the sum of all losses with respect to its output."""

    layer: Layer
    rows: Rows
    gradient: torch.Tensor


def recorded_pass(model: nn.Module, row_losses: Callable[[], torch.Tensor]) -> tuple[list[Call], torch.Tensor]:
    """The calls of all linear layers in one forward and backward pass, and the losses.

    Args:
        model: All its trainable parameters must belong to linear layers that are used once per pass.
        row_losses: Runs the model and returns one loss for each row.
    """
    with torch.enable_grad():
        with _recorded(model) as uses:
            losses = row_losses()
        gradients = torch.autograd.grad(losses.sum(), [output for _, _, output in uses])
    calls = [Call(layer, rows, gradient) for (layer, rows, _), gradient in zip(uses, gradients, strict=True)]
    return calls, losses


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[tuple[Layer, Rows, torch.Tensor]]]:
    """Collects each linear layer's input and output during a pass.

    Parameters need no gradients meanwhile, so that the backward pass computes those of outputs alone. At the end each
    trainable parameter must have been seen exactly once, or its gradient would be missing.
    """
    uses: list[tuple[Layer, Rows, torch.Tensor]] = []

    def record(layer: Any, inputs: tuple[Rows, ...], output: torch.Tensor) -> torch.Tensor:
        output = output if output.requires_grad else output.detach().requires_grad_()
        uses.append((layer, inputs[0], output))
        return output

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | SparseLinear)]
    handles = [layer.register_forward_hook(record) for layer in layers]
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for parameter in trainable.values():
        parameter.requires_grad_(False)
    try:
        yield uses
    finally:
        for handle in handles:
            handle.remove()
        for parameter in trainable.values():
            parameter.requires_grad_()
    seen = [id(parameter) for layer, _, _ in uses for parameter in layer.parameters()]
    for name, parameter in trainable.items():
        if seen.count(id(parameter)) != 1:
            raise InvalidInput("model", name, f"is used {seen.count(id(parameter))} times in a pass instead of once")


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
        """The input `rows` on its lattice. It is handed in again and not kept, so that its memory can be freed."""
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
    def of(self, row_losses: Callable[[], torch.Tensor], weights: torch.Tensor | None = None) -> list[torch.Tensor]:
        """The sum over one batch.

        Args:
            row_losses: Runs the model and returns one loss for each row.
            weights: What each row's clipped gradient is multiplied by, at most 1; larger numbers count as 1.

        Returns:
            One float64 tensor for each parameter, in the model's order.
        """
        sums = self._zeros()
        for call, taken, outputs in self._clipped(row_losses, weights):
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
        self,
        blocks: Sequence[torch.Tensor],
        row_losses: Callable[[torch.Tensor], torch.Tensor],
        weights_of: Callable[[torch.Tensor], torch.Tensor | None] = lambda block: None,
    ) -> list[torch.Tensor]:
        """The sum over all rows of `blocks`, which must be the same at every step.

        Only one block is worked on at a time. Sparse layers write into tensors that are reused at every step:
        allocating large tensors anew costs more time than the arithmetic.

        Args:
            blocks: Indices of rows.
            row_losses: Runs the model on the rows of a block and returns one loss for each.
            weights_of: For the rows of a block, what `of` calls weights.

        Returns:
            One float64 tensor for each parameter, in the model's order, valid until the next call.
        """
        sums = self._zeros()
        for block in blocks:
            for call, taken, outputs in self._clipped(partial(row_losses, block), weights_of(block)):
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

    def _clipped(
        self, row_losses: Callable[[], torch.Tensor], weights: torch.Tensor | None
    ) -> list[tuple[Call, _Input, Factor]]:
        """Each layer's call, its input and the gradients of its outputs, both on their lattices.

        The gradients are scaled so that each row's whole gradient has norm at most `clip`, or a part of it by weight.
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
        if weights is not None:
            scale *= weights.clamp(0, 1)
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


# float32 holds the rounded factors, float64 the sums of their products.
_FACTOR_BITS, _SUM_BITS = 24, 53

# Joins the tensors that all processes give into one, such as their sum.
Together = Callable[[torch.Tensor], torch.Tensor]


class ExactGradients:
    """The gradient of the sum of all rows' losses: one float32 tensor per parameter.

    All parameters must belong to linear layers that are used once per pass. Every pass must be over the same rows.

    Args:
        model: the layers whose parameters are trained.
        count: the number of losses, those of other processes included.
        largest, total: the largest value, and the sum, of what all processes give.
    """

    def __init__(self, model: nn.Module, count: int, largest: Together, total: Together) -> None:
        self._model, self._count, self._largest, self._total = model, count, largest, total
        self._shifts = WeakIdKeyDictionary()  # how to round each input, as long as the input exists
        self._sparse: dict[Layer, TransposedSums] = {}

    @torch.no_grad()
    def of(self, row_losses: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
        """The gradients after one pass.

        Args:
            row_losses: Runs the model and returns one loss for each row.

        Returns:
            One tensor for each trainable parameter, in the model's order.
        """
        calls, _ = recorded_pass(self._model, row_losses)
        sums: dict[int, torch.Tensor] = {}
        for call, outputs in zip(calls, self._outputs(calls), strict=True):
            layer, rows, shifts = call.layer, call.rows, self._shifts[call.rows]
            if isinstance(rows, SparseRows):
                if layer not in self._sparse:
                    self._sparse[layer] = rows.transposed_sums(EXACT.product)
                    rows = rows.rounded_to_nearest(shifts)
                sums[id(layer.bias)] = column_sums(self._sparse[layer].add(rows, outputs))
                sums[id(layer.weight)] = self._sparse[layer].weight_sum()
            else:
                weight, bias = (torch.zeros_like(each, dtype=torch.float64) for each in (layer.weight, layer.bias))
                add_outer(weight, outputs, Factor(rows.detach(), ByColumn(shifts)), bias)
                sums |= {id(layer.weight): weight, id(layer.bias): bias}
        trainable = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        return [self._total(sums[id(parameter)]).float() for parameter in trainable]

    def _outputs(self, calls: list[Call]) -> list[Factor]:
        """The gradients of the calls' outputs, with how to round them; how to round inputs is kept for later passes."""
        bits = _SUM_BITS - bits_of(max(self._count, *(len(call.gradient) for call in calls)))
        input_bits = min(_FACTOR_BITS, bits // 2)
        output_bits = min(_FACTOR_BITS, bits - input_bits)
        new = [rows for rows in {id(call.rows): call.rows for call in calls}.values() if rows not in self._shifts]
        sizes = [_column_largest(rows) for rows in (*new, *(call.gradient for call in calls))]
        inputs, outputs = self._largest(torch.cat(sizes)).tensor_split([sum(len(each) for each in sizes[: len(new)])])
        shifts = torch.cat([nearest_shifts(inputs, input_bits), nearest_shifts(outputs, output_bits)])
        each = iter(shifts.split([len(each) for each in sizes]))
        self._shifts.update((rows, next(each)) for rows in new)
        return [Factor(call.gradient, ByColumn(next(each))) for call in calls]


def _column_largest(rows: Rows) -> torch.Tensor:
    return rows.column_largest() if isinstance(rows, SparseRows) else column_largest(rows)
