"""The default's private classifiers of features.

A linear map, trained in parts that are added up: many times as fast as a network, and good with little budget. Where
features are all that is read, a network with a linear map beside it, which goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from graphveil.methods.networks import Perceptron
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


class WideNetwork(nn.Module):
    """A network of two hidden layers and, beside it, a linear map of the same features (Cheng et al. 2016).

    The wider the features, the more they say one by one: the linear map's part grows with their number.

    Args:
        like: Features, of which the width and the form are read.
        hidden: The width of the hidden layers.
        classes: How many classes there are.
        first: What the linear map starts from. None: from zero.
    """

    def __init__(self, like: Rows, hidden: int, classes: int, first: LinearClassifier | None = None) -> None:
        super().__init__()
        self.network, self.wide = Perceptron(like, [hidden, hidden, classes]), LinearClassifier(like, classes)
        inputs = int(with_products(like[torch.arange(0)]).shape[1])
        self._part = defaults.MOST_LINEAR_PART * inputs / (inputs + defaults.LINEAR_PART_HALF_AT)
        if first is not None and inputs:
            self.wide.to(next(first.parameters()).device)
            with torch.no_grad():
                for own, given in zip(self.wide.parameters(), first.parameters(), strict=True):
                    own.copy_(given * (defaults.FIRST_FEATURES_WEIGHT / self._part))

    def forward(self, x: Rows) -> torch.Tensor:
        logits: torch.Tensor = self.network(x) + self._part * self.wide(x)
        return logits

    def logits_of(self, data: Inputs) -> Callable[[torch.Tensor | None], torch.Tensor]:
        """The logits of some rows of these inputs. Products of features are kept from one step to the next."""
        products_of = _Products(data.features)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            assert rows is not None
            return self.network(data.features_of(rows)) + self._part * self.wide.out(products_of(rows))

        return logits


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


class _Products:
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
    inputs = _Products(data.features)

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
def added_up(parts: Sequence[Trained], like: Rows, classes: int) -> LinearClassifier:
    """One classifier from several trainings of it: the sum of their weights by mu, over the mu of all together.

    Adam makes the noise in each about as large, and the signal in proportion to mu, so this is the weighing with the
    least noise. The noise of a weight has a standard deviation of about rate * sqrt(steps) in each training, and so in
    the sum. Weights are moved towards zero by a part of it (soft thresholding, Donoho and Johnstone 1994): most columns
    of wide features say little. Post-processing of the trainings.
    """
    total = LinearClassifier(like, classes).to(next(parts[0].model.parameters()).device)
    for part in parts:
        for sums, weights in zip(total.parameters(), part.model.parameters(), strict=True):
            sums.add_(weights, alpha=part.mu / mu_of(parts))
    noise = defaults.LINEAR_RATE * math.sqrt(parts[0].steps)
    matrix = total.out.get_parameter("weight")
    matrix.copy_(functional.softshrink(matrix, defaults.LINEAR_SHRINKAGE * noise))
    return total


def mu_of(parts: Sequence[Trained]) -> float:
    """What these trainings cost a training node together, as the mu of one Gaussian mechanism."""
    return math.hypot(*(part.mu for part in parts))


def _mu(planned: ClippedTraining, steps: int) -> float:
    return 2 * planned.group.worst * math.sqrt(steps) / planned.noise_multiplier


def without_own_influence(
    logits: torch.Tensor, labels: torch.Tensor, lengths: torch.Tensor, steps: int, mu: float
) -> torch.Tensor:
    """Logits of training nodes less a part of what their own gradients added to them.

    Where noise is large, Adam turns a clipped gradient into a step of about rate / (noise multiplier) along it, so in
    all steps together a node moves its own logits by up to rate * sqrt(steps) * |(x, 1)| * mu / 2 towards its label.
    A function of the node's own row.

    Args:
        logits: Of training nodes.
        labels: Their classes.
        lengths: The norm of (x, 1) of each of them.
        steps: Of each training.
        mu: Of all trainings together.
    """
    towards = label_rows(labels, logits.shape[1]) - torch.softmax(logits, dim=1)
    moved = defaults.OWN_INFLUENCE * defaults.LINEAR_RATE * math.sqrt(steps) * mu / 2 * lengths.to(logits)
    return logits - moved[:, None] * towards / towards.norm(dim=1, keepdim=True).clamp_min(1e-9)
