"""What votes spend, by level and public facts alone. README.md has the proofs."""

from __future__ import annotations

from graphveil.methods.spending import Settings, Spending, released_product
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Level, Node, Public, is_zero_out, protects_attributes
from graphveil.privacy.mechanisms import ByKind, Mechanism, Responses

# The part of epsilon that the responses get, and the epsilon from which on nearly all of them are true.
RESPONSE_PART, MOST_RESPONSE_EPSILON = 0.4, 5.0


def spend(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """Randomised responses to labels where these are private, then one release of the votes."""
    if isinstance(level, Public):
        return Spending((), {})
    mechanisms: list[Mechanism] = []
    if protects_attributes(level):
        each = settings.response_epsilon or min(MOST_RESPONSE_EPSILON, RESPONSE_PART * (epsilon or 4.0))
        mechanisms.append(
            Responses(
                "ballots",
                ByKind(sensitivity.label_responses(level), 0),  # a node without a label casts no vote
                each,
                facts.classes,
                "graphveil-votes, README.md, lemma 1",
                role="responses",
                uniform=is_zero_out(level),
            )
        )
    moved = sensitivity.product_rows(level, settings.row_norm, facts.nodes)
    votes = released_product("ballots", moved, level, settings, "graphveil-votes, README.md, lemma 2")
    bound = level.max_degree if isinstance(level, Node) else None
    return Spending((*mechanisms, votes), {"release": 1.0} if moved else {}, degree_bound=bound)
