"""One use of a mechanism as a discrete privacy-loss distribution that dominates the true one.

Replacing the losses inside a cell by two losses at the cell's ends, with the same mass under both hypotheses, can only
raise every hockey-stick divergence ("connect the dots", Doroshenko et al. 2022, arXiv:2207.04380). Masses are
differences of normal tails, taken on the side where they are small, so they keep their relative precision far out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr, ndtri

from graphveil.privacy.accounting.losses import Gaussian, Loss, RandomizedResponse, SampledGaussian

# Probability that may be moved to an infinite loss over all steps of one mechanism.
TAIL_MASS = 1e-13
_CELLS = 2**13
_MOST_CELLS = 2**15
_CELL_LOSS = 0.05


@dataclass(frozen=True)
class DiscretisedLoss:
    """A discretised loss: values in ascending order, their probabilities, and the probability of an infinite loss.

    `uses` is how often the mechanism is used.
    """

    losses: np.ndarray
    masses: np.ndarray
    infinity: float
    uses: int

    def tail(self, sign: int, mass: float) -> float:
        """A value that the summed loss of all uses exceeds with probability at most `mass` (Chernoff's bound)."""
        orders = sign * np.geomspace(1e-2, 1e3, 41)
        log_moments = logsumexp(np.outer(orders, self.losses), b=self.masses, axis=1)
        bounds = (self.uses * log_moments + math.log(1 / mass)) / orders
        extreme = self.uses * (self.losses[-1] if sign > 0 else self.losses[0])
        return float(min(extreme, bounds.min()) if sign > 0 else max(extreme, bounds.max()))


def discretised(loss: Loss) -> DiscretisedLoss:
    """The discretised privacy-loss distribution of one use of `loss`."""
    if isinstance(loss, RandomizedResponse):
        return _discretised_responses(loss)
    if isinstance(loss, Gaussian):
        # N(0, 1) against N(mu, 1) is N(-1, s^2) against N(+1, s^2) with s = 2 / mu.
        return _discretised_mixture(np.zeros(1), np.ones(1), 2 / loss.mu, 1)
    counts, log_weights = binomial_log_weights(loss)
    return _discretised_mixture(log_weights, counts, loss.noise_multiplier, loss.steps)


def binomial_log_weights(loss: SampledGaussian) -> tuple[np.ndarray, np.ndarray]:
    """How many of the group's rows are drawn into a step, and the log-probability of each number."""
    g, q = loss.group_size, loss.sampling_rate
    counts = np.arange(g + 1, dtype=float)
    if q == 1:
        return counts[-1:], np.zeros(1)
    log_choose = gammaln(g + 1) - gammaln(counts + 1) - gammaln(g - counts + 1)
    return counts, log_choose + counts * math.log(q) + (g - counts) * math.log1p(-q)


def _discretised_responses(loss: RandomizedResponse) -> DiscretisedLoss:
    truth = loss.truth_probability
    lie = truth * math.exp(-loss.epsilon)
    return DiscretisedLoss(
        losses=np.array([-loss.epsilon, 0.0, loss.epsilon]),
        masses=np.array([lie, (loss.classes - 2) * lie, truth]),
        infinity=0.0,
        uses=loss.uses,
    )


def _discretised_mixture(log_weights: np.ndarray, counts: np.ndarray, sigma: float, uses: int) -> DiscretisedLoss:
    """sum_j w_j N(+j, sigma^2) against sum_j w_j N(-j, sigma^2); the likelihood ratio rises with x."""
    tail = TAIL_MASS / uses
    log_weights, counts, dropped = _drop_rare_counts(log_weights, counts, tail / 2)
    weights = np.exp(log_weights)
    edge = _upper_quantile(weights, counts, sigma, tail / 2)
    x = np.linspace(-edge, edge, _cell_number(edge, counts, sigma) + 1)

    losses = _log_likelihood_ratio(x, log_weights, counts, sigma)
    above = np.zeros(len(x) - 1)
    for weight, count in zip(weights, counts, strict=True):
        above += weight * _normal_cells((x - count) / sigma)
    below = above[::-1]  # the other hypothesis is the mirror image and so is the grid
    masses = _split_cells(losses, above, below)
    masses[0] += float(weights @ ndtr((-edge - counts) / sigma))
    beyond = float(weights @ ndtr((counts - edge) / sigma))
    return DiscretisedLoss(losses, masses, infinity=dropped + beyond, uses=uses)


def _drop_rare_counts(log_weights: np.ndarray, counts: np.ndarray, mass: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Leave out counts of total probability at most `mass`; by joint convexity they cost at most that in delta."""
    weights = np.exp(log_weights)
    order = np.argsort(weights)
    rare = order[np.cumsum(weights[order]) <= mass]
    keep = np.setdiff1d(np.arange(len(counts)), rare)
    return log_weights[keep], counts[keep], float(weights[rare].sum())


def _upper_quantile(weights: np.ndarray, counts: np.ndarray, sigma: float, mass: float) -> float:
    reach = -float(ndtri(mass)) * sigma
    if len(counts) == 1:
        return float(counts[0]) + reach
    low, high = 0.0, float(counts[-1]) + reach * 1.000001
    from scipy.optimize import brentq  # slow to load, and most commands need none

    return float(brentq(lambda x: float(weights @ ndtr((counts - x) / sigma)) - mass, low, high, xtol=1e-6 * sigma))


def _cell_number(edge: float, counts: np.ndarray, sigma: float) -> int:
    """Enough cells that the loss moves little across one: its slope is at most 2 max(count) / sigma^2."""
    loss_range = 2 * edge * 2 * float(counts[-1]) / sigma**2
    return int(np.clip(2 * math.ceil(loss_range / _CELL_LOSS / 2), _CELLS, _MOST_CELLS))


def _log_likelihood_ratio(x: np.ndarray, log_weights: np.ndarray, counts: np.ndarray, sigma: float) -> np.ndarray:
    if len(counts) == 1:
        return 2 * float(counts[0]) * x / sigma**2
    exponents = log_weights - counts**2 / (2 * sigma**2) + np.outer(x / sigma**2, counts)
    log_density = logsumexp(exponents, axis=1)
    ratio = log_density - log_density[::-1]
    return np.maximum.accumulate(ratio)


def _normal_cells(t: np.ndarray) -> np.ndarray:
    """Phi(t[i+1]) - Phi(t[i]) without cancellation in either tail."""
    tail = ndtr(-np.abs(t))
    left, right = tail[:-1], tail[1:]
    cells = np.abs(right - left)
    crossing = (t[:-1] < 0) & (t[1:] > 0)
    cells[crossing] = 1 - left[crossing] - right[crossing]
    return cells


def _split_cells(losses: np.ndarray, above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Move each cell's mass to the losses at its ends, keeping its probability under both hypotheses."""
    low, high = losses[:-1], losses[1:]
    width = -np.expm1(low - high)
    # At loss l the second hypothesis has e^-l times the mass: solve a + b = above, a e^-low + b e^-high = below.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(np.exp(low + np.log(below) - np.log(above)), nan=0.0)
    fraction = np.divide(np.clip(1 - ratio, 0.0, width), width, out=np.ones_like(above), where=width > 0)
    to_high = above * fraction
    masses = np.zeros(len(losses))
    masses[1:] += to_high
    masses[:-1] += above - to_high
    return masses
