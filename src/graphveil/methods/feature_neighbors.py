"""What training nodes with similar features say about a node: labels and features only, so free where they are public.

A classifier by weights forgets single nodes; a node's closest companions say what it lost. Chosen on CiteSeer, Actor
and Wisconsin87.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional

from graphveil.execution.rowwise import product
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseRows, dense
from graphveil.methods import defaults
from graphveil.methods.networks import log_probabilities, normalize_rows
from graphveil.methods.training import Target

# Similarities that are computed at most: beyond, only every so many-th training node votes.
_PAIRS = 2**31
# Rows and voters of one block of similarities: 64 MiB.
_ROWS, _VOTERS = 2**14, 2**10


@torch.no_grad()
def votes_of_feature_neighbors(features: Rows, target: Target, classes: int) -> torch.Tensor:
    """How much more of each class there is, as a logarithm, among the training nodes that are like a node.

    They count by squared cosine similarity, columns by inverse document frequency. Nobody votes about itself. Where
    several processes have the nodes, each compares its own with the voters of all.
    """
    nodes = int(target.total(torch.tensor(len(target.labels))))
    unit = _unit_rows(features, nodes, target)
    every = -(-target.count * nodes // _PAIRS)
    mine = target.train[-target.first % every :: every]
    voters = target.gathered(mine + target.first_node)
    ballots = target.gathered(functional.one_hot(target.labels[mine], classes).float())
    own = torch.arange(len(unit), device=voters.device) + target.first_node
    summed = torch.zeros(len(unit), classes, device=voters.device)
    for some, votes in zip(voters.split(_VOTERS), ballots.split(_VOTERS), strict=True):
        here = some[(some >= target.first_node) & (some < target.first_node + len(unit))] - target.first_node
        compared = target.gathered(dense(unit[here])).T
        for block in range(0, len(unit), _ROWS):
            places = own[block : block + _ROWS]
            alike = _times(unit[places - target.first_node], compared)
            alike[places[:, None] == some] = 0
            summed[block : block + _ROWS] += product(alike.clamp_min_(0).square_(), votes)
    usual = (ballots.sum(0, dtype=torch.float64) / len(ballots)).float()
    summed += defaults.VOTE_PRIOR * usual
    return log_probabilities(summed / summed.sum(1, keepdim=True)) - log_probabilities(usual)


def _unit_rows(features: Rows, nodes: int, target: Target) -> Rows:
    """Rows of norm 1 after columns were weighted by 1 + log(nodes / nodes that have it)."""
    if isinstance(features, SparseRows):
        matrix = features.matrix
        here = np.bincount(matrix.indices, minlength=matrix.shape[1])
        weights = 1 + np.log(nodes / np.maximum(1, target.total(torch.from_numpy(here)).numpy()))
        weighted = sp.csr_array(matrix * weights)
        norms = np.maximum(1e-12, np.sqrt(weighted.power(2).sum(axis=1)))
        return CsrRows(sp.csr_array(weighted / norms[:, None]), features.device)
    having = target.total((features != 0).sum(0)).clamp_min(1)
    return normalize_rows(features * (1 + (nodes / having).log()))


def _times(rows: Rows, table: torch.Tensor) -> torch.Tensor:
    return rows.times(table) if isinstance(rows, SparseRows) else product(rows, table)
