"""A graph as the methods read it: tensors and sparse rows on a device, and which nodes have similar features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional

from graphveil.errors import InvalidInput
from graphveil.execution.exact import Arithmetic, column_totals, product
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseRows, dense
from graphveil.graph import GraphView
from graphveil.graph.links import total
from graphveil.methods import defaults
from graphveil.methods.networks import log_probabilities, normalize_rows
from graphveil.methods.scales import with_scales
from graphveil.methods.training import KeptRows, Target

# Dense rows of a smaller norm are scaled in two steps.
_TINY = 2.0**-100
# How many similarities are computed at most. Where there would be more, only a part of the training nodes votes.
_PAIRS = 2**31
# Rows and voters of one block of similarities: 64 MiB.
_ROWS, _VOTERS = 2**14, 2**10
# Rows whose lengths are computed at a time.
_ROWS_AT_ONCE = 2**16
# The types of tensors that hold row numbers.
_WHOLE = (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64)


class Inputs:
    """A graph as the methods read it, on their device."""

    def __init__(
        self,
        graph: GraphView,
        adjacency: sp.csr_array,
        device: str,
        sparse: bool | None = None,
        feature_norm: float | None = None,
        scales: torch.Tensor | None = None,
    ) -> None:
        self.nodes, self.classes, self.class_names = graph.num_nodes, graph.num_classes, graph.class_names
        several = adjacency.shape[0] > adjacency.shape[1]
        # What is read of each relation, one below the other; None: there is one graph.
        self.relations: SparseRows | None = CsrRows(adjacency, device) if several else None
        self.adjacency: SparseRows = CsrRows(total(adjacency) if several else adjacency, device)
        self.features = _features(graph, device, sparse, feature_norm, scales)
        self.features_of = KeptRows(self.features)
        self.target = Target(
            graph.labels.to(device),
            graph.train_mask.nonzero().squeeze(1).to(device),
            graph.val_mask.nonzero().squeeze(1).to(device),
        )

    def product(self, arithmetic: Arithmetic, table: torch.Tensor) -> torch.Tensor:
        """A W in float64; of several relations side by side, [A^1 W | ... | A^R W]."""
        if self.relations is None:
            return arithmetic.product(self.adjacency, table)
        return side_by_side(arithmetic.product(self.relations, table), self.nodes)

    def feature_neighbors(self) -> torch.Tensor:
        """Votes of training nodes with similar features, of labels as they are: for public attributes."""
        return votes_of_feature_neighbors(self.features, self.target, self.classes)

    def mean(self, rows: torch.Tensor) -> torch.Tensor:
        """Over all rows of a table."""
        return (self.total(rows) / self.count(rows)).float()

    def count(self, rows: torch.Tensor) -> int:
        """How many rows a table has, all of them together."""
        return len(rows)

    def total(self, rows: torch.Tensor) -> torch.Tensor:
        """The sum of all rows of a table, in float64."""
        return self.target.total(column_totals(rows.float(), self.count(rows), self.target.largest))

    def longest(self, rows: torch.Tensor) -> torch.Tensor:
        """The largest norm of a table's rows."""
        return rows.norm(dim=1).max()


def side_by_side(stacked: torch.Tensor, nodes: int) -> torch.Tensor:
    """Blocks of this many rows, one below the other, put side by side."""
    return stacked.unflatten(0, (-1, nodes)).transpose(0, 1).reshape(nodes, -1)


