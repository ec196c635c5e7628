"""How good predictions are: scikit-learn's scores, the confusion matrix, calibration, and what a threshold finds.

All of it is computed from private labels, and no certificate covers it: it is for the owner of the data. Only counts
and scores are kept, no labels of single nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphveil import validate
from graphveil.errors import InvalidInput

BINS = 10
# Scores of all classes together, by name. All of them are better if they are larger.
METRICS = (
    "accuracy",
    "balanced_accuracy",
    "average_precision",
    "auc",
    "macro_f1",
    "macro_precision",
    "macro_recall",
    "majority_accuracy",
)
# Scores of one class.
CLASS_METRICS = ("precision", "recall", "f1", "precision_at_k")
# How many nodes are flagged in the table of a report, beside as many as there are to find.
_FLAGGED = (10, 20, 50, 100, 200, 500, 1000)


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
class Cut:
    """The nodes whose probability of the class of interest is largest.

    Args:
        flagged: How many nodes.
        found: How many of them are of this class.
        threshold: The least probability among them.
    """

    flagged: int
    found: int
    threshold: float


@dataclass(frozen=True)
class ClassScores:
    """The scores of one class; `count` nodes are of it, `predicted` were predicted to be, `right` are both."""

    name: str
    count: int
    predicted: int
    right: int
    precision: float
    recall: float
    f1: float

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.count, self.predicted, self.right


@dataclass(frozen=True)
class Evaluation:
    """How predictions compare with labels.

    Args:
        classes: Names of the classes.
        confusion: `confusion[i][j]` nodes of class i were predicted to be of class j.
        bins: The nodes by confidence, empty bins left out.
        average_precision: Of the class of interest; without one, the mean over the classes that are there. None where
            it is not defined.
        auc: The area under the ROC curve, likewise.
        positive: The number of the class of interest; None: there is none.
        threshold: The probability from which on a node was predicted to be of this class; None: the most probable
            class was predicted.
        cuts: What is found of the class of interest by flagging so many nodes.
    """

    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    bins: tuple[Bin, ...]
    average_precision: float | None = None
    auc: float | None = None
    positive: int | None = None
    threshold: float | None = None
    cuts: tuple[Cut, ...] = ()

    @property
    def count(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def accuracy(self) -> float:
        return sum(row[i] for i, row in enumerate(self.confusion)) / self.count

    @property
    def majority_accuracy(self) -> float:
        """What the most frequent class alone would reach."""
        return max(map(sum, self.confusion)) / self.count

    @property
    def majority_class(self) -> str:
        return self.classes[int(np.argmax([sum(row) for row in self.confusion]))]

    @cached_property
    def by_class(self) -> tuple[ClassScores | None, ...]:
        """The scores of each class; None where a class is neither there nor predicted."""
        from sklearn.metrics import precision_recall_fscore_support  # slow to load, and most commands need none

        matrix = np.array(self.confusion)
        truth, guess = np.nonzero(matrix)
        scored = precision_recall_fscore_support(
            truth, guess, labels=range(len(matrix)), sample_weight=matrix[truth, guess], zero_division=0.0
        )
        counts = zip(matrix.sum(1), matrix.sum(0), matrix.diagonal(), strict=True)
        return tuple(
            ClassScores(name, *map(int, numbers), *map(float, values)) if numbers[0] or numbers[1] else None
            for name, numbers, *values in zip(self.classes, counts, *scored[:3], strict=True)
        )

    @property
    def calibration_error(self) -> float:
        """The expected calibration error: by how much confidence and accuracy differ, over all nodes."""
        return sum(b.count * abs(b.confidence - b.accuracy) for b in self.bins) / self.count

    def scores(self) -> dict[str, float | None]:
        """All of `METRICS` by name; None where one is not defined on these nodes."""
        there = [each for each in self.by_class if each is not None]
        return {
            "accuracy": self.accuracy,
            "balanced_accuracy": float(np.mean([each.recall for each in there if each.count])),
            "average_precision": self.average_precision,
            "auc": self.auc,
            **{f"macro_{name}": float(np.mean([getattr(each, name) for each in there])) for name in _BY_CLASS},
            "majority_accuracy": self.majority_accuracy,
        }

    def sentences(self) -> tuple[str, ...]:
        """What the scores say, for the owner of the data: what is found of the class of interest, and at what price."""
        numbers = {"average precision": self.average_precision, "AUC": self.auc, "macro F1": self.scores()["macro_f1"]}
        said = ", ".join(f"{name} {value:.3f}" for name, value in numbers.items() if value is not None)
        own = None if self.positive is None else self.by_class[self.positive]
        if own is None or not own.count:
            return (f"On test nodes: {said}.",)
        by = "the most probable class" if self.threshold is None else f"a threshold of {self.threshold:g}"
        lines = [f"By {by}, {own.right} of {own.count} nodes of class {own.name} are found: {_flagged(own.predicted)}"]
        lines[0] += f", precision {own.precision:.2f}." if own.predicted else "."
        best = next(cut for cut in self.cuts if cut.flagged == own.count)
        if (best.flagged, best.found) != (own.predicted, own.right):
            precision = best.found / best.flagged
            lines.append(
                f"The {best.flagged} most probable hold {best.found} of them: precision {precision:.2f} "
                f"(threshold {best.threshold:.3g})."
            )
        chance = own.count / self.count
        lines.append(f"For class {own.name}: {said}; at random, average precision would be {chance:.3f}.")
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """The evaluation that `to_dict` gave; strict about its form."""
        try:
            confusion = tuple(tuple(int(count) for count in row) for row in data["confusion"])
            evaluation = cls(
                tuple(map(str, data["classes"])),
                confusion,
                tuple(Bin(**item) for item in data["bins"]),
                _number(data["average_precision"]),
                _number(data["auc"]),
                None if data["positive"] is None else range(len(confusion))[data["positive"]],
                _number(data["threshold"]),
                tuple(Cut(**item) for item in data["cuts"]),
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidInput("evaluation", str(error), "is missing or has the wrong form") from None
        if any(len(row) != len(confusion) for row in confusion) or len(evaluation.classes) != len(confusion):
            why = "the confusion matrix has another number of classes"
            raise InvalidInput("evaluation", len(evaluation.classes), why)
        if not evaluation.count:
            raise InvalidInput("evaluation", 0, "has no nodes")
        return evaluation


_BY_CLASS = ("precision", "recall", "f1")


def _flagged(count: int) -> str:
    return {0: "none is flagged", 1: "1 node is flagged"}.get(count, f"{count} nodes are flagged")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def evaluate(
    truth: np.ndarray,
    probabilities: np.ndarray,
    classes: tuple[str, ...] | None = None,
    *,
    positive: int | None = None,
    threshold: float | None = None,
) -> Evaluation | None:
    """Compare predictions with labels.

    Args:
        truth: Class numbers, -1 for a node without a label, which does not count.
        probabilities: A row for each node, a column for each class.
        classes: Names of the classes; by default their numbers.
        positive: The number of the class of interest (`rare_class`); None: all classes count alike.
        threshold: Predict this class from this probability on; None: the most probable class.

    Returns:
        The evaluation, or None if no node has a label.

    Raises:
        InvalidInput: A threshold without a class of interest, or one that is not a probability.

    >>> evaluation = evaluate(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]]), positive=1)
    >>> evaluation.confusion, round(evaluation.calibration_error, 3), evaluation.average_precision
    (((1, 0), (1, 1)), 0.4, 1.0)
    """
    known = truth >= 0
    truth, probabilities = truth[known], probabilities[known]
    if not len(truth):
        return None
    size = probabilities.shape[1]
    guess = decided(probabilities, positive, threshold)
    counts = np.bincount(truth * size + guess, minlength=size * size).reshape(size, size)
    return Evaluation(
        classes or tuple(str(index) for index in range(size)),
        tuple(tuple(map(int, row)) for row in counts),
        _bins(truth, probabilities),
        _ranking("average_precision", truth, probabilities, positive),
        _ranking("auc", truth, probabilities, positive),
        positive,
        threshold,
        () if positive is None else _cuts(truth == positive, probabilities[:, positive]),
    )


def decided(probabilities: np.ndarray, positive: int | None = None, threshold: float | None = None) -> np.ndarray:
    """The most probable class of each row; with a threshold, the class of interest from this probability on.

    >>> decided(np.array([[0.8, 0.2], [0.95, 0.05]]), positive=1, threshold=0.1)
    array([1, 0])
    """
    check_threshold(threshold, positive is not None)
    if threshold is None:
        return probabilities.argmax(axis=1)
    others = probabilities.copy()
    others[:, positive] = -1
    return np.asarray(np.where(probabilities[:, positive] >= threshold, positive, others.argmax(axis=1)))


def check_threshold(threshold: float | None, has_class: bool) -> None:
    """Refuse a threshold that is not a probability, or for which no class is known."""
    if threshold is None:
        return
    if not 0 <= validate.real("threshold", threshold) <= 1:
        raise InvalidInput("threshold", threshold, "must be a probability, from 0 to 1")
    if not has_class:
        raise InvalidInput("threshold", threshold, "name the class that it is for (positive): there are more than two")


def rare_class(labels: np.ndarray, classes: int) -> int | None:
    """The class of interest where none is named: the rarer of two classes, and none if there are more."""
    if classes != 2:
        return None
    first, second = np.bincount(labels[labels >= 0], minlength=2)
    return 0 if first < second else 1


def score_of(
    metric: str,
    truth: np.ndarray,
    probabilities: np.ndarray,
    *,
    positive: int | None = None,
    threshold: float | None = None,
    k: int | None = None,
) -> float:
    """One score of predictions by its name.

    Args:
        metric: One of `METRICS` or `CLASS_METRICS`.
        truth: Class numbers; at least one is not -1.
        probabilities: A row for each node, a column for each class.
        positive: The number of the class of interest.
        threshold: Predict this class from this probability on.
        k: How many nodes are flagged, for precision_at_k; by default as many as there are to find.

    Returns:
        The score.

    Raises:
        InvalidInput: The metric is unknown, or is not defined on these nodes.
    """
    if metric not in METRICS + CLASS_METRICS:
        raise InvalidInput("metric", metric, f"must be one of {', '.join(METRICS + CLASS_METRICS)}")
    if k is not None and metric != "precision_at_k":
        raise InvalidInput("k", k, f"belongs to precision_at_k, not to {metric}")
    evaluation = evaluate(truth, probabilities, positive=positive, threshold=threshold)
    if evaluation is None:
        raise InvalidInput("nodes", 0, "none of them has a label to score against")
    if metric in METRICS:
        value = evaluation.scores()[metric]
    elif positive is None:
        raise InvalidInput("metric", metric, "is of one class; name it (positive): there are more than two")
    elif metric == "precision_at_k":
        hits = (truth == positive)[truth >= 0]
        wanted = int(hits.sum()) if k is None else min(validate.count("k", k), len(hits))
        value = _cut(hits, probabilities[truth >= 0][:, positive], wanted).found / wanted if wanted else None
    else:
        own = evaluation.by_class[positive]
        value = None if own is None else getattr(own, metric)
    if value is None:
        raise InvalidInput("metric", metric, "is not defined on these nodes: they are all of one class, or lack one")
    return float(value)


def _ranking(name: str, truth: np.ndarray, probabilities: np.ndarray, positive: int | None) -> float | None:
    """A score of how nodes are ranked: of the class of interest, or the mean over all that are there, each against
    the rest."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    score: Callable[[np.ndarray, np.ndarray], float]
    score = average_precision_score if name == "average_precision" else roc_auc_score
    chosen = range(probabilities.shape[1]) if positive is None else [positive]
    values = [
        float(score(truth == index, probabilities[:, index]))
        for index in chosen
        if 0 < (truth == index).sum() < len(truth)
    ]
    return float(np.mean(values)) if values else None


def _cuts(hits: np.ndarray, probabilities: np.ndarray) -> tuple[Cut, ...]:
    flagged = {number for number in (*_FLAGGED, int(hits.sum())) if 0 < number <= len(hits)}
    return tuple(_cut(hits, probabilities, number) for number in sorted(flagged))


def _cut(hits: np.ndarray, probabilities: np.ndarray, flagged: int) -> Cut:
    first = np.argsort(-probabilities, kind="stable")[:flagged]
    return Cut(flagged, int(hits[first].sum()), float(probabilities[first[-1]]))


def _bins(truth: np.ndarray, probabilities: np.ndarray) -> tuple[Bin, ...]:
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return tuple(
        Bin(int(chosen.sum()), float(confidence[chosen].mean()), float(right[chosen].mean()))
        for chosen in (place == index for index in range(BINS))
        if chosen.any()
    )
