import numpy as np
import pytest

from graphveil.evaluation.intervals import bootstrap


def test_the_interval_covers_the_mean_and_does_not_change():
    values = np.random.default_rng(0).normal(80, 2, size=10).tolist()
    interval = bootstrap(values)
    assert interval == bootstrap(values)
    assert interval.low < interval.mean < interval.high
    # The normal approximation of the same interval.
    assert interval.half_width == pytest.approx(1.96 * np.std(values) / np.sqrt(10), rel=0.1)
