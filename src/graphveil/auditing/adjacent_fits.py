"""Pairs of adjacent graphs that differ as much as the level allows, and many fits on both: the end-to-end attack.

Fits on the two graphs are told apart by the best of several scores:

- transcript: the likelihood ratio of everything the adversary saw, by replaying the run on both graphs;
- released: the released tables (rows of others), along the direction in which they differ;
- weights: the noisy gradient sums, from which all weights follow;
- predictions: the predictions of everybody else;
- query: what the released weights say about the replaced node's two versions of features (no row of its own is read).

Directions are learnt on a first part of the trials, the score and its threshold are chosen on a second, and the bound
is computed on the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.auditing.bounds import Claim, Scores, bound_on_selection, toss
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
from graphveil.graph.links import Relations, stack
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, is_zero_out, protects_attributes, with_unit
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease

# The length of the replaced node's features, in multiples of the mean: its gradient is then always clipped.
_LENGTH = 20.0
# The part of the trials on which directions are learnt.
_LEARNING = 0.2


@dataclass(frozen=True, eq=False)
class AdjacentGraphs:
    """Two adjacent graphs.

    Args:
        before: The graph without the change (tails).
        after: The graph with the change (heads).
        own: The replaced node; None at edge level.
    """

    before: Graph
    after: Graph
    own: int | None

    @property
    def others(self) -> np.ndarray:
        """Nodes whose rows and predictions the adversary sees."""
        nodes = np.arange(self.before.num_nodes)
        return nodes if self.own is None else nodes[nodes != self.own]


def adjacent_graphs(graph: Graph, level: Level, seed: int, *, validation: bool = False) -> AdjacentGraphs:
    """A pair of graphs that are adjacent at a level and differ by as much as the level allows.

    The replaced node is a training node. At k-neighbour level it has no links before and k after; at node level it has
    disjoint neighbourhoods before and after. Where attributes are private, its features change their sign, and its
    label changes. In the zero-out unit it is emptied before.

    Args:
        graph: The graph that both are made from.
        level: The level.
        seed: Chooses links.
        validation: Replace the only validation node instead, and change nothing but its label.

    Returns:
        The pair.

    Raises:
        InvalidInput: If the level protects nothing, or there is no validation node where one is needed.
    """
    rng = np.random.default_rng(seed)
    level = with_unit(level, graph.directed)
    if validation:
        graph = _only_validation_node(graph, rng)
    places = (graph.val_mask if validation else graph.train_mask).nonzero().squeeze(1).numpy()
    A = graph.to_scipy().toarray() > 0
    if isinstance(level, Edge):
        u, v = rng.choice(graph.train_mask.nonzero().squeeze(1).numpy(), 2, replace=False)
        before, after = A.copy(), A.copy()
        ends = [(u, v), (v, u)] if level.unit == "undirected" or not graph.directed else [(u, v)]
        for i, j in ends:
            before[i, j], after[i, j] = False, True
        return AdjacentGraphs(with_links(graph, *np.nonzero(before)), with_links(graph, *np.nonzero(after)), None)
    own = int(places[0])  # any would do; mistakes that shift rows show most at the first one
    if validation:
        return AdjacentGraphs(_with_label(graph, own, 0), _with_label(graph, own, 1), own)
    A[own] = A[:, own] = False
    before, after = A.copy(), A.copy()
    old, new = _neighborhoods(A, level, own, graph, rng)
    before[own, old] = before[old, own] = True
    after[own, new] = after[new, own] = True
    first, second = with_links(graph, *np.nonzero(before)), with_links(graph, *np.nonzero(after))
    if protects_attributes(level):
        first, second = _with_attributes(first, own, 1.0), _with_attributes(second, own, -1.0)
        first = first.emptied(own) if is_zero_out(level) else first
    return AdjacentGraphs(first, second, own)


def small_part(graph: Graph, nodes: int, seed: int, *, most_links: int) -> Graph:
    """A part of the graph with at most this many nodes, and at most `most_links` links at a node.

    It is grown along links, and cut before the pair of graphs is made from it.
    """
    if graph.num_nodes > nodes:
        graph = _grown_part(graph, nodes, seed)
    if int(graph.train_mask.sum()) <= 5:
        graph = graph.with_split(seed)
    entries = graph.to_scipy().tocoo()
    source, target = (np.minimum(*entries.coords), np.maximum(*entries.coords))
    links = np.random.default_rng(seed).permutation(np.unique(np.column_stack([source, target]), axis=0))
    count = np.zeros(graph.num_nodes, dtype=int)
    kept = np.zeros((graph.num_nodes,) * 2, dtype=bool)
    for u, v in links:
        if count[u] < most_links and count[v] < most_links:
            kept[u, v] = kept[v, u] = True
            count[[u, v]] += 1
    return with_links(graph, *np.nonzero(kept & (graph.to_scipy().toarray() > 0)))


def _grown_part(graph: Graph, nodes: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    A = graph.to_scipy()
    A = A + A.T
    keep = np.zeros(graph.num_nodes, dtype=bool)
    waiting: list[int] = []
    while keep.sum() < nodes:
        if not waiting:
            waiting.append(int(rng.choice(np.flatnonzero(~keep))))
        node = waiting.pop(0)
        if keep[node]:
            continue
        keep[node] = True
        near = A.indices[A.indptr[node] : A.indptr[node + 1]]
        waiting.extend(int(i) for i in rng.permutation(near)[:4])
    return graph.subgraph(keep)


def _neighborhoods(
    A: np.ndarray, level: Level, own: int, graph: Graph, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The node's neighbours before and after: training nodes first, and none beyond the promised degree."""
    others = rng.permutation(np.delete(np.arange(len(A)), own))
    others = others[np.argsort(~graph.train_mask.numpy()[others], kind="stable")]
    if isinstance(level, KNeighbor):
        return others[:0], others[: level.k]
    if not isinstance(level, Node):
        raise InvalidInput("level", level, "has no adjacent graphs to tell apart")
    room = others[A.sum(0)[others] < level.max_degree]
    if is_zero_out(level):
        return room[:0], room[: level.max_degree]
    count = min(level.max_degree, len(room) // 2)
    return room[:count], room[count : 2 * count]


def with_links(graph: Graph, source: np.ndarray, target: np.ndarray) -> Graph:
    """The same nodes with these stored entries of A.

    Entries that were there keep their weights and relations; others count fully, in the first relation.
    """
    wanted = sp.csr_array((np.ones(len(source), dtype=np.float32), (source, target)), shape=(graph.num_nodes,) * 2)
    kept = sp.csr_array(graph.to_scipy().multiply(wanted))
    fresh = sp.csr_array(wanted - kept.astype(bool).astype(np.float32))
    fresh.eliminate_zeros()
    links, relations = sp.csr_array(kept + fresh), graph.relations
    links.sort_indices()
    if relations is not None:
        first, *others = (sp.csr_array(matrix.multiply(wanted)) for matrix in relations.matrices())
        relations = Relations(relations.names, stack([first + fresh, *others]))
    weights = None if graph.weights is None else links.data
    return graph.replace(indptr=links.indptr, indices=links.indices, weights=weights, relations=relations, counts=None)


def _with_attributes(graph: Graph, own: int, sign: float) -> Graph:
    given = graph.features
    features = given.clone() if isinstance(given, torch.Tensor) else torch.from_numpy(given.toarray())
    length = _LENGTH * float(features.norm(dim=1).mean())
    direction = torch.ones(features.shape[1]) / features.shape[1] ** 0.5
    features[own] = sign * length * direction
    return _with_label(graph.replace(features=features), own, 0 if sign > 0 else 1)


def _with_label(graph: Graph, own: int, label: int) -> Graph:
    labels = graph.labels.clone()
    labels[own] = label
    return graph.replace(labels=labels)


def _only_validation_node(graph: Graph, rng: np.random.Generator) -> Graph:
    labelled = (graph.val_mask | graph.test_mask).nonzero().squeeze(1).numpy()
    if not len(labelled):
        raise InvalidInput("val_mask", 0, "this attack needs a validation node")
    chosen = int(rng.choice(labelled))
    val, test = torch.zeros_like(graph.val_mask), graph.test_mask | graph.val_mask
    val[chosen], test[chosen] = True, False
    return graph.replace(val_mask=val, test_mask=test)


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
