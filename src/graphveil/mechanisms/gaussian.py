"""Gaussian noise on a lattice.

Adding floating-point noise to a floating-point value leaves traces of the value in the low-order bits of the sum
(Mironov 2012 for Laplace, Jin et al. 2022, arXiv:2112.05307, for Gaussian). So value and noise are each rounded to
multiples of a step that depends only on the public standard deviation, and are added as integers: the result is a
multiple of the step whatever the value was, and every multiple can be reached from every value.
"""

from __future__ import annotations

import math

import torch

from graphveil.errors import InvalidInput
from graphveil.mechanisms.randomness import CHUNK, NoiseSource

# The lattice step is the standard deviation, rounded down to a power of two, times this.
LATTICE = 2.0**-33
# Integers up to 2^53 are exact in float64; beyond them the lattice would be lost.
_LARGEST = 2.0**52


def lattice_step(std: float) -> float:
    """A power of two of at most 2^-33 standard deviations: multiplying and dividing by it is exact."""
    return 2.0 ** math.floor(math.log2(std)) * LATTICE


def add_gaussian(value: torch.Tensor, sensitivity: float, std: float, source: NoiseSource) -> torch.Tensor:
    """`value` plus independent Gaussian noise, in float64, on the lattice.

    Formal guarantee: if adjacent inputs differ by at most `sensitivity` in L2, the output is dominated by a Gaussian
    mechanism of mu = sensitivity / std. Rounding moves the inputs apart by at most sqrt(entries) steps; the noise is
    drawn that much larger (parts per million) to pay for it. docs/theory.md, section 8, says what is left.
    """
    if std == 0 or sensitivity == 0:
        return value.to(torch.float64)
    rounding = math.sqrt(value.numel()) * LATTICE * std / sensitivity  # steps of at most LATTICE stds each
    if rounding > 0.1:
        raise InvalidInput("noise std", std, f"is too large beside the sensitivity {sensitivity:.3g}")
    std = std / (1 - rounding)
    step = lattice_step(std)
    out = value.detach().to("cpu", torch.float64, copy=True).contiguous()
    for chunk in out.view(-1).split(CHUNK):
        chunk.div_(step).round_()
        if not bool(chunk.abs().max() <= _LARGEST):
            raise InvalidInput("value", "not finite or too large", f"cannot be released with noise of {std:.3g}")
        chunk.add_(source.normal(len(chunk)).mul_(std / step).round_()).mul_(step)
    return out.to(value.device)
