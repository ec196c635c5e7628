"""The default's trained classifier of features: a linear map that learns what class sums (`class_sums`) do not say.

It is many times as fast as a network, and with a private budget usually better.
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
from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.methods import defaults
from graphveil.methods.class_sums import with_products
from graphveil.methods.inputs import Inputs
from graphveil.methods.training import ROWS_AT_ONCE, KeptRows, label_rows, train_privately
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
    """A linear classifier that was trained beside other scores.

    Args:
        model: The classifier.
        planned: The training.
    """

    model: LinearClassifier
    planned: ClippedTraining

    @property
    def mu(self) -> float:
        """What it cost a training node, as the mu of one Gaussian mechanism."""
        loss = self.planned.loss("training")
        return 0.0 if loss is None else loss.mu

    @torch.no_grad()
    def joined(self, other: Trained) -> Trained:
        """The mean of both by their mu: their noise is about the same, and what they learnt grows with mu."""
        total = self.mu + other.mu
        for own, its in zip(self.model.parameters(), other.model.parameters(), strict=True):
            own.mul_(self.mu / total).add_(its, alpha=other.mu / total)
        return self

    def own_influence(self, logits: torch.Tensor, labels: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """What a training node's own gradients may have added to its logits; the arguments of `own_influence`."""
        return own_influence(logits, labels, lengths, self.planned)


def train_linear(
    data: Inputs, base: torch.Tensor, ledger: LedgerLike, name: str, device: str, show: bool | None, exact: Arithmetic
) -> Trained:
    """A classifier trained as the mechanism `name` plans it, whose logits are added to those of `base`.

    Args:
        data: The graph.
        base: Logits of all nodes.
        ledger: What is drawn through.
        name: The mechanism.
        device, show, exact: Where it is trained, whether progress is shown, and how sums are made.
    """
    model = LinearClassifier(data.features, data.classes).to(device)
    inputs, base_of = _Products(data.features), KeptRows(base)

    def logits(rows: torch.Tensor | None) -> torch.Tensor:
        assert rows is not None
        return model.out(inputs(rows)) + base_of(rows)

    rate, target = defaults.LINEAR_RATE, data.target
    train_privately(model, logits, target, ledger, name, learning_rate=rate, show=show, arithmetic=exact)
    planned = ledger.training(name)
    shrink(model, rate * math.sqrt(planned.steps))
    return Trained(model, planned)


@torch.no_grad()
def shrink(model: LinearClassifier, noise: float) -> None:
    """Move weights towards zero by a part of their noise (soft thresholding, Donoho and Johnstone 1994).

    Most columns of wide features say little. Where noise is large, Adam makes steps of about its learning rate, and
    the noise of a weight has a standard deviation of about rate * sqrt(steps). Post-processing of the training.
    """
    matrix = model.out.get_parameter("weight")
    matrix.copy_(functional.softshrink(matrix, defaults.LINEAR_SHRINKAGE * noise))


def own_influence(
    logits: torch.Tensor, labels: torch.Tensor, lengths: torch.Tensor, planned: ClippedTraining
) -> torch.Tensor:
    """A part of what the gradients of training nodes added to their own logits.

    Where noise is large, Adam turns a clipped gradient into a step of about rate / (noise multiplier) along it, so in
    all steps together a node moves its own logits by up to rate * steps * |(x, 1)| / (noise multiplier) towards its
    label. A function of the node's own row.

    Args:
        logits: Of training nodes.
        labels: Their classes.
        lengths: The norm of (x, 1) of each of them.
        planned: The training.
    """
    towards = label_rows(labels, logits.shape[1]) - torch.softmax(logits, dim=1)
    moved = defaults.OWN_INFLUENCE * defaults.LINEAR_RATE * planned.steps / planned.noise_multiplier * lengths
    return moved.to(logits)[:, None] * towards / towards.norm(dim=1, keepdim=True).clamp_min(1e-9)
