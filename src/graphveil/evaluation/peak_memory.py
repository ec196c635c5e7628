"""The peak memory of this process, or of one run in a process that makes many."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak() -> None:
    """Start a new peak, where the system can; elsewhere a process has one peak for its life."""
    try:
        _RESET.write_text("5")
    except OSError:
        return


def peak_memory_mb() -> float:
    """The largest resident memory since `forget_peak`, or since this process started, in MiB."""
    try:
        peak = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
    except OSError:
        peak = None
    if peak:
        return int(peak[1]) / 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1024**2 if sys.platform == "darwin" else 1024)
