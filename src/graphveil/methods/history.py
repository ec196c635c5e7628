"""What a fit did, stage by stage, without anything that was computed from private data.

The same goes to the log, to the logger "graphveil": a line at level INFO for each fit, at level DEBUG for each stage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from graphveil.execution import LedgerLike
from graphveil.execution.ledger import Carried, Stages
from graphveil.privacy.levels import Public, describe
from graphveil.privacy.plan import Plan

LOGGER = logging.getLogger("graphveil")


@dataclass(frozen=True)
class Stage:
    """One draw or one training of a fit.

    Formal guarantee: everything but `seconds` is a function of the plan and of what was released. How long something
    takes may depend on the data in ways that nobody accounts for, so `seconds` are for the owner alone.

    Args:
        name: The mechanism, or what was trained without noise.
        what: The type of the mechanism; "training without noise"; "random numbers", which read nothing.
        steps: Draws, or steps of a training.
        noise: As the plan has it: the standard deviation on each entry or sum, the epsilon of responses; None without.
        learning_rate: Of a training.
        seconds: Since the end of the stage before.
    """

    name: str
    what: str
    steps: int
    noise: float | None
    learning_rate: float | None
    seconds: float


class History(Stages):
    """Runs the stages of a fit as another object does, and notes each one.

    Args:
        inner: Runs the stages, and may keep them.
        ledger: Has the plan that is executed.
    """

    def __init__(self, inner: Stages, ledger: LedgerLike) -> None:
        self.inner, self._ledger, self._last = inner, ledger, time.perf_counter()
        self.stages: list[Stage] = []

    def draw(self, name: str, draw: Callable[[], torch.Tensor], fits: Callable[[torch.Tensor], bool]) -> torch.Tensor:
        value = self.inner.draw(name, draw, fits)
        self._note(name, 1, None)
        return value

    def steps(self, count: int, name: str, carried: Carried, show: bool | None, *rest: Any) -> Iterator[int]:
        made = count
        for step in self.inner.steps(count, name, carried, show, *rest):
            yield step
            made = step + 1  # a training without noise may end before its last step
        self._note(name, made, getattr(carried, "learning_rate", None))

    def _note(self, name: str, steps: int, learning_rate: float | None) -> None:
        planned = {mechanism.name: mechanism for mechanism in self._ledger.plan.mechanisms}
        mechanism = planned.get(name)
        what = "random numbers" if learning_rate is None else "training without noise"
        now = time.perf_counter()
        self.stages.append(
            Stage(
                name,
                what if mechanism is None else mechanism.type,
                steps,
                None if mechanism is None or mechanism.sensitivity.worst == 0 else mechanism.noise,
                learning_rate,
                now - self._last,
            )
        )
        self._last = now
        stage = self.stages[-1]
        LOGGER.debug("%s: %s, %d steps, noise %s", stage.name, stage.what, stage.steps, stage.noise)


def log_start(plan: Plan) -> None:
    """A line about a fit that begins: its plan, from public facts."""
    facts = plan.facts
    LOGGER.info(
        "fit %s on %d nodes, %d in training: %s", plan.method, facts.nodes, facts.train_nodes, describe(plan.level)
    )


def log_end(plan: Plan, epsilon: float) -> None:
    """A line about a fit that has ended: what it has cost, and the branch that was followed."""
    cost = "no guarantee" if isinstance(plan.level, Public) else f"epsilon {epsilon:.4g} at delta {plan.delta:.3g}"
    LOGGER.info("fitted %s%s: %s", plan.method, f", branch {plan.followed}" if plan.followed else "", cost)
