"""What DPDGC and the default spend: statistics first, then one of the branches that follow from them."""

from __future__ import annotations

from dataclasses import replace

from graphveil.methods import defaults, dpdgc_plan
from graphveil.methods.spending import Settings, Spending, own_training, released_product
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import KNeighbor, Level, Node, is_zero_out, protects_attributes
from graphveil.privacy.mechanisms import ByKind, ClippedTraining, GaussianRelease, Mechanism
from graphveil.privacy.plan import Branch

# Counts of training nodes that come out right, one for each expectation of `expectation.right_counts`.
EXPECTATIONS = 8
# What is learnt of features before a branch is chosen.
CLASS_SUMS = "class sums"
FIRST_FEATURES = "first features"


def spend(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """The default: DPDGC with the table "auto".

    Where attributes are public or batches are sampled, nothing is asked first. On directed graphs at node level the
    graph is not read: nothing but the number of a node's links stands out from the noise. Elsewhere statistics decide.
    """
    settings = replace(settings, table="auto")
    if not protects_attributes(level) or settings.batch_size is not None:
        return dpdgc_plan.spend(level, facts, settings, epsilon)
    if facts.directed and isinstance(level, Node):
        return Spending((own_training("features", "features", level, facts, settings),), {"features": 1.0})
    assert isinstance(level, KNeighbor | Node)
    if facts.directed and isinstance(level, KNeighbor):
        return _directed(level, facts, settings, epsilon)
    return _statistics_first(level, facts, settings, epsilon)


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
    more = own_training("more features", "features", level, facts, settings)
    beside = _linear("balanced features", level, facts, settings)
    shares = {
        **_first_shares(defaults.STATISTICS_SHARE, facts),
        "balanced features": defaults.BALANCED_FEATURES,
        "balanced release": defaults.BALANCED_RELEASE,
        "balanced head": defaults.HEAD_SHARE,
        "graph release": defaults.GRAPH_RELEASE,
        "graph head": defaults.HEAD_SHARE,
    }
    if balanced[1].sensitivity.worst == 0:
        del shares["balanced release"], shares["graph release"]
    return Spending(
        _first(moved, proof, EXPECTATIONS, level, facts, settings),
        shares,
        (
            Branch("features", (more,)),
            _sums_alone(level),
            Branch("balanced", (beside, *balanced)),
            Branch("graph", graph),
        ),
        degree_bound=level.max_degree if isinstance(level, Node) else None,
    )


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
    more = own_training("more features", "features", level, facts, settings)
    beside = _linear("balanced features", level, facts, settings)
    shares = {**_first_shares(defaults.CO_LINKS_SHARE, facts), **defaults.DIRECTED_SHARES}
    return replace(
        with_tables,
        shared=_first(moved, proof, EXPECTATIONS - 1, level, facts, settings),
        shares={name: share for name, share in shares.items() if name != "release" or name in with_tables.shares},
        branches=(Branch("features", (more,)), _sums_alone(level), Branch("balanced", (beside, *tables))),
    )


def _first(
    moved: ByKind, proof: str, expectations: int, level: Level, facts: PublicFacts, settings: Settings
) -> tuple[Mechanism, ...]:
    """What is paid for before a branch is chosen: statistics that move so far, features, counts of what comes out
    right."""
    statistics = GaussianRelease("statistics", moved, 1.0, proof, role="statistics", own_rows=True)
    expectation = GaussianRelease(
        "expectation",
        ByKind(sensitivity.own_row_counts(expectations), 0),
        1.0,
        "docs/theory.md section 5.6 (sums over own rows)",
        role="expectation",
        own_rows=True,
    )
    return statistics, _sums(CLASS_SUMS, level), _linear(FIRST_FEATURES, level, facts, settings), expectation


def _first_shares(statistics: float, facts: PublicFacts) -> dict[str, float]:
    """Their shares, and that of more features, which get the rest."""
    shares = {
        "statistics": statistics,
        CLASS_SUMS: defaults.CLASS_SUMS_SHARE,
        FIRST_FEATURES: defaults.FIRST_FEATURES_SHARE,
        "expectation": defaults.expectation_share(facts.train_nodes),
    }
    return {**shares, "more features": 1 - sum(shares.values())}


def _sums_alone(level: Level) -> Branch:
    """The rest of the budget for class sums, and nothing else."""
    return Branch("sums", (_sums("more class sums", level),))


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
    steps = min(defaults.JOIN_STEPS, settings.steps or defaults.JOIN_STEPS)
    head = replace(own_training(f"{name} head", "head", level, facts, settings), steps=steps)
    return responses, release, head


def _linear(name: str, level: Level, facts: PublicFacts, settings: Settings) -> ClippedTraining:
    """A training of the linear classifier of features."""
    steps = min(defaults.LINEAR_STEPS, settings.steps or defaults.LINEAR_STEPS)
    return replace(own_training(name, "features", level, facts, settings), steps=steps)
