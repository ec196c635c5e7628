"""How a plan is executed: exact sums, clipped gradients, responses, and the ledger that draws all noise."""

from graphveil.execution.ledger import Ledger, LedgerLike, MakeLedger

__all__ = ["Ledger", "LedgerLike", "MakeLedger"]
