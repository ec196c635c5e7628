"""Layers whose result for a row does not depend on the number of rows, or on the row's place among them.

Libraries compute matrix products of different shapes by different routines, whose last bits differ: rows at odd places,
few rows, few columns. Training on several processes divides rows differently from training on one, and must give the
same bits. Products of at least 16 columns and 16 rows are computed alike for each row (tested); smaller ones are padded
with zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

_LEAST_ROWS, _LEAST_COLUMNS = 16, 16


def product(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """rows @ matrix."""
    count, columns = len(rows), matrix.shape[1]
    if columns >= _LEAST_COLUMNS and count >= _LEAST_ROWS:
        return rows @ matrix
    if columns < _LEAST_COLUMNS:
        matrix = functional.pad(matrix, (0, _LEAST_COLUMNS - columns))
    if count < _LEAST_ROWS:
        rows = functional.pad(rows, (0, 0, 0, _LEAST_ROWS - count))
    return (rows @ matrix)[:count, :columns].contiguous()


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
    found: torch.Tensor = _Product.apply(rows, matrix)
    return found


class Linear(nn.Linear):
    """`torch.nn.Linear`, row by row."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return times(input, self.weight.T) + self.bias


# The constants of Klambauer et al. 2017 (arXiv:1706.02515), as torch has them.
_SCALE, _ALPHA = 1.0507009873554805, 1.6732632423543772
# How many numbers a vector routine takes at a time; a remainder at the end is computed by another routine.
_AT_ONCE = 32


class _Selu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        count, columns = rows.shape
        missing = (0, -columns % _AT_ONCE, 0, -count % torch.get_num_threads())
        if any(missing):
            found = functional.selu(functional.pad(rows, missing))[:count, :columns].contiguous()
        else:
            found = functional.selu(rows)
        ctx.save_for_backward(found)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """From the result, without an exponential: for x <= 0, scale * alpha * e^x is result + scale * alpha."""
        (found,) = ctx.saved_tensors
        slopes: torch.Tensor = torch.ops.aten.elu_backward(gradients[0], _ALPHA, _SCALE, 1, True, found)
        return slopes


def selu(rows: torch.Tensor) -> torch.Tensor:
    """`torch.nn.functional.selu`, row by row: rows are padded so that there is no remainder."""
    found: torch.Tensor = _Selu.apply(rows)
    return found
