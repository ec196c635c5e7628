"""Composition of mechanisms: epsilon for delta and delta for epsilon, always rounded to the safe side.

Gaussians combine exactly. Everything else goes through dp-accounting's privacy-loss distributions: this file puts the
discretised losses on a common grid ("connect the dots" once more) and hands them over. The rounding error of the fast
Fourier transform is added to the probability of an infinite loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphveil import validate
from graphveil.privacy.accounting.discretised import TAIL_MASS, DiscretisedLoss, discretised
from graphveil.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon
from graphveil.privacy.accounting.losses import Gaussian, Loss, RandomizedResponse, SampledGaussian, check_losses
from graphveil.privacy.accounting.rdp import rdp_epsilon

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

# Points of the grid across the range of the composed loss. At 2^18 the grid costs less than 0.03 % of epsilon
# for 20,000 steps.
_GRID_POINTS = 2**18


@dataclass(frozen=True)
class Composition:
    """All mechanisms that one node (or edge) pays for.

    Formal guarantee: for every delta, the composed mechanisms are (`epsilon(delta)`, delta)-DP against an adversary
    who sees all of their outputs and may choose later mechanisms by earlier outputs.

    >>> round(compose([Gaussian(mu=3.0), Gaussian(mu=4.0)]).mu, 3)
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
        if self._pmf is None:
            return gaussian_epsilon(self._exact_mu, delta)
        return min(_epsilon_for_delta(self._pmf, delta), self._pure_epsilon)

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
        if self._pmf is None:
            return gaussian_delta(self._exact_mu, epsilon)
        return min(1.0, float(self._pmf.get_delta_for_epsilon(epsilon)))

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
            return sum(loss.epsilon * loss.uses for loss in self.losses if isinstance(loss, RandomizedResponse))
        return math.inf

    @cached_property
    def _exact_mu(self) -> float:
        return math.sqrt(sum(loss.mu**2 for loss in self.losses if _is_exactly_gaussian(loss)))

    @cached_property
    def _pmf(self) -> DensePLDPmf | None:
        """The composed privacy-loss distribution, or None when everything is Gaussian and has a closed form."""
        others = [loss for loss in self.losses if not _is_exactly_gaussian(loss)]
        if not others:
            return None
        parts = [discretised(loss) for loss in others]
        if self._exact_mu > 0:
            parts.append(discretised(Gaussian(self._exact_mu)))
        spans = [(part.tail(-1, TAIL_MASS), part.tail(+1, TAIL_MASS)) for part in parts]
        width = sum(high - low for low, high in spans)
        step = max(width, max(float(np.ptp(part.losses)) for part in parts)) / _GRID_POINTS
        # dp-accounting tries orders of the moment generating function that overflow, and does without those.
        with np.errstate(over="ignore", invalid="ignore"):
            pmf = _self_compose(_lay_on_grid(parts[0], step), parts[0].uses)
            for part in parts[1:]:
                pmf = _compose(pmf, _self_compose(_lay_on_grid(part, step), part.uses))
        return pmf


def compose(losses: Iterable[Loss]) -> Composition:
    """The composition of mechanisms.

    Args:
        losses: What each mechanism costs.

    Returns:
        A value that computes epsilon for delta and the reverse.

    Raises:
        InvalidInput: One of `losses` is not a loss.

    Formal guarantee: that of `Composition`.

    >>> parts = [SampledGaussian(noise_multiplier=2.16, group_size=2, sampling_rate=0.0129, steps=7735)]
    >>> round(compose(parts).epsilon(1e-5), 2)
    10.64
    """
    return Composition(check_losses(losses))


def _is_exactly_gaussian(loss: Loss) -> bool:
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
    norm = uses * float(np.linalg.norm(pmf._probs))
    return _absorb_rounding(composed, norm)


def _compose(left: DensePLDPmf, right: DensePLDPmf) -> DensePLDPmf:
    norm = float(np.linalg.norm(left._probs) + np.linalg.norm(right._probs))
    return _absorb_rounding(left.compose(right), norm)


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
