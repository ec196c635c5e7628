"""The methods of the paper, one file for each, and beside it what the method spends.

The classes are loaded when they are first used: plans need no PyTorch.
"""

from __future__ import annotations

from typing import Any

from graphveil.methods.registry import METHODS, method_class

__all__ = ["METHODS", "method_class"]


def __getattr__(name: str) -> Any:
    for method in METHODS.values():
        if method.class_name == name:
            return method.load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
