"""Sparse rows as the input of a linear layer: one sparse product forward, one back, nothing dense in their width."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from graphveil.graph.adjacency import as_torch


class SparseRows:
    """Rows of a sparse matrix with what training needs: both products and the squared norm of each row."""

    def __init__(self, matrix: sp.csr_array, device: torch.device | str = "cpu") -> None:
        matrix = sp.csr_array(matrix).astype(np.float32, copy=False)
        self.matrix, self.device = matrix, device
        self.shape = matrix.shape
        self._forward = as_torch(matrix).to(device)
        self._backward: torch.Tensor | None = None
        self._taken: tuple[torch.Tensor, SparseRows] | None = None
        squares = np.asarray(matrix.multiply(matrix).sum(axis=1)).reshape(-1)
        self.squared_norms = torch.from_numpy(squares.astype(np.float32)).to(device)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: torch.Tensor) -> SparseRows:
        """Some of the rows; the last answer is kept: a full-batch training asks for the same ones every step."""
        if self._taken is None or self._taken[0] is not rows:
            self._taken = (rows, SparseRows(self.matrix[rows.cpu().numpy()], self.device))
        return self._taken[1]

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        return self._forward @ weight

    def product(self, weight: torch.Tensor) -> torch.Tensor:
        """`times` with a gradient for `weight`."""
        product: torch.Tensor = _Product.apply(weight, self)
        return product

    def transposed_times(self, value: torch.Tensor) -> torch.Tensor:
        """The transpose is laid out once: a CSR product is several times faster than a transposed view's."""
        if self._backward is None:
            self._backward = as_torch(sp.csr_array(self.matrix.T)).to(self.device)
        return self._backward @ value


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, rows: SparseRows) -> torch.Tensor:
        ctx.rows = rows
        return rows.times(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.rows.transposed_times(gradients[0].contiguous()), None


class SparseLinear(nn.Module):
    """rows @ weight + bias for `SparseRows`; the weight has one row for each input, as in the paper's W."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, rows: SparseRows) -> torch.Tensor:
        return rows.product(self.weight) + self.bias


Rows = torch.Tensor | SparseRows


def dense(rows: Rows) -> torch.Tensor:
    """The same rows as an ordinary tensor."""
    if isinstance(rows, SparseRows):
        return torch.from_numpy(rows.matrix.toarray()).to(rows.device)
    return rows


def linear(inputs: Rows, outputs: int) -> nn.Module:
    """The linear layer that fits these inputs, sparse or dense."""
    width = int(inputs.shape[1])
    return SparseLinear(width, outputs) if isinstance(inputs, SparseRows) else nn.Linear(width, outputs)
