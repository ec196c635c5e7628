"""Large blocks of memory that training asks for again and again.

The GNU C library gives freed blocks of 32 MiB and more back to the system at once, and the next block of that size is
made of fresh pages, one fault each: on graphs of 200,000 nodes that takes longer than the arithmetic.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

# From <malloc.h>, with glibc's own defaults.
_TRIM_THRESHOLD, _TRIM_DEFAULT = -1, 128 * 1024
_MMAP_MAX, _MMAP_DEFAULT = -4, 65536
# Where blocks begin to be large; below it the library keeps them by itself.
_LARGE = 16 * 2**20


@contextmanager
def freed_blocks_kept(largest: int) -> Iterator[None]:
    """Within this context, if blocks of about `largest` bytes are large, freed ones stay for the next; then they go.

    Changes only speed. Does nothing where the C library is another one.
    """
    if largest < _LARGE or platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, -1)  # never
    try:
        yield
    finally:
        libc.mallopt(_MMAP_MAX, _MMAP_DEFAULT)
        libc.mallopt(_TRIM_THRESHOLD, _TRIM_DEFAULT)
        libc.malloc_trim(0)
