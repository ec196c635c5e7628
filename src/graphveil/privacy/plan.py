"""A plan lists the mechanisms of one fit, with their noise, before any data is read.

A plan is a value: it draws nothing. `execution.Ledger` executes it, and the executed plan is the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.privacy.accounting import Composition, Gaussian, Loss, RandomizedResponse, SampledGaussian
from graphveil.privacy.accounting.calibration import least_factor, search_factor
from graphveil.privacy.lattice import SAMPLER_DELTA
from graphveil.privacy.levels import Edge, Level, Public, check_size, with_unit

Kind = Literal["training", "unlabelled"]
KINDS: tuple[Kind, ...] = ("training", "unlabelled")
Branch = Literal["main", "fallback"]
BRANCHES: tuple[Branch, ...] = ("main", "fallback")

LARGEST_DELTA, SMALLEST_DELTA = 1e-2, 1e-30
# Shares are relative to each other; beyond this, noise leaves the range of floats.
LARGEST_SHARE = 1e9


@dataclass(frozen=True)
class ByKind:
    """A sensitivity for each kind of replaced node: one in the training set, one outside it.

    Who is in the training set is public, so the two kinds may cost different amounts, and a certificate states the
    larger. At edge level no node is replaced, and both entries are the edge's.
    """

    training: float
    unlabelled: float

    @classmethod
    def same(cls, value: float) -> ByKind:
        return cls(value, value)

    def of(self, kind: Kind) -> float:
        return self.training if kind == "training" else self.unlabelled

    @property
    def worst(self) -> float:
        return max(self.training, self.unlabelled)

    @property
    def least(self) -> float:
        """The smallest sensitivity that is not 0, or 0."""
        return min((value for value in (self.training, self.unlabelled) if value > 0), default=0.0)


@dataclass(frozen=True)
class GaussianRelease:
    """`uses` tables, each released with Gaussian noise of standard deviation `std` on every entry.

    `source` says where the sensitivity is proved.

    Formal guarantee: each use is a Gaussian mechanism with mu = sensitivity / std, provided that what is released moves
    by at most `sensitivity` (L2) between adjacent graphs.
    """

    name: str
    sensitivity: ByKind
    std: float
    source: str
    uses: int = 1
    type: ClassVar[str] = "gaussian release"

    def loss(self, kind: Kind) -> Loss | None:
        moved = self.sensitivity.of(kind)
        if moved == 0:
            return None
        return Gaussian.from_noise(moved * math.sqrt(self.uses), self.std)

    def scaled(self, factor: float) -> GaussianRelease:
        return replace(self, std=self.std * factor)

    def with_noise(self, noise: float) -> GaussianRelease:
        """Noise in multiples of the sensitivity, the paper's multiplier."""
        return replace(self, std=noise * self.sensitivity.worst)

    @property
    def noise(self) -> float:
        return self.std

    def describe_noise(self) -> str:
        return "none needed" if self.std == 0 else f"std {self.std:.4g} on each entry"


@dataclass(frozen=True)
class ClippedTraining:
    """`steps` sums of per-row gradients clipped to norm `clip`, with noise of `noise_multiplier * clip` on the sum.

    Formal guarantee: docs/theory.md, lemma 1, for a replaced node that moves `group` rows, provided that each row
    enters a step independently with probability `sampling_rate` (1: every row, every step).
    """

    name: str
    group: ByKind
    noise_multiplier: float
    steps: int
    source: str
    sampling_rate: float = 1.0
    clip: float = 1.0
    type: ClassVar[str] = "clipped gradients"

    def __post_init__(self) -> None:
        validate.positive("clip", self.clip)
        validate.count("steps", self.steps)
        validate.rate("sampling_rate", self.sampling_rate)

    def loss(self, kind: Kind) -> Loss | None:
        group = int(self.group.of(kind))
        if group == 0:
            return None
        return SampledGaussian(self.noise_multiplier, group, self.sampling_rate, self.steps)

    def scaled(self, factor: float) -> ClippedTraining:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def with_noise(self, noise: float) -> ClippedTraining:
        return replace(self, noise_multiplier=noise)

    @property
    def uses(self) -> int:
        return self.steps

    @property
    def sensitivity(self) -> ByKind:
        return ByKind(2 * self.group.training * self.clip, 2 * self.group.unlabelled * self.clip)

    @property
    def noise(self) -> float:
        return self.noise_multiplier * self.clip

    def describe_noise(self) -> str:
        if self.group.worst == 0:
            return "none needed"
        return f"std {self.noise:.4g} on the sum, each of {self.steps} steps"


