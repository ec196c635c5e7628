"""The paper's accountant: right on what is known exactly, and looser than the certified figure."""

import math

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon

from graphveil.privacy.accounting import Gaussian, RandomizedResponse, SampledGaussian, compose
from graphveil.privacy.accounting.rdp import ORDERS, _renyi


def test_the_conversion_is_the_papers_lemma():
    gaussian = Gaussian(1.3)
    theirs, _ = compute_epsilon(ORDERS, ORDERS * gaussian.mu**2 / 2, 1e-5)
    assert compose([gaussian]).rdp_epsilon(1e-5) == pytest.approx(theirs, rel=1e-9)


def test_the_mixture_at_high_rate_approaches_the_gaussian():
    near = _renyi(SampledGaussian(30.0, 2, 0.999999, 10))
    exact = _renyi(SampledGaussian(30.0, 2, 1.0, 10))
    known = np.isfinite(near)
    assert known[ORDERS < 64].all()
    assert near[known] == pytest.approx(exact[known], rel=1e-4)


def test_the_mixture_at_order_two_in_closed_form():
    # One row, order 2: integral of p^2 / q by direct summation on a wide grid.
    sigma, rate = 2.0, 0.2
    x = np.linspace(-60, 60, 400_001)
    p = (1 - rate) * np.exp(-(x**2) / 8) + rate * np.exp(-((x - 1) ** 2) / 8)
    q = p[::-1]
    integral = (p**2 / q).sum() * (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
    order = int(np.argmin(abs(ORDERS - 2)))
    interpolated = np.interp(2.0, ORDERS, _renyi(SampledGaussian(sigma, 1, rate, 1)))
    assert interpolated == pytest.approx(math.log(integral), rel=2e-2), ORDERS[order]


@pytest.mark.parametrize(
    "parts",
    [
        [SampledGaussian(2.16, 2, 0.0129, 7735)],
        [SampledGaussian(42.0, 26, 0.0315, 3173)],
        [SampledGaussian(30.0, 201, 0.01, 100)],
        [RandomizedResponse(4.0, 7), Gaussian(1.2), Gaussian(1.5)],
    ],
)
def test_it_is_looser_but_not_by_much(parts):
    composed = compose(parts)
    assert 1.0 < composed.rdp_epsilon(1e-5) / composed.epsilon(1e-5) < 1.12
