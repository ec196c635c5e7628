"""The Gaussian mechanism in closed form (Balle and Wang 2018, theorem 8)."""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtr

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
