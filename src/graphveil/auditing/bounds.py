"""Scores of an attack, and lower bounds on epsilon from them that hold with a stated probability.

Every choice that looks at scores (threshold, side, kind of bound) is made on a first part of the trials, and the bound
is computed on the rest. So nothing has to be paid for trying many thresholds.

What each bound assumes:

- `threshold_bound`: trials are independent. It holds for any (epsilon, delta)-DP mechanism.
- `gaussian_bound`, `claim_bound`: the same, and that the mechanism has the form that its plan claims (Gaussian; or the
  plan's composition with other noise). They test the claim where it is weakest, not only at its delta.

The bound for a single run with many canaries is `single_fits.one_run_bound`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, rankdata

from graphveil import validate
from graphveil.accounting import (
    Composition,
    Gaussian,
    Loss,
    RandomizedResponse,
    SampledGaussian,
    gaussian_epsilon,
)
from graphveil.accounting.losses import pure_epsilon
from graphveil.errors import InvalidInput

# The part of the trials on which thresholds are chosen.
_SELECTION = 0.3
_TAIL_CANDIDATES = 200
_LARGEST_FACTOR = 16.0


@dataclass(frozen=True, eq=False)
class Scores:
    """The trials of an attack: in each one a fair coin chooses between two adjacent graphs, which the attack guesses.

    Args:
        coins: For each trial whether the coin showed heads: then the graph had the change.
        values: For each trial the attack's score, which should be larger for heads.

    Raises:
        InvalidInput: If there is not one score for each coin, or a score is not a number.
    """

    coins: np.ndarray
    values: np.ndarray

    def __post_init__(self) -> None:
        coins, values = np.asarray(self.coins, dtype=bool), np.asarray(self.values, dtype=np.float64)
        if coins.shape != values.shape or coins.ndim != 1:
            raise InvalidInput("scores", (coins.shape, values.shape), "needs one coin for each score")
        if np.isnan(values).any():
            raise InvalidInput("scores", "NaN", "a score must be a number")
        object.__setattr__(self, "coins", coins)
        object.__setattr__(self, "values", values)

    def __len__(self) -> int:
        return len(self.coins)

    @property
    def heads(self) -> np.ndarray:
        """The scores of trials with the change."""
        return self.values[self.coins]

    @property
    def tails(self) -> np.ndarray:
        """The scores of trials without the change."""
        return self.values[~self.coins]

    def split(self, part: float) -> tuple[Scores, Scores]:
        """The first `part` of the trials, and the rest."""
        cut = int(part * len(self))
        return Scores(self.coins[:cut], self.values[:cut]), Scores(self.coins[cut:], self.values[cut:])

    @property
    def auc(self) -> float:
        """The probability that a score of heads is larger than one of tails (ties count half)."""
        positive, negative = int(self.coins.sum()), int((~self.coins).sum())
        if not positive or not negative:
            return 0.5
        ranks = rankdata(self.values)[self.coins].sum()
        return float((ranks - positive * (positive + 1) / 2) / (positive * negative))

    def true_positives_at(self, false_positives: float) -> float:
        """The largest true-positive rate at a false-positive rate of at most `false_positives`."""
        falls, rises = self.roc()
        return float(rises[falls <= false_positives].max(initial=0.0))

    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """False- and true-positive rates of "heads if the score is at least t", over all t."""
        order = np.argsort(-self.values, kind="stable")
        coins, values = self.coins[order], self.values[order]
        ends = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)[: len(values)]
        rises, falls = np.cumsum(coins)[ends], np.cumsum(~coins)[ends]
        negative, positive = max(1, int((~coins).sum())), max(1, int(coins.sum()))
        return np.append(0.0, falls / negative), np.append(0.0, rises / positive)


def toss(count: int, rng: np.random.Generator) -> np.ndarray:
    """Fair coins for this many trials."""
    return rng.random(count) < 0.5


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon.

    Args:
        epsilon: The bound.
        kind: How it was computed.
        confidence: The probability, at least, with which the true epsilon is not below it.
        trials: The number of held-out trials that it was computed from.
        threshold: Scores from here on count as "heads" (or those below as "tails").
        true_positive_rate: The rate of right guesses among those trials that should be guessed so.
        false_positive_rate: The rate of wrong guesses among the others.
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
    """The claim of a plan with branches: one of several compositions, chosen by what was released so far.

    Its delta at every epsilon is at most the sum of theirs (docs/theory.md, section 4.5).
    """

    each: tuple[Composition, ...]

    def delta(self, epsilon: float) -> float:
        return min(1.0, sum(composition.delta(epsilon) for composition in self.each))

    def epsilon(self, delta: float) -> float:
        return max(composition.epsilon(delta / len(self.each)) for composition in self.each)


Claim = Composition | Branches


def lower_bound(scores: Scores, delta: float, confidence: float, claim: Claim | None = None) -> Bound:
    """The bound that is largest on the selection trials, computed on the held-out trials.

    Args:
        scores: The trials.
        delta: The delta at which epsilon is bounded.
        confidence: Of the bound.
        claim: What the mechanism claims to cost; with a claim that is not Gaussian, `claim_bound` is used.

    Returns:
        The bound.

    Raises:
        InvalidInput: If there are fewer than 20 trials, or `confidence` does not lie between 0 and 1.

    Formal guarantee: if every trial is dominated by `claim` (without one: is (epsilon, delta)-indistinguishable under
    its two coins) and trials are independent, the returned epsilon exceeds the true one with probability at most
    1 - `confidence`.
    """
    if claim is not None and not is_gaussian(claim):
        return claim_bound(scores, delta, confidence, claim)
    chosen, rest = selection_and_rest(scores)
    kinds = ["threshold"] if claim is None else ["gaussian", "threshold"]
    _, test = max((_select(chosen, delta, confidence, kind) for kind in kinds), key=lambda selected: selected[0])
    return test.bound(rest, delta, confidence)


def bound_on_selection(scores: Scores, delta: float, confidence: float, claim: Claim | None = None) -> float:
    """The bound that the selection trials would give, for choosing between scores before the held-out trials."""
    chosen, _ = selection_and_rest(scores)
    kinds = ["threshold"] if claim is None else ["gaussian", "threshold"]
    return max(_select(chosen, delta, confidence, kind)[0] for kind in kinds)


def threshold_bound(scores: Scores, delta: float, confidence: float) -> Bound:
    """Clopper-Pearson on one threshold: epsilon >= log((TPR - delta) / FPR), or the same with the roles exchanged.

    Jagielski, Ullman and Oprea 2020 (arXiv:2006.07709), section 4; the threshold is chosen on separate trials.

    Args:
        scores: The trials.
        delta: The delta at which epsilon is bounded.
        confidence: Of the bound.

    Returns:
        The bound, of kind "clopper-pearson".

    Raises:
        InvalidInput: As in `lower_bound`.

    Formal guarantee: that of `lower_bound` without a claim.
    """
    return lower_bound(scores, delta, confidence)


def gaussian_bound(scores: Scores, delta: float, confidence: float) -> Bound:
    """A lower bound on mu at one threshold, converted to epsilon at delta.

    A mu-Gaussian mechanism satisfies Phi^-1(TPR) - Phi^-1(FPR) <= mu for every test (Dong, Roth and Su 2022,
    definition 4); Nasr et al. 2023 (arXiv:2302.07956), section 4, audit with it.

    Args:
        scores: The trials.
        delta: The delta at which epsilon is bounded.
        confidence: Of the bound.

    Returns:
        The bound, of kind "gaussian".

    Raises:
        InvalidInput: As in `lower_bound`.

    Formal guarantee: that of `lower_bound` with a Gaussian claim.
    """
    chosen, rest = selection_and_rest(scores)
    _, test = _select(chosen, delta, confidence, "gaussian")
    return test.bound(rest, delta, confidence)


def claim_bound(scores: Scores, delta: float, confidence: float, claim: Claim) -> Bound:
    """All losses of the claim are scaled until its trade-off between errors permits the observed rates.

    A mechanism dominated by a symmetric pair with profile delta(.) satisfies TPR <= e^x FPR + delta(x) and
    1 - FPR <= e^x (1 - TPR) + delta(x) for every test and every x >= 0 (Wasserman and Zhou 2010, proposition 2.5). The
    epsilon of the smallest scaled claim that the confidence bounds of both rates satisfy is a lower bound. Arguments,
    errors and guarantee are those of `lower_bound`.
    """
    chosen, rest = selection_and_rest(scores)
    _, test = _select(chosen, delta, confidence, "gaussian")
    low, high = (float(rate) for rate in _rates(*test.counts(rest), confidence))
    bound = replace(test.bound(rest, delta, confidence), kind="claim", epsilon=0.0)
    if not low > high:
        return bound
    below, above = 0.0, 1.0
    while not _permits(_scaled(claim, above), low, high) and above < _LARGEST_FACTOR:
        below, above = above, 2 * above
    for _ in range(10):
        middle = (below + above) / 2
        below, above = (below, middle) if _permits(_scaled(claim, middle), low, high) else (middle, above)
    return replace(bound, epsilon=_scaled(claim, below).epsilon(delta) if below else 0.0)


@dataclass(frozen=True)
class _Test:
    """A guess by a threshold. Side +1: heads at or above it; side -1: tails below it."""

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


def selection_and_rest(scores: Scores) -> tuple[Scores, Scores]:
    """The trials on which thresholds are chosen, and the held-out ones."""
    validate.count("trials", len(scores), least=20)
    return scores.split(_SELECTION)


def _select(chosen: Scores, delta: float, confidence: float, kind: str) -> tuple[float, _Test]:
    """The test with the largest bound on the selection trials, and that bound."""
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
    # Exact at the largest mu and in the same order below it, because only the best threshold is used.
    return np.asarray(np.maximum(mu, 0.0) / best * gaussian_epsilon(best, delta))


def is_gaussian(claim: Claim) -> bool:
    """Whether everything together is one Gaussian mechanism: no branches, no sampling, no responses."""
    return isinstance(claim, Composition) and all(
        isinstance(loss, Gaussian) or (isinstance(loss, SampledGaussian) and loss.sampling_rate == 1)
        for loss in claim.losses
    )


def _scaled(claim: Claim, by: float) -> Claim:
    if isinstance(claim, Branches):
        return Branches(tuple(Composition(tuple(_scaled_loss(loss, by) for loss in one.losses)) for one in claim.each))
    return Composition(tuple(_scaled_loss(loss, by) for loss in claim.losses))


def _scaled_loss(loss: Loss, by: float) -> Loss:
    if isinstance(loss, RandomizedResponse) and loss.uniform:
        # In one order its losses stay below log(classes). Two symbols dominate whatever has the same largest loss.
        return RandomizedResponse(pure_epsilon(loss) * by, 2, loss.uses)
    if isinstance(loss, RandomizedResponse):
        return replace(loss, epsilon=loss.epsilon * by)
    return loss.scaled(1 / by)


def _permits(claim: Claim, low: float, high: float) -> bool:
    """Whether a hit rate of `low` at an alarm rate of `high` is possible under this claim."""
    steepest = max(math.log(low / high), math.log((1 - high) / (1 - low)) if low < 1 else 0.0)
    return all(
        max(low - math.exp(x) * high, (1 - high) - math.exp(x) * (1 - low)) <= claim.delta(float(x))
        for x in np.linspace(0.0, steepest, 16)
    )
