"""Lower bounds on epsilon that hold with a stated probability, from the scores of an attack.

Every choice that looks at scores (threshold, side, kind of bound, number of guesses) is made on a first part of the
trials; the bound is computed on the rest. So nothing has to be paid for trying many thresholds.

What each bound assumes:

- `threshold_bound`: trials are independent. Holds for any (epsilon, delta)-DP mechanism.
- `gaussian_bound`, `claim_bound`: the same, and that the mechanism has the form that its plan claims (Gaussian; or the
  plan's composition with other noise). They refute the claim where it is weakest, not only at its delta.
- `one_run_bound`: coins are independent; the mechanism ran once and its noise may be anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, binom

from graphveil import validate
from graphveil.auditing.scores import Scores
from graphveil.privacy.accounting import (
    Composition,
    Gaussian,
    Loss,
    RandomizedResponse,
    SampledGaussian,
    gaussian_epsilon,
)

# The part of the trials on which thresholds are chosen.
SELECTION = 0.3
_TAIL_CANDIDATES = 200
_MOST_STRETCH = 16.0
# Shares of all canaries that the one-run attack tries to guess; it abstains on the others.
_GUESSED = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Bound:
    """`epsilon` is below the truth with probability `confidence` at least.

    The rates are those observed on the held-out trials, for guesses "heads" above the threshold (or "tails" below).
    """

    epsilon: float
    kind: str
    confidence: float
    trials: int
    threshold: float
    true_positive_rate: float
    false_positive_rate: float


@dataclass(frozen=True)
class Branches:
    """The claim of a plan that branches: one of several compositions, by what was released so far.

    docs/theory.md, section 4.5: its delta at every epsilon is at most the sum of theirs.
    """

    each: tuple[Composition, ...]

    def delta(self, epsilon: float) -> float:
        return min(1.0, sum(composition.delta(epsilon) for composition in self.each))

    def epsilon(self, delta: float) -> float:
        return max(composition.epsilon(delta / len(self.each)) for composition in self.each)


Claim = Composition | Branches


def lower_bound(scores: Scores, delta: float, confidence: float, claim: Claim | None = None) -> Bound:
    """The bound that promises most for this claim, settled before the held-out trials are looked at.

    Formal guarantee: if every trial is dominated by `claim` (without one: is (epsilon, delta)-indistinguishable under
    its two coins) and trials are independent, the returned epsilon exceeds the true one with probability at most
    1 - `confidence`.
    """
    if claim is not None and not is_gaussian(claim):
        return claim_bound(scores, delta, confidence, claim)
    chosen, rest = _split(scores)
    kinds = ["threshold"] if claim is None else ["gaussian", "threshold"]
    _, test = max((_select(chosen, delta, confidence, kind) for kind in kinds), key=lambda found: found[0])
    return test.bound(rest, delta, confidence)


def promise(scores: Scores, delta: float, confidence: float, claim: Claim | None = None) -> float:
    """What the selection trials promise: for choosing between scores without looking at the held-out trials."""
    chosen, _ = _split(scores)
    kinds = ["threshold"] if claim is None else ["gaussian", "threshold"]
    return max(_select(chosen, delta, confidence, kind)[0] for kind in kinds)


def threshold_bound(scores: Scores, delta: float, confidence: float) -> Bound:
    """Clopper-Pearson on one threshold: epsilon >= log((TPR - delta) / FPR), or the same with the roles exchanged.

    Jagielski, Ullman and Oprea 2020 (arXiv:2006.07709), section 4; the threshold is chosen on separate trials.
    """
    return lower_bound(scores, delta, confidence)


def gaussian_bound(scores: Scores, delta: float, confidence: float) -> Bound:
    """A lower bound on mu at one threshold, converted to epsilon at delta.

    A mu-Gaussian mechanism satisfies Phi^-1(TPR) - Phi^-1(FPR) <= mu for every test (Dong, Roth and Su 2022,
    definition 4); Nasr et al. 2023 (arXiv:2302.07956), section 4, audit with it.
    """
    chosen, rest = _split(scores)
    _, test = _select(chosen, delta, confidence, "gaussian")
    return test.bound(rest, delta, confidence)


def claim_bound(scores: Scores, delta: float, confidence: float, claim: Claim) -> Bound:
    """The claim's own trade-off between errors, with all of its losses stretched until the observed rates fit.

    A mechanism dominated by a symmetric pair with profile delta(.) satisfies TPR <= e^x FPR + delta(x) and
    1 - FPR <= e^x (1 - TPR) + delta(x) for every test and every x >= 0 (Wasserman and Zhou 2010, proposition 2.5). The
    smallest stretch s at which the confidence bounds of both rates do so is a lower bound, and so is its epsilon.
    """
    chosen, rest = _split(scores)
    _, test = _select(chosen, delta, confidence, "gaussian")
    low, high = (float(rate) for rate in _rates(*test.counts(rest), confidence))
    found = replace(test.bound(rest, delta, confidence), kind="claim", epsilon=0.0)
    if not low > high:
        return found
    below, above = 0.0, 1.0
    while not _fits(_stretched(claim, above), low, high) and above < _MOST_STRETCH:
        below, above = above, 2 * above
    for _ in range(10):
        middle = (below + above) / 2
        below, above = (below, middle) if _fits(_stretched(claim, middle), low, high) else (middle, above)
    return replace(found, epsilon=_stretched(claim, below).epsilon(delta) if below else 0.0)


def one_run_bound(scores: Scores, delta: float, confidence: float) -> Bound:
    """The largest epsilon that the number of right guesses about independent canaries of one run refutes.

    Steinke, Nasr and Jagielski 2023 (arXiv:2305.08846), theorem 5.2. Scores must be centred: positive for heads.
    """
    chosen, rest = _split(scores)
    share = max(_GUESSED, key=lambda part: _one_run(*_guesses(chosen, part), len(chosen), delta, confidence))
    guesses, right = _guesses(rest, share)
    epsilon = _one_run(guesses, right, len(rest), delta, confidence)
    rate = right / max(1, guesses)
    return Bound(epsilon, "one-run", confidence, len(rest), share, rate, 1 - rate)


def one_run_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are under (epsilon, delta)-DP, at most (theorem 5.2 and appendix D there)."""
    truth = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, truth))
    below = binom.pmf(np.arange(right - 1, -1, -1), guesses, truth)
    steepest = float((np.cumsum(below) / np.arange(1, right + 1)).max(initial=0.0))
    return min(1.0, tail + 2 * canaries * delta * steepest)


