"""What mechanisms cost together: the public names of `graphveil.privacy.accounting`.

>>> compose([Gaussian(mu=1.2), Gaussian(mu=1.5)]).epsilon(1e-4) < 12.0
True
"""

from graphveil.privacy.accounting import (
    AnyOf,
    Calibration,
    Composition,
    Gaussian,
    Loss,
    RandomizedResponse,
    SampledGaussian,
    calibrate,
    compose,
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
