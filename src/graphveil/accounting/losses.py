"""What one mechanism costs, as a value: a pair of output distributions that dominates it.

The values compute no epsilon; `Composition` reads them, as dp-accounting separates events and accountants. Below them
one use of a mechanism becomes a discrete privacy-loss distribution that dominates the true one. Replacing the losses
inside a cell by two losses at the cell's ends, with the same mass under both hypotheses, can only raise every
hockey-stick divergence ("connect the dots", Doroshenko et al. 2022, arXiv:2207.04380). Masses are differences of normal
tails, taken on the side where they are small, so they keep their relative precision far out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr, ndtri

from graphveil import validate
from graphveil.errors import InvalidInput

# Probability that may be moved to an infinite loss over all steps of one mechanism.
TAIL_MASS = 1e-13
_CELLS = 2**13
_MOST_CELLS = 2**15
_CELL_LOSS = 0.05
# Covers the rounding of uniform answers to 52 bits, for up to 2^14 symbols (docs/theory.md, section 8.5).
_UNIFORM_ROUNDING = 2.0**-35


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
