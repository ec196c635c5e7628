"""Attacks that use predictions alone: stealing links, and finding out who was in the training set.

They give no bound on epsilon. AUC 0.5 is a coin toss; the true-positive rate at 0.1 % false positives says whether a
few can be found with near certainty (Carlini et al. 2022, arXiv:2112.03570, section II).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from graphveil.auditing.adjacent import with_links
from graphveil.auditing.bounds import Scores
from graphveil.auditing.recording import MakeModel, answers_elsewhere, recorded_fit
from graphveil.execution import Ledger, MakeLedger
from graphveil.graph import Graph
from graphveil.methods.baselines import SAGE
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.levels import Edge, Level, Public

FALSE_POSITIVES = 1e-3
_MOST_PAIRS = 5000
_INFLUENCERS = 40


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
