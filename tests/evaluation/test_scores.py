import json

import numpy as np
import pytest

from graphveil.errors import InvalidInput
from graphveil.evaluation.scores import Evaluation, evaluate, scores


def test_f1_by_hand():
    truth, guess = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 1])
    result = scores(truth, guess, classes=4)
    # Class 0: precision 1, recall 2/3; class 1: 1/3 and 1/2; class 2: never right; class 3: not there.
    assert result.class_f1 == pytest.approx((0.8, 0.4, 0.0, None))
    assert result.macro_f1 == pytest.approx(0.4)
    assert result.accuracy == 0.5
    assert scores(truth[:0], guess[:0], classes=4) is None


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
