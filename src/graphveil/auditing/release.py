"""Audits of Gaussian releases, Z above all: a matched filter over many independent canaries.

Edge: one coin-flipped entry (or pair of entries). k-neighbour: k entries of one column flipped together. Node: a whole
node replaced, old and new readers disjoint. GAP's hops and DP-SAGE's aggregation: a row that turns round under D
readers. One-shot tables: readers of one class appear, and the node's own label turns. Posteriors: one row turns from a
class to another. The replaced node's own row is never looked at, except in tables that others read.
"""

from __future__ import annotations

import numpy as np
import torch

from graphveil.auditing.canaries import Canary, Query, canary_of, copies, with_strangers
from graphveil.auditing.subject import Subject, as_released
from graphveil.privacy.mechanisms import GaussianRelease

# Numbers that one audit may draw at a time.
MOST_NUMBERS = 2**23
_STRANGERS = 30


def most_canaries(subject: Subject, mechanism: GaussianRelease) -> int:
    """How many canaries fit into one release."""
    canary, query = _canary(subject, mechanism)
    width = query(copies(canary, np.zeros(1, dtype=bool))).shape[1]
    return max(1, MOST_NUMBERS // (canary.size * width))


def release_scores(subject: Subject, mechanism: GaussianRelease, coins: np.ndarray, seed: int | None) -> np.ndarray:
    """Log-likelihood ratio of each canary, heads against tails, from the rows that the adversary sees.

    With values v (tails) and v' (heads) and noise of standard deviation s the ratio of the densities of Z is
    exp(<Z - (v + v') / 2, v' - v> / s^2): a matched filter. All draws of a mechanism with several uses add up.
    """
    canary, query = _canary(subject, mechanism)
    value = query(copies(canary, coins)).double()
    shape = (len(coins), canary.size, value.shape[1])
    tails, heads = (query(copies(canary, np.array([coin]))).double() for coin in (False, True))
    seen, whiten = _seen_noise(subject, canary)
    step, middle = seen @ (heads - tails), seen @ (heads + tails) / 2
    filtered = step if whiten is None else whiten @ step
    std = max(subject.executed[mechanism.name].noise, 1e-300)  # as the adversary knows it: from the code that runs
    total = torch.zeros(len(coins), dtype=torch.float64)
    ledger = subject.ledger(mechanism.name, seed)
    for _ in range(mechanism.uses):
        Z = subject.publish(ledger.release(mechanism.name, value).reshape(shape))[:, canary.seen]
        total += ((Z - middle) / std * (filtered / std)).sum(dim=(1, 2))
    return total.numpy()


def _canary(subject: Subject, mechanism: GaussianRelease) -> tuple[Canary, Query]:
    """The mechanism's canary; among strangers where a method mixes rows, as it would be in a graph of some size."""
    canary, query = canary_of(subject.claimed, mechanism, subject.make_table)
    return (canary if subject.publish is as_released else with_strangers(canary, _STRANGERS)), query


def _seen_noise(subject: Subject, canary: Canary) -> tuple[torch.Tensor, torch.Tensor | None]:
    """How rows of Z reach the adversary, as a matrix, and the inverse covariance of unit noise after it.

    For a sound method both are the identity, of which `None` stands for the second. Where publishing mixes rows, what
    others see also tells of the row that they should not see.
    """
    if subject.publish is as_released:
        return torch.eye(canary.size, dtype=torch.float64)[canary.seen], None
    mixing = subject.publish(torch.eye(canary.size, dtype=torch.float64)[None])[0][canary.seen]
    return mixing, torch.linalg.pinv(mixing @ mixing.T, hermitian=True)
