"""Checks that a sound path passes and its broken twin must not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import torch
from scipy import stats

from graphveil.accounting import Gaussian, compose
from graphveil.privacy.plan import Plan
from support.adjacent import Pair

# A sound path fails a statistical check with this probability; seeds are fixed, so a pass stays a pass.
FALSE_ALARM = 1e-4


def stays_within(bound: float, pairs: Iterable[Pair], query: Callable[[Pair], tuple[np.ndarray, np.ndarray]]) -> bool:
    """No adjacent pair moves the query by more than the bound."""
    return all(np.linalg.norm(np.subtract(*query(pair))) <= bound * (1 + 1e-9) for pair in pairs)


def has_noise(draws: torch.Tensor, std: float) -> bool:
    """The draws are independent normals of this standard deviation: scale, shape and correlation of neighbours."""
    values = draws.double().flatten().numpy()
    scale = (values**2).sum() / std**2
    low, high = stats.chi2.ppf([FALSE_ALARM / 4, 1 - FALSE_ALARM / 4], len(values))
    shape = stats.kstest(values / std, "norm").pvalue
    lagged = math.sqrt(len(values)) * np.corrcoef(values[:-1], values[1:])[0, 1]
    return bool(low < scale < high and shape > FALSE_ALARM / 4 and abs(lagged) < 4.5)


def answers_truthfully(answers: torch.Tensor, truth: int, epsilon: float, classes: int) -> bool:
    """Counts of randomised responses to one true symbol match k-ary randomised response at epsilon."""
    counts = torch.bincount(answers, minlength=classes).numpy()
    odds = np.ones(classes)
    odds[truth] = math.exp(epsilon)
    return bool(stats.chisquare(counts, counts.sum() * odds / odds.sum()).pvalue > FALSE_ALARM)


def draws_are_planned(drawn: list[tuple[float, float]], plan: Plan) -> bool:
    """Recompute epsilon from what was really drawn, (sensitivity, std) per Gaussian draw, and compare with the plan."""
    observed = compose([Gaussian(sensitivity / std) for sensitivity, std in drawn])
    return observed.epsilon(plan.delta) <= plan.epsilon * (1 + 1e-6)


def moved_after(post: np.ndarray, seen: np.ndarray, change: np.ndarray) -> float:
    """How many noise deviations apart two graphs are to someone who sees rows `seen` of post @ (Z + noise).

    For unit noise the seen rows are Gaussian with covariance M M^T, M = post[seen]; the distance is the Mahalanobis
    norm of the change of their mean.
    """
    M = post[seen]
    shift = M @ change
    return float(np.sqrt(np.trace(shift.T @ np.linalg.pinv(M @ M.T) @ shift)))
