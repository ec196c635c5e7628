"""Ledgers that record a fit and replay it.

A recorder writes down what a fit put into the ledger and what it got. A replay gives another fit the same outcomes: on
each of two graphs it shows what the fit puts in at every step, given everything that the adversary saw. The likelihood
of the whole run follows from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from graphveil.auditing.canaries import hides_own_row
from graphveil.auditing.mechanisms import response_log_ratio
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, LedgerLike, MakeLedger, Stages, planned_training
from graphveil.graph import Graph
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.fitted import FittedModel
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease, Responses
from graphveil.privacy.plan import Plan

MakeModel = Callable[[], NodeClassifier]


def answers_elsewhere(model: NodeClassifier) -> bool:
    """Whether a model answers for nodes of another graph; a method of another package need not."""
    return type(model).logits_on is not FittedModel.logits_on


@dataclass(frozen=True, eq=False)
class Entry:
    """One draw.

    Args:
        name: The mechanism.
        given: What the method put in.
        got: What came out, which the adversary sees.
    """

    name: str
    given: torch.Tensor
    got: torch.Tensor


class DelegatingLedger:
    """A ledger that hands every request on to another one; subclasses change or record some of them."""

    def __init__(self, inner: LedgerLike) -> None:
        self._inner = inner

    @property
    def stages(self) -> Stages:
        return self._inner.stages

    @stages.setter
    def stages(self, stages: Stages) -> None:
        self._inner.stages = stages

    @property
    def plan(self) -> Plan:
        return self._inner.plan

    @property
    def used(self) -> dict[str, int]:
        return self._inner.used

    def resume(self, used: Mapping[str, int]) -> None:
        self._inner.resume(used)

    def follow(self, branch: str) -> None:
        self._inner.follow(branch)

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        return self._inner.release(name, value)

    def release_new_rows(self, name: str, value: torch.Tensor) -> torch.Tensor:
        return self._inner.release_new_rows(name, value)

    def training(self, name: str) -> ClippedTraining:
        return self._inner.training(name)

    def sample(self, name: str, rows: int) -> torch.Tensor | None:
        return self._inner.sample(name, rows)

    def noisy_sum(self, name: str, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self._inner.noisy_sum(name, sums)

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor:
        return self._inner.respond(name, symbols)

    def open_responses(self, name: str) -> tuple[Responses, NoiseSource]:
        return self._inner.open_responses(name)

    def certificate(self) -> Certificate:
        return self._inner.certificate()


class Recorder(DelegatingLedger):
    """Draws through another ledger and records every draw.

    `planned` is the plan before anything was drawn; `plan` follows the branch that was chosen.
    """

    def __init__(self, inner: LedgerLike) -> None:
        super().__init__(inner)
        self.planned = inner.plan
        self.entries: list[Entry] = []
        self.sampled: list[torch.Tensor | None] = []

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        given = value.detach().clone()
        got = self._inner.release(name, value)
        self.entries.append(Entry(name, given, got.detach().clone()))
        return got

    def sample(self, name: str, rows: int) -> torch.Tensor | None:
        self.sampled.append(self._inner.sample(name, rows))
        return self.sampled[-1]

    def noisy_sum(self, name: str, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        given = _flat(sums)
        got = self._inner.noisy_sum(name, sums)
        self.entries.append(Entry(name, given, _flat(got)))
        return got

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor:
        got = self._inner.respond(name, symbols)
        self.entries.append(Entry(name, symbols.clone(), got.clone()))
        return got

    def certificate(self) -> Certificate:
        return _certificate(self.plan)


class Replay:
    """Returns the outcomes of a recorded run, and records what this run puts in.

    The adversary does not know the row of the replaced node in a release; this run gets its own value there, without
    noise. It follows the same branch as the recorded run, because the choice depends on released values alone.
    """

    def __init__(self, recorded: Recorder, own: int | None) -> None:
        self.plan, self._recorded, self._own = recorded.planned, recorded, own
        self.stages = Stages()
        self.given: list[torch.Tensor] = []
        self._draws = 0

    @property
    def used(self) -> dict[str, int]:
        return {mechanism.name: 0 for mechanism in self.plan.mechanisms}

    def resume(self, used: Mapping[str, int]) -> None:
        raise InvalidInput("replay", dict(used), "replays a whole run, from its beginning")

    def follow(self, branch: str) -> None:
        self.plan = self.plan.follow(self._recorded.plan.followed or branch)

    def training(self, name: str) -> ClippedTraining:
        return planned_training(self.plan, name)

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        got = self._next(name, value).clone()
        if self._own is not None and hides_own_row(self.plan, name):
            got[self._own] = value[self._own]
        return got

    def release_new_rows(self, name: str, value: torch.Tensor) -> torch.Tensor:
        raise InvalidInput("replay", name, "the recorded run has no answers to new nodes")

    def open_responses(self, name: str) -> tuple[Responses, NoiseSource]:
        raise InvalidInput("replay", name, "responses that are drawn elsewhere were not recorded")

    def sample(self, name: str, rows: int) -> torch.Tensor | None:
        if self.training(name).sampling_rate < 1:
            raise InvalidInput("batch_size", name, "a run with sampled batches cannot be replayed")
        return None

    def noisy_sum(self, name: str, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        pieces = self._next(name, _flat(sums)).clone().split([part.numel() for part in sums])
        return [piece.reshape(part.shape) for piece, part in zip(pieces, sums, strict=True)]

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor:
        return self._next(name, symbols.clone()).clone()

    def certificate(self) -> Certificate:
        return _certificate(self.plan)

    def _next(self, name: str, given: torch.Tensor) -> torch.Tensor:
        entry = self._recorded.entries[self._draws]
        if entry.name != name or entry.got.shape != given.shape:
            raise InvalidInput("replay", name, f"the recorded run drew {entry.name} here")
        self._draws += 1
        self.given.append(given.detach().clone())
        return entry.got


def ledger_on_branch(branch: str, make_ledger: MakeLedger, plan: Plan, source: NoiseSource) -> LedgerLike:
    """A ledger that follows this branch of a plan: its noise could have led there."""
    return _OnBranch(make_ledger(plan, source), branch)


class _OnBranch(DelegatingLedger):
    """Follows a fixed branch, whatever was released before."""

    def __init__(self, inner: LedgerLike, branch: str) -> None:
        super().__init__(inner)
        self._branch = branch

    def follow(self, branch: str) -> None:
        del branch
        super().follow(self._branch)


def recorded_fit(
    make_model: MakeModel, graph: Graph, seed: int, make_ledger: MakeLedger = Ledger, plan: Plan | None = None
) -> tuple[Recorder, NodeClassifier]:
    """Fit a model and record what it draws.

    Args:
        make_model: Makes the model; its seed is that of the public initial weights.
        graph: The graph.
        seed: The seed of the noise.
        make_ledger: Makes the ledger that draws.
        plan: The plan, if it was computed before.

    Returns:
        The record, and the fitted model.
    """
    recorders: list[Recorder] = []

    def make(plan: Plan, source: NoiseSource) -> LedgerLike:
        del source  # it has the seed of the initial weights
        recorders.append(Recorder(make_ledger(plan, NoiseSource(seed))))
        return recorders[-1]

    model = make_model().execute(graph, plan, make)
    return recorders[0], model


def replayed_fit(make_model: MakeModel, graph: Graph, recorded: Recorder, own: int | None) -> Replay:
    """Fit a model that gets the outcomes of a recorded fit.

    Args:
        make_model: Makes the model.
        graph: The graph.
        recorded: The recorded fit.
        own: The replaced node, whose row of a release is not known to the adversary; None at edge level.

    Returns:
        The ledger, which has what this fit put in.
    """
    replays: list[Replay] = []

    def make(plan: Plan, source: NoiseSource) -> LedgerLike:
        del plan, source
        replays.append(Replay(recorded, own))
        return replays[-1]

    make_model().execute(graph, recorded.planned, make)
    return replays[0]


def log_likelihood_ratio(recorded: Recorder, heads: Replay, tails: Replay, own: int | None) -> float:
    """log Pr[what the adversary saw | heads] - log Pr[the same | tails].

    Args:
        recorded: The run that the adversary saw.
        heads: Its replay on the graph with the change.
        tails: Its replay on the graph without the change.
        own: The replaced node, whose row of a release is hidden; None at edge level.
    """
    total = 0.0
    for entry, ours, theirs in zip(recorded.entries, heads.given, tails.given, strict=True):
        mechanism = recorded.plan[entry.name]
        if isinstance(mechanism, Responses):
            total += float(response_log_ratio(entry.got, ours, theirs, mechanism.epsilon, mechanism.classes).sum())
            continue
        got, ours, theirs = entry.got.double(), ours.double(), theirs.double()
        if isinstance(mechanism, GaussianRelease) and own is not None and hides_own_row(recorded.plan, entry.name):
            others = torch.arange(len(got)) != own
            got, ours, theirs = got[others], ours[others], theirs[others]
        if isinstance(mechanism, ClippedTraining) and mechanism.group.worst == 0:
            continue
        step = ours - theirs
        if float(step.abs().max()) > 0:
            std = max(mechanism.noise, 1e-12 * float(step.norm()))
            total += float((((got - (ours + theirs) / 2) / std) * (step / std)).sum())
    return total


def _flat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.detach().reshape(-1) for part in parts])


@lru_cache(maxsize=8)
def _certificate(plan: Plan) -> Certificate:
    """The certificate, once for each plan: looking up library versions takes longer than a small fit."""
    return Certificate.of(plan, "audited run", False)
