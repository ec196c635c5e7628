"""What packages above do for a model: save it, and keep an unfinished fit. `graphveil` attaches them on import.

Methods do not import these packages, because they are imported by them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Attached:
    """Functions of the packages above.

    Args:
        save: Writes a fitted model to a new folder: `save(model, folder, budget=...)`.
        open_checkpoint: Opens a folder that keeps an unfinished fit: `open_checkpoint(folder, every=..., resume=...)`.
    """

    save: Callable[..., None]
    open_checkpoint: Callable[..., AbstractContextManager[Any]]


_attached: list[Attached] = []


def attach(functions: Attached) -> None:
    """Let models be saved, and their unfinished fits be kept, by these functions."""
    _attached.append(functions)


def attached() -> Attached:
    """The functions that were attached last."""
    return _attached[-1]
