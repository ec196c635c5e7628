"""Calibration: never above the target, and at most 0.1 % below it."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphveil.accounting import Gaussian, RandomizedResponse, SampledGaussian, calibrate, compose, least_factor
from graphveil.errors import InvalidInput

DELTAS = st.sampled_from([1e-4, 1e-5, 1e-6])
TARGETS = st.floats(0.1, 32.0)


def trainings():
    return st.builds(
        SampledGaussian,
        noise_multiplier=st.just(1.0),
        group_size=st.sampled_from([1, 2, 6, 26, 201, 401]),
        sampling_rate=st.sampled_from([1.0, 0.3, 0.05, 0.01, 0.002]),
        steps=st.sampled_from([1, 100, 1000, 20_000]),
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=trainings(), second=trainings(), share=st.floats(0.1, 0.9), target=TARGETS, delta=DELTAS)
def test_shares_of_a_three_part_plan(first, second, share, target, delta):
    parts = [first, Gaussian(1.0), second]
    shares = [share, 0.2, 1 - share]
    calibrated = calibrate(parts, target, delta, shares=shares)
    assert 0.999 * target < calibrated.epsilon <= target
    # A fresh composition of what was returned costs what was said.
    assert compose(calibrated.losses).epsilon(delta) == pytest.approx(calibrated.epsilon, rel=1e-12)
    total = compose(calibrated.losses).mu ** 2
    for loss, part in zip(calibrated.losses, shares, strict=True):
        assert loss.mu**2 / total == pytest.approx(part / sum(shares), rel=1e-9)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(training=trainings(), target=TARGETS, delta=DELTAS)
def test_one_shared_multiplier(training, target, delta):
    calibrated = calibrate([training, Gaussian(1.0)], target, delta)
    assert 0.999 * target < calibrated.epsilon <= target
    assert calibrated.losses[0].noise_multiplier == pytest.approx(1 / calibrated.losses[1].mu)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    part=st.floats(0.05, 0.9), classes=st.integers(2, 10), training=trainings(), target=st.floats(0.5, 16), delta=DELTAS
)
def test_responses_are_paid_for_and_kept(part, classes, training, target, delta):
    response = RandomizedResponse(part * target, classes)
    calibrated = calibrate([response, training], target, delta)
    assert calibrated.losses[0] == response
    assert 0.999 * target < calibrated.epsilon <= target


def test_more_noise_than_needed_is_not_taken():
    calibrated = calibrate([SampledGaussian(1.0, 6, 0.0129, 7735)], 13.518, 1e-5)
    assert calibrated.losses[0].noise_multiplier == pytest.approx(5.34, rel=2e-3)


def test_the_worst_kind_decides():
    cheap, dear = [Gaussian(1.0)], [Gaussian(1.0), Gaussian(1.0)]
    assert least_factor([cheap, dear], 4.0, 1e-5) == least_factor([dear], 4.0, 1e-5)
    assert least_factor([dear, cheap], 4.0, 1e-5) == least_factor([dear], 4.0, 1e-5)
    other = [Gaussian(3.0)]
    assert least_factor([dear, other], 4.0, 1e-5)[0] == least_factor([other], 4.0, 1e-5)[0]


def test_what_cannot_be_met_is_said():
    with pytest.raises(InvalidInput, match=r"epsilon = 1\.0.*alone cost 2"):
        calibrate([RandomizedResponse(2.0, 3)], 1.0, 1e-5)
    with pytest.raises(InvalidInput, match=r"epsilon = 1\.0.*cannot be certified"):
        calibrate([RandomizedResponse(2.0, 3), Gaussian(1.0)], 1.0, 1e-5)
    with pytest.raises(InvalidInput, match="rounding"):
        calibrate([SampledGaussian(1.0, 2, 0.01, 20_000)], 1.0, 1e-15)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"epsilon": 0.0, "delta": 1e-5}, "epsilon = 0.0"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon = -1.0"),
        ({"epsilon": math.inf, "delta": 1e-5}, "epsilon = inf"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta = 0.0"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta = 1.0"),
        ({"epsilon": 1.0, "delta": 1e-5, "shares": [1.0, 2.0]}, "shares"),
        ({"epsilon": 1.0, "delta": 1e-5, "shares": [0.0]}, "shares"),
    ],
)
def test_bad_values_are_named(words, field):
    with pytest.raises(InvalidInput, match=field):
        calibrate([Gaussian(1.0)], **words)
