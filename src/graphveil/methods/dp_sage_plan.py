"""What DP-SAGE spends."""

from __future__ import annotations

from graphveil.errors import InvalidInput
from graphveil.methods import defaults
from graphveil.methods.spending import Settings, Spending, promised_degree, released_sums, training
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import KNeighbor, Level, Node, Public, level_name
from graphveil.privacy.mechanisms import ByKind


def spend(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """DP-SAGE: clipped training over whole neighbourhoods, and noisy aggregation at inference."""
    del epsilon
    if isinstance(level, Public):
        return Spending((), {})
    if not isinstance(level, KNeighbor | Node):
        raise InvalidInput("level", level_name(level), "dp-sage protects nodes; use level k-neighbor or node")
    reach = (level, settings.max_degree, settings.layers, facts.train_nodes)
    group = ByKind(sensitivity.sage_group(*reach), sensitivity.sage_group(*reach, in_training=False))
    proof = "docs/theory.md section 6; Daigavane et al. 2021"
    gradient = training("gradient", "gradient", level, group, facts, settings, proof)
    hop = sensitivity.gap_hop(level, settings.max_degree, facts.nodes)
    source = "docs/theory.md section 3 (aggregation of unit rows at inference)"
    aggregation = released_sums("aggregation", hop, settings.layers, level, settings, source)
    return Spending((gradient, aggregation), defaults.DP_SAGE_SHARES, degree_bound=promised_degree(level, settings))
