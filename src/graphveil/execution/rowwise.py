"""Layers whose result for a row does not depend on the number of rows, or on the row's place among them.

Libraries compute matrix products of different shapes by different routines, whose last bits differ: rows at odd places,
few rows, few columns, columns at the end of a thread's share. Training on several processes or threads divides rows and
columns differently from training on one, and must give the same bits. Products of at least 16 rows and a multiple of 16
columns are computed alike for each row (tested); others are padded with zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

_LEAST_ROWS, _COLUMNS = 16, 16


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


# The constants of Klambauer et al. 2017 (arXiv:1706.02515), as torch has them.
_SCALE, _ALPHA = 1.0507009873554805, 1.6732632423543772
# How many numbers a vector routine takes at a time; a remainder at the end is computed by another routine, and so is
# that of each thread. Torch gives a thread at least so many numbers.
_AT_ONCE, _LEAST_SHARE = 32, 2**15


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
