"""k-ary randomised response."""

from __future__ import annotations

import torch

from graphveil.accounting import RandomizedResponse
from graphveil.errors import InvalidInput
from graphveil.mechanisms.randomness import NoiseSource


def randomized_response(symbols: torch.Tensor, loss: RandomizedResponse, source: NoiseSource) -> torch.Tensor:
    """Each symbol itself with probability e^eps / (e^eps + C - 1), otherwise one of the C - 1 others, uniformly.

    Formal guarantee: pure `loss.epsilon`-DP for each entry of `symbols`.
    """
    if not within(symbols, loss.classes):
        raise InvalidInput("symbols", int(symbols.max()), f"must lie in 0 .. {loss.classes - 1}")
    shape = tuple(symbols.shape)
    keep = source.uniform(*shape).to(symbols.device) < loss.truth_probability
    shift = 1 + source.integers(loss.classes - 1, *shape).to(symbols.device)
    return torch.where(keep, symbols, (symbols + shift) % loss.classes)


def within(symbols: torch.Tensor, count: int) -> bool:
    """Whether all of them lie in 0 .. count - 1."""
    return bool(((symbols >= 0) & (symbols < count)).all())