def _features(
    graph: GraphView, device: str, sparse: bool | None, norm: float | None, scales: torch.Tensor | None
) -> Rows:
    """Features as rows of a linear layer: as the graph stores them, sparse or dense, or as `sparse` says.

    With `scales` columns of raw numbers are brought to one scale; then with `norm` each row is scaled to this norm.
    Both are functions of the row alone, and of what was released.

    How they are stored is the owner's choice. To measure how many entries are filled would let one node's features
    decide by which routine the others' are multiplied, and that shows in the last bits.
    """
    features = graph.features if scales is None else with_scales(graph.features, scales)
    features = features if norm is None else rows_of_norm(features, norm)
    if graph.num_features == 0:  # neither, so the layers that read nothing are the ordinary ones
        return torch.zeros(int(features.shape[0]), 0, device=device)
    if isinstance(features, torch.Tensor):
        return CsrRows(sp.csr_array(features.numpy()), device) if sparse else features.to(device)
    return CsrRows(features, device) if sparse is not False else dense_rows(features.toarray()).to(device)


def rows_of_norm(features: torch.Tensor | sp.csr_array, norm: float) -> torch.Tensor | sp.csr_array:
    """Each row scaled to this norm; a zero row stays zero. What a row becomes depends on this row alone."""
    if isinstance(features, torch.Tensor):
        # Some rows at a time: torch copies them to float64.
        blocks = features.split(_ROWS_AT_ONCE)
        lengths = torch.cat([torch.linalg.vector_norm(block, dim=1, dtype=torch.float64) for block in blocks])
        factors = torch.where(lengths > 0, norm / lengths, 0.0)
        # The factor of a tiny row is beyond float32: such a row is lifted first.
        lifted = torch.where(lengths < _TINY, 1 / _TINY, 1.0)
        return (features * lifted.float()[:, None]).mul_((factors / lifted).float()[:, None])
    values = features.data.astype(np.float64)
    counts = np.diff(features.indptr)
    filled = counts > 0
    norms = np.zeros(features.shape[0])
    norms[filled] = np.sqrt(np.add.reduceat(values**2, features.indptr[:-1][filled])) if len(values) else 0.0
    scale = np.divide(norm, norms, out=np.zeros_like(norms), where=norms > 0)
    scaled = (values * np.repeat(scale, counts)).astype(np.float32)
    return sp.csr_array((scaled, features.indices, features.indptr), shape=features.shape)


def dense_rows(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


def node_index(nodes: Any, count: int, field: str = "nodes") -> torch.Tensor:
    """Node indices from a number, a mask, a list or an array, checked; errors name `field`."""
    try:
        if isinstance(nodes, Sequence):
            nodes = np.asarray(nodes) if len(nodes) else np.zeros(0, np.int64)
        index = torch.as_tensor(nodes).cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        what = "row numbers, a mask, or ids as text" if field == "nodes" else "lists of row numbers"
        raise InvalidInput(field, type(nodes).__name__, f"must be {what}") from None
    if index.dtype == torch.bool:
        if index.shape != (count,):
            raise InvalidInput(field, tuple(index.shape), f"a mask must have {count} entries")
        return index.nonzero().squeeze(1)
    if index.dtype not in _WHOLE or index.layout != torch.strided:
        raise InvalidInput(field, str(index.dtype), "must be row numbers" + " or a mask" * (field == "nodes"))
    if index.ndim > 1 and index.numel() != len(index):  # what `mask.nonzero()` gives is a list too
        raise InvalidInput(field, tuple(index.shape), "must be one list of row numbers")
    index = index.reshape(-1).long()
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= count):
        wrong = next(int(i) for i in index if not 0 <= int(i) < count)
        advice = f"; ids are given as text, such as '{wrong}'" if field == "nodes" else ""
        raise InvalidInput(field, wrong, f"must lie in 0 .. {count - 1}{advice}")
    return index


@torch.no_grad()
def votes_of_feature_neighbors(features: Rows, target: Target, classes: int) -> torch.Tensor:
    """How much more of each class there is, as a logarithm, among the training nodes that are like a node.

    Votes count by squared cosine similarity, columns by inverse document frequency. No node votes about itself. Where
    several processes have the nodes, each compares its own with the voters of all. Only labels and features are read,
    so the votes cost nothing where these are public. They help a classifier of features with nodes that few others
    resemble; chosen on CiteSeer, Actor and Wisconsin87.
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
