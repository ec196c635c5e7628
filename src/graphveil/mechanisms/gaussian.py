"""Gaussian noise on a lattice.

Adding floating-point noise to a floating-point value leaves traces of the value in the low-order bits of the sum
(Mironov 2012 for Laplace, Jin et al. 2022, arXiv:2112.05307, for Gaussian). So value and noise are each rounded to
multiples of a step that depends only on the public standard deviation, and are added as integers: the result is a
multiple of the step whatever the value was, and every multiple can be reached from every value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from graphveil.errors import InvalidInput
from graphveil.mechanisms.randomness import NoiseSource

# The lattice step is the standard deviation, rounded down to a power of two, times this.
LATTICE = 2.0**-33
# Integers up to 2^53 are exact in float64; beyond them the lattice would be lost.
_LARGEST = 2.0**52


def lattice_step(std: float) -> float:
    """A power of two of at most 2^-33 standard deviations: multiplying and dividing by it is exact."""
    return 2.0 ** math.floor(math.log2(std)) * LATTICE


def add_gaussian(value: torch.Tensor, sensitivity: float, std: float, source: NoiseSource) -> torch.Tensor:
    """`value` plus independent Gaussian noise on the lattice, in the value's own type.

    Formal guarantee: if adjacent inputs differ by at most `sensitivity` in L2, the output is dominated by a Gaussian
    mechanism of mu = sensitivity / std. Rounding moves the inputs apart by at most sqrt(entries) steps; the noise is
    drawn that much larger (parts per million) to pay for it. docs/theory.md, section 8, says what is left.
    """
    out = value.detach().to("cpu", copy=True).contiguous()
    add_gaussian_([out], sensitivity, std, source)
    return out.to(value.device)


def add_gaussian_(parts: Sequence[torch.Tensor], sensitivity: float, std: float, source: NoiseSource) -> None:
    """The same in place on one value in several contiguous tensors; what is not float64 is rounded at the end."""
    if std == 0 or sensitivity == 0:
        return
    entries = sum(source.entries(part) for part in parts)
    rounding = math.sqrt(entries) * LATTICE * std / sensitivity  # steps of at most LATTICE stds each
    if rounding > 0.1:
        raise InvalidInput("noise std", std, f"is too large beside the sensitivity {sensitivity:.3g}")
    std = std / (1 - rounding)
    step = lattice_step(std)
    for part in parts:
        if part.numel() and not max(map(abs, part.aminmax())) <= _LARGEST * step:
            raise InvalidInput("value", "not finite or too large", f"cannot be released with noise of {std:.3g}")

    for part in parts:
        source.add_normals(part.view(-1), std, step)
