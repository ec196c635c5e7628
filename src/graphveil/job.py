"""What the environment says about a job of several processes. This needs no PyTorch."""

from __future__ import annotations

import os

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
