import json

import numpy as np
import pytest

from graphveil.errors import InvalidInput
from graphveil.evaluation import METRICS, Evaluation, decided, evaluate, rare_class, score_of

# Ten nodes, two of the rare class 1; ranked 1st and 4th by its probability.
RARE = np.array([0.9, 0.8, 0.6, 0.55, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01])
PROBABILITIES = np.stack([1 - RARE, RARE], axis=1)
TRUTH = np.array([1, 0, 0, 1, 0, 0, 0, 0, 0, 0])


def test_f1_by_hand():
    truth, guess = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 1])
    result = evaluate(truth, np.eye(4)[guess])
    # Class 0: precision 1, recall 2/3; class 1: 1/3 and 1/2; class 2: never right; class 3: not there.
    assert [None if each is None else each.f1 for each in result.by_class] == [pytest.approx(0.8), 0.4, 0.0, None]
    scores = result.scores()
    assert set(scores) == set(METRICS)
    assert scores["macro_f1"] == pytest.approx(0.4)
    assert scores["macro_precision"] == pytest.approx(4 / 9)
    assert scores["balanced_accuracy"] == pytest.approx((2 / 3 + 1 / 2) / 3)
    assert scores["accuracy"] == scores["majority_accuracy"] == 0.5


def test_ranking_by_hand():
    result = evaluate(TRUTH, PROBABILITIES, ("ok", "fraud"), positive=1)
    # Precision 1/1 at the first hit and 2/4 at the second; of 16 pairs two are in the wrong order.
    assert result.average_precision == pytest.approx(0.75)
    assert result.auc == pytest.approx(14 / 16)
    assert result.majority_accuracy == 0.8
    assert result.majority_class == "ok"
    assert [(cut.flagged, cut.found, cut.threshold) for cut in result.cuts] == [(2, 1, 0.8), (10, 2, 0.01)]
    assert result.sentences() == (
        "By the most probable class, 2 of 2 nodes of class fraud are found: 4 nodes are flagged, precision 0.50.",
        "The 2 most probable hold 1 of them: precision 0.50 (threshold 0.8).",
        "For class fraud: average precision 0.750, AUC 0.875, macro F1 0.762; at random, average precision would be "
        "0.200.",
    )


def test_several_classes_are_averaged_one_against_the_rest():
    truth, probabilities = np.array([0, 1, 2, 2]), np.eye(4)[[0, 1, 2, 0]] * 0.9 + 0.025
    result = evaluate(truth, probabilities)
    assert result.average_precision == pytest.approx((1 / 2 + 1 + 1 / 2 + 1 / 4) / 3, abs=0.2)
    assert result.positive is None
    assert evaluate(np.array([0, 0]), probabilities[:2]).auc is None


@pytest.mark.parametrize(
    ("metric", "options", "expected"),
    [
        ("accuracy", {}, 0.8),
        ("precision", {}, 0.5),
        ("recall", {}, 1.0),
        ("recall", {"threshold": 0.7}, 0.5),
        ("precision", {"threshold": 0.85}, 1.0),
        ("precision_at_k", {}, 0.5),
        ("precision_at_k", {"k": 1}, 1.0),
        ("precision_at_k", {"k": 4}, 0.5),
        ("average_precision", {}, 0.75),
        ("macro_recall", {}, (1 + 6 / 8) / 2),
    ],
)
def test_scores_by_name(metric, options, expected):
    assert score_of(metric, TRUTH, PROBABILITIES, positive=1, **options) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metric", "options", "message"),
    [
        ("f2", {}, "metric = 'f2': must be one of accuracy"),
        ("precision", {}, "is of one class; name it"),
        ("accuracy", {"k": 3}, "belongs to precision_at_k"),
        ("accuracy", {"threshold": 0.5}, "name the class"),
        ("accuracy", {"threshold": 1.5, "positive": 1}, "must be a probability"),
        ("precision_at_k", {"positive": 1, "k": 0}, "k = 0"),
    ],
)
def test_scores_that_cannot_be_given(metric, options, message):
    with pytest.raises(InvalidInput, match=message):
        score_of(metric, TRUTH, PROBABILITIES, **options)


def test_scores_that_are_not_defined():
    with pytest.raises(InvalidInput, match="is not defined on these nodes"):
        score_of("auc", TRUTH[:1], PROBABILITIES[:1], positive=1)
    with pytest.raises(InvalidInput, match="none of them has a label"):
        score_of("auc", np.array([-1]), PROBABILITIES[:1], positive=1)


def test_a_threshold_decides_for_one_class_and_leaves_the_others():
    three = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
    assert decided(three, 2, 0.3).tolist() == [0, 2]
    assert decided(three).tolist() == [0, 1]


def test_the_rarer_of_two_classes_is_of_interest():
    assert rare_class(np.array([1, 1, 0, -1]), 2) == 0
    assert rare_class(np.array([1, 0]), 2) == 1
    assert rare_class(np.array([1, 0]), 3) is None


def test_counts_add_up():
    draws = np.random.default_rng(1)
    evaluation = evaluate(draws.integers(3, size=400), draws.dirichlet(np.ones(3), size=400), ("a", "<b>", "c"))
    assert evaluation.count == 400 == sum(b.count for b in evaluation.bins)
    assert Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict()))) == evaluation
    for b in evaluation.bins:
        low, high = b.interval
        assert 0 <= low <= b.accuracy <= high <= 1


def test_nodes_without_a_label_do_not_count():
    assert evaluate(np.array([-1, -1]), np.full((2, 3), 1 / 3)) is None
    assert evaluate(np.array([-1, 2]), np.full((2, 3), 1 / 3)).count == 1


def test_a_perfect_model_is_calibrated():
    evaluation = evaluate(np.array([0, 1]), np.eye(2))
    assert (evaluation.accuracy, evaluation.calibration_error) == (1, 0)


def test_calibration_by_hand():
    # Three nodes of confidence 0.9, two of them right; one of confidence 0.6, wrong; classes by columns.
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.6, 0.4]])
    evaluation = evaluate(np.array([0, 0, 0, 1]), probabilities)
    assert evaluation.confusion == ((2, 1), (1, 0))
    assert [(b.count, b.confidence, b.accuracy) for b in evaluation.bins] == [
        (1, pytest.approx(0.6), 0),
        (3, pytest.approx(0.9), pytest.approx(2 / 3)),
    ]
    assert evaluation.calibration_error == pytest.approx((0.6 + 3 * (0.9 - 2 / 3)) / 4)
    # Wilson, for 2 of 3 at 95 %.
    assert evaluation.bins[1].interval == pytest.approx((0.2077, 0.9385), abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confusion": [[1, 0]]}, "another number of classes"),
        ({"classes": ["a"]}, "another number of classes"),
        ({"confusion": [[0, 0], [0, 0]]}, "has no nodes"),
        ({"bins": [{"count": 1}]}, "is missing or has the wrong form"),
        ({"classes": None}, "is missing or has the wrong form"),
    ],
)
def test_what_was_written_is_read_strictly(change, message):
    evaluation = evaluate(np.array([0, 1]), np.eye(2))
    with pytest.raises(InvalidInput, match=message):
        Evaluation.from_dict(evaluation.to_dict() | change)