@dataclass(frozen=True)
class _Test:
    """Guess by a threshold. `side` +1: heads at or above it; -1: tails below it."""

    kind: str
    threshold: float
    side: int

    def counts(self, scores: Scores) -> tuple[int, int, int, int]:
        """Hits and how many there could be, false alarms and how many there could be."""
        if self.side > 0:
            hits, alarms = scores.heads >= self.threshold, scores.tails >= self.threshold
        else:
            hits, alarms = scores.tails < self.threshold, scores.heads < self.threshold
        return int(hits.sum()), len(hits), int(alarms.sum()), len(alarms)

    def bound(self, scores: Scores, delta: float, confidence: float) -> Bound:
        hits, hit_n, alarms, alarm_n = self.counts(scores)
        epsilon = float(_epsilon(self.kind, hits, hit_n, alarms, alarm_n, delta, confidence))
        name = "clopper-pearson" if self.kind == "threshold" else "gaussian"
        rates = hits / max(1, hit_n), alarms / max(1, alarm_n)
        return Bound(epsilon, name, confidence, len(scores), self.threshold, *rates)


def _split(scores: Scores) -> tuple[Scores, Scores]:
    validate.count("trials", len(scores), least=20)
    return scores.split(SELECTION)


def _select(chosen: Scores, delta: float, confidence: float, kind: str) -> tuple[float, _Test]:
    """The most promising test on the selection trials."""
    validate.open_unit("confidence", confidence)
    heads, tails = np.sort(chosen.heads), np.sort(chosen.tails)
    at = _middle(chosen) if kind == "gaussian" else _candidates(chosen.values)
    more_heads, more_tails = len(heads) - np.searchsorted(heads, at), len(tails) - np.searchsorted(tails, at)
    sides = {1: (more_heads, len(heads), more_tails, len(tails))}
    if kind == "threshold":
        sides[-1] = (len(tails) - more_tails, len(tails), len(heads) - more_heads, len(heads))
    best = (-math.inf, _Test(kind, 0.0, 1))
    for side, counts in sides.items():
        rated = _epsilon(kind, *counts, delta, confidence)
        top = int(np.argmax(rated))
        if rated[top] > best[0]:
            best = (float(rated[top]), _Test(kind, float(at[top]), side))
    return best


def _middle(scores: Scores) -> np.ndarray:
    """Thresholds away from the tails, where a Gaussian claim is tested most sharply with a given number of trials."""
    if not scores.coins.any() or scores.coins.all():
        return np.zeros(1)
    between = (np.median(scores.heads) + np.median(scores.tails)) / 2
    return np.append(between, np.quantile(scores.values, np.linspace(0.1, 0.9, 17)))


