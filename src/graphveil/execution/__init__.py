"""How a plan is executed: the ledger draws all noise of a method and refuses what was not planned.

Draws and trainings are the stages of a fit. `Stages` stores nothing; `graphveil.checkpoint` has a variant that stores
each stage, so that a fit that was killed goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import torch
from rich.console import Console
from rich.progress import track

from graphveil.accounting import RandomizedResponse
from graphveil.errors import BudgetExceeded, InvalidInput
from graphveil.execution.draws import add_gaussian, add_gaussian_, randomized_response, within
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.levels import Public
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease, Mechanism, Responses
from graphveil.privacy.plan import Plan


class Carried(Protocol):
    """The state that a training carries from one step to the next."""

    def tensors(self) -> dict[str, torch.Tensor]: ...

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None: ...

    def divided(self) -> set[str]:
        """The names of tensors of which other processes have further rows."""


class Stages:
    """Runs every stage from its beginning to its end."""

    def draw(self, name: str, draw: Callable[[], torch.Tensor], fits: Callable[[torch.Tensor], bool]) -> torch.Tensor:
        """Make a draw, once in the life of a fit.

        Args:
            name: The stage's name.
            draw: Makes the draw.
            fits: Whether a value that was stored earlier can be a result of `draw`.

        Returns:
            The result of `draw`, or what was stored.
        """
        del name, fits
        return draw()

    def steps(
        self, count: int, name: str, carried: Carried, show: bool | None, enough: Callable[[], bool] = lambda: False
    ) -> Iterable[int]:
        """The steps of a training that are still to be made.

        Args:
            count: All steps of the training.
            name: The stage's name.
            carried: Is restored to the state before the first of these steps.
            show: Whether to show a progress bar; None: on a terminal only.
            enough: Asked after each step whether the training ends there, before its last step. It must follow from
                what is carried.

        Returns:
            The numbers of the steps.
        """
        del carried
        for step in shown_steps(count, name, show):
            yield step
            if enough():
                return


class LedgerLike(Protocol):
    """What a fit draws through. `Ledger` executes a plan; an audit may hand in a ledger that also records.

    The docstrings of `Ledger` say what each method does.
    """

    stages: Stages

    @property
    def plan(self) -> Plan: ...

    @property
    def used(self) -> dict[str, int]: ...

    def resume(self, used: Mapping[str, int]) -> None: ...

    def follow(self, branch: str) -> None: ...

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor: ...

    def release_new_rows(self, name: str, value: torch.Tensor) -> torch.Tensor: ...

    def training(self, name: str) -> ClippedTraining: ...

    def sample(self, name: str, rows: int) -> torch.Tensor | None: ...

    def noisy_sum(self, name: str, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]: ...

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor: ...

    def open_responses(self, name: str) -> tuple[Responses, NoiseSource]: ...

    def certificate(self) -> Certificate: ...


# Builds the ledger of one fit from its plan and its source of noise.
MakeLedger = Callable[[Plan, NoiseSource], LedgerLike]


class Ledger:
    """Draws each mechanism of a plan exactly as often as planned.

    Formal guarantee: everything that a ledger returns costs, together, at most `plan.epsilon` at `plan.delta`. A draw
    is counted before its noise is drawn, so a failure in between can only waste budget, never exceed it.

    `stages` may keep what is drawn, together with the counts (`graphveil.checkpoint`). What was kept is not drawn
    again.

    Args:
        plan: What may be drawn.
        source: Where the noise comes from.
        before_first: Is called before the first draw of this process, and told whether an earlier one has drawn
            already (`resume`). If it raises, nothing is drawn.
    """

    def __init__(self, plan: Plan, source: NoiseSource, before_first: Callable[[bool], None] | None = None) -> None:
        self.plan = plan
        self.stages = Stages()
        self._source = source
        self._before_first = before_first
        self._used = {mechanism.name: 0 for mechanism in plan.all_mechanisms}

    @classmethod
    def finished(cls, plan: Plan, source: NoiseSource) -> Ledger:
        """The ledger of a plan that was executed earlier: only rows of new nodes can be drawn from it."""
        ledger = cls(plan, source)
        ledger._used.update((mechanism.name, mechanism.uses) for mechanism in plan.mechanisms)
        return ledger

    def resume(self, used: Mapping[str, int]) -> None:
        """Take over the counts, and with them the branch, of an unfinished execution of the same plan, whose draws
        were kept.

        Args:
            used: How often each mechanism was drawn.

        Raises:
            InvalidInput: These cannot be the counts of an execution of this plan.
        """
        plans = (self.plan, *self.plan.outcomes())
        resumed = next((plan for plan in plans if _counts_of(plan, used)), None)
        if resumed is None:
            raise InvalidInput("ledger", dict(used), "does not belong to this plan")
        self.plan = resumed
        self._used.update(used)

    @property
    def used(self) -> dict[str, int]:
        """How often each mechanism has been drawn so far: the shared ones and those of the branch that is followed."""
        return {name: self._used[name] for name in self.plan.names}

    def follow(self, branch: str) -> None:
        """Go on with this branch of the plan. What was released so far must have decided this, and nothing else.

        Args:
            branch: The name of a branch of the plan.

        Raises:
            BudgetExceeded: Another branch is followed already.
            InvalidInput: The plan has no such branch.

        Formal guarantee: which branch is followed is post-processing of what was released, and all branches are
        certified together (docs/theory.md, section 4.5).
        """
        if self.plan.followed not in (None, branch):
            raise BudgetExceeded(f"{branch}: the branch {self.plan.followed} is followed already")
        self.plan = self.plan.follow(branch)

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Add the noise that `name` plans to `value`.

        At level `Public()` nothing is protected, and the value is returned without noise.

        Args:
            name: The planned mechanism, a `GaussianRelease`.
            value: Exact sums, in float64 (`execution.exact`).

        Returns:
            The noisy value in float32. Keep it: there is no second draw.

        Raises:
            BudgetExceeded: All planned draws have been made, or `name` belongs to a branch that is not followed.
            InvalidInput: `name` is not in the plan or of another type, or `value` is not float64.

        Formal guarantee: that of the planned mechanism, if `value` moves by at most its sensitivity.
        """
        if isinstance(self.plan.level, Public):
            return value.float()
        _check_exact(value)

        def draw() -> torch.Tensor:
            mechanism = self._book(name, GaussianRelease)
            assert isinstance(mechanism, GaussianRelease)
            return add_gaussian(value, mechanism.std, self._source).float()

        def fits(kept: torch.Tensor) -> bool:
            return kept.shape == value.shape and kept.dtype == torch.float32 and bool(kept.isfinite().all())

        return self.stages.draw(name, draw, fits).to(value.device)

    def release_new_rows(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Add noise to rows of nodes that joined after the release, with the noise of that release.

        Args:
            name: The mechanism whose table the rows belong to; it must have been drawn.
            value: Exact sums, in float64.

        Returns:
            The noisy rows in float32.

        Raises:
            BudgetExceeded: The release is not finished.
            InvalidInput: `value` is not float64.

        Formal guarantee (docs/theory.md, section 9.2): unchanged, if each row is new, is drawn once and is kept, and
        the level's bound counts the readers among old and new rows together. The caller is responsible for that.
        """
        if isinstance(self.plan.level, Public):
            return value.float()
        _check_exact(value)
        mechanism = self.plan[name]
        if not isinstance(mechanism, GaussianRelease) or self._used[name] != mechanism.uses:
            raise BudgetExceeded(f"{name}: there is no finished release that new rows could join")
        return add_gaussian(value, mechanism.std, self._source).float()

    def training(self, name: str) -> ClippedTraining:
        """What a training has to keep to: its steps, its sampling rate and its clipping norm."""
        return planned_training(self.plan, name)

    def sample(self, name: str, rows: int) -> torch.Tensor | None:
        """Which rows enter the next step: each independently with the planned probability.

        Args:
            name: The planned mechanism, a `ClippedTraining`.
            rows: The number of training rows.

        Returns:
            Indices, or None for all rows.
        """
        rate = self.training(name).sampling_rate
        return None if rate == 1 else (self._source.uniform(rows) < rate).nonzero().squeeze(1)

    def noisy_sum(self, name: str, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """One training step: add the planned noise to the sum of clipped gradients.

        Args:
            name: The planned mechanism, a `ClippedTraining`.
            sums: Exact sums in float64 (`execution.gradients`), one tensor for each parameter. They may be overwritten.

        Returns:
            The noisy sums in float32.

        Raises:
            BudgetExceeded: All planned steps have been made.
            InvalidInput: `name` is not in the plan or of another type, or a sum is not float64.

        Formal guarantee: that of one step of the planned mechanism, if each row's gradient was clipped to its `clip`.
        """
        mechanism = self._book(name, ClippedTraining)
        assert isinstance(mechanism, ClippedTraining)
        for part in sums:
            _check_exact(part)
        if mechanism.group.worst == 0:
            return [part.float() for part in sums]
        noisy = [part.cpu().contiguous() for part in sums]
        add_gaussian_(noisy, mechanism.noise, self._source)
        return [piece.to(part.device, torch.float32) for piece, part in zip(noisy, sums, strict=True)]

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor:
        """Randomised responses to private symbols.

        Args:
            name: The planned mechanism, a `Responses`.
            symbols: Whole numbers from 0 to the planned number of classes - 1; -1 for no symbol, answered uniformly.

        Returns:
            The responses. Keep them: there is no second draw.

        Raises:
            BudgetExceeded: All planned draws have been made.
            InvalidInput: `name` is not in the plan or of another type, or a symbol is out of range.

        Formal guarantee: pure epsilon-DP for each response, with the planned epsilon.
        """

        def draw() -> torch.Tensor:
            mechanism = self._book(name, Responses)
            assert isinstance(mechanism, Responses)
            return randomized_response(symbols, RandomizedResponse(mechanism.epsilon, mechanism.classes), self._source)

        def fits(kept: torch.Tensor) -> bool:
            mechanism = self.plan[name]
            like = kept.shape == symbols.shape and kept.dtype == symbols.dtype
            return like and isinstance(mechanism, Responses) and within(kept, mechanism.classes)

        return self.stages.draw(name, draw, fits).to(symbols.device)

    def open_responses(self, name: str) -> tuple[Responses, NoiseSource]:
        """Count responses that the caller draws, because their symbols are too many to list (`execution.draws`)."""
        mechanism = self._book(name, Responses)
        assert isinstance(mechanism, Responses)
        return mechanism, self._source

    def certificate(self) -> Certificate:
        """The certificate of the executed plan with all of its branches.

        Raises:
            BudgetExceeded: A mechanism was not drawn as often as planned, or no branch was followed.
        """
        if self.plan.branches and self.plan.followed is None:
            raise BudgetExceeded("the plan was not executed as planned: none of its branches was followed")
        open_ends = [
            f"{m.name} {self._used[m.name]} of {m.uses}" for m in self.plan.mechanisms if self._used[m.name] != m.uses
        ]
        if open_ends:
            raise BudgetExceeded(f"the plan was not executed as planned: {', '.join(open_ends)} draws")
        return Certificate.of(self.plan, self._source.description, self._source.secure)

    def _book(self, name: str, expected: type[Mechanism]) -> Mechanism:
        """Count a draw of `name` before it is made, or refuse it."""
        mechanism = self.plan[name]
        if name not in self.plan.names:
            raise BudgetExceeded(f"{name}: belongs to a branch of the plan that is not followed")
        if not isinstance(mechanism, expected):
            raise InvalidInput("mechanism", name, f"is a {mechanism.type}, not a {expected.type}")
        if self._used[name] >= mechanism.uses:
            raise BudgetExceeded(f"{name}: all {mechanism.uses} planned draws have been made")
        if self._before_first is not None:
            self._before_first(any(self._used.values()))
            self._before_first = None
        self._used[name] += 1
        return mechanism


def planned_training(plan: Plan, name: str) -> ClippedTraining:
    """The training that a plan has under this name."""
    mechanism = plan[name]
    if not isinstance(mechanism, ClippedTraining):
        raise InvalidInput("mechanism", name, f"is a {mechanism.type}, not a {ClippedTraining.type}")
    return mechanism


def _check_exact(value: torch.Tensor) -> None:
    if value.dtype != torch.float64:
        raise InvalidInput("value", value.dtype, "is rounded already; released sums are made in float64")


def _counts_of(plan: Plan, used: Mapping[str, int]) -> bool:
    """Whether these can be the counts of an execution of this plan, on the branch that it follows."""
    uses = {mechanism.name: mechanism.uses for mechanism in plan.mechanisms}
    return set(used) == set(uses) and all(type(used[name]) is int and 0 <= used[name] <= uses[name] for name in uses)


def shown_steps(count: int, description: str, show: bool | None = None, first: int = 0) -> Iterator[int]:
    """The numbers from `first` to count - 1, with a progress bar if `show` (None: if stderr is a terminal)."""
    if show is None:
        show = sys.stderr.isatty()
    left = range(first, count)
    if not show:
        return iter(left)
    bar = track(left, description, total=count, completed=first, console=Console(stderr=True), transient=True)
    return iter(bar)
