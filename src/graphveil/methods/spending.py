"""What all methods' plans are made of: settings, constructors of mechanisms, and the way from a list of them to a plan.

What a method spends stands beside it: `dpdgc_plan.py` beside `dpdgc.py`. None of these modules loads PyTorch, so that a
plan is shown at once. Noise is left at one unit there; `make_plan` calibrates it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.methods import defaults, method_named
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts, automatic_delta, check_delta
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, level_name, protects_attributes, with_unit
from graphveil.privacy.mechanisms import ByKind, ClippedTraining, GaussianRelease, Mechanism, Role
from graphveil.privacy.plan import SEARCH, Branch, Plan

# The part of the budget, in units of mu^2, of class counts. Counts of hundreds of nodes stand out from little noise.
CLASSES_SHARE = 0.01


@dataclass(frozen=True)
class Settings:
    """Choices that change a plan; all of them are public.

    Args:
        steps: Steps of each training; None: `defaults` chooses.
        batch_size: Expected rows of Poisson batches; None: all rows, every step.
        clip: The norm to which each row's gradient is clipped.
        row_norm: The largest norm of a row of DPDGC's W.
        hops: GAP's L.
        layers: DP-SAGE's depth.
        max_degree: The degree promise of GAP and DP-SAGE at k-neighbour level.
        capped: Whether a graph that breaks its degree promise is cut.
        reserved_readers: By how much less than the promise it is cut, to leave room for new nodes.
        table: DPDGC's W (`dpdgc_plan.table_at`).
        response_epsilon: The epsilon of randomised responses to labels; None: `defaults` chooses.
        tau: The weight bound of a table of neighbours' labels; None: `dpdgc_plan.tau_at` chooses.
        shares: Parts of mu^2 by the name of a mechanism, in place of the method's own.
        counts_classes: Whether the training nodes of each class are counted, for class weights.

    Raises:
        InvalidInput: A value cannot be used.
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
    counts_classes: bool = False

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
        if self.response_epsilon is not None:
            validate.positive("response_epsilon", self.response_epsilon)
        if self.tau is not None:
            validate.scale("tau", self.tau)


@dataclass(frozen=True)
class Spending:
    """What a method spends, with noise of one unit.

    Args:
        shared: The mechanisms that are drawn in any case, in order.
        shares: The default parts of mu^2, by the name of a mechanism (`Plan.calibrated`).
        branches: The ways to go on after them; none if they are all.
        degree_bound: The bound on the readers of a node that the sensitivities rely on; None if they rely on none.
        by_relation: Whether several relations are released side by side; otherwise their sum is read, cut at 1.
    """

    shared: tuple[Mechanism, ...]
    shares: Mapping[str, float]
    branches: tuple[Branch, ...] = ()
    degree_bound: int | None = None
    by_relation: bool = False


class Spend(Protocol):
    """What a method spends, by level, public facts and settings; epsilon is None where noise is stated instead."""

    def __call__(self, level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None, /) -> Spending: ...


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
    spend: Spend | None = None,
) -> Plan:
    """The plan of a method at a level.

    Args:
        method: The method's name on the command line, as in `METHODS`.
        level: What is protected. An edge level without a unit takes the one that `facts` declares.
        facts: What everybody may know about the graph.
        epsilon: The target. The least noise that meets it is searched for.
        delta: A number, or "auto" (`automatic_delta`).
        settings: Choices that change the plan; by default those of `Settings`.
        noise: In place of `epsilon`: one noise multiplier for all mechanisms, or one for each by name.
        shared_multiplier: Calibrate one multiplier for all mechanisms, as the paper does, in place of shares.
        spend: What the method spends; None: what is registered under its name.

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
    spend = spend or method_named(method).spend
    level_name(level)
    level = with_unit(level, facts.directed)
    settings = settings or Settings()
    chosen_delta = _chosen_delta(delta, level, facts)
    check_budget(level, epsilon)
    if (epsilon is None) == (noise is None) and not isinstance(level, Public):
        raise InvalidInput("epsilon", epsilon, "give either epsilon or noise")
    settings = replace(settings, steps=settings.steps or defaults.steps_for(epsilon))
    empty = Plan(method, level, facts, chosen_delta, ())
    spending = _with_scales(spending_of(method, spend, level, facts, settings, epsilon), level, facts)
    spending = _with_class_counts(spending, level, settings)
    plan = replace(
        empty,
        shared=spending.shared,
        assumptions=(*_relation_sentences(spending, facts), *_degree_sentences(spending, settings, facts)),
        branches=spending.branches,
    )
    if isinstance(level, Public):
        return plan
    if noise is not None:
        return plan.with_noise(noise)
    assert epsilon is not None
    if shared_multiplier:
        return plan.with_noise(1.0).calibrated(epsilon)
    return plan.calibrated(epsilon, _chosen_shares(method, spending, settings))


def _chosen_delta(delta: float | str, level: Level, facts: PublicFacts) -> float:
    if isinstance(delta, str) and delta != "auto":
        raise InvalidInput("delta", delta, 'must be a number or "auto"')
    return automatic_delta(level, facts) if delta == "auto" else check_delta(delta)


def _chosen_shares(method: str, spending: Spending, settings: Settings) -> dict[str, float]:
    """The method's shares of the budget, with those that the user chose in their place."""
    for name in settings.shares:
        if name not in spending.shares:
            raise InvalidInput("shares", name, f"is not a part of {method} here ({', '.join(spending.shares)})")
    return {**spending.shares, **settings.shares}


