"""Rounding rows to lattices, and sums of table rows in float64: in C (`sums.c`) where it was built, else in torch.

Sums are exact for terms on a lattice (`graphveil.execution.exact`), so both implementations give the same bits.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import pairwise

import torch

# The least number of entries to add, or of numbers to round, for a further thread.
_WORTH_A_THREAD = 50_000


def row_lengths(rows: torch.Tensor) -> torch.Tensor:
    """The norm of each row of a float32 or float64 tensor, in float64."""
    library = compiled_library() if rows.device.type == "cpu" and rows.dtype == torch.float32 else None
    if library is None:
        return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    rows = rows.contiguous()
    out = torch.empty(len(rows), dtype=torch.float64)
    where = rows.data_ptr(), rows.shape[1]
    _together(lambda first, last: library.graphveil_row_squares(*where, first, last, out.data_ptr()), _cuts(rows))
    return out.sqrt_()


def rounded_rows(
    rows: torch.Tensor, factors: torch.Tensor, steps: torch.Tensor, *, in_place: bool = False
) -> torch.Tensor:
    """Row r of the result is row r times factors[r], rounded towards zero to an integer, times steps[r].

    All in float32; steps are powers of two. With `in_place` the rows may be overwritten.
    """
    assert rows.dtype == factors.dtype == steps.dtype == torch.float32
    library = compiled_library() if rows.device.type == "cpu" else None
    if library is None:
        scaled = rows * factors[:, None]
        return scaled.abs().floor_().copysign_(scaled).mul_(steps[:, None])
    rows, factors, steps = rows.contiguous(), factors.contiguous(), steps.contiguous()
    assert factors.shape == steps.shape == (len(rows),)
    out = rows if in_place else torch.empty_like(rows)
    width = rows.shape[1]
    where = rows.data_ptr(), factors.data_ptr(), steps.data_ptr(), width
    _together(lambda first, last: library.graphveil_round_rows(*where, first, last, out.data_ptr()), _cuts(rows))
    return out


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
    library = compiled_library() if table.device.type == "cpu" else None
    if library is None:
        return out.copy_(_by_torch(starts, columns, values, table))
    entries = None if values is None else values.contiguous()
    _by_library(library, starts.contiguous(), columns.contiguous(), entries, table.contiguous(), out)
    return out


def column_sums(rows: torch.Tensor) -> torch.Tensor:
    """The sum of all rows of a float32 tensor, in float64."""
    everyone = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
    starts = torch.tensor([0, len(rows)], dtype=torch.int32, device=rows.device)
    return row_sums(starts, everyone, None, rows)[0]


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
    run = library.graphveil_row_sums_32 if starts.dtype == torch.int32 else library.graphveil_row_sums_64
    width = table.shape[1]

    def some(first: int, last: int) -> None:
        entries = None if values is None else values.data_ptr()
        run(
            *(starts.data_ptr(), columns.data_ptr(), entries, table.data_ptr()),
            *(width, first, last, out.data_ptr() + 8 * first * width),
        )

    entries = int(starts[-1] - starts[0])
    threads = max(1, min(torch.get_num_threads(), entries // _WORTH_A_THREAD))
    # The same number of entries for each thread.
    shares = torch.arange(1, threads, device=starts.device) * entries // threads + int(starts[0])
    _together(some, [0, *torch.searchsorted(starts[1:].long(), shares).tolist(), len(starts) - 1])


def _cuts(rows: torch.Tensor) -> list[int]:
    """As many rows for each thread that is worth waking."""
    threads = max(1, min(torch.get_num_threads(), rows.numel() // _WORTH_A_THREAD))
    return [len(rows) * part // threads for part in range(threads + 1)]


def _together(work: Callable[[int, int], None], cuts: Sequence[int]) -> None:
    """Call `work` on each piece between two cuts, on several threads; the first piece on this one."""
    helping = [_helpers(len(cuts) - 2).submit(work, *piece) for piece in pairwise(cuts[1:])]
    try:
        work(cuts[0], cuts[1])
    finally:
        for helper in helping:
            helper.result()


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "graphveil sums")


def load(path: str) -> ctypes.CDLL:
    """`sums.c` as a shared library, with the types of its functions."""
    library = ctypes.CDLL(path)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.graphveil_row_squares.argtypes = (pointer, size, size, size, pointer)
    library.graphveil_row_squares.restype = None
    library.graphveil_round_rows.argtypes = (pointer, pointer, pointer, size, size, size, pointer)
    library.graphveil_round_rows.restype = None
    for run in (library.graphveil_row_sums_32, library.graphveil_row_sums_64):
        run.argtypes = (pointer, pointer, pointer, pointer, size, size, size, pointer)
        run.restype = None
    return library


@cache
def compiled_library() -> ctypes.CDLL | None:
    """The library that the installation built, or None if there is none or it cannot be loaded."""
    spec = find_spec("graphveil.execution._sums")
    if spec is None or spec.origin is None:
        return None
    try:
        return load(spec.origin)
    except (OSError, AttributeError) as error:
        warnings.warn(f"the compiled sums cannot be loaded, torch's are used: {error}", stacklevel=2)
        return None