def _candidates(values: np.ndarray) -> np.ndarray:
    """Midpoints between neighbouring scores, all of them in the tails and some between."""
    distinct = np.unique(values)
    if len(distinct) == 1:
        return distinct
    places = np.arange(len(distinct) - 1)
    if len(places) > 4 * _TAIL_CANDIDATES:
        steps = np.unique(np.geomspace(1, len(places), 2 * _TAIL_CANDIDATES).astype(int)) - 1
        even = np.linspace(0, len(places) - 1, _TAIL_CANDIDATES).astype(int)
        places = np.unique(np.concatenate([steps, len(places) - 1 - steps, even]))
    return (distinct[places] + distinct[places + 1]) / 2


Count = int | np.ndarray


def _rates(hits: Count, hit_n: int, alarms: Count, alarm_n: int, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Clopper-Pearson: the hit rate from below and the alarm rate from above, half of the error for each."""
    error = (1 - confidence) / 2
    hits, alarms = np.asarray(hits, dtype=float), np.asarray(alarms, dtype=float)
    low = np.where(hits > 0, beta.ppf(error, np.maximum(hits, 1.0), hit_n - hits + 1), 0.0)
    high = np.where(alarms < alarm_n, beta.ppf(1 - error, alarms + 1, np.maximum(alarm_n - alarms, 1.0)), 1.0)
    return low, high


def _epsilon(
    kind: str, hits: Count, hit_n: int, alarms: Count, alarm_n: int, delta: float, confidence: float
) -> np.ndarray:
    """Epsilon from counts, for one threshold or for many."""
    low, high = _rates(hits, hit_n, alarms, alarm_n, confidence)
    with np.errstate(divide="ignore"):
        if kind == "threshold":
            return np.asarray(np.maximum(0.0, np.log(np.maximum(low - delta, 0.0) / high)))
        mu = np.where((low > 0) & (high < 1), ndtri(low) - ndtri(high), 0.0)
    best = float(mu.max(initial=0.0))
    if best <= 0:
        return np.zeros_like(mu)
    # Exact at the largest mu and in the same order below it: of many thresholds only the best is asked for.
    return np.asarray(np.maximum(mu, 0.0) / best * gaussian_epsilon(best, delta))


def is_gaussian(claim: Claim) -> bool:
    """Whether everything together is one Gaussian mechanism: no branches, no sampling, no responses."""
    return isinstance(claim, Composition) and all(
        isinstance(loss, Gaussian) or (isinstance(loss, SampledGaussian) and loss.sampling_rate == 1)
        for loss in claim.losses
    )


def _stretched(claim: Claim, by: float) -> Claim:
    if isinstance(claim, Branches):
        return Branches(tuple(Composition(tuple(_stretch(loss, by) for loss in one.losses)) for one in claim.each))
    return Composition(tuple(_stretch(loss, by) for loss in claim.losses))


def _stretch(loss: Loss, by: float) -> Loss:
    if isinstance(loss, RandomizedResponse):
        return replace(loss, epsilon=loss.epsilon * by)
    return loss.scaled(1 / by)


def _fits(claim: Claim, low: float, high: float) -> bool:
    """Whether a hit rate of `low` at an alarm rate of `high` is possible under this claim."""
    steepest = max(math.log(low / high), math.log((1 - high) / (1 - low)) if low < 1 else 0.0)
    return all(
        max(low - math.exp(x) * high, (1 - high) - math.exp(x) * (1 - low)) <= claim.delta(float(x))
        for x in np.linspace(0.0, steepest, 16)
    )


def _guesses(scores: Scores, share: float) -> tuple[int, int]:
    """Guess the canaries with the largest scores, whatever their sign; how many guesses, and how many right."""
    count = max(1, int(share * len(scores)))
    surest = np.argsort(-np.abs(scores.values), kind="stable")[:count]
    return count, int(((scores.values[surest] > 0) == scores.coins[surest]).sum())


def _one_run(guesses: int, right: int, canaries: int, delta: float, confidence: float) -> float:
    """The largest epsilon whose p-value is below 1 - confidence, by bisection."""
    error = 1 - confidence
    if one_run_p_value(canaries, guesses, right, 0.0, delta) > error:
        return 0.0
    low, high = 0.0, 1.0
    while one_run_p_value(canaries, guesses, right, high, delta) <= error and high < 64:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if one_run_p_value(canaries, guesses, right, middle, delta) <= error:
            low = middle
        else:
            high = middle
    return low