@dataclass(frozen=True)
class Responses:
    """Randomised responses over `classes` symbols; a replaced node changes `changed` of them.

    Formal guarantee: pure `epsilon`-DP for each response.
    """

    name: str
    changed: ByKind
    epsilon: float
    classes: int
    source: str
    uses: int = 1
    type: ClassVar[str] = "randomised response"

    def loss(self, kind: Kind) -> Loss | None:
        changed = int(self.changed.of(kind))
        return RandomizedResponse(self.epsilon, self.classes, changed * self.uses) if changed else None

    def scaled(self, factor: float) -> Responses:
        del factor  # a response's epsilon is chosen, not calibrated
        return self

    def with_noise(self, noise: float) -> Responses:
        """For responses the noise is stated as their epsilon."""
        return replace(self, epsilon=noise)

    @property
    def sensitivity(self) -> ByKind:
        return self.changed

    @property
    def noise(self) -> float:
        return self.epsilon

    def describe_noise(self) -> str:
        truth = RandomizedResponse(self.epsilon, self.classes).truth_probability
        return f"epsilon {self.epsilon:.4g}, true answer with probability {truth:.3f}"


Mechanism = GaussianRelease | ClippedTraining | Responses


@dataclass(frozen=True)
class PublicFacts:
    """What everybody may know about a graph. Plans depend on nothing else.

    Args:
        nodes: The number of nodes.
        train_nodes: The number of training nodes. Which nodes these are is public too.
        features: The number of features.
        classes: The number of classes.
        directed: Whether the graph is declared directed.
        edges: A declared upper bound on the number of stored edges, never a count: the count is private. None: no
            bound.
        found: Facts among these that were read from the data and not declared, in words that contain no values of the
            data.

    Raises:
        InvalidInput: A number is out of range.
    """

    nodes: int
    train_nodes: int
    features: int
    classes: int
    directed: bool = False
    edges: int | None = None
    found: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate.count("nodes", self.nodes, least=2)
        validate.count("train_nodes", self.train_nodes)
        validate.count("features", self.features, least=0)
        validate.count("classes", self.classes, least=2)
        if self.train_nodes > self.nodes:
            raise InvalidInput("train_nodes", self.train_nodes, f"exceeds the number of nodes, {self.nodes}")
        if self.edges is not None:
            validate.count("edges", self.edges, least=0)
        if isinstance(self.found, str) or not all(isinstance(fact, str) for fact in self.found):
            raise InvalidInput("found", self.found, "must be a list of sentences")
        object.__setattr__(self, "found", tuple(self.found))


