"""Peak memory as the kernel counts it (Linux): everything a step touches, whichever library asked for it."""

from __future__ import annotations

import ctypes
import gc
import threading
from pathlib import Path
from typing import Self

MIB = 2**20
# From <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


class PeakMemory:
    """Growth of the resident set since `start`, at its highest.

    The C library keeps freed blocks for later, which would hide what a step takes. So from the first use on, blocks
    of 64 KiB and more go back to the system at once: the resident set is what is alive. That slows down the whole
    process: measure memory in one of its own.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 2**16)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**16)
        self._trim = libc.malloc_trim
        self._base = 0

    def start(self) -> None:
        gc.collect()
        self._trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from now
        self._base = resident("VmRSS")

    def growth(self) -> int:
        """Bytes."""
        return resident("VmHWM") - self._base


class AnonymousPeak:
    """The most memory that is no file's, as far as a look every 20 ms tells: mapped files can be dropped, this not."""

    def __init__(self) -> None:
        self.highest = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self.highest = max(self.highest, resident("RssAnon"))


def resident(field: str = "VmRSS") -> int:
    """VmRSS (now), RssAnon (what is no file's) or VmHWM (highest so far) of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")
