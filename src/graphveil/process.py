"""This process: the version and a digest of its source code, its compiled parts, its place in a job of several, and its
peak memory.

Results carry the digest, because a version number says too little while the code is being changed. Nothing here needs
PyTorch.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import resource
import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from graphveil.errors import InvalidInput

_MOST_PROCESSES = 10_000
# The environment variables that `torchrun` sets in each process.
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def started_by_torchrun() -> bool:
    """Whether this process belongs to a job.

    Raises:
        InvalidInput: Only some of the variables of a job are set. Without this check each process of a job would make a
            fit of its own, and each would spend the budget.
    """
    there = [name for name in _VARIABLES if name in os.environ]
    if not {"RANK", "WORLD_SIZE"} & set(there):
        return False
    for name in _VARIABLES:
        if name not in there:
            raise InvalidInput(name, None, f"must be set where {there[0]} is, as torchrun does; or unset {there[0]}")
    return True


def place_in_job() -> tuple[int, int]:
    """This process's rank and the number of processes, as the environment says."""
    size = _whole("WORLD_SIZE", 1, _MOST_PROCESSES)
    return _whole("RANK", 0, size - 1), size


def _whole(name: str, least: int, most: int) -> int:
    text = os.environ.get(name, "")
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not least <= int(text) <= most:
        raise InvalidInput(name, text, f"must be a whole number from {least} to {most}; torchrun sets it")
    return int(text)


def check_job() -> None:
    """Refuse an environment in which the processes of a job cannot meet, before this process waits for others."""
    place_in_job()
    _whole("MASTER_PORT", 1, 65535)
    if "LOCAL_RANK" in os.environ:
        _whole("LOCAL_RANK", 0, _MOST_PROCESSES)


# What Linux says about this process, and where it is told to start a new peak.
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


__version__ = "0.2.0"
# Packages that run and show experiments, and have no influence on a result.
_WITHOUT = ("cli", "experiments", "report")


@cache
def code_digest() -> str:
    """A digest of the package's source, as it was when this process called this for the first time."""
    package = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package)
        if place.parts[0] not in _WITHOUT:
            digest.update(f"{place.as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def compiled(module: str, load: Callable[[str], ctypes.CDLL], instead: str) -> ctypes.CDLL | None:
    """A library that the installation built, or None if there is none or it cannot be loaded.

    Args:
        module: Its name among the modules of the package.
        load: Opens a library, and declares the types of its functions.
        instead: What is used without it, for the warning.
    """
    spec = find_spec(f"graphveil.{module}")
    if spec is None or spec.origin is None:
        return None
    try:
        return load(spec.origin)
    except (OSError, AttributeError) as error:
        warnings.warn(f"{spec.origin} cannot be loaded, {instead} used: {error}", stacklevel=3)
        return None
