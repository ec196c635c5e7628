"""What one mechanism costs, as a value: a pair of output distributions that dominates it.

The values compute no epsilon; `Composition` reads them, as dp-accounting separates events and accountants. Below them
is the Gaussian mechanism in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from scipy.special import log_ndtr, ndtr

from graphveil import validate
from graphveil.errors import InvalidInput


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian mechanism whose sensitivity is `mu` noise standard deviations.

    Formal guarantee: N(0, 1) against N(mu, 1), the Gaussian-DP of Dong, Roth and Su (2022, definition 4).

    Args:
        mu: The sensitivity divided by the standard deviation of the noise.

    Raises:
        InvalidInput: `mu` is negative or not finite.

    >>> Gaussian(mu=1.0).scaled(2.0)
    Gaussian(mu=0.5)
    """

    mu: float

    def __post_init__(self) -> None:
        validate.non_negative("mu", self.mu)

    @classmethod
    def from_noise(cls, sensitivity: float, std: float) -> Gaussian:
        """The mechanism that adds Gaussian noise to a query.

        Args:
            sensitivity: How far the query moves at most between adjacent graphs, in L2.
            std: The standard deviation of the noise on each entry.

        Returns:
            The mechanism, with `mu` their quotient.
        """
        return cls(mu=validate.non_negative("sensitivity", sensitivity) / validate.positive("noise std", std))

    def scaled(self, factor: float) -> Gaussian:
        """The same mechanism with `factor` times the noise."""
        return Gaussian(self.mu / factor)

    def with_mu(self, mu: float) -> Gaussian:
        """The same mechanism with the noise that makes `mu` this value."""
        return Gaussian(mu)