@dataclass(frozen=True)
class Plan:
    """An immutable list of mechanisms: all that a method may ever learn from private data.

    A plan may have two branches. After its mechanism "choice", what was released so far decides whether the rest of
    `mechanisms` follows (the main plan) or `otherwise` (the fallback plan). Each branch is accounted at its part of
    delta, and the plan costs the maximum over its branches (docs/theory.md, section 4.5).

    Formal guarantee: a fit that draws only through this plan satisfies graph differential privacy at `level` with
    (`epsilon`, `delta`) for every kind of node, under `assumptions`.

    Args:
        method: The method's name.
        level: What is protected, with its edge unit filled in.
        facts: The public facts that the plan was made from.
        delta: The probability that is left out of the guarantee, of all branches together.
        mechanisms: What is drawn, in order, with noise.
        assumptions: What the sensitivities rely on, in sentences for the certificate.
        otherwise: The mechanisms that follow "choice" in the other branch; empty if there is one branch.
        alternatives: The number of branches, among which delta is divided.
        branch: Which branch `mechanisms` is: "main" or "fallback". Then `otherwise` is the rest of the other one.

    Raises:
        InvalidInput: The fields contradict each other.
    """

    method: str
    level: Level
    facts: PublicFacts
    delta: float
    mechanisms: tuple[Mechanism, ...]
    assumptions: tuple[str, ...] = ()
    otherwise: tuple[Mechanism, ...] = ()
    alternatives: int = 1
    branch: Branch = "main"

    def __post_init__(self) -> None:
        validate.open_unit("delta", self.delta)
        if self.branch not in BRANCHES:
            raise InvalidInput("branch", self.branch, f"must be one of {', '.join(BRANCHES)}")
        check_size(self.level, self.facts.nodes)
        names = [mechanism.name for mechanism in self.mechanisms + self.otherwise]
        if len(set(names)) != len(names):
            raise InvalidInput("mechanisms", names, "names must be unique")
        if self.otherwise and "choice" not in names[: len(self.mechanisms)]:
            raise InvalidInput("mechanisms", names, "there are two branches, but no choice between them")
        # A plan with a choice has two branches, also where only one of them is listed.
        validate.count("alternatives", self.alternatives, least=2 if self.otherwise or "choice" in names else 1)
        if self.level != with_unit(self.level, self.facts.directed):
            raise InvalidInput("level", self.level, "the edge unit is not settled; see levels.with_unit")

    @property
    def names(self) -> tuple[str, ...]:
        """The mechanisms of the branch that is followed."""
        return tuple(mechanism.name for mechanism in self.mechanisms)

    def __getitem__(self, name: str) -> Mechanism:
        for mechanism in self.mechanisms + self.otherwise:
            if mechanism.name == name:
                return mechanism
        raise InvalidInput("mechanism", name, f"is not in this plan ({', '.join(m.name for m in self.mechanisms)})")

    def composition(self, kind: Kind) -> Composition:
        """Everything that a node of this kind pays for."""
        losses = (mechanism.loss(kind) for mechanism in self.mechanisms)
        return Composition(tuple(loss for loss in losses if loss is not None))

    def epsilon_by_kind(self) -> dict[Kind, float]:
        """What each kind of node pays, the maximum over both branches; infinite at level `Public()`."""
        if isinstance(self.level, Public):
            return dict.fromkeys(KINDS, math.inf)
        paid = {kind: self.composition(kind) for kind in KINDS}
        # Often both kinds pay for the same mechanisms; accounting once saves up to a second.
        epsilons = {each: each.epsilon(self._delta_of_each) for each in paid.values()}
        found = {kind: epsilons[each] for kind, each in paid.items()}
        if self.otherwise:
            other = self.turned().epsilon_by_kind()
            found = {kind: max(found[kind], other[kind]) for kind in KINDS}
        return found

    @property
    def epsilon(self) -> float:
        """What the worst kind of node pays; infinite where nothing is protected."""
        return max(self.epsilon_by_kind().values())

    @property
    def rdp_epsilon(self) -> float:
        """What the worst kind of node pays by the paper's accountant (Rényi); a cross-check."""
        if isinstance(self.level, Public):
            return math.inf
        found = max(paid.rdp_epsilon(self._delta_of_each) for paid in {self.composition(kind) for kind in KINDS})
        return max(found, self.turned().rdp_epsilon) if self.otherwise else found

    @property
    def _delta_of_each(self) -> float:
        """The delta of each branch, less the distance of drawn noise from ideal noise (docs/theory.md, 8.2)."""
        return (self.delta - SAMPLER_DELTA) / self.alternatives

    def turned(self) -> Plan:
        """The other branch alone: what comes before the choice, the choice, and `otherwise`."""
        return self.exchanged().straight()

    def straight(self) -> Plan:
        """This branch as a plan without branches."""
        return replace(self, otherwise=())

    def exchanged(self) -> Plan:
        """The same plan with its two branches exchanged."""
        shared = [mechanism.name for mechanism in self.mechanisms].index("choice") + 1
        return replace(
            self,
            mechanisms=self.mechanisms[:shared] + self.otherwise,
            otherwise=self.mechanisms[shared:],
            branch="fallback" if self.branch == "main" else "main",
        )

    def shares(self) -> dict[str, float]:
        """Each mechanism's part of the sum of mu^2; responses have none."""
        squares = {mechanism.name: _worst_mu(mechanism) ** 2 for mechanism in self.mechanisms}
        total = sum(squares.values())
        return {name: square / total if total else 0.0 for name, square in squares.items()}

    def calibrated(self, epsilon: float, shares: Mapping[str, float] | None = None) -> Plan:
        """This plan with the least noise that costs at most `epsilon`.

        Args:
            epsilon: The target.
            shares: The part of mu^2 of each mechanism by name. None: the present noise is scaled by one factor (the
                paper's single multiplier, when all multipliers are equal).

        Returns:
            A plan that costs at most `epsilon`, and at least 0.999 times that.

        Raises:
            InvalidInput: A share is missing or not positive, or no noise meets the target.

        Formal guarantee: `epsilon` of the result, accounted anew, is at most the target.
        """
        plan = self if shares is None else self._with_shares(shares)
        if isinstance(self.level, Public):
            return plan
        kinds = tuple(plan.composition(kind).losses for kind in KINDS)
        factor = _least_factor(kinds, epsilon, self._delta_of_each)
        plan = replace(plan, mechanisms=tuple(m.scaled(factor) for m in plan.mechanisms))
        return plan._with_otherwise(epsilon) if self.otherwise else plan

    def _with_otherwise(self, epsilon: float) -> Plan:
        """Scale the noise of `otherwise` so that the other branch costs at most the same epsilon."""

        def scaled(factor: float) -> Plan:
            return replace(self, otherwise=tuple(m.scaled(factor) for m in self.otherwise))

        guess = self.turned().composition("training").mu / self.straight().composition("training").mu
        factor, _ = search_factor(lambda f: scaled(f).turned().epsilon, guess, epsilon, self._delta_of_each)
        return scaled(factor)

    def with_noise(self, noise: float | Mapping[str, float]) -> Plan:
        """This plan with stated noise in place of calibrated noise.

        Args:
            noise: One multiplier for all mechanisms, or one for each by name. It is in units of the sensitivity
                (releases) or of the clipping norm (gradients); for responses it is their epsilon.

        Returns:
            The plan with this noise; its `epsilon` is what that costs.

        Raises:
            InvalidInput: A name is unknown or missing, or a value is not positive.
        """
        if isinstance(noise, Mapping):
            for name in noise:
                self[name]
            listed = self.mechanisms + self.otherwise
            missing = [m.name for m in listed if m.name not in noise and m.sensitivity.worst > 0]
            if missing:
                raise InvalidInput("noise", dict(noise), f"has no value for {', '.join(missing)}")
            values = {m.name: noise.get(m.name, 1.0) for m in self.mechanisms + self.otherwise}
        else:
            values = {m.name: noise for m in self.mechanisms + self.otherwise}
        for name, value in values.items():
            validate.positive(f"noise of {name}", value)
        return replace(
            self,
            mechanisms=tuple(m.with_noise(values[m.name]) for m in self.mechanisms),
            otherwise=tuple(m.with_noise(values[m.name]) for m in self.otherwise),
        )

    def _with_shares(self, shares: Mapping[str, float]) -> Plan:
        for name in shares:
            self[name]
        scaled: list[Mechanism] = []
        for mechanism in self.mechanisms:
            mu = _worst_mu(mechanism)
            if mu == 0:
                scaled.append(mechanism)
                continue
            if mechanism.name not in shares:
                raise InvalidInput("shares", dict(shares), f"has no share for {mechanism.name}")
            share = validate.positive(f"share of {mechanism.name}", shares[mechanism.name])
            if not 1 / LARGEST_SHARE <= share <= LARGEST_SHARE:
                why = f"must lie between {1 / LARGEST_SHARE:g} and {LARGEST_SHARE:g}"
                raise InvalidInput(f"share of {mechanism.name}", share, why)
            scaled.append(mechanism.scaled(mu / math.sqrt(share)))
        return replace(self, mechanisms=tuple(scaled))


