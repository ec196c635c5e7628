"""The methods of the paper, one file for each, and beside it what the method spends.

The classes are loaded when they are first used: plans need no PyTorch. What packages above do for a model (save it,
keep an unfinished fit) is attached here by `graphveil`: methods do not import packages that import them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from graphveil.methods.registry import METHODS, method_class

__all__ = ["METHODS", "Attached", "attach", "attached", "method_class"]


def __getattr__(name: str) -> Any:
    for method in METHODS.values():
        if method.class_name == name:
            return method.load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
