"""What DPDGC and the default spend: statistics first, then one of the branches that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphveil.methods import defaults, dpdgc_plan
from graphveil.methods.spending import Settings, Spending, own_training, released_product
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import KNeighbor, Level, Node, is_zero_out, protects_attributes
from graphveil.privacy.mechanisms import ByKind, ClippedTraining, GaussianRelease, Mechanism
from graphveil.privacy.plan import Branch

# What is learnt of features before a branch is chosen: class sums, and a first training, by which the default sees what
# training is worth.
CLASS_SUMS = "class sums"
FIRST_FEATURES = "first features"


def counted(branches: Sequence[str]) -> tuple[str, ...]:
    """What `expectation.right_counts` counts, in order, where these branches read the graph.

    After half of the first training of features and after all of it; class sums with half of what they cost and with
    all of it; each branch. Last, class sums and the branch "balanced", where all classes count alike.
    """
    alike = ("sums alike", "balanced alike") if branches else ()
    return ("half", "whole", "half of sums", "sums", *branches, *alike)


def spend(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """The default: DPDGC with the table "auto".

    Where attributes are public or batches are sampled, nothing is asked first. On directed graphs at node level the
    graph is not read: nothing but the number of a node's links stands out from the noise. Elsewhere statistics decide.
    """
    settings = replace(settings, table="auto")
    if not protects_attributes(level) or settings.batch_size is not None:
        return dpdgc_plan.spend(level, facts, settings, epsilon)
    assert isinstance(level, KNeighbor | Node)
    if not facts.directed:
        return _statistics_first(level, facts, settings, epsilon)
    if isinstance(level, Node):
        return _features_first(level, facts, settings)
    return _directed(level, facts, settings, epsilon)


def spend_dpdgc(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """DPDGC: the default where its table is "auto"; with a given table nothing is asked first."""
    spend_it = spend if settings.table == "auto" else dpdgc_plan.spend
    return spend_it(level, facts, settings, epsilon)


def _statistics_first(
    level: KNeighbor | Node, facts: PublicFacts, settings: Settings, epsilon: float | None
) -> Spending:
    """On undirected graphs."""
    moved = ByKind(sensitivity.link_statistics(level, facts.train_nodes), 0)
    proof = "docs/theory.md section 5.5 (how training nodes are linked)"
    balanced = _graph_branch("balanced", defaults.BALANCED_RESPONSES, level, facts, settings, epsilon)
    graph = _graph_branch("graph", defaults.GRAPH_RESPONSES, level, facts, settings, epsilon)
    shares = {
        **_alone_shares(defaults.STATISTICS_SHARE, facts),
        "balanced sums": defaults.BALANCED_SUMS,
        "balanced release": defaults.BALANCED_RELEASE,
        "balanced head": defaults.HEAD_SHARE,
        "graph release": defaults.GRAPH_RELEASE,
        "graph head": defaults.HEAD_SHARE,
    }
    joint: tuple[Branch, ...] = ()
    if 0 < facts.features <= defaults.NARROW_FEATURES:
        # The head reads features too, so it gets what class sums have elsewhere.
        shares["balanced sums"], shares["balanced head"] = shares["balanced head"], shares["balanced sums"]
    elif facts.features:
        parts = _graph_branch("joint", defaults.BALANCED_RESPONSES, level, facts, settings, epsilon)
        joint = (Branch("joint", parts),)
        shares |= {"joint release": defaults.BALANCED_RELEASE, "joint head": defaults.BALANCED_SUMS}
    if balanced[1].sensitivity.worst == 0:
        shares = {name: share for name, share in shares.items() if not name.endswith(" release")}
    return Spending(
        (_statistics(moved, proof), *_first(("balanced", "graph"), level, facts, settings)),
        shares,
        (
            *_alone(level, facts, settings),
            Branch("balanced", (_sums("balanced sums", level), *balanced)),
            *joint,
            Branch("graph", graph),
        ),
        degree_bound=level.max_degree if isinstance(level, Node) else None,
    )


def _features_first(level: Level, facts: PublicFacts, settings: Settings) -> Spending:
    """Where the graph is not read: class sums, or training."""
    return Spending(_first((), level, facts, settings), _alone_shares(0, facts), _alone(level, facts, settings))


def _directed(level: KNeighbor, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """On directed graphs: more features, or DPDGC's tables beside them."""
    moved = ByKind(
        *(
            sensitivity.co_link_statistics(level, facts.nodes, facts.train_nodes, in_training=inside)
            for inside in (True, False)
        )
    )
    proof = "docs/theory.md section 5.7 (how training nodes are linked with the same nodes)"
    with_tables = dpdgc_plan.spend(level, facts, settings, epsilon)
    _, *tables = with_tables.shared
    shares = {**_alone_shares(defaults.CO_LINKS_SHARE, facts), **defaults.DIRECTED_SHARES}
    return replace(
        with_tables,
        shared=(_statistics(moved, proof), *_first(("balanced",), level, facts, settings)),
        shares={name: share for name, share in shares.items() if name != "release" or name in with_tables.shares},
        branches=(*_alone(level, facts, settings), Branch("balanced", (_sums("balanced sums", level), *tables))),
    )