@lru_cache(maxsize=1024)
def _least_factor(kinds: tuple[tuple[Loss, ...], ...], epsilon: float, delta: float) -> float:
    """Cached, because fits that differ only in their seed have the same noise."""
    return least_factor(kinds, epsilon, delta)[0]


def _worst_mu(mechanism: Mechanism) -> float:
    losses = (mechanism.loss(kind) for kind in KINDS)
    return max((loss.mu for loss in losses if loss is not None), default=0.0)


def mechanism_to_dict(mechanism: Mechanism) -> dict[str, Any]:
    """A JSON form that holds everything the accountants need; `mechanism_from_dict` reads it back."""
    data: dict[str, Any] = {"type": mechanism.type}
    for key, value in vars(mechanism).items():
        data[key] = {"training": value.training, "unlabelled": value.unlabelled} if isinstance(value, ByKind) else value
    return data


def mechanism_from_dict(data: Mapping[str, Any]) -> Mechanism:
    """The mechanism that `mechanism_to_dict` wrote."""
    types: dict[str, type] = {cls.type: cls for cls in (GaussianRelease, ClippedTraining, Responses)}
    words = dict(data)
    name = words.pop("type", None)
    if name not in types:
        raise InvalidInput("mechanism type", name, f"must be one of {', '.join(types)}")
    try:
        values = {key: ByKind(**value) if isinstance(value, dict) else value for key, value in words.items()}
        mechanism: Mechanism = types[name](**values)
    except TypeError as error:
        raise InvalidInput("mechanism", name, f"has wrong fields: {error}") from None
    return mechanism


