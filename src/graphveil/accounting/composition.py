"""Composition of mechanisms: epsilon for delta and delta for epsilon, always rounded to the safe side.

Gaussians combine exactly, and have a closed form. Everything else goes through dp-accounting's privacy-loss
distributions: this file puts the discretised losses on a common grid ("connect the dots" once more) and hands them
over. The rounding error of the fast Fourier transform is added to the probability of an infinite loss.

At the end stands the paper's accountant, a looser cross-check on the same dominating pairs: Rényi divergences added up,
then Lemma F.1 of the paper (appendix "RDP to DP conversion").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr

from graphveil import validate
from graphveil.accounting.losses import (
    TAIL_MASS,
    AnyOf,
    Counts,
    DiscretisedLoss,
    Gaussian,
    Loss,
    RandomizedResponse,
    SampledGaussian,
    discretised,
    has_two_orders,
    log_mixture_factor,
    pure_epsilon,
    sampled_pair,
)

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

# Points of the grid across the range of the composed loss. At 2^18 the grid costs less than 0.03 % of epsilon
# for 20,000 steps.
_GRID_POINTS = 2**18
# Points across the range of losses of alternatives.
_GRID_OF_ALTERNATIVES = 2**15
# Root finding is good to about 1e-13; this slack keeps the answer on the safe side of the root.
SAFETY = 1e-10


@dataclass(frozen=True)
class Composition:
    """All mechanisms that one node (or edge) pays for.

    Formal guarantee: for every delta, the composed mechanisms are (`epsilon(delta)`, delta)-DP against an adversary
    who sees all of their outputs and may choose later mechanisms by earlier outputs.

    Args:
        losses: The mechanisms, as `compose` takes them.

    >>> round(Composition((Gaussian(mu=3.0), Gaussian(mu=4.0))).mu, 3)
    5.0
    """

    losses: tuple[Loss, ...]

    @property
    def mu(self) -> float:
        """The mu of all Gaussian parts together, in closed form. Shares of the budget are parts of its square."""
        return math.sqrt(sum(loss.mu**2 for loss in self.losses))

    def epsilon(self, delta: float) -> float:
        """Epsilon for a delta.

        Args:
            delta: Between 0 and 1, both excluded.

        Returns:
            An epsilon of at least 0, never below the true one; infinite if none can be certified at this delta.

        Raises:
            InvalidInput: `delta` is out of range.

        Formal guarantee: the composition is (epsilon, delta)-DP.
        """
        validate.open_unit("delta", delta)
        if not self._pmfs:
            return gaussian_epsilon(self._exact_mu, delta)
        return min(max(_epsilon_for_delta(pmf, delta) for pmf in self._pmfs), self._pure_epsilon)

    def delta(self, epsilon: float) -> float:
        """Delta for an epsilon.

        Args:
            epsilon: At least 0.

        Returns:
            A delta, never below the true one.

        Raises:
            InvalidInput: `epsilon` is negative or not finite.

        Formal guarantee: the composition is (epsilon, delta)-DP.
        """
        validate.non_negative("epsilon", epsilon)
        if not self._pmfs:
            return gaussian_delta(self._exact_mu, epsilon)
        return min(1.0, max(float(pmf.get_delta_for_epsilon(epsilon)) for pmf in self._pmfs))

    def rdp_epsilon(self, delta: float) -> float:
        """Epsilon by the paper's accountant: Rényi divergences added up, then its conversion lemma.

        Args:
            delta: Between 0 and 1, both excluded.

        Returns:
            An epsilon, usually larger than `epsilon(delta)`.

        Raises:
            InvalidInput: `delta` is out of range.

        Formal guarantee: the composition is (epsilon, delta)-DP, up to the numerical integration; a cross-check only.
        """
        return rdp_epsilon(self.losses, validate.open_unit("delta", delta))

    @property
    def _pure_epsilon(self) -> float:
        """Randomised responses alone cost at most the sum of their epsilons, which the grid may exceed."""
        if all(isinstance(loss, RandomizedResponse) for loss in self.losses):
            return sum(pure_epsilon(loss) * loss.uses for loss in self.losses if isinstance(loss, RandomizedResponse))
        return math.inf

    @cached_property
    def _exact_mu(self) -> float:
        return math.sqrt(sum(loss.mu**2 for loss in self.losses if _is_exactly_gaussian(loss)))

    def as_one(self, reverse: bool) -> DiscretisedLoss:
        """All of it as one discretised loss, in one order of the pair."""
        if not self._pmfs:
            if self._exact_mu == 0:
                return DiscretisedLoss(np.zeros(1), np.ones(1), 0.0, 1)
            return discretised(Gaussian(self._exact_mu), reverse)
        pmf = self._pmfs[-1 if reverse else 0]
        losses = np.arange(pmf._lower_loss, pmf._lower_loss + pmf.size) * pmf._discretization
        return DiscretisedLoss(losses, pmf._probs, pmf._infinity_mass, 1)

    @cached_property
    def _pmfs(self) -> list[DensePLDPmf]:
        """The composed privacy-loss distribution; none when everything is Gaussian and has a closed form.

        Where a pair of distributions is not its own mirror image there are two, one for each order.
        """
        others = [loss for loss in self.losses if not _is_exactly_gaussian(loss)]
        if not others:
            return []
        orders = (False, True) if any(map(has_two_orders, others)) else (False,)
        return [self._composed([_discretised(loss, reverse) for loss in others]) for reverse in orders]

    def _composed(self, parts: list[DiscretisedLoss]) -> DensePLDPmf:
        """These parts and the Gaussian ones."""
        if self._exact_mu > 0:
            parts = [*parts, discretised(Gaussian(self._exact_mu))]
        spans = [(part.tail(-1, TAIL_MASS), part.tail(+1, TAIL_MASS)) for part in parts]
        width = sum(high - low for low, high in spans)
        step = max(width, max(float(np.ptp(part.losses)) for part in parts)) / _GRID_POINTS
        # dp-accounting tries orders of the moment generating function that overflow, and does without those.
        with np.errstate(over="ignore", invalid="ignore"):
            pmf = _self_compose(_lay_on_grid(parts[0], step), parts[0].uses)
            for part in parts[1:]:
                pmf = _compose(pmf, _self_compose(_lay_on_grid(part, step), part.uses))
        return pmf


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The smallest delta at which a Gaussian mechanism is (epsilon, delta)-DP.

    Args:
        mu: The sensitivity divided by the standard deviation of the noise.
        epsilon: Any real number.

    Returns:
        The delta of N(0, 1) against N(mu, 1), between 0 and 1.

    Formal guarantee: exact up to rounding of floating point (Balle and Wang 2018, theorem 8).
    """
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    upper = float(ndtr(mu / 2 - epsilon / mu))
    lower = math.exp(min(700.0, epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))))
    return min(1.0, max(0.0, upper - lower))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon at which a Gaussian mechanism is (epsilon, delta)-DP.

    Args:
        mu: The sensitivity divided by the standard deviation of the noise.
        delta: Between 0 and 1, both excluded.

    Returns:
        An epsilon of at least 0, rounded up.

    Formal guarantee: the mechanism is (epsilon, delta)-DP.
    """
    if mu == 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # The tail bound delta(eps) <= Phi(mu/2 - eps/mu) <= exp(-t^2/2) gives an upper end for the search.
    upper = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta)))
    from scipy.optimize import brentq  # slow to load, and most commands need none

    root = brentq(lambda eps: gaussian_delta(mu, eps) - delta, 0.0, upper, xtol=1e-13, rtol=1e-14)
    return float(root) * (1 + SAFETY) + 1e-12


def _discretised(loss: Loss, reverse: bool) -> DiscretisedLoss:
    return _worst_of(loss, reverse) if isinstance(loss, AnyOf) else discretised(loss, reverse)


def _worst_of(loss: AnyOf, reverse: bool) -> DiscretisedLoss:
    """The loss whose upper tail is, everywhere, the largest of those of the alternatives (docs/theory.md, 4.6)."""
    each = [Composition(losses).as_one(reverse) for losses in dict.fromkeys(loss.alternatives)]
    step = (max(float(np.ptp(one.losses)) for one in each) or 1.0) / _GRID_OF_ALTERNATIVES
    laid = [_lay_on_grid(one, step) for one in each]
    lowest = min(pmf._lower_loss for pmf in laid)
    size = max(pmf._lower_loss + pmf.size for pmf in laid) - lowest
    tails = np.zeros((len(laid), size))
    for tail, pmf in zip(tails, laid, strict=True):
        start = pmf._lower_loss - lowest
        tail[start : start + pmf.size] = pmf._probs
        tail[:] = np.cumsum(tail[::-1])[::-1] + pmf._infinity_mass
    # The lowest loss takes what is missing to 1: rounding, and lower losses of other alternatives.
    largest = np.append(tails.max(axis=0), max(pmf._infinity_mass for pmf in laid))
    largest[0] = 1.0
    losses = np.arange(lowest, lowest + size) * step
    return DiscretisedLoss(losses, np.maximum(largest[:-1] - largest[1:], 0.0), float(largest[-1]), 1)


def _is_exactly_gaussian(loss: Loss) -> bool:
    if isinstance(loss, AnyOf):  # the largest mu dominates
        return all(map(_is_exactly_gaussian, (part for losses in loss.alternatives for part in losses)))
    return isinstance(loss, Gaussian) or (isinstance(loss, SampledGaussian) and loss.sampling_rate == 1)


def _epsilon_for_delta(pmf: DensePLDPmf, delta: float) -> float:
    """What `pmf.get_epsilon_for_delta` computes, without its loop over hundreds of thousands of losses.

    Between two losses of the grid, delta(epsilon) = above - e^epsilon below, with `above` the probability of a
    larger loss and `below` that probability under the other hypothesis.
    """
    losses = (pmf._lower_loss + np.arange(pmf.size)) * pmf._discretization
    positive = np.searchsorted(losses, 0.0, side="right")
    losses, masses = losses[positive:], pmf._probs[positive:]
    above = pmf._infinity_mass + np.cumsum(masses[::-1])[::-1]
    below = np.cumsum((masses * np.exp(-losses))[::-1])[::-1]
    if len(losses) == 0 or above[0] - below[0] <= delta:
        return 0.0 if pmf._infinity_mass <= delta else math.inf
    # delta at each loss of the grid counts the larger ones only; capping the exponent can only raise it
    at_losses = np.append(above[1:] - np.exp(np.minimum(losses[:-1], 700.0)) * below[1:], pmf._infinity_mass)
    enough = np.flatnonzero(at_losses <= delta)
    if len(enough) == 0:
        return math.inf
    first = int(enough[0])
    if below[first] <= 0:
        return float(losses[first])
    return min(float(losses[first]), max(0.0, math.log((above[first] - delta) / below[first])))


def _lay_on_grid(loss: DiscretisedLoss, step: float) -> DensePLDPmf:
    """Split each loss between its two neighbours on the grid, keeping its mass under both hypotheses."""
    cell = np.floor(loss.losses / step)
    offset = loss.losses - cell * step
    to_upper = loss.masses * np.clip(np.expm1(-offset) / math.expm1(-step), 0.0, 1.0)
    lowest = int(cell[0])
    index = (cell - lowest).astype(np.int64)
    size = int(index[-1]) + 2
    probabilities = np.bincount(index, loss.masses - to_upper, size) + np.bincount(index + 1, to_upper, size)
    return _pmf(step, lowest, probabilities, loss.infinity)


def _self_compose(pmf: DensePLDPmf, uses: int) -> DensePLDPmf:
    if uses == 1:
        return pmf
    composed = pmf.self_compose(uses, tail_mass_truncation=TAIL_MASS)
    norm = uses * _length(pmf._probs)
    return _absorb_rounding(composed, norm)


def _compose(left: DensePLDPmf, right: DensePLDPmf) -> DensePLDPmf:
    norm = _length(left._probs) + _length(right._probs)
    return _absorb_rounding(left.compose(right), norm)


def _length(probabilities: np.ndarray) -> float:
    # Not `np.linalg.norm`: it starts threads, which costs more than it gains, and its last bits depend on their number.
    return math.sqrt(float(np.square(probabilities).sum()))


def _absorb_rounding(pmf: DensePLDPmf, norm: float) -> DensePLDPmf:
    """Clip negative probabilities and pay for the transform's rounding with infinite loss.

    A transform of N points has a relative L2 error of at most about 3.3 machine epsilons times log2(N) (Higham 2002,
    theorem 24.2); there is one forth and one back, and the L1 error is at most sqrt(N) times the L2 error.
    """
    size = max(2, pmf.size)
    rounding = 7 * np.finfo(float).eps * math.log2(size) * math.sqrt(size) * norm
    infinity = min(1.0, pmf._infinity_mass + rounding)
    return _pmf(pmf._discretization, pmf._lower_loss, np.maximum(pmf._probs, 0.0), infinity)


def _pmf(step: float, lowest: int, probabilities: np.ndarray, infinity: float) -> DensePLDPmf:
    from dp_accounting.pld.pld_pmf import DensePLDPmf  # slow to load, and most commands need none

    return DensePLDPmf(step, lowest, probabilities, infinity, pessimistic_estimate=True)


# Orders at which Rényi divergences are taken, and the points of an integral: at most, and for each sigma.
RENYI_ORDERS = 1 + np.geomspace(0.05, 255.0, 48)
_RENYI_POINTS = 2**12
_RENYI_POINTS_PER_SIGMA = 8


def rdp_epsilon(losses: Sequence[Loss], delta: float) -> float:
    """epsilon = min over alpha of gamma(alpha) + log(1 / (alpha delta)) / (alpha - 1) + log(1 - 1 / alpha).

    The larger one of both orders, where they differ.
    """
    orders = (False, True) if any(map(has_two_orders, losses)) else (False,)
    return max(0.0, *(float((_added(losses, reverse) + renyi_to_epsilon(delta)).min()) for reverse in orders))


def renyi_divergences(losses: Sequence[Loss]) -> np.ndarray:
    """What mechanisms cost together in Rényi divergence, at each of `RENYI_ORDERS`; in the worse order of the pair."""
    return np.maximum(_added(losses, False), _added(losses, True))


def renyi_to_epsilon(delta: float) -> np.ndarray:
    """What is added to a Rényi divergence to make it an epsilon at this delta, at each of `RENYI_ORDERS`."""
    return np.asarray(np.log(1 / (RENYI_ORDERS * delta)) / (RENYI_ORDERS - 1) + np.log1p(-1 / RENYI_ORDERS))


def _added(losses: Sequence[Loss], reverse: bool) -> np.ndarray:
    return sum((_renyi(loss, reverse) for loss in losses), start=np.zeros_like(RENYI_ORDERS))


def _renyi(loss: Loss, reverse: bool) -> np.ndarray:
    if isinstance(loss, AnyOf):
        return np.maximum.reduce([_added(losses, reverse) for losses in loss.alternatives])
    if isinstance(loss, RandomizedResponse):
        return loss.uses * _renyi_of_responses(loss, reverse)
    if isinstance(loss, SampledGaussian) and loss.sampling_rate < 1:
        return loss.steps * np.array([_renyi_of_mixture(loss, reverse, alpha) for alpha in RENYI_ORDERS])
    return RENYI_ORDERS * loss.mu**2 / 2


def _renyi_of_responses(loss: RandomizedResponse, reverse: bool) -> np.ndarray:
    """log of the mean of e^((alpha - 1) loss): a response has few losses."""
    each = discretised(loss, reverse)
    possible = each.masses > 0
    exponents = np.outer(RENYI_ORDERS - 1, each.losses[possible])
    return np.asarray(logsumexp(exponents, b=each.masses[possible], axis=1)) / (RENYI_ORDERS - 1)


def _renyi_of_mixture(loss: SampledGaussian, reverse: bool, alpha: float) -> float:
    """log of the integral of p^alpha q^(1 - alpha), by the trapezoid rule around the integrand's mass.

    The rule converges faster than any power for such integrands. An order whose range would need too many
    points gets no bound: leaving an order out keeps the minimum valid.
    """
    pair = sampled_pair(loss, reverse)
    sigma, (most, other) = loss.noise_multiplier, (float(counts[-1]) for counts, _ in pair)
    low, high = -max(most, other) - 12 * sigma, alpha * most + (alpha - 1) * other + 12 * sigma
    coarse = np.linspace(low, high, 257)
    values = _log_integrand(coarse, pair, sigma, alpha)
    near = np.flatnonzero(values > values.max() - 45 - 0.5 * ((coarse[1] - coarse[0]) / sigma) ** 2)
    low, high = coarse[max(0, near[0] - 1)], coarse[min(256, near[-1] + 1)]
    points = math.ceil((high - low) / sigma * _RENYI_POINTS_PER_SIGMA)
    if points > _RENYI_POINTS:
        return math.inf
    x = np.linspace(low, high, max(points, 256))
    log_integral = logsumexp(_log_integrand(x, pair, sigma, alpha)) + math.log(x[1] - x[0])
    return max(0.0, float(log_integral) / (alpha - 1))


def _log_integrand(x: np.ndarray, pair: tuple[Counts, Counts], sigma: float, alpha: float) -> np.ndarray:
    common = -(x**2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi))
    first, second = (log_mixture_factor(sign * x, *counts, sigma) for sign, counts in zip((1, -1), pair, strict=True))
    return alpha * first + (1 - alpha) * second + common
