"""Exact gradients, for training that needs no protection: the same bits for any number of threads and processes.

A sum in float32 depends on the order of its terms, which libraries choose by the number of threads. Here the factors of
each row's gradient (`recording`) are rounded first, to as many bits below the largest entry of their column as leave
the sum over all rows exact in float64: about 20 bits for 10,000 rows. Nothing here is private, so the lattices may
depend on the data.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from graphveil.execution.exact import EXACT, nearest_shifts
from graphveil.execution.recording import Call, Layer, recorded_pass
from graphveil.execution.sparse_rows import Rows, SparseRows, TransposedSums
from graphveil.execution.sums import ByColumn, Factor, add_outer, column_largest, column_sums
from graphveil.privacy.lattice import bits_of

# float32 holds the rounded factors, float64 the sums of their products.
_FACTOR_BITS, _SUM_BITS = 24, 53

# What all processes make together of what each gives.
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
        self._shifts = WeakIdKeyDictionary()  # of layers' inputs, as long as these exist
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
        """The gradients of the calls' outputs, with their rounding; that of inputs which are new is kept."""
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
