"""The paper's accountant: Rényi divergences added up, then Lemma F.1 of the paper (appendix "RDP to DP conversion").

A cross-check on the same dominating pairs, looser by design; `Composition.epsilon` is the certified figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from graphveil.privacy.accounting.discretised import binomial_log_weights
from graphveil.privacy.accounting.losses import Loss, RandomizedResponse, SampledGaussian

ORDERS = 1 + np.geomspace(0.05, 255.0, 48)
_POINTS = 2**12
_POINTS_PER_SIGMA = 8


def rdp_epsilon(losses: Sequence[Loss], delta: float) -> float:
    """epsilon = min over alpha of gamma(alpha) + log(1 / (alpha delta)) / (alpha - 1) + log(1 - 1 / alpha)."""
    gamma = sum((_renyi(loss) for loss in losses), start=np.zeros_like(ORDERS))
    epsilons = gamma + np.log(1 / (ORDERS * delta)) / (ORDERS - 1) + np.log1p(-1 / ORDERS)
    return max(0.0, float(epsilons.min()))


def _renyi(loss: Loss) -> np.ndarray:
    if isinstance(loss, RandomizedResponse):
        return loss.uses * _response(loss)
    if isinstance(loss, SampledGaussian) and loss.sampling_rate < 1:
        return loss.steps * np.array([_mixture(loss, alpha) for alpha in ORDERS])
    return ORDERS * loss.mu**2 / 2


def _response(loss: RandomizedResponse) -> np.ndarray:
    log_truth = math.log(loss.truth_probability)
    log_lie = log_truth - loss.epsilon
    terms = [
        ORDERS * log_truth + (1 - ORDERS) * log_lie,
        ORDERS * log_lie + (1 - ORDERS) * log_truth,
    ]
    if loss.classes > 2:
        terms.append(np.full_like(ORDERS, math.log(loss.classes - 2) + log_lie))
    return logsumexp(terms, axis=0) / (ORDERS - 1)


def _mixture(loss: SampledGaussian, alpha: float) -> float:
    """log of the integral of p^alpha q^(1 - alpha), by the trapezoid rule around the integrand's mass.

    The rule converges faster than any power for such integrands. An order whose range would need too many
    points gets no bound: leaving an order out keeps the minimum valid.
    """
    counts, log_weights = binomial_log_weights(loss)
    sigma, most = loss.noise_multiplier, float(counts[-1])
    low, high = -most - 12 * sigma, (2 * alpha - 1) * most + 12 * sigma
    coarse = np.linspace(low, high, 257)
    values = _log_integrand(coarse, counts, log_weights, sigma, alpha)
    near = np.flatnonzero(values > values.max() - 45 - 0.5 * ((coarse[1] - coarse[0]) / sigma) ** 2)
    low, high = coarse[max(0, near[0] - 1)], coarse[min(256, near[-1] + 1)]
    points = math.ceil((high - low) / sigma * _POINTS_PER_SIGMA)
    if points > _POINTS:
        return math.inf
    x = np.linspace(low, high, max(points, 256))
    log_integral = logsumexp(_log_integrand(x, counts, log_weights, sigma, alpha)) + math.log(x[1] - x[0])
    return max(0.0, float(log_integral) / (alpha - 1))


def _log_integrand(
    x: np.ndarray, counts: np.ndarray, log_weights: np.ndarray, sigma: float, alpha: float
) -> np.ndarray:
    base = log_weights - counts**2 / (2 * sigma**2)
    shift = np.outer(x / sigma**2, counts)
    common = -(x**2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi))
    return alpha * logsumexp(base + shift, axis=1) + (1 - alpha) * logsumexp(base - shift, axis=1) + common
