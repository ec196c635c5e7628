"""Whether a graph pays: a small private measurement of what neighbours say about nodes that features get wrong.

docs/theory.md, section 5.5, has the sensitivity. The rule was chosen on Wisconsin87, CiteSeer, Actor and cSBM graphs.
"""

from __future__ import annotations

import numpy as np
import torch

from graphveil.accounting import RandomizedResponse
from graphveil.levels import Level, Node
from graphveil.methods.estimator import Inputs
from graphveil.plan import Plan, Responses
from graphveil.sensitivity import COUNTED_DEGREE

# Accuracy that the graph must promise to add before it gets a part of the budget: less is lost with that part.
_WORTH_IT = 0.045
# Standard deviations that do not count on a directed graph, where they grow with k and nothing else restrains them.
_DIRECTED_DOUBT = 2


def neighbor_margins(data: Inputs, opinions: torch.Tensor, level: Level) -> torch.Tensor:
    """Sums over training nodes i and the training nodes j that they read; e_i is 1 where features are wrong about i.

    (sum of e_i,  sum of w_ij e_i ([j has i's label] - [j has the label guessed for i]),  sum of w_ij e_i,
    sum of min(1, degree / m)), with weights w_ij that let no node count for more than 1 in its row and its column.
    """
    train = data.target.train
    labels = data.target.labels[train].cpu().numpy()
    guessed = opinions[train].argmax(1).cpu().numpy()
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
    sums = [wrong.sum(), (weights * votes).sum(), weights.sum(), np.minimum(1, reads / most).sum()]
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
    return torch.tensor([wrong.sum(), votes.sum(), len(readers)], dtype=torch.float64)


def _share(votes: np.ndarray, others: np.ndarray) -> np.ndarray:
    return votes / others


def graph_pays(sums: torch.Tensor, plan: Plan) -> bool:
    """Whether neighbours of wrongly guessed nodes vote, for their label or against it, more loudly than Z's noise.

    Post-processing of the released `sums`. What the noise of `sums` could explain does not count.
    """
    choice = plan["choice"]
    wrong, votes, weight = sums.tolist()[:3]
    doubt = choice.noise * (_DIRECTED_DOUBT if plan.facts.directed else 1)
    margin = min(1.0, max(0.0, abs(votes) - doubt) / max(weight, choice.noise))
    heard = 1.0 if plan.facts.directed else _heard(margin, float(sums[3]), plan)
    return wrong / plan.facts.train_nodes * margin * min(1.0, heard) > _WORTH_IT


def _heard(margin: float, degrees: float, plan: Plan) -> float:
    """What neighbours say together, against the noise of Z."""
    release, labels = plan["release"], plan["labels"]
    assert isinstance(labels, Responses)
    most = plan.level.max_degree if isinstance(plan.level, Node) else COUNTED_DEGREE
    degree = max(0.0, most * degrees / plan.facts.train_nodes)
    classes = labels.classes
    truth = RandomizedResponse(labels.epsilon, classes).truth_probability
    return margin * degree * (truth * classes - 1) / (classes - 1) / release.noise
