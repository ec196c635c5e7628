"""What an attack saw: a coin per trial, and a score that should be larger when the coin came up heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from graphveil.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Scores:
    """Trials of one game: tails is the graph G, heads its neighbour G', and the attack has to tell which."""

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
        return self.values[self.coins]

    @property
    def tails(self) -> np.ndarray:
        return self.values[~self.coins]

    def split(self, part: float) -> tuple[Scores, Scores]:
        """The first `part` of the trials and the rest: trials are independent, so their order says nothing."""
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
