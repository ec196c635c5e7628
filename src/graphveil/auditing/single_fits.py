"""Attacks on one trained model: canaries that were planted in its graph, and links and members by its predictions.

Many independent canaries are in the graph of a single fit, each present or not by its own coin. Steinke, Nasr and
Jagielski 2023 (arXiv:2305.08846): one run tells as much as its canaries are many. Canaries share no node. The score of
a canary is the likelihood ratio of its readers' released rows; rows of replaced nodes are not read.

Predictions alone steal links, and find out who was in the training set. They give no bound on epsilon. AUC 0.5 is a
coin toss; the true-positive rate at 0.1 % false positives says whether a few can be found with near certainty (Carlini
et al. 2022, arXiv:2112.03570, section II).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import binom

from graphveil.auditing.adjacent_fits import with_links
from graphveil.auditing.bounds import Bound, Scores, selection_and_rest, toss
from graphveil.auditing.recording import MakeModel, answers_elsewhere, recorded_fit, replayed_fit
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, MakeLedger
from graphveil.graph import Graph
from graphveil.methods.baselines import SAGE
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, with_unit
from graphveil.privacy.mechanisms import GaussianRelease, Mechanism

MOST_CANARIES = 2000
# Shares of all canaries that the one-run attack guesses; it abstains on the others.
_GUESSED = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FALSE_POSITIVES = 1e-3
_MOST_PAIRS = 5000
_INFLUENCERS = 40


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


@dataclass(frozen=True, eq=False)
class Leak:
    """How well an attack by predictions does.

    Args:
        attack: The attack's name.
        statistic: The statistic that it uses.
        scores: Its trials.
    """

    attack: str
    statistic: str
    scores: Scores

    def to_dict(self) -> dict[str, object]:
        return {
            "attack": self.attack,
            "statistic": self.statistic,
            "auc": self.scores.auc,
            "tpr_at_0.1%_fpr": self.scores.true_positives_at(FALSE_POSITIVES),
            "trials": len(self.scores),
        }


def steal_links(
    make_model: MakeModel, graph: Graph, level: Level, seed: int, make_ledger: MakeLedger = Ledger
) -> list[Leak]:
    """Which pairs of nodes are linked? By similar predictions, and by the influence of one node's features on another.

    Similarity: He et al. 2021 (arXiv:2005.02131), attack 0. Where a node is protected, its own prediction is not used,
    but the model's prediction for its features without links. Influence: LinkTeller (Wu et al. 2022,
    arXiv:2108.06504), for models that answer queries with changed features. Other models answer from what they
    released once, and features of one node do not change another's answer.

    Args:
        make_model: Makes the model.
        graph: The graph.
        level: The level.
        seed: The seed of pairs and noise.
        make_ledger: Makes the ledger.

    Returns:
        The result of similarity, and of influence where it applies. Empty where a node is protected and the model says
        nothing about a node without links.
    """
    rng = np.random.default_rng(seed)
    _, model = recorded_fit(make_model, graph, int(rng.integers(2**52)), make_ledger)
    pairs, linked = _pairs(graph, rng)
    told = model.predict_proba()
    about = told if isinstance(level, Edge | Public) else _asked_alone(model, graph)
    if about is None:
        return []
    told, about = np.log(told + 1e-9), np.log(about + 1e-9)
    leaks = [Leak("links", "similarity", Scores(linked, _similarity(about[pairs[:, 0]], told[pairs[:, 1]])))]
    if isinstance(model, SAGE):
        leaks.append(Leak("links", "influence", _influences(model, graph, rng)))
    return leaks


def infer_membership(
    make_model: MakeModel, graph: Graph, level: Level, seed: int, make_ledger: MakeLedger = Ledger, *, fits: int = 16
) -> Leak:
    """Who was a training node? The likelihood-ratio attack (Carlini et al. 2022), without the node's own prediction.

    Each fit trains on a random half of the labelled nodes. Two statistics are used: the model's prediction for a node's
    features without links, if it answers that, and the predictions of the node's readers. Each has two normal
    distributions, fitted on the other fits, with the node in the training set and without it.

    Args:
        make_model: Makes the model.
        graph: The graph.
        level: Not used; all attacks by predictions have it.
        seed: The seed of training sets and noise.
        make_ledger: Makes the ledger.
        fits: The number of fits.

    Returns:
        The result.
    """
    del level
    rng = np.random.default_rng(seed)
    labelled = (graph.train_mask | graph.val_mask | graph.test_mask).numpy()
    inside, seen = [], []
    for _ in range(fits):
        members = labelled & (rng.random(graph.num_nodes) < 0.5)
        split = graph.replace(
            train_mask=torch.from_numpy(members),
            val_mask=torch.zeros(graph.num_nodes, dtype=torch.bool),
            test_mask=torch.from_numpy(labelled & ~members),
        )
        _, model = recorded_fit(make_model, split, int(rng.integers(2**52)), make_ledger)
        inside.append(members[labelled])
        alone = _asked_alone(model, graph)
        statistics = [] if alone is None else [_confidence(alone, graph)]
        statistics.append(_readers_say(model, graph))
        seen.append(np.stack(statistics, axis=1)[labelled])
    return Leak("membership", "likelihood ratio", _likelihood_ratios(np.array(inside), np.array(seen)))


def _asked_alone(model: NodeClassifier, graph: Graph) -> np.ndarray | None:
    """The model's prediction for each node's features as if the node had no links; its own row is not used.

    None if the model does not answer that.
    """
    if not answers_elsewhere(model):
        return None
    nobody = np.empty(0, dtype=np.int64)
    return model.predict_on(with_links(graph, nobody, nobody))


def _pairs(graph: Graph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """As many random pairs without a link as with one."""
    entries = graph.to_scipy().tocoo()
    links = np.column_stack(entries.coords)
    if len(links) > _MOST_PAIRS:
        links = links[rng.choice(len(links), _MOST_PAIRS, replace=False)]
    known = set(map(tuple, np.column_stack(entries.coords).tolist()))
    strangers: list[tuple[int, int]] = []
    while len(strangers) < max(len(links), 1000):
        u, v = (int(node) for node in rng.integers(graph.num_nodes, size=2))
        if u != v and (u, v) not in known and (v, u) not in known:
            strangers.append((u, v))
    pairs = np.concatenate([links, np.array(strangers)])
    order = rng.permutation(len(pairs))
    return pairs[order], (np.arange(len(pairs)) < len(links))[order]


def _similarity(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Minus the distance of the centred log-probabilities."""
    left, right = left - left.mean(1, keepdims=True), right - right.mean(1, keepdims=True)
    return np.asarray(-np.linalg.norm(left - right, axis=1))


