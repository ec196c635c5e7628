"""What mechanisms cost together, and the least noise that meets a target.

>>> parts = [RandomizedResponse(epsilon=4.0, classes=7), Gaussian(mu=1.2), Gaussian(mu=1.5)]
>>> round(compose(parts).epsilon(1e-4), 2)
12.38
"""

from graphveil.accounting.calibration import Calibration, calibrate
from graphveil.accounting.composition import Composition, compose
from graphveil.accounting.losses import (
    AnyOf,
    Gaussian,
    Loss,
    RandomizedResponse,
    SampledGaussian,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
)

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
