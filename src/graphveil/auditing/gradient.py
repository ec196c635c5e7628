"""Audit of clipped training in gradient space: canary rows whose gradients turn from +C to -C, g of them aligned.

A linear model with loss sign * <w, x> has the gradient sign * x whatever the weights are. Canary j owns coordinate j
and g rows of length far above the clipping norm along it; its coin turns the sign of all of them. That is the pair that
dominates a step (docs/theory.md, lemma 1), run through the real clipping, sampling and noise. Nasr et al. 2021
(arXiv:2101.04535), section IV-F, call it the gradient attack.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
import torch
from scipy.special import logsumexp

from graphveil.auditing.subject import KIND, Subject
from graphveil.execution.clipping import ClippedSums
from graphveil.execution.sparse_rows import CsrRows, SparseLinear, SparseRows
from graphveil.privacy.accounting import SampledGaussian
from graphveil.privacy.accounting.discretised import binomial_log_weights
from graphveil.privacy.mechanisms import ClippedTraining

# Gradient entries and noise entries that one audit may compute.
MOST_ROWS = 2**20
MOST_NUMBERS = 2**23
# The bias is part of the clipped norm; rows this long leave it less than a millionth of it.
_LENGTH = 1000.0


def most_canaries(mechanism: ClippedTraining) -> int:
    """How many canaries fit into one training."""
    rows = MOST_ROWS // int(mechanism.group.of(KIND))
    if mechanism.sampling_rate < 1:  # drawn anew and clipped in every step
        rows = rows * 8 // mechanism.steps
    return max(1, min(rows, MOST_NUMBERS // mechanism.steps))


def gradient_scores(subject: Subject, mechanism: ClippedTraining, coins: np.ndarray, seed: int | None) -> np.ndarray:
    """Log-likelihood ratio of each canary, heads against tails, over all steps."""
    group = int(mechanism.group.of(KIND))
    owners = np.repeat(np.arange(len(coins)), group)
    rows = CsrRows(
        sp.csr_array(
            (np.full(len(owners), _LENGTH, np.float32), owners, np.arange(len(owners) + 1)),
            shape=(len(owners), len(coins)),
        )
    )
    signs = torch.from_numpy(np.where(coins, 1.0, -1.0).astype(np.float32))[torch.from_numpy(owners)]
    model = SparseLinear(len(coins), 1)
    ledger = subject.ledger(mechanism.name, seed)
    drawn_as = subject.executed[mechanism.name]
    assert isinstance(drawn_as, ClippedTraining)
    total = np.zeros(len(coins))
    kept: list[torch.Tensor] | None = None
    for _ in range(mechanism.steps):
        picked = ledger.sample(mechanism.name, len(owners))
        if picked is not None or kept is None:
            kept = _clipped_sum(model, rows, signs, picked, mechanism.clip)
        noisy = ledger.noisy_sum(mechanism.name, [part.clone() for part in kept])
        moved = noisy[0][:, 0].double().numpy() / mechanism.clip
        total += _log_ratio(moved, group, drawn_as)
    return total


def _clipped_sum(
    model: SparseLinear, rows: SparseRows, signs: torch.Tensor, picked: torch.Tensor | None, clip: float
) -> list[torch.Tensor]:
    chosen, sign = (rows, signs) if picked is None else (rows[picked], signs[picked])
    return ClippedSums(model, clip, len(sign)).of(lambda: sign * model(chosen)[:, 0])


def _log_ratio(moved: np.ndarray, group: int, drawn_as: ClippedTraining) -> np.ndarray:
    """log of sum_j w_j N(+j, s^2) over sum_j w_j N(-j, s^2) at `moved`, in units of the clipping norm."""
    sigma = max(drawn_as.noise_multiplier, 1e-150)
    if drawn_as.sampling_rate == 1:
        return 2 * group * moved / sigma**2
    counts, log_weights = binomial_log_weights(SampledGaussian(sigma, group, drawn_as.sampling_rate))
    likely = log_weights > math.log(1e-12)
    exponents = (log_weights - counts**2 / (2 * sigma**2))[likely]
    shift = np.outer(moved / sigma**2, counts[likely])
    found: np.ndarray = logsumexp(exponents + shift, axis=1) - logsumexp(exponents - shift, axis=1)
    return found
