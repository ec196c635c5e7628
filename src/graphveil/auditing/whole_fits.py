"""Attacks on whole fits: many small fits with and without a change, or one fit with many changes.

End to end, fits on two adjacent graphs are told apart by the best of several scores:

- transcript: the likelihood ratio of everything the adversary saw, by replaying the run on both graphs;
- released: the released tables (rows of others), along the direction in which they differ;
- weights: the noisy gradient sums, from which all weights follow;
- predictions: the predictions of everybody else;
- query: what the released weights say about the replaced node's two versions of features (no row of its own is read).

Directions are learnt on a first part of the trials, the score and its threshold are chosen on a second, and the bound
is computed on the rest.

In one run, many independent canaries are in the graph of a single fit, each present or not by its own coin. Steinke,
Nasr and Jagielski 2023 (arXiv:2305.08846): one run tells as much as its canaries are many. Canaries share no node. The
score of a canary is the likelihood ratio of its readers' released rows; rows of replaced nodes are not read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import binom

from graphveil.auditing.adjacent import AdjacentGraphs, with_links
from graphveil.auditing.bounds import Bound, Claim, Scores, bound_on_selection, selection_and_rest, toss
from graphveil.auditing.canaries import hides_own_row
from graphveil.auditing.recording import (
    MakeModel,
    Recorder,
    answers_elsewhere,
    log_likelihood_ratio,
    recorded_fit,
    replayed_fit,
)
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, MakeLedger
from graphveil.graph import Graph
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, with_unit
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease, Mechanism

# The part of the trials on which directions are learnt.
_LEARNING = 0.2
MOST_CANARIES = 2000
# Shares of all canaries that the one-run attack guesses; it abstains on the others.
_GUESSED = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, eq=False)
class Trials:
    """Many fits on one of two adjacent graphs.

    Args:
        coins: For each fit whether it was on the graph with the change.
        ratios: For each fit the log-likelihood ratio of everything that the adversary saw; None if it was not computed.
        views: What the adversary saw by kind, one row for each fit.
    """

    coins: np.ndarray
    ratios: np.ndarray | None
    views: dict[str, np.ndarray]

    def scores(self) -> dict[str, Scores]:
        """Scores by kind of view, on the trials after those on which directions are learnt."""
        cut = int(_LEARNING * len(self.coins))
        rest = self.coins[cut:]
        scores = {}
        if self.ratios is not None:
            scores["transcript"] = Scores(rest, self.ratios[cut:])
        for name, view in self.views.items():
            weights = _direction(view[:cut], self.coins[:cut])
            scores[name] = Scores(rest, view[cut:] @ weights)
        return scores


def run_trials(
    make_model: MakeModel,
    pair: AdjacentGraphs,
    count: int,
    seed: int,
    make_ledger: MakeLedger = Ledger,
    *,
    replay: bool = True,
) -> Trials:
    """Fit many times, each time on one of the two graphs, with fresh noise and the same public initial weights.

    Args:
        make_model: Makes the model.
        pair: The two graphs.
        count: The number of fits.
        seed: The seed of coins and noise.
        make_ledger: Makes the ledger.
        replay: Whether likelihood ratios are computed, which takes two more fits for each trial.

    Returns:
        The trials.
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
    """The kind of score with the largest bound on the selection trials, and its scores."""
    scores = trials.scores()
    if not scores:
        raise InvalidInput("attack", "end-to-end", "nothing that depends on the graph is visible")
    return max(scores.items(), key=lambda item: bound_on_selection(item[1], delta, confidence, claim))


def _seen(recorder: Recorder, model: NodeClassifier, pair: AdjacentGraphs) -> dict[tuple[str, str], np.ndarray]:
    """What the adversary saw of one trial: numbers by view and by draw."""
    numbers: dict[tuple[str, str], np.ndarray] = {}
    for place, entry in enumerate(recorder.entries):
        mechanism = recorder.plan[entry.name]
        if isinstance(mechanism, GaussianRelease):
            hidden = pair.own is not None and hides_own_row(recorder.plan, entry.name)
            got = entry.got[torch.from_numpy(pair.others)] if hidden else entry.got
            numbers["released", f"{entry.name} {place}"] = got.double().numpy().ravel()
        elif isinstance(mechanism, ClippedTraining):
            numbers["weights", f"{entry.name} {place}"] = entry.got.double().numpy()
    numbers["predictions", ""] = torch.log_softmax(model.logits_.double(), 1).numpy()[pair.others].ravel()
    if pair.own is not None and answers_elsewhere(model):
        asked = [model.predict_on(graph)[pair.own] for graph in (pair.before, pair.after)]
        numbers["query", ""] = np.concatenate(asked).astype(np.float64)
    return numbers


def _views(seen: list[dict[tuple[str, str], np.ndarray]]) -> dict[str, np.ndarray]:
    """One row for each trial. Where a plan has branches, draws of the other branch are zero in a trial's row."""
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
    return np.asarray((heads.mean(0) - tails.mean(0)) / (spread + 1e-9 * spread.mean() + 1e-18))


@dataclass(frozen=True, eq=False)
class PlantedCanaries:
    """Canary c links node `own[c]` with `readers[c]`, both ways where the graph is undirected."""

    own: np.ndarray
    readers: np.ndarray

    def __len__(self) -> int:
        return len(self.own)


