"""How good predictions are: accuracy, F1 by class, the confusion matrix, calibration.

All of it is computed from private labels, and no certificate covers it: it is for the owner of the data. Only counts
are kept, no labels of single nodes.
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
class Scores:
    """Accuracy, F1 of each class (None where a class is neither there nor predicted), and their mean."""

    accuracy: float
    macro_f1: float
    class_f1: tuple[float | None, ...]


def scores(truth: np.ndarray, guess: np.ndarray, classes: int) -> Scores | None:
    """The scores of these predictions; None if there are none.

    >>> scores(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), classes=3).class_f1
    (0.6666666666666666, 0.8, None)
    """
    if not len(truth):
        return None
    right = np.bincount(truth[truth == guess], minlength=classes)
    there = np.bincount(truth, minlength=classes)
    guessed = np.bincount(guess, minlength=classes)
    f1 = [2 * int(hit) / int(total) if total else None for hit, total in zip(right, there + guessed, strict=True)]
    known = [value for value in f1 if value is not None]
    return Scores(int(right.sum()) / len(truth), sum(known) / len(known), tuple(f1))


@dataclass(frozen=True)
class Bin:
    """The nodes whose largest probability lies in the same tenth of [0, 1].

    Args:
        count: How many nodes.
        confidence: Their mean largest probability.
        accuracy: The share of them whose most probable class is right.
    """

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
    """How predictions compare with labels.

    Args:
        classes: Names of the classes.
        confusion: `confusion[i][j]` nodes of class i were predicted to be of class j.
        bins: The nodes by confidence, empty bins left out.
    """

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
        """The evaluation that `to_dict` gave; strict about its form."""
        try:
            confusion = tuple(tuple(int(count) for count in row) for row in data["confusion"])
            bins = tuple(Bin(**item) for item in data["bins"])
            evaluation = cls(tuple(map(str, data["classes"])), confusion, bins)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput("evaluation", str(error), "is missing or has the wrong form") from None
        if any(len(row) != len(confusion) for row in confusion) or len(evaluation.classes) != len(confusion):
            why = "the confusion matrix has another number of classes"
            raise InvalidInput("evaluation", len(evaluation.classes), why)
        if not evaluation.count:
            raise InvalidInput("evaluation", 0, "has no nodes")
        return evaluation


def evaluate(truth: np.ndarray, probabilities: np.ndarray, classes: tuple[str, ...] | None = None) -> Evaluation | None:
    """Compare predictions with labels.

    Args:
        truth: Class numbers, -1 for a node without a label, which does not count.
        probabilities: A row for each node, a column for each class.
        classes: Names of the classes; by default their numbers.

    Returns:
        The evaluation, or None if no node has a label.

    >>> evaluation = evaluate(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]]))
    >>> evaluation.confusion, round(evaluation.calibration_error, 3)
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
