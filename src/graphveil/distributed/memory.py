"""Freed memory that the C library keeps for later, where it would be a large part of what a process takes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Return what is free to the system, also between blocks that are in use; glibc does that only when asked."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    found: Callable[[int], object] = getattr(ctypes.CDLL(None), "malloc_trim", lambda kept: kept)
    return found
