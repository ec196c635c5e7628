import numpy as np
import pytest

from graphveil.evaluation.intervals import bootstrap
from graphveil.evaluation.scores import scores


def test_f1_by_hand():
    truth, guess = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 1])
    found = scores(truth, guess, classes=4)
    # Class 0: precision 1, recall 2/3; class 1: 1/3 and 1/2; class 2: never right; class 3: not there.
    assert found.class_f1 == pytest.approx((0.8, 0.4, 0.0, None))
    assert found.macro_f1 == pytest.approx(0.4)
    assert found.accuracy == 0.5
    assert scores(truth[:0], guess[:0], classes=4) is None


def test_the_interval_covers_the_mean_and_does_not_change():
    values = np.random.default_rng(0).normal(80, 2, size=10).tolist()
    found = bootstrap(values)
    assert found == bootstrap(values)
    assert found.low < found.mean < found.high
    # The normal approximation of the same interval.
    assert found.half_width == pytest.approx(1.96 * np.std(values) / np.sqrt(10), rel=0.1)
