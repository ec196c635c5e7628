"""What Auto spends: DPDGC, and a paid choice between its tables and more training of features."""

from __future__ import annotations

from dataclasses import replace

from graphveil.methods import defaults, dpdgc_plan
from graphveil.methods.signal_to_noise import signal_to_noise
from graphveil.methods.spending import Settings, Spending, make_plan, own_training
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts, paper_delta
from graphveil.privacy.levels import KNeighbor, Level, Node, protects_attributes
from graphveil.privacy.mechanisms import ByKind, ClippedTraining, GaussianRelease
from graphveil.privacy.plan import Branch


def spend(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """DPDGC with a choice, after its features are trained, between its tables and more training of features.

    Features get the whole budget at once where the graph cannot pay.
    """
    settings = replace(settings, table="auto")
    if protects_attributes(level) and epsilon is not None and _signal_is_below_noise(level, facts, epsilon):
        features = own_training("features", "features", level, facts, settings)
        return Spending((features,), {"features": 1.0})
    with_graph = dpdgc_plan.spend(level, facts, settings, epsilon)
    if not protects_attributes(level) or settings.batch_size is not None:
        return with_graph
    first, *rest = with_graph.shared
    more = own_training("more features", "features", level, facts, settings)
    assert isinstance(first, ClippedTraining)
    if facts.train_nodes >= defaults.MANY_TRAIN_NODES:
        first = replace(first, steps=min(defaults.STEPS_BEFORE_CHOICE, first.steps))
    if facts.directed:
        assert isinstance(level, KNeighbor)
        moved = ByKind(
            sensitivity.co_reader_margins(level, facts.train_nodes),
            sensitivity.co_reader_margins(level, facts.train_nodes, in_training=False),
        )
        source = "docs/theory.md section 5.6 (does a directed graph pay)"
    else:
        moved = ByKind(sensitivity.neighbor_margins(level, facts.train_nodes), 0)
        source = "docs/theory.md section 5.5 (does the graph pay)"
    choice = GaussianRelease("choice", moved, 1.0, source, role="statistics", own_rows=True)
    return replace(
        with_graph,
        shared=(first, choice),
        shares={**with_graph.shares, "choice": defaults.CHOICE_SHARE},
        branches=(Branch("graph", tuple(rest)), Branch("features", (more,))),
    )


def _signal_is_below_noise(level: Level, facts: PublicFacts, epsilon: float) -> bool:
    """Whether not even many neighbours of its class in training would raise it above Z's noise, at the defaults.

    On directed graphs: at node level and up to a small epsilon.
    """
    if facts.directed:
        return isinstance(level, Node) or epsilon <= defaults.DIRECTED_LEAST_EPSILON
    # At one delta, whichever is asked for: this is about orders of magnitude.
    delta = min(1e-2, paper_delta(level, facts.train_nodes, 0))
    plan = make_plan("dpdgc", level, facts, epsilon=epsilon, delta=delta, settings=Settings(table="auto"))
    return signal_to_noise(plan, defaults.NEIGHBORS_ABOVE_NOISE) < 1
