"""DP-SAGE: clipped training over neighbourhoods of bounded degree, and noisy aggregation at inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from graphveil.errors import InvalidInput
from graphveil.execution import LedgerLike
from graphveil.execution.rowwise import Linear, selu
from graphveil.execution.sparse_rows import KeptRows, Rows, SparseRows, dense
from graphveil.graph.graph import Direction
from graphveil.methods import dp_sage_plan
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import normalize_rows
from graphveil.methods.spending import Spend
from graphveil.privacy.mechanisms import Role
from graphveil.privacy.plan import Plan


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
    spend: ClassVar[Spend] = staticmethod(dp_sage_plan.spend)
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
        del like  # unit rows are dense
        return {"model": OneLayerSage(plan.facts.features, self.hidden, plan.facts.classes)}

    def owner_parts(self, plan: Plan) -> dict[str, torch.Tensor]:
        return {"released": torch.empty(plan.facts.nodes, plan.facts.features)}

    def recall(self, data: Inputs | None) -> None:
        self._features = None if data is None else self._unit_rows(data.features)

    def logits_on(self, data: Inputs) -> torch.Tensor:
        X = self._unit_rows(data.features)
        return self._model(X, normalize_rows(data.adjacency.times(X)))

    def logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        del from_graph  # neighbours' features are private whoever names the neighbours
        if self._features is None:
            raise InvalidInput("graph", None, "new nodes read their neighbours; load the model with its training graph")
        summed = self._ledger.release_new_rows("aggregation", self.arithmetic.product(rows, self._features))
        return self._model(self._unit_rows(features), normalize_rows(summed))

    def _unit_rows(self, features: Rows) -> torch.Tensor:
        """Dense rows of norm 1, on the lattice of their sums."""
        return self.arithmetic.table(dense(features), 1.0, self._ledger.plan.facts.terms, stretch=True)
