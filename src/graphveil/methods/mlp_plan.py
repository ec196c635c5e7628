"""What MLP spends."""

from __future__ import annotations

from graphveil.methods.spending import Settings, Spending, own_training
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Level, protects_attributes


def spend(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """MLP, and DP-MLP where features and labels are private; it never reads the graph."""
    del epsilon
    if not protects_attributes(level):
        return Spending((), {})
    head = own_training("head", "features", level, facts, settings)
    return Spending((head,), {"head": 1.0})
