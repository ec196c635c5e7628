"""Whether a directed graph pays: what nodes that link to the same node say (docs/theory.md, section 5.7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from graphveil.methods import defaults
from graphveil.methods.inputs import Inputs
from graphveil.privacy.lattice import count_step
from graphveil.privacy.plan import Plan


def exact_sums(terms: Sequence[np.ndarray], train_nodes: int) -> torch.Tensor:
    """The sum of each array, whose sizes add up to `train_nodes` at most: rounded towards zero, then added in int64."""
    step = count_step(train_nodes)
    sums = [float(np.trunc(each / step).astype(np.int64).sum()) * step for each in terms]
    return torch.tensor(sums, dtype=torch.float64)


def co_reader_margins(data: Inputs, opinions: torch.Tensor) -> torch.Tensor:
    """Sums over training nodes that read the same: every training node is in the group of one node that it reads.

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


def co_readers_pay(sums: torch.Tensor, plan: Plan) -> bool:
    """Whether those who read the same as a wrongly guessed node agree or disagree with it clearly enough.

    Post-processing of the released `co_reader_margins`. What the noise of `sums` could explain does not count.
    """
    wrong, votes, weight = sums.tolist()
    noise = plan["choice"].noise
    margin = min(1.0, max(0.0, abs(votes) - defaults.DIRECTED_DOUBT * noise) / max(weight, noise))
    return wrong * margin > defaults.DIRECTED_WORTH_IT * plan.facts.train_nodes
