"""Rounding rows to lattices, and sums in float64: in C (`sums.c`) where it was built, else in torch.

Sums are exact for terms on a lattice (`graphveil.execution.exact`), so both implementations give the same bits.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch

from graphveil.process import compiled

Result = TypeVar("Result")

# A further thread is used for each so many products. Starting it takes as long as a tenth of them.
_WORTH_A_THREAD = 16_000_000
# Reading a number from memory takes as long as so many products.
_READING = 8
# Rows that torch multiplies at a time in float64, and rows that `sums.c` does.
_ROWS_AT_ONCE, _BLOCK = 2**11, 64
# Tables of fewer columns have a function of their own in `sums.c`.
_FEW_COLUMNS = 8


@dataclass(frozen=True)
class ByRow:
    """Row r times factors[r], rounded towards zero to an integer, times steps[r]; all in float32.

    Steps are powers of two. A factor of 0 makes the row zero, whatever is in it.
    """

    factors: torch.Tensor
    steps: torch.Tensor


@dataclass(frozen=True)
class ByColumn:
    """The nearest multiple of each column's step; shifts are 1.5 * 2^52 steps, in float64."""

    shifts: torch.Tensor


@dataclass(frozen=True)
class Factor:
    """float32 rows of outer products, and how they are rounded to their lattice; None: they are on it."""

    rows: torch.Tensor
    rounding: ByRow | ByColumn | None = None

    def rounded(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """The rows on their lattice, in float32: in `out`, which may be the rows themselves, or in a new tensor."""
        if self.rounding is None:
            return self.rows if out is None else out.copy_(self.rows)
        library = _library_for(self.rows)
        if library is None:
            rounded = self._rounded_by_torch()
            return rounded if out is None else out.copy_(rounded)
        given = _CFactor.of(self)
        out = torch.empty(self.rows.shape) if out is None else out
        assert out.is_contiguous()
        assert out.shape == self.rows.shape
        _together(lambda *piece: library.graphveil_round(given, *piece, out.data_ptr()), _cuts(out))
        return out

    def _rounded_by_torch(self) -> torch.Tensor:
        if isinstance(self.rounding, ByRow):
            factors, steps = self.rounding.factors[:, None], self.rounding.steps[:, None]
            scaled = self.rows * factors
            rounded = scaled.abs().floor_().copysign_(scaled).mul_(steps)
            return torch.where(factors == 0, 0.0, rounded)
        assert self.rounding is not None
        return (self.rows.double() + self.rounding.shifts).sub_(self.rounding.shifts).float()


class _CFactor(ctypes.Structure):
    """A `Factor` as `sums.c` reads it; it keeps alive what it points at."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("width", ctypes.c_size_t),
        ("factors", ctypes.c_void_p),
        ("steps", ctypes.c_void_p),
        ("shifts", ctypes.c_void_p),
    )

    @classmethod
    def of(cls, factor: Factor) -> _CFactor:
        rows, rounding = factor.rows.contiguous(), factor.rounding
        count, width = rows.shape
        assert rows.dtype == torch.float32
        factors = steps = shifts = None
        if isinstance(rounding, ByRow):
            factors, steps = rounding.factors.contiguous(), rounding.steps.contiguous()
            assert factors.dtype == steps.dtype == torch.float32
            assert factors.shape == steps.shape == (count,)
        elif rounding is not None:
            shifts = rounding.shifts.contiguous()
            assert shifts.dtype == torch.float64
            assert shifts.shape == (width,)
        made = cls(rows.data_ptr(), width, _place(factors), _place(steps), _place(shifts))
        made.kept = rows, factors, steps, shifts
        return made


def _place(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def add_outer(total: torch.Tensor, outputs: Factor, inputs: Factor, bias: torch.Tensor | None = None) -> None:
    """Add the sum over rows of outputs[r] inputs[r]^T to `total`, and that of outputs[r] to `bias`, in float64."""
    assert len(outputs.rows) == len(inputs.rows)
    library = _library_for(outputs.rows, inputs.rows)
    if library is None:
        for some, others in zip(*(each.rounded().split(_ROWS_AT_ONCE) for each in (outputs, inputs)), strict=True):
            total.addmm_(some.double().T, others.double())
            if bias is not None:
                bias += some.sum(0, dtype=torch.float64)
        return
    left, right = _CFactor.of(outputs), _CFactor.of(inputs)

    def some_rows(first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        packed = torch.empty(_BLOCK * (left.width + 8), dtype=torch.float64)
        sums = torch.zeros(left.width, right.width, dtype=torch.float64), torch.zeros(left.width, dtype=torch.float64)
        library.graphveil_add_outer(left, right, first, last, packed.data_ptr(), *(each.data_ptr() for each in sums))
        return sums

    for weights, biases in _together(some_rows, _cuts(outputs.rows, right.width)):
        total += weights
        if bias is not None:
            bias += biases


def row_lengths(rows: torch.Tensor) -> torch.Tensor:
    """The norm of each row of a float32 or float64 tensor, in float64."""
    library = _library_for(rows) if rows.dtype == torch.float32 else None
    if library is None:
        return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    rows = rows.contiguous()
    out = torch.empty(len(rows), dtype=torch.float64)
    where = rows.data_ptr(), rows.shape[1]
    _together(lambda *piece: library.graphveil_row_squares(*where, *piece, out.data_ptr()), _cuts(rows))
    return out.sqrt_()


def column_largest(rows: torch.Tensor) -> torch.Tensor:
    """The largest size in each column of a float32 tensor; 0 without any rows."""
    library = _library_for(rows)
    if library is None:
        return rows.abs().amax(0) if len(rows) else rows.new_zeros(rows.shape[1])
    return torch.stack(_by_columns(library.graphveil_column_largest, rows, torch.float32)).amax(0)


def column_sums(rows: torch.Tensor) -> torch.Tensor:
    """The sum of all rows of a float32 tensor, in float64."""
    library = _library_for(rows)
    if library is None:
        return rows.sum(0, dtype=torch.float64)
    return torch.stack(_by_columns(library.graphveil_column_sums, rows, torch.float64)).sum(0)


def _by_columns(run: Callable[..., None], rows: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    rows = rows.contiguous()

    def some_rows(first: int, last: int) -> torch.Tensor:
        out = torch.zeros(rows.shape[1], dtype=dtype)
        run(rows.data_ptr(), rows.shape[1], first, last, out.data_ptr())
        return out

    return _together(some_rows, _cuts(rows))


def row_sums(
    starts: torch.Tensor,
    columns: torch.Tensor,
    values: torch.Tensor | None,
    table: torch.Tensor,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Row r of the result is the sum of values[e] * table[columns[e]] over starts[r] <= e < starts[r + 1].

    Args:
        starts, columns: a sparse matrix in CSR form, with int32 or int64 indices.
        values: its float32 entries; None: all are 1.
        table: float32, one row for each column of the matrix.
        out: where to put the result (float64, contiguous); by default a new tensor.
    """
    assert table.dtype == torch.float32
    assert values is None or values.dtype == torch.float32
    rows = len(starts) - 1
    if out is None:
        out = torch.empty(rows, table.shape[1], dtype=torch.float64, device=table.device)
    library = _library_for(table)
    if library is None:
        return out.copy_(_by_torch(starts, columns, values, table))
    entries = None if values is None else values.contiguous()
    _by_library(library, starts.contiguous(), columns.contiguous(), entries, table.contiguous(), out)
    return out


def _by_torch(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor | None, table: torch.Tensor
) -> torch.Tensor:
    entries = torch.ones(len(columns), device=table.device) if values is None else values
    first, last = int(starts[0]), int(starts[-1])
    shape = (len(starts) - 1, len(table))
    where = (starts - first).long(), columns[first:last].long()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        matrix = torch.sparse_csr_tensor(*where, entries[first:last].double(), size=shape, check_invariants=False)
    return matrix @ table.double()


def _by_library(
    library: ctypes.CDLL,
    starts: torch.Tensor,
    columns: torch.Tensor,
    values: torch.Tensor | None,
    table: torch.Tensor,
    out: torch.Tensor,
) -> None:
    assert starts.dtype == columns.dtype
    assert out.dtype == torch.float64
    assert out.is_contiguous()
    assert out.shape == (len(starts) - 1, table.shape[1])
    width = table.shape[1]
    bits = 32 if starts.dtype == torch.int32 else 64
    run = getattr(library, f"graphveil_{'few' if width < _FEW_COLUMNS else 'row'}_sums_{bits}")

    def some(first: int, last: int) -> None:
        entries = None if values is None else values.data_ptr()
        run(
            *(starts.data_ptr(), columns.data_ptr(), entries, table.data_ptr()),
            *(width, first, last, out.data_ptr() + 8 * first * width),
        )

    entries = int(starts[-1] - starts[0])
    threads = _threads(entries * width)
    # The same number of entries for each thread.
    shares = torch.arange(1, threads, device=starts.device) * entries // threads + int(starts[0])
    _together(some, [0, *torch.searchsorted(starts[1:].long(), shares).tolist(), len(starts) - 1])


def _cuts(rows: torch.Tensor, products: int = _READING) -> list[int]:
    """Where to divide rows among threads; `products` is the work for each number, in products."""
    threads = _threads(rows.numel() * products)
    return [len(rows) * part // threads for part in range(threads + 1)]


def _threads(products: int) -> int:
    return max(1, min(torch.get_num_threads(), products // _WORTH_A_THREAD))


def _together(work: Callable[[int, int], Result], cuts: Sequence[int]) -> list[Result]:
    """The results of `work` on each piece between two cuts, on several threads; the first piece on this one."""
    futures = [_pool(len(cuts) - 2).submit(work, *piece) for piece in pairwise(cuts[1:])]
    try:
        first = work(cuts[0], cuts[1])
    finally:
        others = [future.result() for future in futures]
    return [first, *others]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "graphveil sums")


def load(path: str) -> ctypes.CDLL:
    """`sums.c` as a shared library, with the types of its functions."""
    library = ctypes.CDLL(path)
    pointer, size, factor = ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(_CFactor)
    for name, parameters in {
        "row_squares": (pointer, size, size, size, pointer),
        "round": (factor, size, size, pointer),
        "column_largest": (pointer, size, size, size, pointer),
        "column_sums": (pointer, size, size, size, pointer),
        "row_sums_32": (pointer, pointer, pointer, pointer, size, size, size, pointer),
        "row_sums_64": (pointer, pointer, pointer, pointer, size, size, size, pointer),
        "few_sums_32": (pointer, pointer, pointer, pointer, size, size, size, pointer),
        "few_sums_64": (pointer, pointer, pointer, pointer, size, size, size, pointer),
        "add_outer": (factor, factor, size, size, pointer, pointer, pointer),
    }.items():
        function = getattr(library, f"graphveil_{name}")
        function.argtypes, function.restype = parameters, None
    return library


def _library_for(*tensors: torch.Tensor) -> ctypes.CDLL | None:
    """The compiled library, for tensors in the memory of the processor."""
    return compiled_library() if all(tensor.device.type == "cpu" for tensor in tensors) else None


@cache
def compiled_library() -> ctypes.CDLL | None:
    """The library that the installation built, or None if there is none or it cannot be loaded."""
    return compiled("execution._sums", load, "torch's sums are")
