"""A linear classifier of features, by which the default sees what training is worth on a graph.

It is many times as fast as a network, and learns more with little budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from graphveil.execution import LedgerLike
from graphveil.execution.exact import Arithmetic, linear
from graphveil.execution.sparse_rows import Rows, SparseRows, dense
from graphveil.methods import defaults
from graphveil.methods.inputs import Inputs
from graphveil.methods.training import ROWS_AT_ONCE, halfway_of, label_rows, train_privately
from graphveil.privacy.mechanisms import ClippedTraining

# Products of features that are kept from one step of a training to the next. What is beyond is computed again.
_MOST_BYTES = 2**30


class LinearClassifier(nn.Module):
    """Logits that are linear in features, and in products of pairs of few features, and start at zero."""

    def __init__(self, inputs: Rows, classes: int) -> None:
        super().__init__()
        self.out = linear(with_products(inputs[torch.arange(0)]), classes)
        with torch.no_grad():
            for parameter in self.out.parameters():
                parameter.zero_()

    def forward(self, x: Rows) -> torch.Tensor:
        if isinstance(x, SparseRows) and x.shape[1] > defaults.NARROW_FEATURES:
            return self.out(x)
        # Some rows at a time: products of pairs take many times the memory of the features.
        blocks = torch.arange(len(x), device=x.device).split(ROWS_AT_ONCE)
        return torch.cat([self.out(with_products(x[block])) for block in blocks])


def with_products(rows: Rows) -> Rows:
    """Few features (`defaults.NARROW_FEATURES`) and the products of their pairs, with the norm of the features.

    Each row depends on itself alone. More features are returned as they are.
    """
    width = int(rows.shape[1])
    if not 0 < width <= defaults.NARROW_FEATURES:
        return rows
    x = dense(rows) / defaults.FEATURE_NORM
    # Column by column: each with itself and with those after it.
    both = torch.cat([x, *(x[:, first : first + 1] * x[:, first:] for first in range(width))], dim=1)
    # A product of two different features stands for both of their orders, so that all products have norm |x|^2.
    first, second = torch.triu_indices(width, width, device=x.device)
    both[:, width:] *= torch.where(first == second, 1.0, math.sqrt(2))
    return both.mul_(defaults.FEATURE_NORM / math.sqrt(2))


class Products:
    """`with_products` of some of the rows. They are kept while their index exists, as long as they do not take much."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._kept, self._bytes = rows, WeakIdKeyDictionary(), 0

    def __call__(self, index: torch.Tensor) -> Rows:
        if index in self._kept:
            kept: Rows = self._kept[index]
            return kept
        made = with_products(self._rows[index])
        size = 0 if isinstance(made, SparseRows) else made.numel() * made.element_size()
        if self._bytes + size <= _MOST_BYTES:
            self._bytes += size
            self._kept[index] = made
        return made


@dataclass(frozen=True)
class Trained:
    """The linear classifier after some steps of its training.

    Args:
        model: The classifier.
        steps: How many they were.
        mu: What these full-batch steps cost a training node, as the mu of one Gaussian mechanism.
    """

    model: LinearClassifier
    steps: int
    mu: float


def train_linear(
    data: Inputs, ledger: LedgerLike, name: str, device: str, show: bool | None, arithmetic: Arithmetic
) -> tuple[Trained, Trained]:
    """Classifiers trained as the mechanism `name` plans it: after half of its steps, and after all."""
    model, half = (LinearClassifier(data.features, data.classes).to(device) for _ in range(2))
    inputs = Products(data.features)

    def logits(rows: torch.Tensor | None) -> torch.Tensor:
        assert rows is not None
        return model.out(inputs(rows))

    train_privately(
        model,
        logits,
        data.target,
        ledger,
        name,
        halfway=half,
        learning_rate=defaults.LINEAR_RATE,
        arithmetic=arithmetic,
        show=show,
    )
    planned = ledger.training(name)
    first = halfway_of(planned.steps)
    return Trained(half, first, _mu(planned, first)), Trained(model, planned.steps, _mu(planned, planned.steps))


@torch.no_grad()
def without_noise(part: Trained, like: Rows, classes: int) -> LinearClassifier:
    """The classifier with its weights moved towards zero (soft thresholding, Donoho and Johnstone 1994).

    The noise of a weight has a standard deviation of about rate * sqrt(steps), because Adam keeps the length of steps;
    weights are moved by a part of it. Most columns of wide features say little. Post-processing of the training.
    """
    total = LinearClassifier(like, classes).to(next(part.model.parameters()).device)
    total.load_state_dict(part.model.state_dict())
    noise = defaults.LINEAR_RATE * math.sqrt(part.steps)
    matrix = total.out.get_parameter("weight")
    matrix.copy_(functional.softshrink(matrix, defaults.LINEAR_SHRINKAGE * noise))
    return total


def _mu(planned: ClippedTraining, steps: int) -> float:
    return 2 * planned.group.worst * math.sqrt(steps) / planned.noise_multiplier


def without_own_influence(
    part: Trained, logits: torch.Tensor, labels: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Logits of training nodes less a part of what their own gradients added to them.

    Where noise is large, Adam turns a clipped gradient into a step of about rate / (noise multiplier) along it, so in
    all steps together a node moves its own logits by up to rate * sqrt(steps) * |(x, 1)| * mu / 2 towards its label.
    A function of the node's own row.

    Args:
        part: The training.
        logits: Of training nodes.
        labels: Their classes.
        lengths: The norm of (x, 1) of each of them.
    """
    towards = label_rows(labels, logits.shape[1]) - torch.softmax(logits, dim=1)
    reach = defaults.OWN_INFLUENCE * defaults.LINEAR_RATE * math.sqrt(part.steps) * part.mu / 2
    return logits - (reach * lengths.to(logits))[:, None] * towards / towards.norm(dim=1, keepdim=True).clamp_min(1e-9)
