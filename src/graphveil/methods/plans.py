"""What each method spends at each level: every use of private data of every method, in one place.

Each function lists the mechanisms of one method with the sensitivities of `graphveil.privacy.sensitivity`. Noise is
left at one unit; `make_plan` calibrates it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.methods import defaults
from graphveil.methods.signal_to_noise import heard
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts, automatic_delta, check_delta, paper_delta
from graphveil.privacy.lattice import LEAST_RESPONSE, MOST_CLASSES
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, level_name, protects_attributes, with_unit
from graphveil.privacy.mechanisms import ByKind, ClippedTraining, GaussianRelease, Mechanism, Responses, Role
from graphveil.privacy.plan import Branch, Plan

# DPDGC's tables; those that need no training may be joined by +.
UNTRAINED = ("labels", "posteriors", "readers", "neighbors", "degrees")


@dataclass(frozen=True)
class Settings:
    """Choices that change the plan; all of them are public.

    Where `steps` and `response_epsilon` are None, `defaults` chooses.

    `steps` full-batch steps per training, or Poisson batches of `batch_size` expected rows.
    `row_norm` bounds the rows of DPDGC's W, `hops` is GAP's L, `layers` SAGE's depth, `max_degree` the degree promise
    of GAP and DP-SAGE at k-neighbour level, `capped` whether a graph that breaks its degree promise is cut, to
    `reserved_readers` less than the promise. `table` is DPDGC's W: trained (the paper's), auto (`table_at`; the
    estimator's default), or one or more, joined by +, of labels (randomised responses of `response_epsilon`),
    posteriors, readers (one hop of the label table), neighbors (one-shot neighbour labels with weight bound `tau`;
    None: `tau_at`) and degrees (the number of neighbours). `shares` overrides the default parts of mu^2 by name.
    """

    steps: int | None = None
    batch_size: int | None = None
    clip: float = 1.0
    row_norm: float = 1.0
    hops: int = 2
    layers: int = 1
    max_degree: int | None = None
    capped: bool = False
    reserved_readers: int = 0
    table: str = "trained"
    response_epsilon: float | None = None
    tau: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steps is not None:
            validate.count("steps", self.steps)
        validate.scale("clip", self.clip)
        validate.scale("row_norm", self.row_norm)
        validate.count("hops", self.hops)
        validate.count("layers", self.layers)
        if self.batch_size is not None:
            validate.count("batch_size", self.batch_size)
        if self.max_degree is not None:
            validate.count("max_degree", self.max_degree)
        validate.count("reserved_readers", self.reserved_readers, least=0)
        if not isinstance(self.shares, Mapping):
            raise InvalidInput("shares", self.shares, "must give a part of mu^2 for each mechanism by its name")
        parts = self.table.split("+")
        known = set(parts) <= set(UNTRAINED) and len(set(parts)) == len(parts)
        if not known and self.table not in ("auto", "trained"):
            raise InvalidInput("table", self.table, f"must be auto, trained, or {', '.join(UNTRAINED)}, joined by +")
        if self.response_epsilon is not None:
            validate.positive("response_epsilon", self.response_epsilon)
        if self.tau is not None:
            validate.scale("tau", self.tau)

    def table_at(self, level: Level, directed: bool) -> str:
        """The table that `auto` stands for, by public facts alone.

        Without privacy the trained one. Otherwise labels, except on directed graphs, where to link to the same nodes
        says more than to be linked: there it is whose readers have which labels, for an edge in the form that is the
        cheaper one then; and where a whole node is protected, how many links it has. Where that is all of a node's
        links at once, only the latter can be heard. Chosen on Wisconsin87, CiteSeer, Actor and synthetic graphs.
        """
        if self.table != "auto":
            return self.table
        if isinstance(level, Public):
            return "trained"
        if not directed:
            return "labels"
        if isinstance(level, Edge):
            return "readers"
        return "degrees" if isinstance(level, Node) else "neighbors+degrees"

    def tau_at(self, level: Level) -> float:
        """The weight bound of one-shot neighbour labels.

        Its sensitivity is about sqrt(k^2 + k + 2 tau^2), its signal grows with tau: so tau grows with k. At edge level
        the sensitivity does not depend on it from 1 on, and nobody's weight is reduced.
        """
        if self.tau is not None:
            return self.tau
        if isinstance(level, KNeighbor):  # at k = 0 its sensitivity is sqrt(2) tau, and tau is that of k = 1
            return 2 * math.sqrt(max(1, level.k))
        return 2 * math.sqrt(level.max_degree) if isinstance(level, Node) else 1e6


@dataclass(frozen=True)
class Spending:
    """What a method spends, with noise of one unit.

    Args:
        shared: The mechanisms that are drawn in any case, in order.
        shares: The default parts of mu^2, by the name of a mechanism (`Plan.calibrated`).
        branches: The ways to go on after them; none if they are all.
        degree_bound: The bound on the readers of a node that the sensitivities rely on; None if they rely on none.
    """

    shared: tuple[Mechanism, ...]
    shares: Mapping[str, float]
    branches: tuple[Branch, ...] = ()
    degree_bound: int | None = None


def make_plan(
    method: str,
    level: Level,
    facts: PublicFacts,
    *,
    epsilon: float | None = None,
    delta: float | str = "auto",
    settings: Settings | None = None,
    noise: float | Mapping[str, float] | None = None,
    shared_multiplier: bool = False,
) -> Plan:
    """The plan of a method at a level.

    Args:
        method: The method's name on the command line, a key of `METHODS`.
        level: What is protected. An edge level without a unit takes the one that `facts` declares.
        facts: What everybody may know about the graph.
        epsilon: The target. The least noise that meets it is searched for.
        delta: A number, or "auto" (`automatic_delta`).
        settings: Choices that change the plan; by default those of `Settings`.
        noise: In place of `epsilon`: one noise multiplier for all mechanisms, or one for each by name.
        shared_multiplier: Calibrate one multiplier for all mechanisms, as the paper does, in place of shares.

    Returns:
        A plan with noise, calibrated to `epsilon` or with the stated `noise`.

    Raises:
        InvalidInput: An argument cannot be used, or no noise meets the target.

    Formal guarantee: the plan depends on its arguments alone, never on private data.

    >>> from graphveil.privacy.levels import KNeighbor
    >>> facts = PublicFacts(nodes=7535, train_nodes=5651, features=745, classes=8)
    >>> plan = make_plan("dpdgc", KNeighbor(5), facts, epsilon=16.0, delta=1e-4)
    >>> [mechanism.name for mechanism in plan.mechanisms], plan.epsilon <= 16.0
    (['embedding', 'release', 'head'], True)
    """
    if method not in METHODS:
        raise InvalidInput("method", method, f"must be one of {', '.join(METHODS)}")
    level_name(level)
    level = with_unit(level, facts.directed)
    settings = settings or Settings()
    if isinstance(delta, str) and delta != "auto":
        raise InvalidInput("delta", delta, 'must be a number or "auto"')
    chosen_delta = automatic_delta(level, facts) if delta == "auto" else check_delta(delta)
    check_budget(level, epsilon)
    if (epsilon is None) == (noise is None) and not isinstance(level, Public):
        raise InvalidInput("epsilon", epsilon, "give either epsilon or noise")
    settings = replace(settings, steps=settings.steps or defaults.steps_for(epsilon))
    empty = Plan(method, level, facts, chosen_delta, ())
    spending = spending_of(method, level, facts, settings, epsilon)
    plan = replace(
        empty,
        shared=spending.shared,
        assumptions=_degree(spending.degree_bound, settings),
        branches=spending.branches,
    )
    if isinstance(level, Public):
        return plan
    if noise is not None:
        return plan.with_noise(noise)
    assert epsilon is not None
    if shared_multiplier:
        return plan.with_noise(1.0).calibrated(epsilon)
    for name in settings.shares:
        if name not in spending.shares:
            raise InvalidInput("shares", name, f"is not a part of {method} here ({', '.join(spending.shares)})")
    return plan.calibrated(epsilon, {**spending.shares, **settings.shares})


def check_budget(level: Level, epsilon: float | None) -> None:
    """Refuse an epsilon that is none, and one where nothing is protected."""
    if epsilon is None:
        return
    if isinstance(level, Public):
        raise InvalidInput("epsilon", epsilon, "level none protects nothing and has no budget; leave epsilon out")
    validate.positive("epsilon", epsilon)


def spending_of(method: str, level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """What a method spends; refuses to cap degrees where there is no bound to cap them to."""
    spending = METHODS[method](level, facts, settings, epsilon)
    # A node level has a bound, also for methods that do not rely on it.
    if settings.capped and spending.degree_bound is None and not isinstance(level, Node):
        why = f"{method} relies on no degree bound at level {level_name(level)}, so nothing would be cut; leave it out"
        raise InvalidInput("cap_degrees", True, why)
    return spending


def mlp(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """MLP, and DP-MLP where features and labels are private; it never reads the graph."""
    del epsilon
    if not protects_attributes(level):
        return Spending((), {})
    head = _own_training("head", "features", level, facts, settings)
    return Spending((head,), {"head": 1.0})


def dpdgc(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """DPDGC: a private table W, Z = A W + noise, head on [X | Z]; at k-neighbour level k is all the bound it needs."""
    if isinstance(level, Public):
        return Spending((), {})
    bound = level.max_degree if isinstance(level, Node) else None
    return replace(_dpdgc(level, facts, settings, epsilon), degree_bound=bound)


def _dpdgc(level: Edge | KNeighbor | Node, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """With W trained on rows of A, or another table."""
    table = settings.table_at(level, facts.directed)
    if table != "trained":
        return _dpdgc_with_table(table.split("+"), level, facts, settings, epsilon)
    group = ByKind(
        sensitivity.embedding_group(level, facts.train_nodes),
        sensitivity.embedding_group(level, facts.train_nodes, in_training=False),
    )
    proof = "docs/theory.md section 2; paper, appendix C"
    embedding = _training("embedding", "embedding", group, facts, settings, proof)
    rows = sensitivity.product_rows(level, settings.row_norm, facts.nodes)
    shares = defaults.TRAINED_TABLE_SHARES
    if isinstance(level, Edge):
        release = _product("trained", rows, level, settings, "docs/theory.md section 2; paper, theorem G.1")
        return Spending((embedding, release), defaults.TRAINED_TABLE_EDGE_SHARES)
    if _full_release_is_cheaper(level, shares):
        full = sensitivity.product_full(level, settings.row_norm, facts.nodes)
        proof = "docs/theory.md section 2 (all rows, the head is then free)"
        release = replace(_product("trained", full, level, settings, proof), own_rows=True)
        return Spending((embedding, release), defaults.TRAINED_TABLE_FULL_SHARES)
    release = _product("trained", rows, level, settings, "docs/theory.md section 2; paper, theorems 5.3 and 5.4")
    head = _own_training("head", "head", level, facts, settings)
    return Spending((embedding, release, head), shares)


def _dpdgc_with_table(
    parts: Sequence[str], level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None
) -> Spending:
    """DPDGC with a table that is private without training: no group factor anywhere (docs/theory.md, section 5)."""
    private_attributes = protects_attributes(level)
    mechanisms: list[Mechanism] = []
    for_features, for_release = defaults.features_and_release(parts, facts.train_nodes)
    shares = {"release": for_release}
    if private_attributes:
        mechanisms.append(_own_training("features", "features", level, facts, settings))
        shares["features"] = for_features
    for part in parts:
        mechanisms += _TABLE_COSTS[part](level, facts, settings, epsilon)
    for mechanism in mechanisms:
        if isinstance(mechanism, GaussianRelease):
            shares[mechanism.name] = defaults.TABLE_SHARE
    rows = sensitivity.product_rows(level, settings.row_norm, facts.nodes)
    proof = "docs/theory.md section 2; paper, theorems 5.3 and 5.4"
    mechanisms.append(_product("+".join(parts), rows, level, settings, proof))
    if not isinstance(level, Edge):
        mechanisms.append(_own_training("head", "head", level, facts, settings))
        shares["head"] = defaults.TABLE_HEAD_SHARE
    if rows == 0:
        del shares["release"]
    # Two tables of the same responses read one draw of them.
    return Spending(tuple({mechanism.name: mechanism for mechanism in mechanisms}.values()), shares)


def _labels(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    changed = sensitivity.label_responses(level)
    each = settings.response_epsilon or defaults.response_epsilon(facts.train_nodes, epsilon)
    if changed and each < LEAST_RESPONSE:
        raise InvalidInput("response_epsilon", each, f"is less than responses can keep to, {LEAST_RESPONSE:.2g}")
    if changed and facts.classes > MOST_CLASSES:
        raise InvalidInput("classes", facts.classes, f"are more than responses can have, {MOST_CLASSES}")
    proof = "docs/theory.md section 5.1"
    return [Responses("labels", ByKind(changed, 0), each, facts.classes, proof, role="responses")] if changed else []


def _posteriors(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    moved = sensitivity.posterior_table(level)
    return [_table("posteriors", ByKind.same(moved), "docs/theory.md section 5.2")] if moved else []


def _readers(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    if isinstance(level, Node):
        raise InvalidInput("table", "readers", "needs a bound on what a node reads; use labels or neighbors here")
    # The row norm of the label table is 1; A^T is to columns what A is to rows, and N_k bounds both alike.
    moved = sensitivity.product_full(level, 1.0, facts.nodes)
    hop = _table("readers", ByKind.same(moved), "docs/theory.md sections 2.4 and 5.4 (a hop in all rows)")
    return [*_labels(level, facts, settings, epsilon), hop]


def _neighbors(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    tau = settings.tau_at(level)
    moved = ByKind(
        sensitivity.neighbor_label_table(level, tau, facts.nodes),
        sensitivity.neighbor_label_table(level, tau, facts.nodes, in_training=False),
    )
    return [replace(_table("neighbors", moved, "docs/theory.md section 5.3"), tau=tau)]


def _degrees(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> list[Mechanism]:
    return []  # a constant: only the release reads the graph


_TABLE_COSTS: dict[str, Callable[[Level, PublicFacts, Settings, float | None], list[Mechanism]]] = {
    "labels": _labels,
    "posteriors": _posteriors,
    "readers": _readers,
    "neighbors": _neighbors,
    "degrees": _degrees,
}


def auto(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """DPDGC with a choice, after its features are trained, between its tables and more training of features.

    Features get the whole budget at once where the graph cannot pay.
    """
    settings = replace(settings, table="auto")
    if protects_attributes(level) and epsilon is not None and _graph_is_unheard(level, facts, epsilon):
        features = _own_training("features", "features", level, facts, settings)
        return Spending((features,), {"features": 1.0})
    found = dpdgc(level, facts, settings, epsilon)
    if not protects_attributes(level) or settings.batch_size is not None:
        return found
    first, *rest = found.shared
    more = _own_training("more features", "features", level, facts, settings)
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
        found,
        shared=(first, choice),
        shares={**found.shares, "choice": defaults.CHOICE_SHARE},
        branches=(Branch("graph", tuple(rest)), Branch("features", (more,))),
    )


def _graph_is_unheard(level: Level, facts: PublicFacts, epsilon: float) -> bool:
    """Whether not even many neighbours of its class in training would raise it above Z's noise, at the defaults.

    On directed graphs: at node level and up to a small epsilon.
    """
    if facts.directed:
        return isinstance(level, Node) or epsilon <= defaults.DIRECTED_LEAST_EPSILON
    # At one delta, whichever is asked for: this is about orders of magnitude.
    delta = min(1e-2, paper_delta(level, facts.train_nodes, 0))
    plan = make_plan("dpdgc", level, facts, epsilon=epsilon, delta=delta, settings=Settings(table="auto"))
    return heard(plan, defaults.NEIGHBORS_TO_HEAR) < 1


def gap(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """GAP: an encoder on X, L noisy hops of its row-normalised output, a head on all hops."""
    del epsilon
    if isinstance(level, Public):
        return Spending((), {})
    hop = sensitivity.gap_hop(level, settings.max_degree, facts.nodes)
    proof = "docs/theory.md section 3; paper, theorem 5.1"
    hops = _aggregation("hops", hop, settings.hops, level, settings, proof)
    if isinstance(level, Edge):
        return Spending((hops,), {"hops": 1.0})
    bound = _bound(level, settings)
    head = _own_training("head", "head", level, facts, settings)
    if not protects_attributes(level):
        return Spending((hops, head), defaults.GAP_PUBLIC_SHARES, degree_bound=bound)
    encoder = _own_training("encoder", "encoder", level, facts, settings)
    return Spending((encoder, hops, head), defaults.GAP_SHARES, degree_bound=bound)


def sage(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """GraphSAGE, without any protection."""
    del facts, settings, epsilon
    if not isinstance(level, Public):
        raise InvalidInput("level", level_name(level), "sage gives no protection; use randedge or dp-sage")
    return Spending((), {})


def randedge(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """Randomised response on every possible edge, then GraphSAGE on the answer."""
    del settings
    if isinstance(level, Public):
        return Spending((), {})
    if not isinstance(level, Edge):
        raise InvalidInput("level", level_name(level), "randedge protects edges only; use level edge")
    bits = sensitivity.randomized_edges(level, facts.nodes, paired=not facts.directed)
    each = (epsilon or 1.0) / bits
    source = "docs/theory.md section 6.3 (one answer for each bit that an edge changes)"
    edges = Responses("edges", ByKind.same(bits), each, classes=2, source=source, role="edges")
    return Spending((edges,), {})


def dp_sage(level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None) -> Spending:
    """DP-SAGE: clipped training over whole neighbourhoods, and noisy aggregation at inference."""
    del epsilon
    if isinstance(level, Public):
        return Spending((), {})
    if not isinstance(level, KNeighbor | Node):
        raise InvalidInput("level", level_name(level), "dp-sage protects nodes; use level k-neighbor or node")
    reach = (level, settings.max_degree, settings.layers, facts.train_nodes)
    group = ByKind(sensitivity.sage_group(*reach), sensitivity.sage_group(*reach, in_training=False))
    proof = "docs/theory.md section 6; Daigavane et al. 2021"
    gradient = _training("gradient", "gradient", group, facts, settings, proof)
    hop = sensitivity.gap_hop(level, settings.max_degree, facts.nodes)
    source = "docs/theory.md section 3 (aggregation of unit rows at inference)"
    aggregation = _aggregation("aggregation", hop, settings.layers, level, settings, source)
    return Spending((gradient, aggregation), defaults.DP_SAGE_SHARES, degree_bound=_bound(level, settings))


METHODS: dict[str, Callable[[Level, PublicFacts, Settings, float | None], Spending]] = {
    "auto": auto,
    "dpdgc": dpdgc,
    "gap": gap,
    "mlp": mlp,
    "sage": sage,
    "randedge": randedge,
    "dp-sage": dp_sage,
}


def _own_training(name: str, role: Role, level: Level, facts: PublicFacts, settings: Settings) -> ClippedTraining:
    """Training in which a training node moves its own row, and an unlabelled one moves none."""
    group = ByKind(sensitivity.head_group(level, facts.train_nodes), 0)
    proof = "docs/theory.md section 4 (the node's own row; all others are private already)"
    return _training(name, role, group, facts, settings, proof)


def _training(
    name: str, role: Role, group: ByKind, facts: PublicFacts, settings: Settings, source: str
) -> ClippedTraining:
    rate = 1.0
    if settings.batch_size is not None:
        # A multiple of 2^-40, which a uniform number of 52 bits is below with exactly this probability.
        rate = min(1.0, math.ceil(settings.batch_size / facts.train_nodes * 2.0**40) * 2.0**-40)
    steps = settings.steps or defaults.steps_for(None)
    return ClippedTraining(name, group, 1.0, steps, source, rate, settings.clip, role=role)


def _product(table: str, moved: float, level: Level, settings: Settings, source: str) -> GaussianRelease:
    """The release Z = A W, of a table that is private already."""
    return GaussianRelease(
        "release",
        ByKind.same(moved),
        1.0 if moved else 0.0,
        source,
        role="release",
        table=table,
        row_norm=settings.row_norm,
        degree_bound=level.max_degree if isinstance(level, Node) else None,
    )


def _table(name: str, moved: ByKind, source: str) -> GaussianRelease:
    """A table that others read, released in all rows."""
    return GaussianRelease(name, moved, 1.0 if moved.worst else 0.0, source, role="table", table=name, own_rows=True)


def _aggregation(
    name: str, moved: float, uses: int, level: Edge | KNeighbor | Node, settings: Settings, source: str
) -> GaussianRelease:
    """Sums of neighbours' unit rows, released `uses` times."""
    bound = None if isinstance(level, Edge) else _bound(level, settings)
    std = 1.0 if moved else 0.0
    return GaussianRelease(name, ByKind.same(moved), std, source, uses, role="aggregation", degree_bound=bound)


def _full_release_is_cheaper(level: Level, shares: Mapping[str, float]) -> bool:
    """Public attributes: protect row r in the release and train the head freely, or pay for the head.

    Releasing all rows takes sqrt(k + 1) times the noise, and gets the head's share of the budget for it.
    """
    if protects_attributes(level) or not isinstance(level, KNeighbor):
        return False
    return math.sqrt(level.k + 1) <= math.sqrt((shares["release"] + shares["head"]) / shares["release"])


def _bound(level: KNeighbor | Node, settings: Settings) -> int | None:
    """The degree promise of methods that need one at k-neighbour level too."""
    return level.max_degree if isinstance(level, Node) else settings.max_degree


def _degree(bound: int | None, settings: Settings) -> tuple[str, ...]:
    """What the certificate says about degrees (docs/theory.md, section 2, last bullet).

    Whether anything had to be cut is private, and the same is said in both cases.
    """
    if bound is None:
        return ()
    if settings.capped:
        kept = bound - settings.reserved_readers
        return (
            f"Of the readers of a node, all beyond {kept} are dropped at random before training, if there are any. "
            "Adjacent graphs are graphs that differ after the capping; a change before it can move more links.",
        )
    return (f"Promised: no node is read by more than {bound} others, before and after a change.",)