@dataclass(frozen=True)
class SampledGaussian:
    """`steps` noisy sums of clipped gradients, of which a replaced node changes `group_size` rows.

    Formal guarantee: each step is dominated by sum_j Pr[J=j] N(+j, s^2) against sum_j Pr[J=j] N(-j, s^2) with
    J ~ Binomial(group_size, sampling_rate) (docs/theory.md, lemma 1). If `removed` rows vanish (zero-out), the second
    is over J ~ Binomial(group_size - removed, sampling_rate), and both orders count (lemma 3). At rate 1 it is a
    Gaussian mechanism with mu = (2 group_size - removed) sqrt(steps) / noise_multiplier, exactly.

    Args:
        noise_multiplier: The standard deviation of the noise on the sum, in multiples of the clipping norm.
        group_size: How many rows a replaced node changes.
        sampling_rate: The probability with which each row enters a step, independently (Poisson sampling).
        steps: The number of steps.
        removed: How many of the changed rows add nothing in one of the two graphs.

    Raises:
        InvalidInput: A value is out of range.
    """

    noise_multiplier: float
    group_size: int = 1
    sampling_rate: float = 1.0
    steps: int = 1
    removed: int = 0

    def __post_init__(self) -> None:
        validate.positive("noise_multiplier", self.noise_multiplier)
        validate.count("group_size", self.group_size)
        validate.rate("sampling_rate", self.sampling_rate)
        validate.count("steps", self.steps)
        validate.count("removed", self.removed, least=0, most=self.group_size)

    @property
    def mu(self) -> float:
        """The mu of the Gaussian mechanism that it equals at rate 1; below, an approximation for many steps."""
        shift = (2 * self.group_size - self.removed) * self.sampling_rate
        return shift * math.sqrt(self.steps) / self.noise_multiplier

    def scaled(self, factor: float) -> SampledGaussian:
        """The same training with `factor` times the noise."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def with_mu(self, mu: float) -> SampledGaussian:
        """The same training with the noise that makes `mu` this value."""
        return self.scaled(self.mu / mu)


@dataclass(frozen=True)
class RandomizedResponse:
    """`uses` answers over `classes` symbols: the true one with odds e^epsilon against each other symbol.

    Formal guarantee: pure `epsilon`-DP per answer; the loss is +epsilon, 0 or -epsilon. Against a uniform answer
    (zero-out) it is the logarithm of `classes` times the probability of the answer, in both orders (docs/theory.md,
    section 2.6).

    Args:
        epsilon: The logarithm of those odds.
        classes: The number of symbols.
        uses: How many answers a replaced node (or edge) changes.
        uniform: Whether in one of the two graphs the answer is uniform, because there is no true symbol.

    Raises:
        InvalidInput: A value is out of range.
    """

    epsilon: float
    classes: int
    uses: int = 1
    uniform: bool = False

    def __post_init__(self) -> None:
        validate.positive("response epsilon", self.epsilon)
        validate.count("classes", self.classes, least=2)
        validate.count("uses", self.uses)

    @property
    def truth_probability(self) -> float:
        """How often an answer is the true symbol."""
        return 1.0 / (1.0 + (self.classes - 1) * math.exp(-self.epsilon))

    @property
    def mu(self) -> float:
        """0: the epsilon of a response is chosen, so it takes no share of mu^2."""
        return 0.0

    def scaled(self, factor: float) -> RandomizedResponse:
        """A response has no noise scale: its epsilon is chosen, not calibrated."""
        del factor
        return self


@dataclass(frozen=True)
class AnyOf:
    """One of several lists of mechanisms; which of them is drawn may follow from anything that was released before.

    Formal guarantee: it is dominated by the distribution of losses whose upper tail is, everywhere, the largest of
    those of the alternatives (docs/theory.md, section 4.6).

    Args:
        alternatives: The lists of mechanisms; an empty one costs nothing.

    Raises:
        InvalidInput: There is no alternative.

    >>> AnyOf(((Gaussian(mu=1.0),), (Gaussian(mu=2.0),))).mu
    2.0
    """

    alternatives: tuple[tuple[Loss, ...], ...]

    def __post_init__(self) -> None:
        if not self.alternatives:
            raise InvalidInput("alternatives", self.alternatives, "must be at least one")
        for losses in self.alternatives:
            check_losses(losses)

    @property
    def mu(self) -> float:
        """The largest mu of the Gaussian parts of an alternative."""
        return max(math.sqrt(sum(loss.mu**2 for loss in losses)) for losses in self.alternatives)

    def scaled(self, factor: float) -> AnyOf:
        """All alternatives with `factor` times the noise."""
        return AnyOf(tuple(tuple(loss.scaled(factor) for loss in losses) for losses in self.alternatives))

    def with_mu(self, mu: float) -> AnyOf:
        """The same alternatives with the noise that makes `mu` this value."""
        return self.scaled(self.mu / mu)


Loss = Gaussian | SampledGaussian | RandomizedResponse | AnyOf


def has_two_orders(loss: Loss) -> bool:
    """Whether the pair of distributions is not its own mirror image."""
    if isinstance(loss, AnyOf):
        return any(has_two_orders(part) for losses in loss.alternatives for part in losses)
    if isinstance(loss, SampledGaussian):
        return loss.removed > 0 and loss.sampling_rate < 1
    return isinstance(loss, RandomizedResponse) and loss.uniform


def check_losses(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """The losses as a tuple, or an error that names the one which is not a loss."""
    checked = tuple(losses)
    for loss in checked:
        if not isinstance(loss, Gaussian | SampledGaussian | RandomizedResponse | AnyOf):
            raise InvalidInput("losses", loss, "is none of Gaussian, SampledGaussian, RandomizedResponse, AnyOf")
    return checked


# Root finding is good to about 1e-13; this slack keeps the answer on the safe side of the root.
_SAFETY = 1e-10


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
    return float(root) * (1 + _SAFETY) + 1e-12


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose Gaussian mechanism is (epsilon, delta)-DP.

    Args:
        epsilon: The target.
        delta: Between 0 and 1, both excluded.

    Returns:
        mu, rounded down: take noise of sensitivity / mu.

    Formal guarantee: a Gaussian mechanism with this mu is (epsilon, delta)-DP.
    """
    upper = 1.0
    while gaussian_delta(upper, epsilon) < delta:
        upper *= 2
    from scipy.optimize import brentq  # slow to load, and most commands need none

    root = brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 0.0, upper, xtol=1e-15, rtol=1e-14)
    return float(root) * (1 - _SAFETY)
