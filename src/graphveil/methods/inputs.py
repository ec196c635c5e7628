"""A graph as the methods read it: tensors and sparse rows on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.execution.exact import Arithmetic, column_totals
from graphveil.execution.sparse_rows import CsrRows, KeptRows, Rows, SparseRows
from graphveil.graph import GraphView
from graphveil.graph.links import total
from graphveil.methods.feature_neighbors import votes_of_feature_neighbors
from graphveil.methods.scales import with_scales
from graphveil.methods.training import Target

# Dense rows of a smaller norm are scaled in two steps.
_TINY = 2.0**-100
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
        raise InvalidInput(field, type(nodes).__name__, "must be row numbers, a mask, or ids as text") from None
    if index.dtype == torch.bool:
        if index.shape != (count,):
            raise InvalidInput(field, tuple(index.shape), f"a mask must have {count} entries")
        return index.nonzero().squeeze(1)
    if index.dtype not in _WHOLE or index.layout != torch.strided:
        raise InvalidInput(field, str(index.dtype), "must be row numbers or a mask")
    if index.ndim > 1 and index.numel() != len(index):  # what `mask.nonzero()` gives is a list too
        raise InvalidInput(field, tuple(index.shape), "must be one list of row numbers")
    index = index.reshape(-1).long()
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= count):
        wrong = next(int(i) for i in index if not 0 <= int(i) < count)
        advice = f"; ids are given as text, such as '{wrong}'" if field == "nodes" else ""
        raise InvalidInput(field, wrong, f"must lie in 0 .. {count - 1}{advice}")
    return index
