"""What SAGE spends (nothing: it protects nothing), and what RandEdge spends."""

from __future__ import annotations

from graphveil.errors import InvalidInput
from graphveil.methods.spending import Settings, Spending
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge, Level, Public, level_name
from graphveil.privacy.mechanisms import ByKind, Responses


def spend_sage(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """GraphSAGE, without any protection."""
    del facts, settings, epsilon
    if not isinstance(level, Public):
        raise InvalidInput("level", level_name(level), "sage gives no protection; use randedge or dp-sage")
    return Spending((), {})


def spend_randedge(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """Randomised response on every possible edge, then GraphSAGE on the answer."""
    del settings
    if isinstance(level, Public):
        return Spending((), {})
    if not isinstance(level, Edge):
        raise InvalidInput("level", level_name(level), "randedge protects edges only; use level edge")
    if facts.weighted:
        why = "randedge answers whether a link exists and cannot keep its weight; read the graph without weights"
        raise InvalidInput("max_weight", facts.max_weight, why)
    bits = sensitivity.randomized_edges(level, facts.nodes, paired=not facts.directed)
    each = (epsilon or 1.0) / bits
    source = "docs/theory.md section 6.3 (one answer for each bit that an edge changes)"
    edges = Responses("edges", ByKind.same(bits), each, classes=2, source=source, role="edges")
    return Spending((edges,), {})
