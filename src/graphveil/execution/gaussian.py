"""Gaussian noise on exact values, rounded once, to a public lattice.

Adding floating-point noise to a floating-point value leaves traces of the value in the low-order bits of the sum
(Mironov 2012 for Laplace, Jin et al. 2022, arXiv:2112.05307, for Gaussian). Here the result is the rounded sum of the
exact value and an ideal normal number, which is post-processing of the ideal Gaussian mechanism for every value.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from graphveil.errors import InvalidInput
from graphveil.noise.normals import Rounding
from graphveil.noise.source import NoiseSource
from graphveil.privacy import lattice


def rounding_of(std: float) -> Rounding:
    """The standard deviation that is drawn for a planned one, and the lattice to which results are rounded."""
    return Rounding(std * lattice.OUTWARD, lattice.noise_step(std))


def add_gaussian(value: torch.Tensor, std: float, source: NoiseSource) -> torch.Tensor:
    """`value`, in float64, plus independent Gaussian noise, rounded to the lattice.

    Formal guarantee (docs/theory.md, section 8.3): if the exact values of adjacent inputs differ by at most S in L2,
    the output is post-processing of a Gaussian mechanism of mu = S / std, up to `lattice.SAMPLER_DELTA`. `value` must
    hold the exact values: see `graphveil.execution.exact`.
    """
    out = value.detach().to("cpu", torch.float64, copy=True).contiguous()
    add_gaussian_([out], std, source)
    return out.to(value.device)


def add_gaussian_(parts: Sequence[torch.Tensor], std: float, source: NoiseSource) -> None:
    """Add noise in place to one value that is given as several contiguous float64 tensors."""
    if std == 0:
        return
    for part in parts:
        if not bool(part.isfinite().all()):
            raise InvalidInput("value", "not finite", "cannot be released")
    rounding = rounding_of(std)
    for part in parts:
        source.add_normals(part.view(-1), rounding)
