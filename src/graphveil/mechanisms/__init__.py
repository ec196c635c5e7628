"""The code that draws noise, and the ledger through which methods reach it."""

from graphveil.mechanisms.ledger import Ledger
from graphveil.mechanisms.randomness import NoiseSource

__all__ = ["Ledger", "NoiseSource"]
