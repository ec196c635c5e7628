"""Whether a graph pays: a small private measurement of what neighbours say about nodes that features get wrong, and
of what features would gain from more budget.

docs/theory.md, sections 5.5 and 5.6, has the sensitivities; `defaults` has the numbers of the rule.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch

from graphveil.execution.sparse_rows import Rows
from graphveil.methods import defaults
from graphveil.methods.inputs import Inputs
from graphveil.methods.signal_to_noise import chance_beyond_guessing, signal_to_noise
from graphveil.privacy.lattice import count_step
from graphveil.privacy.levels import Level, Node
from graphveil.privacy.plan import Plan
from graphveil.privacy.sensitivity import COUNTED_DEGREE, neighbor_margin_units


@torch.no_grad()
def with_more_noise(model: torch.nn.Module, features: Rows, spread: float) -> list[torch.Tensor]:
    """What copies of `model` say that have the noise in their weights twice; its standard deviation is `spread`.

    Post-processing. Which noise is public, so that a fit that is taken up again sees the same.
    """
    source, predictions = torch.Generator().manual_seed(0), []
    for _ in range(defaults.NOISIER_COPIES):
        noisier = copy.deepcopy(model)
        for weights in noisier.parameters():
            weights.add_(torch.randn(weights.shape, generator=source).to(weights.device), alpha=spread)
        predictions.append(noisier(features))
    return predictions


def neighbor_margins(
    data: Inputs, opinions: torch.Tensor, noisier: Sequence[torch.Tensor], level: Level
) -> torch.Tensor:
    """Sums over training nodes i and the training nodes j that they read; e_i is 1 where features are wrong about i.

    (sum of e_i,  sum of i's share of `noisier` opinions that are wrong,
    sum of w_ij e_i ([j has i's label] - [j has the label guessed for i]),  sum of w_ij e_i,
    sum of min(1, degree / m)), with weights w_ij that let no node count for more than 1 in its row and its column.
    In the units of `sensitivity.neighbor_margin_units`.
    """
    train = data.target.train
    labels = data.target.labels[train].cpu().numpy()
    guessed, *others = (each[train].argmax(1).cpu().numpy() for each in (opinions, *noisier))
    links = data.adjacency[train].matrix[:, train.cpu().numpy()].tocoo()
    i, j = links.coords
    reads = np.bincount(i, minlength=len(labels))
    if isinstance(level, Node):
        most = level.max_degree
        weights = 1 / np.maximum(reads, most)[i]
    else:
        most = COUNTED_DEGREE
        weights = np.minimum(1 / reads[i], 1 / np.bincount(j, minlength=len(labels))[j])
    wrong = labels != guessed
    votes = (labels[j] == labels[i]).astype(float) - (labels[j] == guessed[i])
    weights = weights * wrong[i]
    wrong_noisier = np.mean([labels != other for other in others], axis=0)
    degrees = np.minimum(1, reads / most)
    terms = (wrong, wrong_noisier, weights * votes, weights, degrees)
    units = torch.tensor(neighbor_margin_units(level), dtype=torch.float64)
    return exact_sums(terms, len(labels)) / units


def exact_sums(terms: Sequence[np.ndarray], train_nodes: int) -> torch.Tensor:
    """The sum of each array, whose sizes add up to `train_nodes` at most: rounded towards zero, then added in int64."""
    step = count_step(train_nodes)
    sums = [float(np.trunc(each / step).astype(np.int64).sum()) * step for each in terms]
    return torch.tensor(sums, dtype=torch.float64)


def co_reader_margins(data: Inputs, opinions: torch.Tensor) -> torch.Tensor:
    """The same of nodes that read the same: every training node is in the group of one node that it reads.

    (sum of e_i,  sum of e_i (share of its group with i's label - share with the label guessed for i),  sum of e_i),
    the last two over groups of at least two. Which of the nodes it reads is by a lot that was drawn once for all.
    """
    train = data.target.train.cpu().numpy()
    labels = data.target.labels.cpu().numpy()[train]
    guessed = opinions.argmax(1).cpu().numpy()[train]
    reads = data.adjacency.matrix[train]
    lots = np.random.default_rng(0).permutation(data.nodes)
    readers = np.flatnonzero(np.diff(reads.indptr))
    first = np.minimum.reduceat(lots[reads.indices], reads.indptr[readers]) if len(readers) else readers
    counts = np.zeros((data.nodes, data.classes))
    np.add.at(counts, (first, labels[readers]), 1)
    others = counts[first].sum(1) - 1
    wrong = labels != guessed
    counted = wrong[readers] & (others > 0)
    readers, first, others = readers[counted], first[counted], others[counted]
    votes = _share(counts[first, labels[readers]] - 1 - counts[first, guessed[readers]], others)
    return exact_sums((wrong, votes, np.ones(len(readers))), len(labels))


def _share(votes: np.ndarray, others: np.ndarray) -> np.ndarray:
    return votes / others


def neighbors_pay(sums: torch.Tensor, plan: Plan) -> bool:
    """Whether neighbours of wrongly guessed nodes promise more than the same budget would give to features.

    Post-processing of the released `neighbor_margins`. Neighbours promise what their votes, for a label or against it,
    raise above Z's noise; the votes that the noise of `sums` could explain do not count. Features promise to get rid of
    what noise in their weights costs, seen by how much worse they are with that noise twice.
    """
    units = neighbor_margin_units(plan.level)
    released = (unit * each for unit, each in zip(units, sums.tolist(), strict=True))
    wrong, wrong_noisier, votes, weight, degrees = released
    doubt, doubt_of_weight = units[2] * plan["choice"].noise, units[3] * plan["choice"].noise
    margin = min(1.0, max(0.0, abs(votes) - doubt) / max(weight, doubt_of_weight))
    nodes, classes, epsilon = plan.facts.train_nodes, plan.facts.classes, plan.epsilon
    most = plan.level.max_degree if isinstance(plan.level, Node) else COUNTED_DEGREE
    wrong = max(wrong, 1.0)
    ratio = margin * signal_to_noise(plan, most * max(0.0, degrees) / nodes)
    from_neighbors = wrong * chance_beyond_guessing(ratio, classes)
    rate = defaults.FEATURE_GAIN / math.sqrt(epsilon)
    from_features = wrong * (1 - math.exp(-rate * max(0.0, wrong_noisier - wrong) / wrong))
    return from_neighbors - from_features > defaults.WORTH_IT / epsilon * nodes


def co_readers_pay(sums: torch.Tensor, plan: Plan) -> bool:
    """Whether those who read the same as a wrongly guessed node agree or disagree with it clearly enough.

    Post-processing of the released `co_reader_margins`. What the noise of `sums` could explain does not count.
    """
    wrong, votes, weight = sums.tolist()
    noise = plan["choice"].noise
    margin = min(1.0, max(0.0, abs(votes) - defaults.DIRECTED_DOUBT * noise) / max(weight, noise))
    return wrong * margin > defaults.DIRECTED_WORTH_IT * plan.facts.train_nodes
