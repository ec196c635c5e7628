"""Sums of clipped per-row gradients without per-row gradients.

For a linear layer with input a and output gradient d, row i's gradient is d_i a_i^T: its norm is |d_i| |a_i|, and the
sum over rows of s_i d_i a_i^T is one product ("ghost clipping", Li et al. 2022, arXiv:2110.05679, and book-keeping,
Bu et al. 2023, arXiv:2210.00038). So one backward pass to the layers' outputs gives both the norms and the clipped
sum; for sparse rows the product is sparse, and no tensor of batch x inputs x outputs ever exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from graphveil.errors import InvalidInput
from graphveil.mechanisms.sparse import Rows, SparseLinear, SparseRows, TransposedSums

# float32 norms are good to about 1e-7; clipping a little lower keeps the promised norm.
_MARGIN = 1 - 1e-6


@dataclass(frozen=True)
class _Call:
    layer: nn.Linear | SparseLinear
    rows: Rows
    output: torch.Tensor


@torch.no_grad()
def clipped_gradient_sum(model: nn.Module, row_losses: Callable[[], torch.Tensor], clip: float) -> list[torch.Tensor]:
    """Sum over rows of the gradient of each row's loss, clipped to norm `clip`; one tensor per trainable parameter.

    `row_losses` runs the model and returns one loss per row. All parameters must belong to linear layers that are used
    once per pass, and no row may influence another's loss.

    Formal guarantee: replacing g rows moves the sum by at most 2 g `clip` in L2.
    """
    sums = _Sums(model)
    for call, scaled in _clipped_outputs(model, row_losses, clip):
        sums.add_bias(call.layer, scaled)
        sums.add(call.layer.weight, _weight_sum(call, scaled))
    return sums.in_order()


class BlockwiseSums:
    """The same sum over many rows, a block of them at a time, step after step.

    What a block needs stays small, and sparse layers write into tensors that are kept: large ones that are returned
    to the system and faulted in again at every step cost more than the arithmetic. A result is valid until the next.
    """

    def __init__(self, model: nn.Module, blocks: Sequence[torch.Tensor], clip: float) -> None:
        self._model, self._blocks, self._clip = model, blocks, clip
        self._sparse: dict[SparseLinear | nn.Linear, TransposedSums] = {}

    @torch.no_grad()
    def __call__(self, row_losses: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        """`row_losses` returns the losses of the rows with these indices."""
        sums = _Sums(self._model)
        for block in self._blocks:
            for call, scaled in _clipped_outputs(self._model, partial(row_losses, block), self._clip):
                sums.add_bias(call.layer, scaled)
                if isinstance(call.rows, SparseRows):
                    if call.layer not in self._sparse:
                        self._sparse[call.layer] = call.rows.transposed_sums()
                    self._sparse[call.layer].add(call.rows, scaled)
                else:
                    sums.add(call.layer.weight, _weight_sum(call, scaled))
        for layer, sparse in self._sparse.items():
            sums.add(layer.weight, sparse.weight_sum(len(self._blocks[0])))
        return sums.in_order()


class _Sums:
    """One sum for each trainable parameter of a model."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = _trainable(model)
        self._sums: dict[int, torch.Tensor] = {}

    def add(self, parameter: torch.Tensor, value: torch.Tensor) -> None:
        found = self._sums.get(id(parameter))
        self._sums[id(parameter)] = value if found is None else found.add_(value)

    def add_bias(self, layer: nn.Linear | SparseLinear, scaled: torch.Tensor) -> None:
        if layer.bias is not None:
            self.add(layer.bias, scaled.sum(0))

    def in_order(self) -> list[torch.Tensor]:
        """As the model lists its parameters; without any row all sums are 0."""
        return [
            self._sums[id(parameter)] if id(parameter) in self._sums else torch.zeros_like(parameter)
            for parameter in self._parameters
        ]


def _clipped_outputs(
    model: nn.Module, row_losses: Callable[[], torch.Tensor], clip: float
) -> list[tuple[_Call, torch.Tensor]]:
    """Each layer's call and the gradients of its outputs, scaled so that each row's whole gradient has norm <= clip."""
    with torch.enable_grad():
        with _recorded(model) as calls:
            losses = row_losses()
        _check(model, calls)
        gradients = torch.autograd.grad(losses.sum(), [call.output for call in calls])
    squared = torch.zeros_like(losses)
    for call, gradient in zip(calls, gradients, strict=True):
        squared += gradient.square().sum(1) * (_squared_norms(call.rows) + (call.layer.bias is not None))
    scale = (clip * _MARGIN / squared.sqrt().clamp_min(1e-30)).clamp_(max=1.0)
    return [(call, gradient * scale[:, None]) for call, gradient in zip(calls, gradients, strict=True)]


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _squared_norms(rows: Rows) -> torch.Tensor:
    return rows.squared_norms if isinstance(rows, SparseRows) else rows.square().sum(1)


def _weight_sum(call: _Call, scaled: torch.Tensor) -> torch.Tensor:
    if isinstance(call.rows, SparseRows):
        return call.rows.weight_sum(scaled)
    return scaled.T @ call.rows


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[_Call]]:
    """Collects each linear layer's input and output during a pass."""
    calls: list[_Call] = []

    def record(layer: Any, inputs: tuple[Rows, ...], output: torch.Tensor) -> None:
        calls.append(_Call(layer, inputs[0], output))

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | SparseLinear)]
    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _check(model: nn.Module, calls: list[_Call]) -> None:
    """Every trainable parameter must be seen exactly once, or its norm would be missing from the clipping."""
    seen = [id(parameter) for call in calls for parameter in call.layer.parameters()]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and seen.count(id(parameter)) != 1:
            raise InvalidInput("model", name, f"is used {seen.count(id(parameter))} times in a pass instead of once")
