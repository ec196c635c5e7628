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


def graph_pays(sums: torch.Tensor, plan: Plan) -> bool:
    """Whether neighbours of wrongly guessed nodes vote, for their label or against it, more loudly than Z's noise.

    Post-processing of the released `sums`. What the noise of `sums` could explain does not count.
    """
    choice, release, labels = plan["choice"], plan["release"], plan["labels"]
    assert isinstance(labels, Responses)
    wrong, votes, weight, degrees = sums.tolist()
    most = plan.level.max_degree if isinstance(plan.level, Node) else COUNTED_DEGREE
    margin = min(1.0, max(0.0, abs(votes) - choice.noise) / max(weight, choice.noise))
    degree = max(0.0, most * degrees / plan.facts.train_nodes)
    classes = labels.classes
    truth = RandomizedResponse(labels.epsilon, classes).truth_probability
    heard = margin * degree * (truth * classes - 1) / (classes - 1) / release.noise
    return wrong / plan.facts.train_nodes * margin * min(1.0, heard) > _WORTH_IT
