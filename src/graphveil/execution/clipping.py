"""Exact sums of clipped per-row gradients, without storing per-row gradients.

For a linear layer with input a and output gradient d, row i's gradient is d_i a_i^T: its norm is |d_i| |a_i|, and the
sum over rows of s_i d_i a_i^T is one product ("ghost clipping", Li et al. 2022, arXiv:2110.05679, and book-keeping,
Bu et al. 2023, arXiv:2210.00038). So one backward pass to the layers' outputs gives both the norms and the clipped
sum. For sparse rows the product is sparse, and no tensor of batch x inputs x outputs is ever made.

What row i adds to the sum depends on row i alone and is computed in float32. Its factors are then rounded to lattices
(`privacy.lattice.GradientLattice`), so that the products and the sum over rows are exact.
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
from graphveil.execution.exact import EXACT, INWARD, Arithmetic, Scratch, input_scales, on_steps
from graphveil.execution.sparse_rows import Rows, SparseLinear, SparseRows, TransposedSums
from graphveil.privacy.lattice import GradientLattice

Layer = nn.Linear | SparseLinear

# How many numbers of constant inputs are cached in float64: 256 MiB.
_KEPT_IN_DOUBLE = 2**25


@dataclass(frozen=True)
class _Call:
    layer: Layer
    rows: Rows
    output: torch.Tensor


@dataclass(frozen=True)
class _Input:
    """A layer's input, each row on its own lattice; `scales` are the s of `GradientLattice`.

    `lengths` are the norms of (a, 1) before rounding; `usable` says which rows take part.
    """

    rows: Rows
    lengths: torch.Tensor
    scales: torch.Tensor
    usable: torch.Tensor


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
        self._room = _KEPT_IN_DOUBLE
        self._scratch = Scratch()
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
            self._add_bias(sums, call.layer, taken, outputs)
            if isinstance(taken.rows, SparseRows):
                sums[id(call.layer.weight)] = self._arithmetic.transposed_product(taken.rows, outputs)
            else:
                self._arithmetic.add_outer(sums[id(call.layer.weight)], outputs, taken.rows, self._scratch)
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
                self._add_bias(sums, call.layer, taken, outputs)
                if isinstance(taken.rows, SparseRows):
                    if call.layer not in self._sparse:
                        self._sparse[call.layer] = taken.rows.transposed_sums(self._arithmetic.product)
                    self._sparse[call.layer].add(taken.rows, outputs)
                else:
                    self._arithmetic.add_outer(sums[id(call.layer.weight)], outputs, taken.rows, self._scratch)
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

    def _add_bias(self, sums: dict[int, torch.Tensor], layer: Layer, taken: _Input, outputs: torch.Tensor) -> None:
        """Add the gradient of a layer's bias, whose input is 1.

        1 is on the lattice of the inputs unless the row is very long; such a row adds nothing to the bias.
        """
        if layer.bias is None:
            return
        counted = taken.scales <= 2.0**self.lattice.input_bits
        if not bool(counted.all()):
            outputs = outputs * counted[:, None]
        sums[id(layer.bias)] += self._arithmetic.total(outputs)

    def _clipped(self, row_losses: Callable[[], torch.Tensor]) -> list[tuple[_Call, _Input, torch.Tensor]]:
        """Each layer's call, its input and the gradients of its outputs, both on their lattices.

        The gradients are scaled so that each row's whole gradient has norm at most `clip`.
        """
        with torch.enable_grad():
            with _recorded(self._model) as calls:
                losses = row_losses()
            gradients = torch.autograd.grad(losses.sum(), [call.output for call in calls])
        taken = [self._taken(call.rows) for call in calls]
        squared = torch.zeros_like(losses, dtype=torch.float64)
        usable = torch.ones_like(losses, dtype=torch.bool)
        for each, gradient in zip(taken, gradients, strict=True):
            squared += (self._arithmetic.lengths(gradient) * each.lengths).square_()
            usable &= each.usable
        usable &= squared.isfinite()
        scale = (self._clip * INWARD / squared.sqrt_().clamp_min_(1e-300)).clamp_(max=1.0)
        # Nobody else reads a gradient, unless two layers share it: new memory costs more than the rounding.
        places = [gradient.data_ptr() for gradient in gradients]
        return [
            (call, each, self._outputs(each, gradient, scale, usable, in_place=places.count(gradient.data_ptr()) == 1))
            for call, each, gradient in zip(calls, taken, gradients, strict=True)
        ]

    def _taken(self, rows: Rows) -> _Input:
        """The input of a layer on its lattice; inputs that do not depend on weights are cached while they exist."""
        constant = isinstance(rows, SparseRows) or not rows.requires_grad
        if constant and rows in self._inputs:
            kept: _Input = self._inputs[rows]
            return kept
        bits = self.lattice.input_bits
        plain = rows if isinstance(rows, SparseRows) else rows.detach()
        lengths = (self._arithmetic.lengths(plain).square_() + 1).sqrt_()
        scales, usable = input_scales(lengths)
        if isinstance(rows, SparseRows):
            if rows.binary:  # rounding towards zero leaves 1 as it is, or makes it 0
                usable &= scales <= 2.0**bits
                taken = _Input(rows, lengths, scales, usable)
            else:
                taken = _Input(rows.rounded(scales * 2.0**-bits, usable), lengths, scales, usable)
        else:
            rounded = _without(on_steps(rows.detach(), scales * 2.0**-bits), usable)
            if constant and rounded.numel() <= self._room:  # convert once instead of at every step
                self._room -= rounded.numel()
                rounded = rounded.double()
            taken = _Input(rounded, lengths, scales, usable)
        if constant:
            self._inputs[rows] = taken
        return taken

    def _outputs(
        self, taken: _Input, gradient: torch.Tensor, scale: torch.Tensor, usable: torch.Tensor, *, in_place: bool
    ) -> torch.Tensor:
        steps = self.lattice.step * 2.0**self.lattice.input_bits / taken.scales
        rounded = on_steps(gradient, steps, scale, in_place=in_place)
        return _without(rounded, usable & (scale / steps).float().isfinite())


def _without(rows: torch.Tensor, usable: torch.Tensor) -> torch.Tensor:
    """Rows that take no part become zero."""
    return rows if bool(usable.all()) else torch.where(usable[:, None], rows, 0.0)


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[_Call]]:
    """Collects each linear layer's input and output during a pass.

    Parameters need no gradients meanwhile, so that the backward pass computes those of outputs alone. At the end each
    trainable parameter must have been seen exactly once, or its norm would be missing from the clipping.
    """
    calls: list[_Call] = []

    def record(layer: Any, inputs: tuple[Rows, ...], output: torch.Tensor) -> torch.Tensor:
        output = output if output.requires_grad else output.detach().requires_grad_()
        calls.append(_Call(layer, inputs[0], output))
        return output

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | SparseLinear)]
    handles = [layer.register_forward_hook(record) for layer in layers]
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for parameter in trainable.values():
        parameter.requires_grad_(False)
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
        for parameter in trainable.values():
            parameter.requires_grad_()
    seen = [id(parameter) for call in calls for parameter in call.layer.parameters()]
    for name, parameter in trainable.items():
        if seen.count(id(parameter)) != 1:
            raise InvalidInput("model", name, f"is used {seen.count(id(parameter))} times in a pass instead of once")
