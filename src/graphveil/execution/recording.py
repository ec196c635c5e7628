"""What goes into a model's linear layers and comes out of them during one pass, and the gradients of what comes out.

The gradient of a linear layer is the sum over rows of an outer product, of the gradient of the row's output and of its
input. So these gradients are all that a backward pass has to find; `clipping` and `gradients` make the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphveil.errors import InvalidInput
from graphveil.execution.sparse_rows import Rows, SparseLinear

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