def _statistics(moved: ByKind, proof: str) -> GaussianRelease:
    """How training nodes are linked."""
    return GaussianRelease("statistics", moved, 1.0, proof, role="statistics", own_rows=True)


def _first(branches: Sequence[str], level: Level, facts: PublicFacts, settings: Settings) -> tuple[Mechanism, ...]:
    """What is paid for before a branch is chosen, beside statistics: features, and counts of what comes out right."""
    steps = min(defaults.LINEAR_STEPS, settings.steps or defaults.LINEAR_STEPS)
    features = replace(own_training(FIRST_FEATURES, "features", level, facts, settings), steps=steps)
    expectation = GaussianRelease(
        "expectation",
        ByKind(sensitivity.own_row_counts(len(counted(branches))), 0),
        1.0,
        "docs/theory.md section 5.6 (sums over own rows)",
        role="expectation",
        own_rows=True,
    )
    return _sums(CLASS_SUMS, level), features, expectation


def _alone(level: Level, facts: PublicFacts, settings: Settings) -> tuple[Branch, Branch]:
    """The branches that do not read the graph: training beside class sums, or more class sums and a head."""
    training = own_training("more features", "features", level, facts, settings)
    return (
        Branch("features", (training,)),
        Branch("sums", (_sums("more class sums", level), _head("sums head", level, facts, settings))),
    )


def _alone_shares(statistics: float, facts: PublicFacts) -> dict[str, float]:
    """The shares of statistics and `_first`; those of `_alone`, which get the rest."""
    shares = {
        "statistics": statistics,
        CLASS_SUMS: defaults.CLASS_SUMS_SHARE,
        FIRST_FEATURES: defaults.FIRST_FEATURES_SHARE,
        "expectation": defaults.expectation_share(facts.train_nodes),
    }
    rest = 1 - sum(shares.values())
    head = defaults.SUMS_HEAD_SHARE
    if 0 < facts.features <= defaults.NARROW_FEATURES:
        head = rest - head  # it reads features too
    later = {"more features": rest, "more class sums": rest - head, "sums head": head}
    return {name: share for name, share in {**shares, **later}.items() if share}


def _sums(name: str, level: Level) -> GaussianRelease:
    """A release of class sums."""
    moved = ByKind(sensitivity.class_sums(level, defaults.CLASS_SUMS_NORM), 0)
    proof = "docs/theory.md section 5.11 (sums of the features of each class)"
    return GaussianRelease(name, moved, 1.0, proof, role="class sums", row_norm=defaults.CLASS_SUMS_NORM, own_rows=True)


def _graph_branch(
    name: str, part: float, level: KNeighbor | Node, facts: PublicFacts, settings: Settings, epsilon: float | None
) -> tuple[Mechanism, ...]:
    """Responses of labels, the release of A W, and the head that joins it with features."""
    each = settings.response_epsilon or defaults.part_for_responses(part, epsilon)
    of_labels = dpdgc_plan.label_responses(level, facts, each)
    # Nodes without a label respond too, with what features say about them. An emptied one (zero-out) would have to
    # respond uniformly, so there they do not.
    everybody = facts.features > 0 and not is_zero_out(level)
    changed = ByKind.same(of_labels.changed.worst) if everybody else of_labels.changed
    responses = replace(of_labels, name=f"{name} responses", changed=changed)
    rows = sensitivity.product_rows(level, settings.row_norm, facts.rows)
    proof = "docs/theory.md section 2; paper, theorems 5.3 and 5.4"
    release = replace(released_product("labels", rows, level, settings, proof), name=f"{name} release")
    return responses, release, _head(f"{name} head", level, facts, settings)


def _head(name: str, level: Level, facts: PublicFacts, settings: Settings) -> ClippedTraining:
    """A training of the head, which has few parameters."""
    steps = min(defaults.JOIN_STEPS, settings.steps or defaults.JOIN_STEPS)
    return replace(own_training(name, "head", level, facts, settings), steps=steps)
