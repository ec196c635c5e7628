"""One mechanism of a plan, or all of them together, played against its canaries."""

from __future__ import annotations

import numpy as np

from graphveil.auditing import gradient, release, response
from graphveil.auditing.scores import Scores, toss
from graphveil.auditing.subject import Subject
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease, Mechanism

# Which attack fits which mechanism.
ATTACKS = {"gaussian release": "release", "clipped gradients": "gradient", "randomised response": "response"}


def attack_name(mechanism: Mechanism) -> str:
    """A table of neighbours' labels has an attack of its own."""
    of_neighbors = isinstance(mechanism, GaussianRelease) and mechanism.tau is not None
    return "table" if of_neighbors else ATTACKS[mechanism.type]


def most_canaries(subject: Subject, mechanism: Mechanism) -> int:
    """How many canaries one run of the mechanism can carry within reason."""
    if isinstance(mechanism, GaussianRelease):
        return release.most_canaries(subject, mechanism)
    if isinstance(mechanism, ClippedTraining):
        return gradient.most_canaries(mechanism)
    return response.MOST_CANARIES


def canary_scores(subject: Subject, mechanism: Mechanism, coins: np.ndarray, seed: int | None) -> np.ndarray:
    """Each canary's log-likelihood ratio after one run of the mechanism."""
    if isinstance(mechanism, GaussianRelease):
        return release.release_scores(subject, mechanism, coins, seed)
    if isinstance(mechanism, ClippedTraining):
        return gradient.gradient_scores(subject, mechanism, coins, seed)
    return response.response_scores(subject, mechanism, coins, seed)


def play(subject: Subject, mechanisms: list[Mechanism], trials: int, seed: int) -> Scores:
    """Canaries that go through all of these mechanisms; what they show is added up.

    The mechanisms' draws are independent, so the log-likelihood ratio of everything together is the sum: this is the
    composition's own worst case. Runs are repeated until there are enough canaries.
    """
    runs = -(-trials // min(most_canaries(subject, mechanism) for mechanism in mechanisms))
    at_once = -(-trials // runs)
    rng = np.random.default_rng(seed)
    coins, values = [], []
    for _ in range(runs):
        tossed = toss(at_once, rng)
        seeds = rng.integers(2**52, size=len(mechanisms))
        shown = sum(
            canary_scores(subject, mechanism, tossed, int(each))
            for mechanism, each in zip(mechanisms, seeds, strict=True)
        )
        coins.append(tossed)
        values.append(np.asarray(shown))
    return Scores(np.concatenate(coins), np.concatenate(values))