def protected_units(level: Level, facts: PublicFacts) -> int:
    """How many nodes, or edges, a level protects one by one, by public facts alone.

    Nodes include those outside of the training set. At edge level, stored edges are counted: the declared bound, or
    without one the largest number that this many nodes can have, n (n - 1). An edge of an undirected graph is stored
    twice and counted twice, which makes the automatic delta smaller.
    """
    if not isinstance(level, Edge):
        return facts.nodes
    return max(1, facts.nodes * (facts.nodes - 1) if facts.edges is None else facts.edges)


def automatic_delta(level: Level, facts: PublicFacts) -> float:
    """The largest power of ten that is at most 0.1 / `protected_units` (docs/theory.md, section 9.4).

    >>> automatic_delta(Edge("directed"), PublicFacts(nodes=100, train_nodes=50, features=1, classes=2, edges=1000))
    0.0001
    """
    units = protected_units(level, facts)
    found = float(f"1e-{len(str(units - 1)) + 1}")
    if found <= SMALLEST_DELTA:
        why = f"protects {units:.1e} units, and 0.1 over that is below {SMALLEST_DELTA:g}; declare a bound on the edges"
        raise InvalidInput("nodes", facts.nodes, why)
    return found


def paper_delta(level: Level, train_nodes: int, edges: int) -> float:
    """The paper's choice: 10 to the minus number of digits of the training nodes, at edge level of the stored edges.

    Not for private graphs: it counts the edges there are, and it may exceed 1 / `protected_units`.
    """
    return float(f"1e-{len(str(edges if isinstance(level, Edge) else train_nodes))}")


def check_delta(delta: object) -> float:
    """Refuse a delta at which the guarantee means little, or that is too small for the accountants."""
    number = validate.open_unit("delta", delta)
    if number > LARGEST_DELTA:
        raise InvalidInput("delta", delta, f"must be at most {LARGEST_DELTA}: the chance that nothing is promised")
    if number < SMALLEST_DELTA:
        raise InvalidInput("delta", delta, f"must be at least {SMALLEST_DELTA}: the accountants do not reach further")
    return number


def delta_warning(level: Level, facts: PublicFacts, delta: float) -> str | None:
    """What is wrong with a delta that is allowed, but larger than one over the number of protected units."""
    units = protected_units(level, facts)
    if isinstance(level, Public) or delta <= 1 / units:
        return None
    what = "nodes" if not isinstance(level, Edge) else "possible edges" if facts.edges is None else "declared edges"
    return (
        f"delta {delta:.3g} is more than 1 / {units}, one over the number of protected {what}: a method that publishes "
        f"one of them in full could have it. Take {automatic_delta(level, facts):.0e} or less."
    )
