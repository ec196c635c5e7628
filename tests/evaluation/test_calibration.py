import json

import numpy as np

from graphveil.evaluation.calibration import Evaluation, evaluate


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
    found = evaluate(np.array([0, 1]), np.eye(2))
    assert (found.accuracy, found.calibration_error) == (1, 0)