def shows_readers(mechanism: Mechanism) -> bool:
    """Whether a canary's readers have rows of their own in what is released."""
    sums_of_all = mechanism.role in ("statistics", "expectation", "classes", "class sums")
    return isinstance(mechanism, GaussianRelease) and not sums_of_all and mechanism.tau is None


def one_run_scores(
    make_model: MakeModel, graph: Graph, level: Level, seed: int, make_ledger: MakeLedger = Ledger
) -> Scores:
    """Scores of many canaries after one fit.

    Args:
        make_model: Makes the model.
        graph: The graph, in which canaries replace some links.
        level: The level, which says how many links a canary may have.
        seed: The seed of coins and noise.
        make_ledger: Makes the ledger.

    Returns:
        Scores that are positive where a canary's links are likely there.

    Raises:
        InvalidInput: If the graph has no room for 40 canaries, or the level protects nothing.
    """
    rng = np.random.default_rng(seed)
    planted = _plant(graph, with_unit(level, graph.directed), rng)
    coins = toss(len(planted), rng)
    tails, heads, mixed = (_linked(graph, planted, on) for on in (np.zeros_like(coins), ~np.zeros_like(coins), coins))
    recorder, _ = recorded_fit(make_model, mixed, int(rng.integers(2**52)), make_ledger)
    with_all = replayed_fit(make_model, heads, recorder, None).given
    with_none = replayed_fit(make_model, tails, recorder, None).given
    values = np.zeros(len(planted))
    # At edge level both ends' rows are seen; elsewhere the replaced node's own is not.
    seen = np.column_stack([planted.own, planted.readers]) if isinstance(level, Edge) else planted.readers
    counted: set[str] = set()
    for entry, ours, theirs in zip(recorder.entries, with_all, with_none, strict=True):
        mechanism = recorder.plan[entry.name]
        if not shows_readers(mechanism) or mechanism.noise == 0:
            continue
        # Beyond the first hop a reader's row is computed from the replaced node's own, which is not seen.
        if isinstance(level, Edge) or entry.name not in counted:
            counted.add(entry.name)
            step, middle = (ours - theirs).double(), (ours + theirs).double() / 2
            ratio = ((entry.got.double() - middle) / mechanism.noise * (step / mechanism.noise)).sum(1)
            values += ratio[torch.from_numpy(seen)].sum(1).numpy()
    return Scores(coins, values)


def _plant(graph: Graph, level: Level, rng: np.random.Generator) -> PlantedCanaries:
    if isinstance(level, Edge):
        readers = 1
    elif isinstance(level, KNeighbor):
        readers = level.k
    elif isinstance(level, Node):
        readers = level.max_degree
    else:
        raise InvalidInput("level", level, "protects nothing")
    count = min(MOST_CANARIES, graph.num_nodes // (readers + 1))
    if readers == 0 or count < 40:
        raise InvalidInput("graph", graph.num_nodes, f"has room for {count} canaries of {readers + 1} nodes; 40 needed")
    chosen = rng.permutation(graph.num_nodes)[: count * (readers + 1)].reshape(count, readers + 1)
    return PlantedCanaries(chosen[:, 0], chosen[:, 1:])


def _linked(graph: Graph, planted: PlantedCanaries, on: np.ndarray) -> Graph:
    """The graph without any link at a canary's own node, and with its canary's links where the coin is heads."""
    keep = np.ones(graph.num_nodes, dtype=bool)
    keep[planted.own] = False
    entries = graph.to_scipy().tocoo()
    stays = keep[entries.coords[0]] & keep[entries.coords[1]]
    own, readers = np.repeat(planted.own[on], planted.readers.shape[1]), planted.readers[on].ravel()
    source = np.concatenate([entries.coords[0][stays], own, readers])
    target = np.concatenate([entries.coords[1][stays], readers, own])
    return with_links(graph, source, target)


def one_run_bound(scores: Scores, delta: float, confidence: float) -> Bound:
    """The largest epsilon that the number of right guesses about independent canaries of one run refutes.

    Args:
        scores: One for each canary; positive where its change is likely there.
        delta: The delta at which epsilon is bounded.
        confidence: Of the bound.

    Returns:
        The bound. Its rates are those of right and wrong guesses.

    Raises:
        InvalidInput: If there are fewer than 20 canaries.

    Formal guarantee: if the run is (epsilon, delta)-DP and coins are independent, the returned epsilon exceeds the true
    one with probability at most 1 - `confidence` (Steinke, Nasr and Jagielski 2023, arXiv:2305.08846, theorem 5.2).
    """
    chosen, rest = selection_and_rest(scores)
    share = max(_GUESSED, key=lambda part: _one_run(*_guesses(chosen, part), len(chosen), delta, confidence))
    guesses, right = _guesses(rest, share)
    epsilon = _one_run(guesses, right, len(rest), delta, confidence)
    rate = right / max(1, guesses)
    return Bound(epsilon, "one-run", confidence, len(rest), share, rate, 1 - rate)


def one_run_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of so many right guesses under (epsilon, delta)-DP.

    Steinke, Nasr and Jagielski 2023, theorem 5.2 and appendix D.
    """
    truth = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, truth))
    below = binom.pmf(np.arange(right - 1, -1, -1), guesses, truth)
    steepest = float((np.cumsum(below) / np.arange(1, right + 1)).max(initial=0.0))
    return min(1.0, tail + 2 * canaries * delta * steepest)


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
