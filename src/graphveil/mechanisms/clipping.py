"""Sums of clipped per-row gradients without per-row gradients.

For a linear layer with input a and output gradient d, row i's gradient is d_i a_i^T: its norm is |d_i| |a_i|, and the
sum over rows of s_i d_i a_i^T is one product ("ghost clipping", Li et al. 2022, arXiv:2110.05679, and book-keeping,
Bu et al. 2023, arXiv:2210.00038). So one backward pass to the layers' outputs gives both the norms and the clipped
sum; for sparse rows the product is sparse, and no tensor of batch x inputs x outputs ever exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from graphveil.errors import InvalidInput
from graphveil.mechanisms.sparse import Rows, SparseLinear, SparseRows

# float32 norms are good to about 1e-7; clipping a little lower keeps the promised norm.
_MARGIN = 1 - 1e-6


@dataclass(frozen=True)
class _Call:
    layer: nn.Module
    rows: Rows
    output: torch.Tensor


def clipped_gradient_sum(
    model: nn.Module, row_losses: Callable[[], torch.Tensor], clip: float
) -> list[torch.Tensor]:
    """Sum over rows of the gradient of each row's loss, clipped to norm `clip`; one tensor per trainable parameter.

    `row_losses` runs the model and returns one loss per row. All parameters must belong to linear layers that are used
    once per pass, and no row may influence another's loss.

    Formal guarantee: replacing g rows moves the sum by at most 2 g `clip` in L2.
    """
    with _recorded(model) as calls:
        losses = row_losses()
    _check(model, calls)
    if losses.numel() == 0:
        return [torch.zeros_like(parameter) for parameter in _trainable(model)]
    gradients = torch.autograd.grad(losses.sum(), [call.output for call in calls])
    with torch.no_grad():
        squared = torch.zeros_like(losses)
        for call, gradient in zip(calls, gradients, strict=True):
            squared += gradient.square().sum(1) * (_squared_norms(call.rows) + (call.layer.bias is not None))
        scale = (clip * _MARGIN / squared.sqrt().clamp_min(1e-30)).clamp_(max=1.0)
        sums: dict[int, torch.Tensor] = {}
        for call, gradient in zip(calls, gradients, strict=True):
            scaled = gradient * scale[:, None]
            sums[id(call.layer.weight)] = _weight_sum(call, scaled)
            if call.layer.bias is not None:
                sums[id(call.layer.bias)] = scaled.sum(0)
    return [sums[id(parameter)] for parameter in _trainable(model)]


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _squared_norms(rows: Rows) -> torch.Tensor:
    return rows.squared_norms if isinstance(rows, SparseRows) else rows.square().sum(1)


def _weight_sum(call: _Call, scaled: torch.Tensor) -> torch.Tensor:
    if isinstance(call.rows, SparseRows):
        return call.rows.transposed_times(scaled)
    return scaled.T @ call.rows


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[_Call]]:
    """Collects each linear layer's input and output during a pass."""
    calls: list[_Call] = []

    def record(layer: nn.Module, inputs: tuple[Rows, ...], output: torch.Tensor) -> None:
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
