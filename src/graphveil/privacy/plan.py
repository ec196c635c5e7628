"""A plan lists the mechanisms of one fit, with their noise, before any data is read.

A plan is a value: it draws nothing. `execution.Ledger` executes it, and the executed plan is the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from graphveil import validate
from graphveil.accounting import AnyOf, Composition, Loss, least_factor, search_factor, worst_kinds
from graphveil.errors import InvalidInput
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Level, Public, check_size, level_from_dict, level_to_dict, with_unit
from graphveil.privacy.mechanisms import (
    KINDS,
    SAMPLER_DELTA,
    Kind,
    Mechanism,
    Role,
    losses_of,
    mechanism_from_dict,
    mechanism_to_dict,
    worst_mu,
)

# The method of a plan that chooses among the candidates of a search.
SEARCH = "search"
# Shares are relative to each other; beyond this, noise leaves the range of floats.
LARGEST_SHARE = 1e9
# The losses of each kind of node.
_Kinds = tuple[tuple[Loss, ...], ...]


@dataclass(frozen=True)
class Branch:
    """One way in which a fit may go on after the shared mechanisms of its plan."""

    name: str
    mechanisms: tuple[Mechanism, ...]


@dataclass(frozen=True)
class Plan:
    """An immutable list of mechanisms: all that a method may ever learn from private data.

    The `shared` mechanisms come first. Where there are `branches`, what was released so far decides which of them
    follows. Each branch is accounted, together with the shared mechanisms, at an equal part of delta, and the plan
    costs the maximum over its branches (docs/theory.md, section 4.5).

    Formal guarantee: a fit that draws only through this plan satisfies graph differential privacy at `level` with
    (`epsilon`, `delta`) for every kind of node, under `assumptions`.

    Args:
        method: The method's name.
        level: What is protected, with its edge unit filled in.
        facts: The public facts that the plan was made from.
        delta: The probability that is left out of the guarantee, of all branches together.
        shared: What is drawn in any case, in order, with noise.
        assumptions: What the sensitivities rely on, in sentences for the certificate.
        branches: The ways to go on; none if `shared` is all there is.
        followed: The name of the branch that is followed; None as long as that is not decided.
        beside: Plans that are executed on the same data for the same result: the other candidates of a search, and the
            choice among them. All of them together cost `epsilon` (docs/theory.md, section 4.7).

    Raises:
        InvalidInput: The fields contradict each other.
    """

    method: str
    level: Level
    facts: PublicFacts
    delta: float
    shared: tuple[Mechanism, ...]
    assumptions: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = ()
    followed: str | None = None
    beside: tuple[Plan, ...] = ()

    def __post_init__(self) -> None:
        validate.open_unit("delta", self.delta)
        check_size(self.level, self.facts.nodes)
        for what, names in (
            ("mechanisms", [mechanism.name for mechanism in self.all_mechanisms]),
            ("branches", [branch.name for branch in self.branches]),
        ):
            if len(set(names)) != len(names):
                raise InvalidInput(what, names, "names must be unique")
        if self.followed is not None:
            self.branch(self.followed)
        if self.level != with_unit(self.level, self.facts.directed):
            raise InvalidInput("level", self.level, "the edge unit is not settled; see levels.with_unit")
        for other in self.beside:
            if (other.level, other.facts, other.beside) != (self.level, self.facts, ()):
                raise InvalidInput("beside", other.method, "has another level or other facts, or is a search itself")

    @property
    def alone(self) -> Plan:
        """This plan without those beside it."""
        return replace(self, beside=())

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What may be drawn now: the shared mechanisms and, once a branch is followed, those of this branch."""
        return self.shared if self.followed is None else self.shared + self.branch(self.followed).mechanisms

    @property
    def all_mechanisms(self) -> tuple[Mechanism, ...]:
        """The shared mechanisms and those of all branches."""
        return self.shared + tuple(mechanism for branch in self.branches for mechanism in branch.mechanisms)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of `mechanisms`."""
        return tuple(mechanism.name for mechanism in self.mechanisms)

    def with_role(self, role: Role) -> tuple[Mechanism, ...]:
        """Those of `mechanisms` that have this role."""
        return tuple(mechanism for mechanism in self.mechanisms if mechanism.role == role)

    def __getitem__(self, name: str) -> Mechanism:
        for mechanism in self.all_mechanisms:
            if mechanism.name == name:
                return mechanism
        known = ", ".join(mechanism.name for mechanism in self.all_mechanisms)
        raise InvalidInput("mechanism", name, f"is not in this plan ({known})")

    def branch(self, name: str) -> Branch:
        """The branch with this name."""
        for branch in self.branches:
            if branch.name == name:
                return branch
        known = ", ".join(branch.name for branch in self.branches) or "there are none"
        raise InvalidInput("branch", name, f"is not in this plan ({known})")

    def follow(self, branch: str) -> Plan:
        """This plan, going on with this branch. The others stay in it, because all of them are certified."""
        return replace(self, followed=branch)

    def outcomes(self) -> tuple[Plan, ...]:
        """This plan with each of its branches followed; itself if there are none."""
        return tuple(self.follow(branch.name) for branch in self.branches) or (self,)

    def changed(self, change: Callable[[Mechanism], Mechanism | None]) -> Plan:
        """This plan with each mechanism replaced by what `change` makes of it; None leaves it out."""

        def each(mechanisms: tuple[Mechanism, ...]) -> tuple[Mechanism, ...]:
            return tuple(made for made in map(change, mechanisms) if made is not None)

        branches = tuple(replace(branch, mechanisms=each(branch.mechanisms)) for branch in self.branches)
        return replace(self, shared=each(self.shared), branches=branches)

    def composition(self, kind: Kind) -> Composition:
        """Everything that a node of this kind pays for, in the branch that is followed."""
        return Composition(losses_of(self.mechanisms, kind))

    def losses(self, kind: Kind) -> tuple[Loss, ...]:
        """What a node of this kind pays for whichever branch is followed, to be composed with other plans."""
        shared = losses_of(self.shared, kind)
        branches = tuple(losses_of(branch.mechanisms, kind) for branch in self.branches)
        own = (*shared, AnyOf(branches)) if branches else shared
        return own + tuple(loss for other in self.beside for loss in other.losses(kind))

    def followed_epsilon_by_kind(self) -> dict[Kind, float]:
        """What each kind of node pays in the branch that is followed, at the branch's part of delta."""
        if isinstance(self.level, Public):
            return dict.fromkeys(KINDS, math.inf)
        return {kind: _epsilon(self.composition(kind).losses, self._delta_of_each) for kind in KINDS}

    def epsilon_by_kind(self) -> dict[Kind, float]:
        """What each kind of node pays, the maximum over all branches; infinite at level `Public()`."""
        if self.beside and not isinstance(self.level, Public):
            return self._together(Composition.epsilon)
        paid = [outcome.followed_epsilon_by_kind() for outcome in self.outcomes()]
        return {kind: max(each[kind] for each in paid) for kind in KINDS}

    @property
    def epsilon(self) -> float:
        """What the worst kind of node pays; infinite where nothing is protected."""
        return max(self.epsilon_by_kind().values())

    @property
    def rdp_epsilon(self) -> float:
        """What the worst kind of node pays by the paper's accountant (Rényi); a cross-check."""
        if isinstance(self.level, Public):
            return math.inf
        if self.beside:
            return max(self._together(Composition.rdp_epsilon).values())
        paid = {outcome.composition(kind) for outcome in self.outcomes() for kind in KINDS}
        return max(each.rdp_epsilon(self._delta_of_each) for each in paid)

    def _together(self, cost: Callable[[Composition, float], float]) -> dict[Kind, float]:
        """What each kind of node pays for this plan and those beside it."""
        delta = self.delta - SAMPLER_DELTA * self.sources
        return {kind: cost(Composition(self.losses(kind)), delta) for kind in KINDS}

    @property
    def sources(self) -> int:
        """How many plans this is, each with its own source of noise."""
        return 1 + len(self.beside)

    @property
    def _delta_of_each(self) -> float:
        """The delta of each branch, less the distance of drawn noise from ideal noise (docs/theory.md, 8.2)."""
        return (self.delta - SAMPLER_DELTA) / max(1, len(self.branches))

    def _repr_html_(self) -> str:
        from graphveil.privacy.wording import plan_html  # it describes plans

        return plan_html(self)

    def shares(self) -> dict[str, float]:
        """Each mechanism's part of the sum of mu^2 in the branch that is followed; responses have none."""
        squares = {mechanism.name: worst_mu(mechanism) ** 2 for mechanism in self.mechanisms}
        total = sum(squares.values())
        return {name: square / total if total else 0.0 for name, square in squares.items()}

    def calibrated(self, epsilon: float, shares: Mapping[str, float] | None = None) -> Plan:
        """This plan with the least noise that costs at most `epsilon`.

        The shared mechanisms are calibrated together with the first branch, so list a branch first whose shares say
        what part of the whole the shared mechanisms get. Every other branch is calibrated to the same `epsilon` by the
        noise of its own mechanisms.

        Args:
            epsilon: The target.
            shares: The part of mu^2 of each mechanism by name; a mechanism that is alone in a later branch needs none.
                Without shares the present noise is scaled, which is the paper's single multiplier if all multipliers
                are equal.

        Returns:
            A plan that costs at most `epsilon`, and at least 0.999 times that.

        Raises:
            InvalidInput: A share is missing or not positive, or no noise meets the target.

        Formal guarantee: `epsilon` of the result, accounted anew, is at most the target.
        """
        plan = self if shares is None else self._with_shares(shares)
        if isinstance(self.level, Public):
            return plan
        first = plan.outcomes()[0]
        factor = _least_factor(_by_kind(first.mechanisms), epsilon, self._delta_of_each)
        scaled = {mechanism.name for mechanism in first.mechanisms}
        plan = plan.changed(lambda m: m.scaled(factor) if m.name in scaled else m)
        for branch in plan.branches[1:]:
            plan = plan._with_branch_calibrated(branch, epsilon)
        return plan

    def _with_branch_calibrated(self, branch: Branch, epsilon: float) -> Plan:
        """Scale the noise of one branch so that it costs at most epsilon, with the shared noise as it is."""
        first, own = (outcome.composition("training").mu for outcome in (self.outcomes()[0], self.follow(branch.name)))
        shared, losses = _by_kind(self.shared), _by_kind(branch.mechanisms)
        try:
            factor = _least_factor_beside(shared, losses, own / first if first else 1.0, epsilon, self._delta_of_each)
        except InvalidInput:
            why = (
                f"cannot be kept in the branch {branch.name}: what all branches share and its responses leave too "
                "little; give the shared parts smaller shares, a smaller response_epsilon, or a larger epsilon or delta"
            )
            raise InvalidInput("epsilon", epsilon, why) from None
        scaled = replace(branch, mechanisms=tuple(mechanism.scaled(factor) for mechanism in branch.mechanisms))
        return replace(self, branches=tuple(scaled if each == branch else each for each in self.branches))

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
            missing = [m.name for m in self.all_mechanisms if m.name not in noise and m.sensitivity.worst > 0]
            if missing:
                raise InvalidInput("noise", dict(noise), f"has no value for {', '.join(missing)}")
            values = {m.name: noise.get(m.name, 1.0) for m in self.all_mechanisms}
        else:
            values = {m.name: noise for m in self.all_mechanisms}
        for name, value in values.items():
            validate.positive(f"noise of {name}", value)
        return self.changed(lambda mechanism: mechanism.with_noise(values[mechanism.name]))

    def _with_shares(self, shares: Mapping[str, float]) -> Plan:
        for name in shares:
            self[name]
        later = [[m.name for m in branch.mechanisms if worst_mu(m) > 0] for branch in self.branches[1:]]
        alone = {names[0] for names in later if len(names) == 1}

        def noise_by_share(mechanism: Mechanism) -> Mechanism:
            mu = worst_mu(mechanism)
            if mu == 0 or (mechanism.name in alone and mechanism.name not in shares):
                return mechanism
            if mechanism.name not in shares:
                raise InvalidInput("shares", dict(shares), f"has no share for {mechanism.name}")
            share = validate.positive(f"share of {mechanism.name}", shares[mechanism.name])
            if not 1 / LARGEST_SHARE <= share <= LARGEST_SHARE:
                why = f"must lie between {1 / LARGEST_SHARE:g} and {LARGEST_SHARE:g}"
                raise InvalidInput(f"share of {mechanism.name}", share, why)
            return mechanism.scaled(mu / math.sqrt(share))

        return self.changed(noise_by_share)


