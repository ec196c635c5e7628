"""What mechanisms cost together, and the least noise that meets a target.

>>> parts = [RandomizedResponse(epsilon=4.0, classes=7), Gaussian(mu=1.2), Gaussian(mu=1.5)]
>>> round(compose(parts).epsilon(1e-4), 2)
12.38
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from graphveil import validate
from graphveil.accounting.composition import SAFETY, Composition, gaussian_delta, gaussian_epsilon
from graphveil.accounting.losses import (
    AnyOf,
    Gaussian,
    Loss,
    RandomizedResponse,
    SampledGaussian,
    check_losses,
    discretised,
)
from graphveil.errors import InvalidInput

__all__ = [
    "AnyOf",
    "Calibration",
    "Composition",
    "Gaussian",
    "Loss",
    "RandomizedResponse",
    "SampledGaussian",
    "calibrate",
    "compose",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
]


_TOLERANCE = 1e-3
# Searches aim inside the accepted range, so that a small error still ends within it.
_AIM = 1 - 0.4 * _TOLERANCE
_MOST_EVALUATIONS = 60


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
    return float(root) * (1 - SAFETY)


@dataclass(frozen=True)
class Calibration:
    """Calibrated mechanisms in the order given, and what they cost together.

    Args:
        losses: The mechanisms with their noise.
        epsilon: What they cost at `delta`.
        delta: As it was asked for.
        factor: What the noise was multiplied with.
    """

    losses: tuple[Loss, ...]
    epsilon: float
    delta: float
    factor: float


def calibrate(
    losses: Iterable[Loss], epsilon: float, delta: float, *, shares: Sequence[float] | None = None
) -> Calibration:
    """Scale the noise of all mechanisms by one common factor until they cost `epsilon` at `delta`.

    The factor multiplies the noise that the mechanisms come with, so equal noise multipliers stay equal: that is the
    paper's single shared multiplier. Randomised responses keep their epsilon, and it is accounted for.

    Args:
        losses: The mechanisms.
        epsilon: The target.
        delta: The probability that is left out of the guarantee.
        shares: The part of the total mu^2 of each mechanism, in order; 0 for randomised responses. Noise is set to
            these parts before it is scaled.

    Returns:
        The calibrated mechanisms; they cost at most `epsilon`, and at least 0.999 times that.

    Raises:
        InvalidInput: An argument cannot be used, or no noise meets the target.

    Formal guarantee: the returned mechanisms compose to at most (`epsilon`, `delta`).

    >>> from graphveil.accounting import Gaussian
    >>> calibrated = calibrate([Gaussian(mu=1.0), Gaussian(mu=1.0)], epsilon=16.0, delta=1e-5, shares=[0.8, 0.2])
    >>> [round(loss.mu, 2) for loss in calibrated.losses], calibrated.epsilon <= 16.0
    ([2.6, 1.3], True)
    """
    parts = check_losses(losses)
    if shares is not None:
        parts = _apply_shares(parts, shares)
    factor, total = least_factor([parts], epsilon, delta)
    return Calibration(tuple(part.scaled(factor) for part in parts), total, delta, factor)


def least_factor(kinds: Iterable[Sequence[Loss]], epsilon: float, delta: float) -> tuple[float, float]:
    """The least common noise factor at which each kind of node pays at most `epsilon`, and what the worst kind pays.

    `kinds` holds one list of mechanisms for each kind of node (in training, unlabelled).
    """
    validate.positive("epsilon", epsilon)
    validate.open_unit("delta", delta)
    worst = worst_kinds([tuple(kind) for kind in kinds])

    def spent(factor: float) -> float:
        return max(Composition(tuple(part.scaled(factor) for part in kind)).epsilon(delta) for kind in worst)

    guess = max((_closed_form(kind, epsilon, delta) for kind in worst), default=0.0)
    if guess > 0:
        return search_factor(spent, guess, epsilon, delta)
    total = spent(1.0) if worst else 0.0
    if total > epsilon:
        raise InvalidInput("epsilon", epsilon, f"the randomised responses alone cost {total:.4g}")
    return 1.0, total


def worst_kinds(kinds: list[tuple[Loss, ...]]) -> list[tuple[Loss, ...]]:
    """Drop a kind of node whose mechanisms are all among those of another kind: it never pays more."""
    worst: list[tuple[Loss, ...]] = []
    for kind in kinds:
        if not any(Counter(kind) <= Counter(other) for other in worst):
            worst = [other for other in worst if not Counter(other) <= Counter(kind)] + [kind]
    return worst


def _apply_shares(parts: tuple[Loss, ...], shares: Sequence[float]) -> tuple[Loss, ...]:
    if len(shares) != len(parts):
        raise InvalidInput("shares", list(shares), f"must have one entry for each of the {len(parts)} mechanisms")
    shared: list[Loss] = []
    for part, share in zip(parts, shares, strict=True):
        if isinstance(part, RandomizedResponse):
            if share != 0:
                raise InvalidInput("shares", share, "a randomised response takes share 0: its epsilon is its cost")
            shared.append(part)
        else:
            shared.append(part.with_mu(math.sqrt(validate.positive("shares", share))))
    return tuple(shared)


def _closed_form(parts: Sequence[Loss], epsilon: float, delta: float) -> float:
    """The factor at which the Gaussian approximation of `parts` meets the target (section 4 of docs/theory.md)."""
    mu = Composition(tuple(parts)).mu
    if mu == 0:
        return 0.0
    answers = _response_losses([part for part in parts if isinstance(part, RandomizedResponse)])

    def excess(factor: float) -> float:
        return sum(mass * gaussian_delta(mu / factor, epsilon - loss) for loss, mass in answers) - delta

    low, high = mu / 1e3, mu
    while excess(high) > 0 and high < mu * 1e12:
        high *= 4
    while excess(low) < 0 and low > mu * 1e-12:
        low /= 4
    if excess(high) > 0 or excess(low) < 0:
        return mu
    from scipy.optimize import brentq  # slow to load, and most commands need none

    return float(brentq(excess, low, high, rtol=1e-6))


def _response_losses(answers: Sequence[RandomizedResponse]) -> list[tuple[float, float]]:
    """The (loss, probability) pairs of all randomised responses together; there are few of them."""
    pairs = {0.0: 1.0}
    for answer in answers:
        loss = discretised(answer)
        for _ in range(loss.uses):
            summed: dict[float, float] = {}
            for (x, p), (y, q) in product(pairs.items(), zip(loss.losses, loss.masses, strict=True)):
                total = round(x + float(y), 9)
                summed[total] = summed.get(total, 0.0) + p * float(q)
            pairs = summed
    return list(pairs.items())


def search_factor(spent: Callable[[float], float], guess: float, epsilon: float, delta: float) -> tuple[float, float]:
    """A factor whose cost is in ((1 - tolerance) epsilon, epsilon]: secant steps on a log-log scale, kept in a bracket.

    Points are (log factor, log cost / aim); the cost falls with the factor.
    """
    seen: list[tuple[float, float]] = []
    position = start = math.log(guess)
    while len(seen) < _MOST_EVALUATIONS and position < start + 12:
        if seen and position == seen[-1][0]:
            break  # the cost jumps across the target, and the bracket cannot shrink further
        cost = spent(math.exp(position))
        if (1 - _TOLERANCE) * epsilon < cost <= epsilon:
            return math.exp(position), cost
        height = math.log(min(max(cost, 1e-12), 1e12) / (_AIM * epsilon))
        seen.append((position, height))
        position = _next_position(seen)
    raise InvalidInput(
        "epsilon",
        epsilon,
        f"cannot be certified at delta = {delta:.3g} with any amount of noise (randomised responses that cost too "
        "much, or a delta below the accountant's rounding: then give a larger one)",
    )


def _next_position(seen: list[tuple[float, float]]) -> float:
    dear = max((point for point in seen if point[1] > 0), default=None)
    cheap = min((point for point in seen if point[1] <= 0), default=None)
    x1, y1 = seen[-1]
    slope = -1.3  # a Gaussian's epsilon falls between the first and the second power of the noise
    if len(seen) > 1:
        x0, y0 = seen[-2]
        slope = min(max((y1 - y0) / (x1 - x0), -20.0), -0.5)
    position = x1 - y1 / slope
    if dear is None or cheap is None:
        return min(max(position, x1 - 2.0), x1 + 2.0)
    margin = 0.02 * (cheap[0] - dear[0])
    if dear[0] + margin <= position <= cheap[0] - margin:
        return position
    return 0.5 * (dear[0] + cheap[0])
