"""How good predictions are: accuracy, and F1 by class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scores:
    """Accuracy, F1 of each class (None where a class is neither there nor predicted) and the mean of those."""

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