@lru_cache(maxsize=1024)
def _epsilon(losses: tuple[Loss, ...], delta: float) -> float:
    """Cached: a plan is asked several times, and often both kinds of node pay for the same mechanisms."""
    return Composition(losses).epsilon(delta)


@lru_cache(maxsize=1024)
def _least_factor(kinds: _Kinds, epsilon: float, delta: float) -> float:
    """Cached, because fits that differ only in their seed have the same noise."""
    return least_factor(kinds, epsilon, delta)[0]


@lru_cache(maxsize=1024)
def _least_factor_beside(fixed: _Kinds, kinds: _Kinds, guess: float, epsilon: float, delta: float) -> float:
    """The least noise factor of `kinds` at which they cost at most epsilon together with `fixed`; cached as above."""
    # A kind that pays for nothing but what another pays for too never pays more, and is not accounted.
    together = [before + own for before, own in zip(fixed, kinds, strict=True)]
    paying = [place for place, kind in enumerate(together) if kind in worst_kinds(together)]

    def spent(factor: float) -> float:
        scaled = [tuple(loss.scaled(factor) for loss in own) for own in kinds]
        return max(_epsilon(fixed[place] + scaled[place], delta) for place in paying)

    if not any(loss.mu > 0 for own in kinds for loss in own):
        least = spent(1.0)
        if least > epsilon:
            raise InvalidInput("epsilon", epsilon, f"a branch costs {least:.4g}, and it has no noise to scale")
        return 1.0
    return search_factor(spent, guess, epsilon, delta)[0]


