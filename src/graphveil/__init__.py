"""graphveil: node classifiers on private graphs, with a certificate of what was spent."""

from graphveil.certificate import Certificate
from graphveil.errors import BudgetExceeded, GraphveilError, InvalidInput
from graphveil.levels import Edge, KNeighbor, Level, Node, Public
from graphveil.plan import Plan, PublicFacts

__version__ = "0.1.0"

__all__ = [
    "BudgetExceeded",
    "Certificate",
    "Edge",
    "GraphveilError",
    "InvalidInput",
    "KNeighbor",
    "Level",
    "Node",
    "Plan",
    "Public",
    "PublicFacts",
]
