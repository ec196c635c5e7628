"""What GAP and ProGAP spend."""

from __future__ import annotations

from graphveil.methods import defaults
from graphveil.methods.spending import Settings, Spending, own_training, promised_degree, released_sums
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge, Level, Public, protects_attributes


def spend(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """GAP: an encoder on X, L noisy hops of its row-normalised output, a head on all hops."""
    del epsilon
    if isinstance(level, Public):
        return Spending((), {})
    hop = sensitivity.gap_hop(level, settings.max_degree, facts.nodes)
    proof = "docs/theory.md section 3; paper, theorem 5.1"
    hops = released_sums("hops", hop, settings.hops, level, settings, proof)
    if isinstance(level, Edge):
        return Spending((hops,), {"hops": 1.0})
    bound = promised_degree(level, settings)
    head = own_training("head", "head", level, facts, settings)
    if not protects_attributes(level):
        return Spending((hops, head), defaults.GAP_PUBLIC_SHARES, degree_bound=bound)
    encoder = own_training("encoder", "encoder", level, facts, settings)
    return Spending((encoder, hops, head), defaults.GAP_SHARES, degree_bound=bound)


def stage_name(stage: int) -> str:
    """The name of the training of one of ProGAP's stages, which begin with 0."""
    return f"stage {stage}"


def spend_progap(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """ProGAP: a training for each stage, a release between each two of them.

    A stage reads, for each node, its own row of what was released. With public attributes stage 0 has nothing private.
    """
    del epsilon
    if isinstance(level, Public):
        return Spending((), {})
    hop = sensitivity.gap_hop(level, settings.max_degree, facts.nodes)
    hops = released_sums("hops", hop, settings.hops, level, settings, "docs/theory.md section 3 (ProGAP)")
    if isinstance(level, Edge):
        return Spending((hops,), {"hops": 1.0})
    first = 0 if protects_attributes(level) else 1
    stages = [
        own_training(stage_name(stage), "head" if stage else "encoder", level, facts, settings)
        for stage in range(first, settings.hops + 1)
    ]
    each = (1 - defaults.PROGAP_HOPS_SHARE) / len(stages)
    shares = {"hops": defaults.PROGAP_HOPS_SHARE, **{stage.name: each for stage in stages}}
    return Spending(
        (*stages[: 1 - first], hops, *stages[1 - first :]), shares, degree_bound=promised_degree(level, settings)
    )
