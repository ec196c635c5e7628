"""graphveil: node classifiers on private graphs, with a certificate of what was spent.

Names that need PyTorch are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphveil.errors import BudgetExceeded, GraphveilError, InvalidInput
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public
from graphveil.privacy.plan import Plan

if TYPE_CHECKING:
    from graphveil.artifact import load
    from graphveil.auditing import audit
    from graphveil.graph import Graph, load_dataset, read_graph, write_graph
    from graphveil.methods.auto import Auto
    from graphveil.methods.dp_sage import DPSAGE
    from graphveil.methods.dpdgc import DPDGC
    from graphveil.methods.gap import GAP
    from graphveil.methods.mlp import MLP
    from graphveil.methods.sage import SAGE, RandEdge

__version__ = "0.2.0"

__all__ = [
    "DPDGC",
    "DPSAGE",
    "GAP",
    "MLP",
    "SAGE",
    "Auto",
    "BudgetExceeded",
    "Certificate",
    "Edge",
    "Graph",
    "GraphveilError",
    "InvalidInput",
    "KNeighbor",
    "Level",
    "Node",
    "Plan",
    "Public",
    "PublicFacts",
    "RandEdge",
    "audit",
    "load",
    "load_dataset",
    "read_graph",
    "write_graph",
]


def __getattr__(name: str) -> Any:
    if name in ("Graph", "load_dataset", "read_graph", "write_graph"):
        return getattr(import_module("graphveil.graph"), name)
    if name == "load":
        return import_module("graphveil.artifact").load
    if name == "audit":
        return import_module("graphveil.auditing").audit
    if name in __all__:
        return getattr(import_module("graphveil.methods"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