def check_budget(level: Level, epsilon: float | None) -> None:
    """Refuse an epsilon that is none, and one where nothing is protected."""
    if epsilon is None:
        return
    if isinstance(level, Public):
        raise InvalidInput("epsilon", epsilon, "level none protects nothing and has no budget; leave epsilon out")
    validate.positive("epsilon", epsilon)


def spending_of(
    method: str, spend: Spend, level: Level, facts: PublicFacts, settings: Settings, epsilon: float | None
) -> Spending:
    """What a method spends; refuses to cap degrees where there is no bound to cap them to."""
    spending = spend(level, facts, settings, epsilon)
    # A node level has a bound, also for methods that do not rely on it.
    if settings.capped and spending.degree_bound is None and not isinstance(level, Node):
        why = f"{method} relies on no degree bound at level {level_name(level)}, so nothing would be cut; leave it out"
        raise InvalidInput("cap_degrees", True, why)
    return spending


def _with_scales(spending: Spending, level: Level, facts: PublicFacts) -> Spending:
    """Where attributes are private and there are columns of raw numbers: their histograms, before everything else."""
    if not facts.numeric_columns or not protects_attributes(level):
        return spending
    scales = GaussianRelease(
        "scales",
        ByKind.same(sensitivity.column_histograms(facts.numeric_columns)),
        1.0,
        "docs/theory.md section 5.9 (histograms of columns)",
        uses=2,
        role="scales",
        own_rows=True,
    )
    shares = {"scales": defaults.SCALES_SHARE, **spending.shares}
    return replace(spending, shared=(scales, *spending.shared), shares=shares)


def _with_class_counts(spending: Spending, level: Level, settings: Settings) -> Spending:
    """Where attributes are private and class weights follow from counts: these counts, before everything else."""
    if not settings.counts_classes or not protects_attributes(level):
        return spending
    counts = GaussianRelease(
        "classes",
        ByKind(sensitivity.class_counts(level), 0),
        1.0,
        "docs/theory.md section 5.10 (class counts)",
        role="classes",
        own_rows=True,
    )
    shares = {"classes": CLASSES_SHARE, **spending.shares}
    return replace(spending, shared=(counts, *spending.shared), shares=shares)


def own_training(name: str, role: Role, level: Level, facts: PublicFacts, settings: Settings) -> ClippedTraining:
    """Training in which a training node moves its own row, and an unlabelled one moves none."""
    group = ByKind(sensitivity.head_group(level, facts.train_nodes), 0)
    proof = "docs/theory.md section 4 (the node's own row; all others are private already)"
    return training(name, role, level, group, facts, settings, proof)


def training(
    name: str, role: Role, level: Level, group: ByKind, facts: PublicFacts, settings: Settings, source: str
) -> ClippedTraining:
    """Clipped training in which a node of each kind moves `group` rows, a training node's own among them."""
    rate = 1.0
    if settings.batch_size is not None:
        # A multiple of 2^-40, which a uniform number of 52 bits is below with exactly this probability.
        rate = min(1.0, math.ceil(settings.batch_size / facts.train_nodes * 2.0**40) * 2.0**-40)
    steps = settings.steps or defaults.steps_for(None)
    removed = ByKind(sensitivity.removed_rows(level, int(group.training)), 0)
    return ClippedTraining(name, group, 1.0, steps, source, rate, settings.clip, role=role, removed=removed)


