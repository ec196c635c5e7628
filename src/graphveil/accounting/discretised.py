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

from graphveil.accounting.losses import Gaussian, RandomizedResponse, SampledGaussian

# Probability that may be moved to an infinite loss over all steps of one mechanism.
TAIL_MASS = 1e-13
_CELLS = 2**13
_MOST_CELLS = 2**15
_CELL_LOSS = 0.05
# Covers the rounding of uniform answers to 52 bits, for up to 2^14 symbols (docs/theory.md, section 8.5).
_UNIFORM_ROUNDING = 2.0**-35


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


def discretised(loss: Gaussian | SampledGaussian | RandomizedResponse, reverse: bool = False) -> DiscretisedLoss:
    """The discretised privacy-loss distribution of one use of `loss`; `reverse`: of the pair in the other order."""
    if isinstance(loss, RandomizedResponse):
        return _discretised_responses(loss, reverse)
    if isinstance(loss, Gaussian):
        # N(0, 1) against N(mu, 1) is N(-1, s^2) against N(+1, s^2) with s = 2 / mu.
        one = (np.ones(1), np.zeros(1))
        return _discretised_mixture(one, one, 2 / loss.mu, 1)
    return _discretised_mixture(*sampled_pair(loss, reverse), loss.noise_multiplier, loss.steps)


Counts = tuple[np.ndarray, np.ndarray]  # numbers of rows and the logarithms of their probabilities


def sampled_pair(loss: SampledGaussian, reverse: bool = False) -> tuple[Counts, Counts]:
    """How many rows of the group a step moves by +1 under the first hypothesis, and by -1 under the second."""
    first = _binomial(loss.group_size, loss.sampling_rate)
    second = _binomial(loss.group_size - loss.removed, loss.sampling_rate)
    return (second, first) if reverse else (first, second)


def _binomial(size: int, rate: float) -> Counts:
    counts = np.arange(size + 1, dtype=float)
    if rate == 1:
        return counts[-1:], np.zeros(1)
    log_choose = gammaln(size + 1) - gammaln(counts + 1) - gammaln(size - counts + 1)
    return counts, log_choose + counts * math.log(rate) + (size - counts) * math.log1p(-rate)


def pure_epsilon(loss: RandomizedResponse) -> float:
    """The largest loss of one answer, in either order."""
    return max(float(_discretised_responses(loss, reverse).losses[-1]) for reverse in (False, True))


def _discretised_responses(loss: RandomizedResponse, reverse: bool = False) -> DiscretisedLoss:
    truth = loss.truth_probability
    lie = truth * math.exp(-loss.epsilon)
    if loss.uniform:
        # The true symbol and the other ones; a uniform answer gives each symbol the probability 1 / classes.
        told = np.array([(loss.classes - 1) * lie, truth])
        blind = np.array([loss.classes - 1, 1]) / loss.classes
        losses = np.log([loss.classes * lie, loss.classes * truth])
        answers = (-losses[::-1], blind[::-1]) if reverse else (losses, told)
        return DiscretisedLoss(answers[0] + _UNIFORM_ROUNDING, answers[1], infinity=0.0, uses=loss.uses)
    return DiscretisedLoss(
        losses=np.array([-loss.epsilon, 0.0, loss.epsilon]),
        masses=np.array([lie, (loss.classes - 2) * lie, truth]),
        infinity=0.0,
        uses=loss.uses,
    )


def _discretised_mixture(first: Counts, second: Counts, sigma: float, uses: int) -> DiscretisedLoss:
    """sum_i w_i N(+i, sigma^2) against sum_j v_j N(-j, sigma^2); the likelihood ratio rises with x."""
    tail = TAIL_MASS / uses
    (counts, log_weights), dropped = _drop_rare_counts(first, tail / 2)
    (other_counts, other_log_weights), _ = _drop_rare_counts(second, tail / 2)
    weights, other_weights = np.exp(log_weights), np.exp(other_log_weights)
    edge = _upper_quantile(weights, counts, sigma, tail / 2)
    slope = (float(counts[-1]) + float(other_counts[-1])) / sigma**2
    x = np.linspace(-edge, edge, _cell_number(2 * edge * slope) + 1)

    ratio = log_mixture_factor(x, counts, log_weights, sigma) - log_mixture_factor(
        -x, other_counts, other_log_weights, sigma
    )
    losses = np.maximum.accumulate(ratio)
    masses = _split_cells(losses, _cells(x, weights, counts, sigma), _cells(x, other_weights, -other_counts, sigma))
    masses[0] += float(weights @ ndtr((-edge - counts) / sigma))
    beyond = float(weights @ ndtr((counts - edge) / sigma))
    return DiscretisedLoss(losses, masses, infinity=dropped + beyond, uses=uses)


def _cells(x: np.ndarray, weights: np.ndarray, means: np.ndarray, sigma: float) -> np.ndarray:
    """The probability of each cell under a mixture of normals."""
    masses = np.zeros(len(x) - 1)
    for weight, mean in zip(weights, means, strict=True):
        masses += weight * _normal_cells((x - mean) / sigma)
    return masses


def _drop_rare_counts(counts: Counts, mass: float) -> tuple[Counts, float]:
    """Leave out counts of at most this probability: they cost as much in delta, and nothing in the second mixture."""
    weights = np.exp(counts[1])
    order = np.argsort(weights)
    rare = order[np.cumsum(weights[order]) <= mass]
    keep = np.setdiff1d(np.arange(len(weights)), rare)
    return (counts[0][keep], counts[1][keep]), float(weights[rare].sum())


def _upper_quantile(weights: np.ndarray, counts: np.ndarray, sigma: float, mass: float) -> float:
    reach = -float(ndtri(mass)) * sigma
    if len(counts) == 1:
        return float(counts[0]) + reach
    low, high = 0.0, float(counts[-1]) + reach * 1.000001
    from scipy.optimize import brentq  # slow to load, and most commands need none

    return float(brentq(lambda x: float(weights @ ndtr((counts - x) / sigma)) - mass, low, high, xtol=1e-6 * sigma))


def _cell_number(loss_range: float) -> int:
    """Enough cells that the loss moves little across one."""
    return int(np.clip(2 * math.ceil(loss_range / _CELL_LOSS / 2), _CELLS, _MOST_CELLS))


def log_mixture_factor(x: np.ndarray, counts: np.ndarray, log_weights: np.ndarray, sigma: float) -> np.ndarray:
    """log of sum_i w_i N(x; i, sigma^2) / N(x; 0, sigma^2)."""
    if len(counts) == 1:
        return float(log_weights[0]) + float(counts[0]) * (x - float(counts[0]) / 2) / sigma**2
    exponents = log_weights - counts**2 / (2 * sigma**2) + np.outer(x / sigma**2, counts)
    return np.asarray(logsumexp(exponents, axis=1))


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
