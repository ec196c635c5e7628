"""The methods of the paper: what each one spends (`plans`), and how each one is trained (one file per method).

The classes are loaded when they are first used: plans need no PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphveil.errors import InvalidInput

if TYPE_CHECKING:
    from graphveil.methods.estimator import NodeClassifier

# Class name -> (name on the command line, module).
CLASSES = {
    "Auto": ("auto", "auto"),
    "DPDGC": ("dpdgc", "dpdgc"),
    "GAP": ("gap", "gap"),
    "MLP": ("mlp", "mlp"),
    "SAGE": ("sage", "sage"),
    "RandEdge": ("randedge", "sage"),
    "DPSAGE": ("dp-sage", "dp_sage"),
}


def method_class(name: str) -> type[NodeClassifier]:
    """The class of a method by its name on the command line."""
    for cls, (word, _) in CLASSES.items():
        if word == name:
            found: type[NodeClassifier] = __getattr__(cls)
            return found
    raise InvalidInput("method", name, f"must be one of {', '.join(word for word, _ in CLASSES.values())}")


def __getattr__(name: str) -> Any:
    if name not in CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{CLASSES[name][1]}"), name)
