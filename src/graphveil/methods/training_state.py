"""What a training carries from step to step, as named tensors and back."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import nn

from graphveil.execution.sparse_rows import SparseLinear


class RunningMean:
    """The mean of a model's weights over the steps at which it was asked to add them."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._count = 0

    @torch.no_grad()
    def add(self) -> None:
        self._count += 1
        for mean, parameter in zip(self._means, self._parameters, strict=True):
            mean += (parameter - mean) / self._count

    @torch.no_grad()
    def take(self) -> None:
        for mean, parameter in zip(self._means, self._parameters, strict=True):
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
        found = _prefixed("model", self._model.state_dict())
        for place, moments in self._optimizer.state_dict()["state"].items():
            found |= _prefixed(f"adam {place}", moments)
        return found | _prefixed("beside", self._beside.tensors() if self._beside else {})

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


def _check_like(found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> None:
    shapes = [{name: (tensor.dtype, tensor.shape) for name, tensor in each.items()} for each in (found, wanted)]
    if shapes[0] != shapes[1]:
        raise ValueError("names, types or shapes are not those of this model")


def _prefixed(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _below(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors that `_prefixed` has put under this prefix."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
