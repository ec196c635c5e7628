"""A private classifier of features from one release: the sum of the features of each class's training nodes.

With little budget it is better than training: a replaced node moves the sums by sqrt(2) of the largest norm, and a
clipped gradient by 2. With much budget training finds more (`linear_features`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from graphveil.execution.exact import Arithmetic, linear, product
from graphveil.execution.gradients import ClippedSums
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseLinear, SparseRows
from graphveil.methods import defaults
from graphveil.methods.inputs import Inputs
from graphveil.methods.linear_features import with_products
from graphveil.methods.networks import Perceptron
from graphveil.methods.training import ROWS_AT_ONCE, label_rows

# Dense rows without signs are made so many at a time: with products they are 70 times as wide as few features are, and
# those of more rows would not stay in the cache.
_DENSE_ROWS_AT_ONCE = 2**11


def without_signs(rows: Rows) -> Rows:
    """Features and their products in twice as many columns, none of them negative: first what is positive of each
    column, then what is negative, with its sign changed. Each row depends on itself alone."""
    rows = with_products(rows)
    if not isinstance(rows, SparseRows):
        return torch.cat([rows.clamp_min(0), (-rows).clamp_min(0)], dim=1)
    matrix = rows.matrix
    width = matrix.shape[1]
    columns = matrix.indices.astype(np.int64) + width * (matrix.data < 0)
    parts = sp.csr_array((np.abs(matrix.data), columns, matrix.indptr), shape=(matrix.shape[0], 2 * width))
    return CsrRows(parts, rows.device)


def class_sums(data: Inputs, arithmetic: Arithmetic) -> torch.Tensor:
    """For each class the sum of `without_signs` over its training nodes, and beside it their number.

    Formal guarantee (docs/theory.md, section 5.11): the sums are exact, and a replaced training node moves them by at
    most `sensitivity.class_sums`. A row, with a 1 for the number, is shortened to `defaults.CLASS_SUMS_NORM`, and none
    of its entries is negative. A node without a label, or with features that are not finite, adds nothing.
    """
    layer = linear(without_signs(data.features[torch.arange(0)]), data.classes)
    # The gradient of minus the label's output is minus what is to be summed.
    sums = ClippedSums(layer, defaults.CLASS_SUMS_NORM, data.target.count, arithmetic)

    def row_losses(rows: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = layer(without_signs(data.features_of(rows)))
        return -(outputs * label_rows(data.target.labels[rows], data.classes)).sum(1)

    weight, numbers = sums.over(_some_at_a_time(data.target.train, data.features), row_losses)
    by_class = weight.T if isinstance(layer, SparseLinear) else weight
    return -data.target.total(torch.cat([by_class, numbers[:, None]], dim=1).contiguous())


@dataclass(frozen=True)
class ClassSums:
    """Released sums, as averages of one or several releases.

    Args:
        values: As `class_sums` gives them, in units of the norm that rows of features are scaled to.
        noise: The standard deviation of the noise of each.
        counts: How many training nodes each class has, about.
    """

    values: np.ndarray
    noise: float
    counts: np.ndarray

    @classmethod
    def of(cls, released: torch.Tensor, noise: float, counts: np.ndarray | None = None) -> ClassSums:
        """Read what was released; `counts` are those of another release, if there are any.

        Formal guarantee: post-processing.
        """
        values = released.double().cpu().numpy()
        counts = values[:, -1] if counts is None else counts
        return cls(values[:, :-1] / defaults.FEATURE_NORM, noise / defaults.FEATURE_NORM, np.maximum(counts, 1.0))

    @property
    def priors(self) -> np.ndarray:
        """The shares of the classes."""
        return self.counts / self.counts.sum()

    def joined(self, other: ClassSums) -> ClassSums:
        """The mean of both with the least noise."""
        own, its = 1 / max(self.noise, 1e-12) ** 2, 1 / max(other.noise, 1e-12) ** 2
        values = (own * self.values + its * other.values) / (own + its)
        return replace(self, values=values, noise=1 / math.sqrt(own + its))

    def with_less_budget(self, seed: int) -> ClassSums:
        """What half of the squared mu would have given: as much noise again, from a public seed."""
        more = np.random.default_rng(seed).standard_normal(self.values.shape)
        return replace(self, values=self.values + self.noise * more, noise=self.noise * math.sqrt(2))


class SumsClassifier(nn.Module):
    """Scores of classes that are linear in `without_signs`, shortened to `defaults.LONGEST_SCORES` row by row, plus the
    logarithms of the shares of classes.

    With p the mean of a column over all nodes, m its mean over a class, and v its variance, the weight is that of a
    linear discriminant, (m - p) / v, times the part of m - p that is not noise. For counts and words v is about p / L,
    where L is the mean sum of a row; m / p differs from 1 by about `defaults.COLUMN_SPREAD`. Scores are those of a row
    less those of the mean of all rows: noise in columns that all nodes have would turn all of them to one class.

    Args:
        like: Features, of which the width and the form are read.
        classes: How many classes there are.
    """

    weight: torch.Tensor
    middle: torch.Tensor
    bias: torch.Tensor

    def __init__(self, like: Rows, classes: int) -> None:
        super().__init__()
        width = int(without_signs(like[torch.arange(0)]).shape[1])
        self.register_buffer("weight", torch.zeros(width, classes))
        self.register_buffer("middle", torch.zeros(classes))
        self.register_buffer("bias", torch.zeros(classes))

    def learn(self, sums: ClassSums, weights: torch.Tensor | None = None) -> torch.Tensor:
        """Take over the weights that follow from released sums.

        Args:
            sums: The released sums.
            weights: What each class counts in training; None: all count alike.

        Returns:
            How much a training node adds to its own score, for each class, by the square of each column.

        Formal guarantee: post-processing.
        """
        counts = sums.counts[:, None]
        total, classes = float(sums.counts.sum()), len(sums.counts)
        noisy, doubt = sums.values.sum(0) / total, math.sqrt(classes) * sums.noise / total
        means = np.maximum(noisy, doubt)
        variances = np.maximum(means / max(1.0, float(means.sum())), 1e-300)
        differences = (defaults.COLUMN_SPREAD * means) ** 2
        known = differences / np.maximum(differences + (sums.noise / counts) ** 2 + variances / counts, 1e-300)
        slopes = defaults.SUMS_TEMPERATURE * known / variances / defaults.FEATURE_NORM
        weight = slopes * (sums.values / counts - means)
        self.weight.copy_(torch.from_numpy(weight.T))
        # Columns whose mean may be noise are left out: the same noise is in their weights.
        clear = np.where(noisy > defaults.CLEAR_MEANS * doubt, noisy, 0.0)
        self.middle.copy_(torch.from_numpy(defaults.FEATURE_NORM * (weight * clear).sum(1)))
        self.bias.copy_(torch.from_numpy(np.log(sums.counts / total)))
        if weights is not None:
            self.bias += weights.to(self.bias).clamp_min(1e-12).log()
        return torch.from_numpy((slopes / counts / defaults.FEATURE_NORM).T).to(self.weight)

    def forward(self, x: Rows) -> torch.Tensor:
        return self.without(x, None, None)

    @torch.no_grad()
    def without(self, x: Rows, own: torch.Tensor | None, labels: torch.Tensor | None) -> torch.Tensor:
        """The scores of these rows; with `own`, of training nodes with these labels less what they added themselves.

        Args:
            x: Features.
            own: What `learn` returned.
            labels: The classes of the rows; -1 where there is none.
        """
        blocks = _some_at_a_time(torch.arange(len(x), device=self.weight.device), x)
        return torch.cat([self._block(x[rows], own, None if labels is None else labels[rows]) for rows in blocks])

    def _block(self, x: Rows, own: torch.Tensor | None, labels: torch.Tensor | None) -> torch.Tensor:
        rows = without_signs(x)
        scores = _times(rows, self.weight)
        if own is not None and labels is not None:
            scores = scores - _times(_squared(rows), own) * label_rows(labels, scores.shape[1])
        scores = scores - self.middle
        scores = scores - scores.mean(1, keepdim=True)
        shorter = (defaults.LONGEST_SCORES / scores.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1.0)
        return (scores * shorter).nan_to_num(0.0) + self.bias


class NetworkBesideSums(nn.Module):
    """A network of two hidden layers that is trained beside the scores of class sums, which stay as they are.

    Args:
        sums: The classifier that follows from class sums.
        like: Features, of which the width and the form are read.
        hidden: The width of the hidden layers.
        classes: How many classes there are.
    """

    def __init__(self, sums: SumsClassifier, like: Rows, hidden: int, classes: int) -> None:
        super().__init__()
        self.sums, self.network = sums, Perceptron(like, [hidden, hidden, classes])

    def forward(self, x: Rows) -> torch.Tensor:
        logits: torch.Tensor = self.network(x) + defaults.SUMS_BESIDE_NETWORK * self.sums(x)
        return logits


class Tempered(nn.Module):
    """Class sums with the weight that their scores have beside others."""

    def __init__(self, sums: SumsClassifier) -> None:
        super().__init__()
        self.sums = sums

    def forward(self, x: Rows) -> torch.Tensor:
        scores: torch.Tensor = defaults.FIRST_WEIGHTS[0] * self.sums(x)
        return scores


def _some_at_a_time(index: torch.Tensor, rows: Rows) -> Sequence[torch.Tensor]:
    """Indices of these rows, in blocks."""
    stay_sparse = isinstance(rows, SparseRows) and rows.shape[1] > defaults.NARROW_FEATURES
    return index.split(ROWS_AT_ONCE if stay_sparse else _DENSE_ROWS_AT_ONCE)


def _times(rows: Rows, table: torch.Tensor) -> torch.Tensor:
    return rows.times(table) if isinstance(rows, SparseRows) else product(rows, table)


def _squared(rows: Rows) -> Rows:
    return CsrRows(rows.matrix.power(2), rows.device) if isinstance(rows, SparseRows) else rows.square()
