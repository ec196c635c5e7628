"""k-ary randomised response."""

from __future__ import annotations

import torch

from graphveil.errors import InvalidInput
from graphveil.noise.source import NoiseSource
from graphveil.privacy.accounting import RandomizedResponse
from graphveil.privacy.lattice import MOST_CLASSES

# The true symbol is returned this much less often than planned. This covers the rounding of uniform numbers to 52
# bits, which changes each probability by a relative 2^-37 at most, for up to 2^14 classes.
_LESS_TRUTH = 1 - 2.0**-36


def randomized_response(symbols: torch.Tensor, loss: RandomizedResponse, source: NoiseSource) -> torch.Tensor:
    """Each symbol itself with probability e^eps / (e^eps + C - 1), else one of the C - 1 others, uniformly.

    Formal guarantee (docs/theory.md, section 8.5): pure `loss.epsilon`-DP for each entry of `symbols`, rounding
    included, for epsilon of at least 2^-34 and up to 2^14 classes.
    """
    if loss.classes > MOST_CLASSES:
        raise InvalidInput("classes", loss.classes, f"are more than responses can have, {MOST_CLASSES}")
    if not within(symbols, loss.classes):
        raise InvalidInput("symbols", int(symbols.max()), f"must lie in 0 .. {loss.classes - 1}")
    shape = tuple(symbols.shape)
    keep = source.uniform(*shape).to(symbols.device) < loss.truth_probability * _LESS_TRUTH
    shift = 1 + source.integers(loss.classes - 1, *shape).to(symbols.device)
    return torch.where(keep, symbols, (symbols + shift) % loss.classes)


def within(symbols: torch.Tensor, count: int) -> bool:
    """Whether all of them lie in 0 .. count - 1."""
    return bool(((symbols >= 0) & (symbols < count)).all())
