"""The Gaussian mechanism in closed form (Balle and Wang 2018, theorem 8)."""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtr

# Root finding is good to about 1e-13; this slack keeps the answer on the safe side of the root.
_SAFETY = 1e-10


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The smallest delta at which N(0, 1) against N(mu, 1) is (epsilon, delta)-DP; any real epsilon."""
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    upper = float(ndtr(mu / 2 - epsilon / mu))
    lower = math.exp(min(700.0, epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))))
    return min(1.0, max(0.0, upper - lower))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 for this delta, rounded up."""
    if mu == 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # The tail bound delta(eps) <= Phi(mu/2 - eps/mu) <= exp(-t^2/2) gives an upper end for the search.
    upper = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta)))
    from scipy.optimize import brentq  # slow to load, and most commands need none

    root = brentq(lambda eps: gaussian_delta(mu, eps) - delta, 0.0, upper, xtol=1e-13, rtol=1e-14)
    return float(root) * (1 + _SAFETY) + 1e-12


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose Gaussian mechanism is (epsilon, delta)-DP, rounded down."""
    upper = 1.0
    while gaussian_delta(upper, epsilon) < delta:
        upper *= 2
    from scipy.optimize import brentq  # slow to load, and most commands need none

    root = brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 0.0, upper, xtol=1e-15, rtol=1e-14)
    return float(root) * (1 - _SAFETY)