def released_product(table: str, moved: float, level: Level, settings: Settings, source: str) -> GaussianRelease:
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


def released_table(name: str, moved: ByKind, source: str) -> GaussianRelease:
    """A table that others read, released in all rows."""
    return GaussianRelease(name, moved, 1.0 if moved.worst else 0.0, source, role="table", table=name, own_rows=True)


def released_sums(
    name: str, moved: float, uses: int, level: Edge | KNeighbor | Node, settings: Settings, source: str
) -> GaussianRelease:
    """Sums of neighbours' unit rows, released `uses` times."""
    bound = None if isinstance(level, Edge) else promised_degree(level, settings)
    std = 1.0 if moved else 0.0
    return GaussianRelease(name, ByKind.same(moved), std, source, uses, role="aggregation", degree_bound=bound)


def promised_degree(level: KNeighbor | Node, settings: Settings) -> int | None:
    """The degree promise of methods that need one at k-neighbour level too."""
    return level.max_degree if isinstance(level, Node) else settings.max_degree


def promised_power(mechanisms: Iterable[Mechanism]) -> int:
    """What a degree promise adds up over the readers of a node, by the mechanisms that rely on it.

    A release and an aggregation need the squares of weights (power 2), link statistics the weights themselves (1), and
    whatever counts changed rows the number of readers (0). docs/theory.md, section 2.7.
    """

    def power(mechanism: Mechanism) -> int:
        counted = mechanism.role in ("embedding", "gradient", "edges")
        if counted or (isinstance(mechanism, GaussianRelease) and "neighbors" in mechanism.table.split("+")):
            return 0
        return 1 if mechanism.role == "statistics" else 2

    return min(map(power, mechanisms), default=2)


def choice_plan(level: Level, facts: PublicFacts, delta: float, candidates: int, metric: str, mu: float) -> Plan:
    """The plan of a choice among this many candidates, which costs a held-out node `mu`."""
    if isinstance(level, Public):  # nothing is counted there
        return Plan(SEARCH, level, facts, delta, ())
    moved = sensitivity.held_out_counts(level, candidates, by_class=metric == "balanced_accuracy")
    counts = GaussianRelease(
        "choice",
        ByKind(0, moved),  # held-out nodes are not in training
        moved / mu,
        "docs/theory.md section 4.7 (right answers of held-out nodes)",
        role="choice",
        own_rows=True,
    )
    return Plan(SEARCH, level, facts, delta, (counts,))


def _all_of(spending: Spending) -> list[Mechanism]:
    return [*spending.shared, *(mechanism for branch in spending.branches for mechanism in branch.mechanisms)]


def _relation_sentences(spending: Spending, facts: PublicFacts) -> tuple[str, ...]:
    """How the relations are read."""
    if not facts.relations:
        return ()
    if spending.by_relation:
        return ("The neighbours of each relation are released by themselves, side by side.",)
    return ("The relations are read as one graph: what they say of a pair of nodes is added up and cut at 1.",)


def _degree_sentences(spending: Spending, settings: Settings, facts: PublicFacts) -> tuple[str, ...]:
    """What the certificate says about degrees (docs/theory.md, section 2, last bullet).

    Whether anything had to be cut is private, and the same is said in both cases.
    """
    bound = spending.degree_bound
    if bound is None:
        return ()
    mechanisms = _all_of(spending)
    together = " over all relations together" if facts.relations and spending.by_relation else ""
    power = promised_power(mechanisms) if facts.weighted else 0
    if power or together:
        return _weight_sentences(bound, settings, power, together)
    if settings.capped:
        kept = bound - settings.reserved_readers
        return (
            f"Of the readers of a node, all beyond {kept} are dropped at random before training, if there are any. "
            "Adjacent graphs are graphs that differ after the capping; a change before it can move more links.",
        )
    return (f"Promised: no node is read by more than {bound} others, before and after a change.",)


def _weight_sentences(bound: int, settings: Settings, power: int, together: str) -> tuple[str, ...]:
    """The same where the promise is about weights, or about links of several relations."""
    what = ("number", "weights", "squared weights")[power]
    if settings.capped:
        return (
            f"Of the links by which a node is read, some are dropped at random before training, until their {what}"
            f"{together} come to at most {bound - settings.reserved_readers}. Adjacent graphs are graphs that differ "
            "after the capping; a change before it can move more links.",
        )
    return (
        f"Promised: the {what} of the links by which a node is read come to at most {bound}{together}, before and "
        "after a change.",
    )
