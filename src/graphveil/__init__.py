"""graphveil: node classifiers on private graphs, with a certificate of what was spent.

Names are loaded when they are first used: `import graphveil` loads neither PyTorch nor SciPy.
"""

import logging as _logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphveil.methods import Attached, attach

if TYPE_CHECKING:
    from graphveil.artifact import load
    from graphveil.auditing import audit
    from graphveil.errors import BudgetExceeded, GraphveilError, InvalidInput
    from graphveil.graph import Graph, load_dataset, read_graph, write_graph
    from graphveil.methods.baselines import DPSAGE, MLP, SAGE, RandEdge
    from graphveil.methods.dpdgc import DPDGC, Auto
    from graphveil.methods.gap import GAP, Caribou, ProGAP
    from graphveil.methods.search import PrivateSearch
    from graphveil.privacy.budget import BudgetLedger
    from graphveil.privacy.certificate import Certificate
    from graphveil.privacy.facts import PublicFacts
    from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public
    from graphveil.privacy.plan import Plan
    from graphveil.process import __version__


# Public names, by the module that has them.
_MODULES = {
    "artifact": ("load",),
    "auditing": ("audit",),
    "errors": ("BudgetExceeded", "GraphveilError", "InvalidInput"),
    "graph": ("Graph", "load_dataset", "read_graph", "write_graph"),
    "methods": ("DPDGC", "DPSAGE", "GAP", "MLP", "SAGE", "Auto", "Caribou", "ProGAP", "RandEdge"),
    "methods.search": ("PrivateSearch",),
    "privacy.budget": ("BudgetLedger",),
    "privacy.certificate": ("Certificate",),
    "privacy.facts": ("PublicFacts",),
    "privacy.levels": ("Edge", "KNeighbor", "Level", "Node", "Public"),
    "privacy.plan": ("Plan",),
    "process": ("__version__",),
}

__all__ = [
    "DPDGC",
    "DPSAGE",
    "GAP",
    "MLP",
    "SAGE",
    "Auto",
    "BudgetExceeded",
    "BudgetLedger",
    "Caribou",
    "Certificate",
    "Edge",
    "Graph",
    "GraphveilError",
    "InvalidInput",
    "KNeighbor",
    "Level",
    "Node",
    "Plan",
    "PrivateSearch",
    "ProGAP",
    "Public",
    "PublicFacts",
    "RandEdge",
    "__version__",
    "audit",
    "load",
    "load_dataset",
    "read_graph",
    "write_graph",
]


def _save(*args: Any, **options: Any) -> None:
    import_module("graphveil.artifact").save(*args, **options)


def _open_checkpoint(*args: Any, **options: Any) -> Any:
    return import_module("graphveil.checkpoint").Checkpoint(*args, **options)


# Silent unless whoever uses the library sets up a handler.
_logging.getLogger(__name__).addHandler(_logging.NullHandler())
# Methods do not import the packages above them.
attach(Attached(_save, _open_checkpoint))


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"graphveil.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    private = [name for name in globals() if name.startswith("_") and name not in __all__]
    return [*__all__, *private]
