"""What DPDGC spends, with each of its tables W."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from graphveil.errors import InvalidInput
from graphveil.methods import defaults
from graphveil.methods.spending import Settings, Spending, own_training, released_product, released_table, training
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, is_zero_out, protects_attributes
from graphveil.privacy.mechanisms import LEAST_RESPONSE, MOST_CLASSES, ByKind, GaussianRelease, Mechanism, Responses

# Tables that need no training; they may be joined by +.
UNTRAINED = ("labels", "posteriors", "readers", "neighbors", "degrees", "attributes")


def spend(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """DPDGC: a private table W, Z = A W + noise, head on [X | Z]; at k-neighbour level k is all the bound it needs."""
    table = table_at(settings, level, facts)
    if isinstance(level, Public):
        return Spending((), {})
    if table == "trained":
        spending = _with_trained_table(level, facts, settings)
    else:
        spending = _with_table(table.split("+"), level, facts, settings, epsilon)
    return replace(spending, degree_bound=level.max_degree if isinstance(level, Node) else None)


def _with_trained_table(level: Edge | KNeighbor | Node, facts: PublicFacts, settings: Settings) -> Spending:
    """W trained on rows of A, as in the paper."""
    group = ByKind(
        sensitivity.embedding_group(level, facts.train_nodes),
        sensitivity.embedding_group(level, facts.train_nodes, in_training=False),
    )
    proof = "docs/theory.md section 2; paper, appendix C"
    embedding = training("embedding", "embedding", level, group, facts, settings, proof)
    rows = sensitivity.product_rows(level, settings.row_norm, facts.rows)
    shares = defaults.TRAINED_TABLE_SHARES
    if isinstance(level, Edge):
        release = released_product("trained", rows, level, settings, "docs/theory.md section 2; paper, theorem G.1")
        return Spending((embedding, release), defaults.TRAINED_TABLE_EDGE_SHARES)
    if _full_release_is_cheaper(level, shares):
        full = sensitivity.product_full(level, settings.row_norm, facts.nodes)
        proof = "docs/theory.md section 2 (all rows, the head is then free)"
        release = replace(released_product("trained", full, level, settings, proof), own_rows=True)
        return Spending((embedding, release), defaults.TRAINED_TABLE_FULL_SHARES)
    release = released_product(
        "trained", rows, level, settings, "docs/theory.md section 2; paper, theorems 5.3 and 5.4"
    )
    head = own_training("head", "head", level, facts, settings)
    return Spending((embedding, release, head), shares)


def _with_table(
    parts: Sequence[str], level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None
) -> Spending:
    """A table that is private without training: no group factor anywhere (docs/theory.md, section 5)."""
    private_attributes = protects_attributes(level)
    mechanisms: list[Mechanism] = []
    for_features, for_release = defaults.features_and_release(parts, facts.train_nodes)
    shares = {"release": for_release}
    if private_attributes:
        mechanisms.append(own_training("features", "features", level, facts, settings))
        shares["features"] = for_features
    for part in parts:
        mechanisms += _TABLE_COSTS[part](level, facts, settings, epsilon)
    for mechanism in mechanisms:
        if isinstance(mechanism, GaussianRelease):
            shares[mechanism.name] = defaults.TABLE_SHARE
    rows = sensitivity.product_rows(level, settings.row_norm, facts.rows)
    proof = "docs/theory.md section 2; paper, theorems 5.3 and 5.4"
    mechanisms.append(released_product("+".join(parts), rows, level, settings, proof))
    if not isinstance(level, Edge):
        mechanisms.append(own_training("head", "head", level, facts, settings))
        shares["head"] = defaults.TABLE_HEAD_SHARE
    if rows == 0:
        del shares["release"]
    # Two tables of the same responses read one draw of them.
    return Spending(tuple({mechanism.name: mechanism for mechanism in mechanisms}.values()), shares, by_relation=True)


def _labels(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    if not sensitivity.label_responses(level):
        return []
    each = settings.response_epsilon or defaults.response_epsilon(facts.train_nodes, epsilon)
    return [label_responses(level, facts, each)]


def label_responses(level: Level, facts: PublicFacts, each: float) -> Responses:
    """Randomised responses to the labels of training nodes, of epsilon `each`."""
    changed = sensitivity.label_responses(level)
    if changed and each < LEAST_RESPONSE:
        raise InvalidInput("response_epsilon", each, f"is less than responses can keep to, {LEAST_RESPONSE:.2g}")
    if changed and facts.classes > MOST_CLASSES:
        raise InvalidInput("classes", facts.classes, f"are more than responses can have, {MOST_CLASSES}")
    proof = "docs/theory.md section 5.1"
    uniform = is_zero_out(level)
    return Responses("labels", ByKind(changed, 0), each, facts.classes, proof, role="responses", uniform=uniform)


def _posteriors(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    moved = sensitivity.posterior_table(level)
    return [released_table("posteriors", ByKind.same(moved), "docs/theory.md section 5.2")] if moved else []


def _readers(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    if isinstance(level, Node):
        raise InvalidInput("table", "readers", "needs a bound on what a node reads; use labels or neighbors here")
    # The row norm of the label table is 1; A^T is to columns what A is to rows, and N_k bounds both alike.
    moved = sensitivity.product_full(level, 1.0, facts.nodes)
    hop = released_table("readers", ByKind.same(moved), "docs/theory.md sections 2.4 and 5.4 (a hop in all rows)")
    return [*_labels(level, facts, settings, epsilon), hop]


def _neighbors(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    tau = tau_at(settings, level)
    moved = ByKind(
        sensitivity.neighbor_label_table(level, tau, facts.nodes, weighted=facts.weighted),
        sensitivity.neighbor_label_table(level, tau, facts.nodes, weighted=facts.weighted, in_training=False),
    )
    return [replace(released_table("neighbors", moved, "docs/theory.md section 5.3"), tau=tau)]


def _degrees(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    return []  # the table is all ones; only its release reads the graph


def _attributes(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    if not isinstance(level, Edge):
        raise InvalidInput("table", "attributes", "is for level edge; use posteriors here")
    if not facts.features:
        raise InvalidInput("table", "attributes", "needs features, and this graph has none")
    return []


_TABLE_COSTS: dict[str, Callable[[Level, PublicFacts, Settings, float | None], list[Mechanism]]] = {
    "labels": _labels,
    "posteriors": _posteriors,
    "readers": _readers,
    "neighbors": _neighbors,
    "degrees": _degrees,
    "attributes": _attributes,
}


def _full_release_is_cheaper(level: Level, shares: Mapping[str, float]) -> bool:
    """Public attributes: protect row r in the release and train the head freely, or pay for the head.

    Releasing all rows takes sqrt(k + 1) times the noise, and gets the head's share of the budget for it.
    """
    if protects_attributes(level) or not isinstance(level, KNeighbor):
        return False
    return math.sqrt(level.k + 1) <= math.sqrt((shares["release"] + shares["head"]) / shares["release"])


def table_at(settings: Settings, level: Level, facts: PublicFacts) -> str:
    """The table that `auto` stands for, by public facts alone.

    Without privacy the trained one. Otherwise labels, except on directed graphs, where to link to the same nodes
    says more than to be linked: there it is whose readers have which labels, for an edge in the form that is the
    cheaper one then; and where a whole node is protected, how many links it has. Where that is all of a node's
    links at once, only the latter stands out from the noise. At edge level features are public, and where they are few,
    neighbours' features are added up too. Chosen on Wisconsin87, CiteSeer, Actor and synthetic graphs, the last on
    tolokers and minesweeper.
    """
    if settings.table != "auto":
        parts = settings.table.split("+")
        known = set(parts) <= set(UNTRAINED) and len(set(parts)) == len(parts)
        if not known and settings.table != "trained":
            why = f"must be auto, trained, or {', '.join(UNTRAINED)}, joined by +"
            raise InvalidInput("table", settings.table, why)
        return settings.table
    if isinstance(level, Public):
        return "trained"
    if isinstance(level, Edge):
        narrow = 0 < facts.features <= defaults.NARROW_FEATURES
        return ("readers" if facts.directed else "labels") + ("+attributes" if narrow else "")
    if not facts.directed:
        return "labels"
    return "degrees" if isinstance(level, Node) else "neighbors+degrees"


def tau_at(settings: Settings, level: Level) -> float:
    """The weight bound of one-shot neighbour labels.

    Its sensitivity is about sqrt(k^2 + k + 2 tau^2), its signal grows with tau: so tau grows with k. At edge level
    the sensitivity does not depend on it from 1 on, and nobody's weight is reduced.
    """
    if settings.tau is not None:
        return settings.tau
    if isinstance(level, KNeighbor):  # at k = 0 its sensitivity is sqrt(2) tau, and tau is that of k = 1
        return 2 * math.sqrt(max(1, level.k))
    return 2 * math.sqrt(level.max_degree) if isinstance(level, Node) else 1e6
