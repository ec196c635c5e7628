"""How a plan is executed: exact sums, clipped gradients, responses, and the ledger, the only way to noise."""

from graphveil.execution.ledger import Ledger, LedgerLike, MakeLedger

__all__ = ["Ledger", "LedgerLike", "MakeLedger"]
