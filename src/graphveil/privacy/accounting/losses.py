"""What one mechanism costs, as a value: a pair of output distributions that dominates it.

These values compute no epsilon; `Composition` reads them. dp-accounting separates events and accountants in this way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

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
        """Noise of standard deviation `std` on a query that moves by at most `sensitivity` in L2."""
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
    J ~ Binomial(group_size, sampling_rate) (docs/theory.md, lemma 1). At rate 1 this is exactly a Gaussian
    mechanism with mu = 2 group_size sqrt(steps) / noise_multiplier.

    Args:
        noise_multiplier: The standard deviation of the noise on the sum, in multiples of the clipping norm.
        group_size: How many rows a replaced node changes.
        sampling_rate: The probability with which each row enters a step, independently (Poisson sampling).
        steps: The number of steps.

    Raises:
        InvalidInput: A value is out of range.
    """

    noise_multiplier: float
    group_size: int = 1
    sampling_rate: float = 1.0
    steps: int = 1

    def __post_init__(self) -> None:
        validate.positive("noise_multiplier", self.noise_multiplier)
        validate.count("group_size", self.group_size)
        validate.rate("sampling_rate", self.sampling_rate)
        validate.count("steps", self.steps)

    @property
    def mu(self) -> float:
        """The mu of the Gaussian mechanism that it equals at rate 1; below, an approximation for many steps."""
        shift = 2 * self.group_size * self.sampling_rate
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

    Formal guarantee: pure `epsilon`-DP per answer; the loss is +epsilon, 0 or -epsilon.

    Args:
        epsilon: The epsilon of one answer.
        classes: The number of symbols.
        uses: How many answers a replaced node (or edge) changes.

    Raises:
        InvalidInput: A value is out of range.
    """

    epsilon: float
    classes: int
    uses: int = 1

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


Loss = Gaussian | SampledGaussian | RandomizedResponse


def check_losses(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """The losses as a tuple, or an error that names the one which is not a loss."""
    checked = tuple(losses)
    for loss in checked:
        if not isinstance(loss, Gaussian | SampledGaussian | RandomizedResponse):
            raise InvalidInput("losses", loss, "is none of Gaussian, SampledGaussian, RandomizedResponse")
    return checked