def _influences(model: SAGE, graph: Graph, rng: np.random.Generator) -> Scores:
    """How far all answers move when the features of one node grow a little, for some nodes."""
    x = model.features_of_training
    A = graph.to_scipy()
    A = A + A.T
    linked = np.flatnonzero(np.diff(A.indptr) > 0)
    chosen = rng.choice(linked, min(_INFLUENCERS, len(linked)), replace=False)

    def answers(asked: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(model.logits_with(asked).double(), 1)

    before = answers(x)
    hits, moved = [], []
    for node in chosen:
        changed = x.clone()
        changed[node] *= 1.001
        others = np.arange(graph.num_nodes) != node
        hits.append((A[[int(node)]].toarray()[0] > 0)[others])
        moved.append((answers(changed) - before).norm(dim=1).numpy()[others])
    return Scores(np.concatenate(hits), np.concatenate(moved))


def _confidence(probabilities: np.ndarray, graph: Graph) -> np.ndarray:
    """log p / (1 - p) of the true class, which is close to normal, as the attack assumes."""
    truth = graph.labels.numpy().clip(min=0)
    p = probabilities[np.arange(len(truth)), truth].astype(np.float64).clip(1e-9, 1 - 1e-9)
    return np.asarray(np.log(p) - np.log1p(-p))


def _readers_say(model: NodeClassifier, graph: Graph) -> np.ndarray:
    """The mean log-odds that a node's readers get for the node's own class; 0 where nobody reads it."""
    A = graph.reads(model.direction).T.tocsr()
    p = model.predict_proba().astype(np.float64).clip(1e-9, 1 - 1e-9)
    odds = np.log(p) - np.log1p(-p)
    truth = graph.labels.numpy().clip(min=0)
    readers = np.maximum(np.diff(A.indptr), 1)
    return np.asarray((A @ odds)[np.arange(len(truth)), truth] / readers)


def _likelihood_ratios(inside: np.ndarray, seen: np.ndarray) -> Scores:
    """Each fit is attacked with distributions fitted on all others; the arrays are fits x nodes x statistics."""
    coins, values = [], []
    for target in range(len(inside)):
        others = np.arange(len(inside)) != target
        member = inside[others][:, :, None]
        total = np.zeros(inside.shape[1])
        spread = seen[others].std(0).mean(0) + 1e-9
        for flag, sign in ((member, 1.0), (~member, -1.0)):
            count = flag.sum(0).clip(min=1)
            mean = (seen[others] * flag).sum(0) / count
            total -= sign * (((seen[target] - mean) / spread) ** 2).sum(1) / 2
        coins.append(inside[target])
        values.append(total)
    return Scores(np.concatenate(coins), np.concatenate(values))
