"""What the baselines spend: MLP, GAP (CARIBOU too), ProGAP, SAGE, RandEdge and DP-SAGE. None of this loads PyTorch."""

from __future__ import annotations

from graphveil.errors import InvalidInput
from graphveil.methods import defaults
from graphveil.methods.spending import Settings, Spending, own_training, promised_degree, released_sums, training
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, level_name, protects_attributes
from graphveil.privacy.mechanisms import ByKind, Responses


def spend_mlp(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """MLP, and DP-MLP where features and labels are private; it never reads the graph."""
    del epsilon
    if not protects_attributes(level):
        return Spending((), {})
    head = own_training("head", "features", level, facts, settings)
    return Spending((head,), {"head": 1.0})


def spend_gap(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """GAP and CARIBOU: an encoder on X, L noisy hops of its output with rows of norm at most 1, a head on all hops."""
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


def spend_dp_sage(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
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
