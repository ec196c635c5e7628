"""End to end: many small fits with and without the change, told apart by the best of several scores.

- transcript: the likelihood ratio of everything the adversary saw, by playing the run back on both graphs;
- released: the released tables (rows of others), along the direction in which they differ;
- weights: the noisy gradient sums, from which all weights follow;
- predictions: the predictions of everybody else;
- query: what the released weights say about the replaced node's two versions of features (no row of its own is read).

Directions are learnt on a first part of the trials, the score and its threshold chosen on a second, the bound computed
on the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from graphveil.auditing import bounds
from graphveil.auditing.bounds import Claim
from graphveil.auditing.canaries import hides_own_row
from graphveil.auditing.instruments import Recorder, Replay, log_likelihood_ratio
from graphveil.auditing.pairs import AdjacentGraphs
from graphveil.auditing.scores import Scores, toss
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, LedgerLike, MakeLedger
from graphveil.graph import Graph
from graphveil.methods.estimator import NodeClassifier
from graphveil.noise import NoiseSource
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease
from graphveil.privacy.plan import Plan

_LEARNING = 0.2

MakeModel = Callable[[], NodeClassifier]


@dataclass(frozen=True, eq=False)
class Trials:
    """Coins, the likelihood ratio of each trial, and what else the adversary saw, one row per trial."""

    coins: np.ndarray
    ratios: np.ndarray | None
    views: dict[str, np.ndarray]

    def scores(self) -> dict[str, Scores]:
        """One score per view on the trials after the learning part."""
        cut = int(_LEARNING * len(self.coins))
        rest = self.coins[cut:]
        found = {}
        if self.ratios is not None:
            found["transcript"] = Scores(rest, self.ratios[cut:])
        for name, view in self.views.items():
            weights = _direction(view[:cut], self.coins[:cut])
            found[name] = Scores(rest, view[cut:] @ weights)
        return found


def run_trials(
    make_model: MakeModel,
    pair: AdjacentGraphs,
    count: int,
    seed: int,
    make_ledger: MakeLedger = Ledger,
    *,
    replay: bool = True,
) -> Trials:
    """Fit `count` times, each time on one of the two graphs, with fresh noise and the same public initial weights.

    Without `replay` the transcript is left out: two fits less for each trial.
    """
    rng = np.random.default_rng(seed)
    # The plan depends on public facts alone, which adjacent graphs have in common.
    plan = make_model().plan(pair.before)
    coins = toss(count, rng)
    ratios: list[float] | None = [] if replay else None
    seen: list[dict[tuple[str, str], np.ndarray]] = []
    for coin in coins:
        graph = pair.after if coin else pair.before
        recorder, model = recorded_fit(make_model, graph, int(rng.integers(2**52)), make_ledger, plan)
        if ratios is not None and recorder.entries and not any(drawn is not None for drawn in recorder.sampled):
            heads, tails = (replayed_fit(make_model, world, recorder, pair.own) for world in (pair.after, pair.before))
            ratios.append(log_likelihood_ratio(recorder, heads, tails, pair.own))
        else:
            ratios = None
        seen.append(_seen(recorder, model, pair))
    return Trials(coins, None if ratios is None else np.array(ratios), _views(seen))


def best_score(trials: Trials, delta: float, confidence: float, claim: Claim | None) -> tuple[str, Scores]:
    """The score that promises most on the part of the trials that the bound does not look at."""
    found = trials.scores()
    if not found:
        raise InvalidInput("attack", "end-to-end", "nothing that depends on the graph is visible")
    return max(found.items(), key=lambda item: bounds.promise(item[1], delta, confidence, claim))


def recorded_fit(
    make_model: MakeModel, graph: Graph, seed: int, make_ledger: MakeLedger = Ledger, plan: Plan | None = None
) -> tuple[Recorder, NodeClassifier]:
    """A fit with fresh noise, and what it drew; `plan` saves planning it again."""
    books: list[Recorder] = []

    def book(plan: Plan, source: NoiseSource) -> LedgerLike:
        del source  # seeded like the initial weights, which are public
        books.append(Recorder(make_ledger(plan, NoiseSource(seed))))
        return books[-1]

    model = make_model().execute(graph, plan, book)
    return books[0], model


def replayed_fit(
    make_model: MakeModel,
    graph: Graph,
    recorded: Recorder,
    own: int | None,
    replay: Callable[[Recorder, int | None], Replay] = Replay,
) -> Replay:
    """What a fit on this graph puts into the ledger when it gets what the recorded one got."""
    books: list[Replay] = []

    def book(plan: Plan, source: NoiseSource) -> LedgerLike:
        del plan, source
        books.append(replay(recorded, own))
        return books[-1]

    make_model().execute(graph, recorded.planned, book)
    return books[0]


def _seen(recorder: Recorder, model: NodeClassifier, pair: AdjacentGraphs) -> dict[tuple[str, str], np.ndarray]:
    """What the adversary saw of one trial: numbers by view and by draw."""
    found: dict[tuple[str, str], np.ndarray] = {}
    for place, entry in enumerate(recorder.entries):
        mechanism = recorder.plan[entry.name]
        if isinstance(mechanism, GaussianRelease):
            hidden = pair.own is not None and hides_own_row(recorder.plan, entry.name)
            got = entry.got[torch.from_numpy(pair.others)] if hidden else entry.got
            found["released", f"{entry.name} {place}"] = got.double().numpy().ravel()
        elif isinstance(mechanism, ClippedTraining):
            found["weights", f"{entry.name} {place}"] = entry.got.double().numpy()
    found["predictions", ""] = torch.log_softmax(model.logits_.double(), 1).numpy()[pair.others].ravel()
    if pair.own is not None:
        asked = [model.predict_on(graph)[pair.own] for graph in (pair.before, pair.after)]
        found["query", ""] = np.concatenate(asked).astype(np.float64)
    return found


def _views(seen: list[dict[tuple[str, str], np.ndarray]]) -> dict[str, np.ndarray]:
    """One row per trial. Where a plan branches, what a trial did not draw is zero in its row."""
    widths = {key: len(part) for trial in seen for key, part in trial.items()}
    views = {}
    for name in dict.fromkeys(view for view, _ in widths):
        parts = [key for key in widths if key[0] == name]
        rows = [np.concatenate([trial.get(key, np.zeros(widths[key])) for key in parts]) for trial in seen]
        views[name] = np.stack(rows)
    return views


def _direction(view: np.ndarray, coins: np.ndarray) -> np.ndarray:
    """Fisher's direction with a diagonal covariance."""
    if coins.all() or not coins.any():
        return np.zeros(view.shape[1])
    heads, tails = view[coins], view[~coins]
    spread = heads.var(0) + tails.var(0)
    found: np.ndarray = (heads.mean(0) - tails.mean(0)) / (spread + 1e-9 * spread.mean() + 1e-18)
    return found
