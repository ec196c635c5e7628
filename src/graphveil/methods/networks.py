"""The paper's networks: linear layers, SELU between them, dropout where training is not private.

At the end stands what a training of them carries from step to step, which a checkpoint keeps.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from graphveil.errors import InvalidInput
from graphveil.execution.exact import Linear, linear, selu, times
from graphveil.execution.sparse_rows import Rows, SparseLinear, SparseRows


class Dropout(nn.Module):
    """Dropout with a byte of randomness for each number, so with a chance in steps of 1/256: drawing more of it takes
    longer on a CPU than the layers do.

    What is dropped of a row follows from a key, the step and the row's place among all rows, and not from how rows are
    divided among processes; `begin` must be called before each training step.
    """

    def __init__(self, chance: float) -> None:
        super().__init__()
        if not 0 <= chance < 255.5 / 256:
            raise InvalidInput("dropout", chance, "must be at least 0 and below 0.998")
        self._dropped = round(256 * chance)

    def begin(self, key: int, step: int, first: int) -> None:
        """Choose the masks of this step.

        Args:
            key: Of one training and this module.
            step: The number of the step.
            first: The place of the first row among the rows of all processes.
        """
        self._key, self._step, self._first, self._uses = key, step, first, 0

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        if not self.training or not self._dropped:
            return h
        rows, columns = h.shape
        words = -(-columns // 8)  # for each row; Philox makes four at a time
        block, before = divmod(self._first * words, 4)
        stream = np.random.Philox(key=self._key, counter=[block, self._step, self._uses, 0])
        self._uses += 1
        drawn = torch.from_numpy(stream.random_raw(before + rows * words)[before:].view(np.uint8)).to(h.device)
        kept = drawn.view(rows, 8 * words)[:, :columns] >= self._dropped
        return h * kept.float().mul_(256 / (256 - self._dropped))


def begin_step(model: nn.Module, key: int, step: int, first: int) -> None:
    """`Dropout.begin` for all modules of a model."""
    for number, module in enumerate(module for module in model.modules() if isinstance(module, Dropout)):
        module.begin(key + number, step, first)


class Perceptron(nn.Module):
    """Linear layers of the given widths with SELU and dropout between them."""

    def __init__(self, inputs: Rows, widths: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        self.first = linear(inputs, widths[0])
        self.rest = nn.ModuleList(Linear(a, b) for a, b in pairwise(widths))
        self.dropout = Dropout(dropout)

    def forward(self, x: Rows) -> torch.Tensor:
        h = self.first(x)
        for layer in self.rest:
            h = layer(self.dropout(selu(h)))
        return h

    def hidden(self, x: Rows) -> torch.Tensor:
        """The last hidden layer's output: what GAP aggregates."""
        h = self.first(x)
        for layer in self.rest[:-1]:
            h = layer(self.dropout(selu(h)))
        return selu(h)


class Embedding(nn.Module):
    """DP-Emb: Y^ = selu(A W + b) R with a frozen random orthogonal R (paper, equation 3)."""

    head: torch.Tensor

    def __init__(self, rows: SparseRows, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = rows.layer(width)
        self.dropout = Dropout(dropout)
        self.register_buffer("head", nn.init.orthogonal_(torch.empty(width, classes)))

    def forward(self, rows: SparseRows) -> torch.Tensor:
        return times(self.dropout(selu(self.layer(rows))), self.head)


class LinkxHead(nn.Module):
    """x = MLP_X(X), h = MLP_W(act([x | Z])) + x + Z, then a linear map (Lim et al. 2021 in the paper's form)."""

    def __init__(self, features: Rows, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.features = linear(features, width)
        self.mix = Linear(2 * width, width)
        self.out = Linear(width, classes)
        self.dropout = Dropout(dropout)

    def forward(self, x: Rows, z: torch.Tensor) -> torch.Tensor:
        h = self.features(x)
        mixed = self.mix(self.dropout(selu(torch.cat([h, z], dim=1))))
        return self.out(self.dropout(selu(mixed + h + z)))


class HopsHead(nn.Module):
    """GAP's classifier: one linear map per hop, concatenation, a linear map."""

    def __init__(self, hops: int, inputs: int, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.maps = nn.ModuleList(Linear(inputs, width) for _ in range(hops))
        self.out = Linear(hops * width, classes)
        self.dropout = Dropout(dropout)

    def forward(self, hops: torch.Tensor) -> torch.Tensor:
        parts = [layer(hops[:, index]) for index, layer in enumerate(self.maps)]
        return self.out(self.dropout(selu(torch.cat(parts, dim=1))))


class Fusion(nn.Module):
    """A linear map of [log-posteriors from X | Z] that starts as their sum: few parameters, so little noise.

    Z has a block of one column per class for each table; the last `beside` columns start without weight.
    """

    def __init__(self, classes: int, width: int, beside: int = 0) -> None:
        super().__init__()
        self.out = Linear(classes + width, classes)
        with torch.no_grad():
            self.out.weight.zero_()
            for block in self.out.weight[:, : classes + width - beside].split(classes, dim=1):
                block.fill_diagonal_(1)
            self.out.bias.zero_()

    def forward(self, opinion: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return self.out(torch.cat([opinion, z], dim=1))


class ClippedFusion(Fusion):
    """`Fusion` for clipped training, where larger inputs take more of each step: inputs are brought to one size.

    Log-posteriors are centred, tables are multiplied by 4, and 3, the logarithm of about twenty links, is subtracted
    from the logarithms of degrees (the `beside` columns). Chosen on Wisconsin87, CiteSeer, Actor and synthetic graphs.
    """

    def __init__(self, classes: int, width: int, beside: int = 0) -> None:
        super().__init__(classes, width, beside)
        self._tables = width - beside

    def forward(self, opinion: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        tables, degrees = z.tensor_split([self._tables], dim=1)
        return super().forward(opinion - opinion.mean(1, keepdim=True), torch.cat([4 * tables, degrees - 3], dim=1))


class Committee(nn.Module):
    """The log of several classifiers' mean probabilities."""

    def __init__(self, members: nn.ModuleList) -> None:
        super().__init__()
        self.members = members

    def forward(self, x: Rows) -> torch.Tensor:
        return log_probabilities(mean_of([torch.softmax(member(x), dim=1) for member in self.members]))


class WithoutVotes(nn.Module):
    """A classifier that was fused with votes, for nodes about which nobody voted."""

    def __init__(self, opinion: nn.Module, fusion: Fusion) -> None:
        super().__init__()
        self.opinion, self.fusion = opinion, fusion

    def forward(self, x: Rows) -> torch.Tensor:
        opinion = self.opinion(x)
        return self.fusion(opinion, torch.zeros_like(opinion))


def mean_of(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Their mean, added one after the other: torch's own order of additions depends on the place of an entry."""
    return functools.reduce(torch.add, tensors) / len(tensors)


def log_probabilities(probabilities: torch.Tensor) -> torch.Tensor:
    """Logarithms that stay finite where a probability is 0, or where features were too large to give any."""
    return probabilities.nan_to_num(1 / probabilities.shape[-1]).clamp_min(1e-6).log()


def normalize_rows(table: torch.Tensor, norm: float = 1.0) -> torch.Tensor:
    """Rows scaled to this norm; a zero row stays zero."""
    return table * (norm / table.norm(dim=1, keepdim=True).clamp_min(1e-12))


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
