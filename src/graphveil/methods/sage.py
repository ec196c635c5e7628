"""GraphSAGE without protection, on the graph itself or on randomised edges (RandEdge)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from graphveil.errors import InvalidInput
from graphveil.execution import LedgerLike
from graphveil.execution.draws import randomized_edges
from graphveil.execution.rowwise import Linear, selu
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseRows, dense, linear
from graphveil.graph.graph import Direction
from graphveil.methods import sage_plan
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import Dropout
from graphveil.methods.spending import Spend
from graphveil.privacy.levels import Public
from graphveil.privacy.plan import Plan


class MeanSage(nn.Module):
    """Two SAGE layers: own features and the mean of the neighbours', each through a linear map, added.

    The first layer's means are taken of features and do not change: they are computed once.
    """

    def __init__(self, features: Rows, means: Rows, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.own, self.read = linear(features, width), linear(means, width)
        self.own_out, self.read_out = Linear(width, classes), Linear(width, classes)
        self.dropout = Dropout(dropout)

    def hidden(self, features: Rows, means: Rows) -> torch.Tensor:
        return self.dropout(selu(self.own(features) + self.read(means)))

    def forward(self, features: Rows, means: Rows, mean: SparseRows, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Logits of these rows, or of all."""
        h = self.hidden(features, means)
        own, mean = (h, mean) if rows is None else (h[rows], mean[rows])
        # Mapping before averaging is the same and moves fewer numbers.
        return self.own_out(own) + mean.product(self.read_out(h))


@dataclass(eq=False)
class SAGE(NodeClassifier):
    """GraphSAGE (Hamilton et al. 2017) with mean aggregation over the sources of a node's edges.

    Formal guarantee: none. It runs at level `Public()` only.
    """

    free_learning_rate: float = 0.003
    epochs: int = 300

    method: ClassVar[str] = "sage"
    spend: ClassVar[Spend] = staticmethod(sage_plan.spend_sage)
    direction: ClassVar[Direction] = "in"

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        del ledger
        return self._fit_on(data, data.adjacency.matrix)

    def _fit_on(self, data: Inputs, adjacency: sp.csr_array) -> torch.Tensor:
        inputs = _with_means(data.features, adjacency, self.device)
        model = MeanSage(inputs[0], inputs[1], self.hidden, data.classes, self.dropout).to(self.device)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            out: torch.Tensor = model(*inputs, rows)
            return out

        self._train_freely(model, logits, data.target, self.method)
        self._model = model
        self._inputs: tuple[Rows, Rows, SparseRows] | None = inputs
        with torch.no_grad():
            return logits(None)

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, nn.Module | torch.Tensor]:
        facts = plan.facts
        return {"model": MeanSage(like, torch.empty(0, facts.features), self.hidden, facts.classes, 0.0)}

    def recall(self, data: Inputs | None) -> None:
        self._inputs = None if data is None else _with_means(data.features, data.adjacency.matrix, self.device)

    @property
    def features_of_training(self) -> torch.Tensor:
        """Features of the training graph, dense."""
        return dense(self._training_inputs()[0])

    @torch.no_grad()
    def logits_with(self, features: torch.Tensor) -> torch.Tensor:
        """Logits of the training graph's nodes, if they had these features."""
        old, _, mean = self._training_inputs()
        rows: Rows = CsrRows(sp.csr_array(features.numpy())) if isinstance(old, SparseRows) else features
        out: torch.Tensor = self._model(rows, mean.times(features), mean)
        return out

    def _training_inputs(self) -> tuple[Rows, Rows, SparseRows]:
        if self._inputs is None:
            raise InvalidInput("graph", None, "new nodes read their neighbours; load the model with its training graph")
        return self._inputs

    def logits_on(self, data: Inputs) -> torch.Tensor:
        return self._model(*_with_means(data.features, data.adjacency.matrix, self.device))

    def logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        if self._ledger.used:
            raise InvalidInput("method", self.method, "cannot protect the links of new nodes; fit again with them")
        del from_graph
        old, means, _ = self._training_inputs()
        h = self._model.hidden(old, means)
        mean = CsrRows(_row_means(rows.matrix), self.device)
        own = self._model.hidden(features, _means(mean, old))
        return self._model.own_out(own) + mean.times(self._model.read_out(h))


@dataclass(eq=False)
class RandEdge(SAGE):
    """Randomised response on every possible edge, then GraphSAGE on the answer (Wu et al. 2022, LinkTeller).

    At epsilon 1 the answer has about 0.27 n^2 entries; memory is proportional to that number.

    Formal guarantee: pure epsilon-DP for each bit, at level `Edge` only. An undirected graph has one bit for each pair
    of nodes.
    """

    method: ClassVar[str] = "randedge"
    spend: ClassVar[Spend] = staticmethod(sage_plan.spend_randedge)

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        if isinstance(self.level, Public):
            return super()._fit(data, ledger)
        paired = not ledger.plan.facts.directed
        return self._fit_on(data, randomized_edges(data.adjacency.matrix, ledger, "edges", paired=paired))


def _with_means(features: Rows, adjacency: sp.csr_array, device: str) -> tuple[Rows, Rows, SparseRows]:
    mean = CsrRows(_row_means(adjacency), device)
    return features, _means(mean, features), mean


def _means(mean: SparseRows, features: Rows) -> Rows:
    """Means of neighbours' features, dense: they fill up even where features are sparse."""
    return mean.times(dense(features))


def _row_means(adjacency: sp.csr_array) -> sp.csr_array:
    sums = adjacency.sum(axis=1, dtype=np.float64)
    parts = adjacency.data / np.repeat(np.where(sums > 0, sums, 1.0), np.diff(adjacency.indptr))
    return sp.csr_array((parts.astype(np.float32), adjacency.indices, adjacency.indptr), shape=adjacency.shape)
