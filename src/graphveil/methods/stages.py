"""The stages of a fit: what is noted about each one, and what a training carries from step to step.

Notes hold nothing that was computed from private data. The same goes to the log, to the logger "graphveil": a line at
level INFO for each fit, at level DEBUG for each stage.
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphveil.execution import Carried, LedgerLike, Stages
from graphveil.execution.sparse_rows import SparseLinear
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


class RunningMean:
    """The mean of a model's weights as they are after these steps of its training."""

    def __init__(self, model: nn.Module, steps: range) -> None:
        self._steps = steps
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._count = 0

    @torch.no_grad()
    def after(self, step: int) -> None:
        """Note the weights after this step, where it is one of these."""
        if step not in self._steps:
            return
        self._count += 1
        for mean, parameter in zip(self._means, self._parameters, strict=True):
            mean += (parameter - mean) / self._count

    @torch.no_grad()
    def give(self, model: nn.Module) -> None:
        """Set the weights of this model, which is like the one that was trained."""
        trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
        for mean, parameter in zip(self._means, trained, strict=True):
            parameter.copy_(mean)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"count": torch.tensor(self._count), **{str(i): mean for i, mean in enumerate(self._means)}}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._count = int(tensors["count"])
        for i, mean in enumerate(self._means):
            mean.copy_(tensors[str(i)])


class Best:
    """A model's weights at the epoch with the best score that was offered."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._score = -math.inf
        self._weights: dict[str, torch.Tensor] = {}
        self.offers_since = 0

    def offer(self, score: float) -> None:
        self.offers_since += 1
        if score > self._score:
            self._score, self._weights, self.offers_since = score, copy.deepcopy(self._model.state_dict()), 0

    def take(self) -> None:
        if self._weights:
            self._model.load_state_dict(self._weights)

    def tensors(self) -> dict[str, torch.Tensor]:
        score = torch.tensor(self._score, dtype=torch.float64)
        return {"score": score, "since": torch.tensor(self.offers_since), **_prefixed("weights", self._weights)}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._score, self.offers_since = float(tensors["score"]), int(tensors["since"])
        self._weights = _below("weights", tensors)
        if self._weights:
            _check_like(self._weights, self._model.state_dict())


class TrainingState:
    """What a training carries from step to step: weights, Adam's moments, and what is collected beside them."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, beside: RunningMean | Best | None) -> None:
        self._model, self._optimizer, self._beside = model, optimizer, beside

    @property
    def learning_rate(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    def tensors(self) -> dict[str, torch.Tensor]:
        tensors = _prefixed("model", self._model.state_dict())
        for place, moments in self._optimizer.state_dict()["state"].items():
            tensors |= _prefixed(f"adam {place}", moments)
        return tensors | _prefixed("beside", self._beside.tensors() if self._beside else {})

    def divided(self) -> set[str]:
        """The names of tensors of which other processes have further rows."""
        weights = {
            id(module.weight) for module in self._model.modules() if isinstance(module, SparseLinear) and module.divided
        }
        trained = 0
        names = set[str]()
        for place, (name, parameter) in enumerate(self._model.named_parameters()):
            if id(parameter) in weights:
                moments = (f"adam {place}/{moment}" for moment in ("exp_avg", "exp_avg_sq"))
                names |= {f"model/{name}", *moments, f"beside/{trained}", f"beside/weights/{name}"}
            trained += parameter.requires_grad
        return names

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._model.load_state_dict(_below("model", tensors))
        state = self._optimizer.state_dict()
        for place in state["param_groups"][0]["params"]:
            moments = state["state"][place] = _below(f"adam {place}", tensors)
            parameter = self._optimizer.param_groups[0]["params"][place]
            like = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
            _check_like(moments, like)
        self._optimizer.load_state_dict(state)
        if self._beside is not None:
            self._beside.restore(_below("beside", tensors))


def _check_like(given: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> None:
    shapes = [{name: (tensor.dtype, tensor.shape) for name, tensor in each.items()} for each in (given, wanted)]
    if shapes[0] != shapes[1]:
        raise ValueError("names, types or shapes are not those of this model")


def _prefixed(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _below(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors that `_prefixed` has put under this prefix."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
