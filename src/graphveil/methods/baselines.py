"""Baselines: the MLP, which never reads the graph, and GraphSAGE.

MLP is DP-MLP where features and labels are private. GraphSAGE comes without protection, on randomised edges (RandEdge)
and with clipped training (DP-SAGE).
"""

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
from graphveil.execution.exact import Linear, linear, selu
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseRows, dense
from graphveil.graph.graph import Direction
from graphveil.methods import baseline_plans
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import Dropout, Perceptron, normalize_rows
from graphveil.methods.spending import Spend
from graphveil.methods.training import KeptRows
from graphveil.privacy.levels import Public
from graphveil.privacy.mechanisms import Role
from graphveil.privacy.plan import Plan


@dataclass(eq=False)
class MLP(NodeClassifier):
    """A perceptron with two hidden layers on features alone, the paper's baseline that never reads the graph.

    Formal guarantee: at levels that protect attributes, clipped training with group 1 (DP-MLP). At other levels the
    model does not depend on what is protected, and epsilon is 0.
    """

    method: ClassVar[str] = "mlp"
    spend: ClassVar[Spend] = staticmethod(baseline_plans.spend_mlp)
    divides: ClassVar[bool] = True
    reads_graph: ClassVar[bool] = False

    def degree_bound(self, plan: Plan) -> int | None:
        """It never reads the graph, so no promise about it is needed."""
        del plan
        return None

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        private = "head" in ledger.used
        model = self._network(data.features, data.classes, dropout=0.0 if private else self.dropout)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return model(data.features_of(rows))

        self._train(model, logits, data, ledger, "head")
        self._model = model
        with torch.no_grad():
            return model(data.features)

    def _network(self, like: Rows, classes: int, dropout: float = 0.0) -> Perceptron:
        return Perceptron(like, [self.hidden, self.hidden, classes], dropout)

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, torch.nn.Module | torch.Tensor]:
        return {"model": self._network(like, plan.facts.classes)}

    def logits_on(self, data: Inputs) -> torch.Tensor:
        return self._model(data.features)

    def logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        return self._model(features)


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
    spend: ClassVar[Spend] = staticmethod(baseline_plans.spend_sage)
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
    spend: ClassVar[Spend] = staticmethod(baseline_plans.spend_randedge)

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        if isinstance(self.level, Public):
            return super()._fit(data, ledger)
        paired = not ledger.plan.facts.directed
        return self._fit_on(data, randomized_edges(data.adjacency.matrix, ledger, "edges", paired=paired))


class OneLayerSage(nn.Module):
    """A node's own features and its neighbours' sum, each through a linear map, then a classifier."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.own, self.read = Linear(inputs, width), Linear(inputs, width)
        self.out = Linear(width, classes)

    def forward(self, own: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        return self.out(selu(self.own(own) + self.read(read)))


@dataclass(eq=False)
class DPSAGE(NodeClassifier):
    """DP-SAGE (Daigavane et al. 2021) with one layer, with noise on the aggregation at inference as in the paper.

    Features are scaled to unit rows, so that a node moves a sum of neighbours by a bounded amount. Training reads the
    sums without noise, inside clipped gradients. Inference reads them once, with noise.

    Formal guarantee: clipped training with a group of all rows that can read the replaced node (2 D + 1 at node level,
    D = `max_degree`), and one Gaussian release of A X with unit rows X, of sensitivity 2 sqrt(D).
    """

    method: ClassVar[str] = "dp-sage"
    direction: ClassVar[Direction] = "in"
    joins: ClassVar[Role | None] = "aggregation"
    spend: ClassVar[Spend] = staticmethod(baseline_plans.spend_dp_sage)
    sums_attributes: ClassVar[bool] = True

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        X = self._unit_rows(data.features)
        summed = self.arithmetic.product(data.adjacency, X)
        read = normalize_rows(summed.float())
        model = OneLayerSage(int(X.shape[1]), self.hidden, data.classes)

        X_of, read_of = KeptRows(X), KeptRows(read)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return model(X_of(rows), read_of(rows))

        self._train(model, logits, data, ledger, "gradient")
        self._features: torch.Tensor | None
        self._model, self._features = model, X
        self._released = normalize_rows(ledger.release("aggregation", summed))
        with torch.no_grad():
            return model(X, self._released)

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, nn.Module | torch.Tensor]:
        del like  # rows are made dense, however features are stored
        return {"model": OneLayerSage(plan.facts.features, self.hidden, plan.facts.classes)}

    def owner_parts(self, plan: Plan) -> dict[str, torch.Tensor]:
        return {"released": torch.empty(plan.facts.nodes, plan.facts.features)}

    def recall(self, data: Inputs | None) -> None:
        self._features = None if data is None else self._unit_rows(data.features)

    def logits_on(self, data: Inputs) -> torch.Tensor:
        X = self._unit_rows(data.features)
        return self._model(X, normalize_rows(data.adjacency.times(X)))

    def logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        del from_graph  # the features of neighbours are private in any case
        if self._features is None:
            raise InvalidInput("graph", None, "new nodes read their neighbours; load the model with its training graph")
        summed = self._ledger.release_new_rows("aggregation", self.arithmetic.product(rows, self._features))
        return self._model(self._unit_rows(features), normalize_rows(summed))

    def _unit_rows(self, features: Rows) -> torch.Tensor:
        """Dense rows of norm 1, on the lattice of their sums."""
        return self.arithmetic.table(dense(features), 1.0, self._ledger.plan.facts.terms, stretch=True)


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
