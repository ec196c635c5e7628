"""MLP on features alone, and DP-MLP where features and labels are private."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from graphveil.execution import LedgerLike
from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.methods import baseline_plans
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import Perceptron
from graphveil.methods.spending import Spend
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
