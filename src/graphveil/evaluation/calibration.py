"""How predictions did on labels that the model has not seen: counts by class, and whether its confidence is earned.

Only counts are kept, no labels of single nodes. They are computed from private labels all the same, and nothing in a
certificate covers them: they are for the owner of the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphveil.errors import InvalidInput

BINS = 10


@dataclass(frozen=True)
class Bin:
    """The nodes whose largest probability lies in one tenth: how many, how confident on average, how often right."""

    count: int
    confidence: float
    accuracy: float

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy."""
        square = 1.96**2 / self.count
        middle = (self.accuracy + square / 2) / (1 + square)
        reach = math.sqrt(square * (self.accuracy * (1 - self.accuracy) + square / 4)) / (1 + square)
        return middle - reach, middle + reach


@dataclass(frozen=True)
class Evaluation:
    """`confusion[i][j]`: nodes of class i that were taken for class j."""

    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    bins: tuple[Bin, ...]

    @property
    def count(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def accuracy(self) -> float:
        return sum(row[i] for i, row in enumerate(self.confusion)) / self.count

    @property
    def calibration_error(self) -> float:
        """The expected calibration error: by how much confidence and accuracy differ, over all nodes."""
        return sum(b.count * abs(b.confidence - b.accuracy) for b in self.bins) / self.count

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        try:
            confusion = tuple(tuple(int(count) for count in row) for row in data["confusion"])
            bins = tuple(Bin(**item) for item in data["bins"])
            found = cls(tuple(map(str, data["classes"])), confusion, bins)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput("evaluation", str(error), "is missing or has the wrong form") from None
        if any(len(row) != len(confusion) for row in confusion) or len(found.classes) != len(confusion):
            raise InvalidInput("evaluation", len(found.classes), "the confusion matrix has another number of classes")
        if not found.count:
            raise InvalidInput("evaluation", 0, "has no nodes")
        return found


def evaluate(truth: np.ndarray, probabilities: np.ndarray, classes: tuple[str, ...] | None = None) -> Evaluation | None:
    """The evaluation on these nodes; nodes without a label (-1) do not count, and None stands for no nodes at all.

    >>> found = evaluate(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]]))
    >>> found.confusion, round(found.calibration_error, 3)
    (((1, 0), (1, 1)), 0.4)
    """
    known = truth >= 0
    truth, probabilities = truth[known], probabilities[known]
    if not len(truth):
        return None
    size = probabilities.shape[1]
    guess, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    counts = np.bincount(truth * size + guess, minlength=size * size).reshape(size, size)
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    right = guess == truth
    bins = tuple(
        Bin(int(chosen.sum()), float(confidence[chosen].mean()), float(right[chosen].mean()))
        for chosen in (place == index for index in range(BINS))
        if chosen.any()
    )
    names = classes or tuple(str(index) for index in range(size))
    return Evaluation(names, tuple(tuple(map(int, row)) for row in counts), bins)