def _by_kind(mechanisms: Sequence[Mechanism]) -> _Kinds:
    return tuple(losses_of(mechanisms, kind) for kind in KINDS)


def mechanisms_to_list(shared: Sequence[Mechanism], branches: Sequence[Branch]) -> list[dict[str, Any]]:
    """A JSON form of mechanisms, each with the name of its branch; None for shared ones."""
    listed = [{**mechanism_to_dict(mechanism), "branch": None} for mechanism in shared]
    return listed + [{**mechanism_to_dict(m), "branch": branch.name} for branch in branches for m in branch.mechanisms]


def mechanisms_from_list(
    items: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> tuple[tuple[Mechanism, ...], tuple[Branch, ...]]:
    """The shared mechanisms and the branches with these names that `mechanisms_to_list` wrote."""
    sorted_out: dict[str | None, list[Mechanism]] = {name: [] for name in (None, *names)}
    for item in items:
        name = item["branch"]
        if name not in sorted_out:
            raise InvalidInput("branch", name, f"is not one of {', '.join(names) or 'no branches'}")
        sorted_out[name].append(mechanism_from_dict({key: value for key, value in item.items() if key != "branch"}))
    return tuple(sorted_out[None]), tuple(Branch(name, tuple(sorted_out[name])) for name in names)


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """A plan in JSON form; `plan_from_dict` reads it back."""
    return {
        "method": plan.method,
        "level": level_to_dict(plan.level),
        "facts": plan.facts.to_dict(),
        "delta": plan.delta,
        "branches": [branch.name for branch in plan.branches],
        "followed": plan.followed,
        "mechanisms": mechanisms_to_list(plan.shared, plan.branches),
        "assumptions": list(plan.assumptions),
        **({"beside": [plan_to_dict(other) for other in plan.beside]} if plan.beside else {}),
    }


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """The plan that `plan_to_dict` wrote."""
    shared, branches = mechanisms_from_list(data["mechanisms"], data["branches"])
    return Plan(
        data["method"],
        level_from_dict(data["level"]),
        PublicFacts(**data["facts"]),
        data["delta"],
        shared,
        tuple(data["assumptions"]),
        branches,
        data["followed"],
        tuple(plan_from_dict(other) for other in data.get("beside", ())),
    )
