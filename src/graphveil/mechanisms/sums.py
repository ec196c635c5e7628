"""Sums of table rows in float64: in C (`sums.c`) where the installation built it, otherwise in torch.

Both are exact for terms on a lattice (`graphveil.mechanisms.exact`), so both give the same sums.
"""

from __future__ import annotations

import ctypes
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec

import torch

# Entries that are worth waking a thread for.
_WORTH_A_THREAD = 50_000


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
    # As many entries for each thread.
    shares = torch.arange(1, threads, device=starts.device) * entries // threads + int(starts[0])
    cuts = [0, *torch.searchsorted(starts[1:].long(), shares).tolist(), len(starts) - 1]
    helping = [_helpers(threads - 1).submit(some, cuts[i], cuts[i + 1]) for i in range(1, threads)]
    try:
        some(cuts[0], cuts[1])
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
    for run in (library.graphveil_row_sums_32, library.graphveil_row_sums_64):
        run.argtypes = (pointer, pointer, pointer, pointer, size, size, size, pointer)
        run.restype = None
    return library


@cache
def compiled_library() -> ctypes.CDLL | None:
    """What the installation built, if it did and if it can be loaded."""
    spec = find_spec("graphveil.mechanisms._sums")
    if spec is None or spec.origin is None:
        return None
    try:
        return load(spec.origin)
    except (OSError, AttributeError) as error:
        warnings.warn(f"the compiled sums cannot be loaded, torch's are used: {error}", stacklevel=2)
        return None
