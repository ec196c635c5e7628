"""MLP on features alone, and DP-MLP where features and labels are private."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from graphveil.mechanisms import Ledger
from graphveil.methods.estimator import NodeClassifier, _Data
from graphveil.methods.networks import Perceptron


@dataclass(eq=False)
class MLP(NodeClassifier):
    """F -> 64 -> 64 -> C, the paper's baseline that never reads the graph.

    Formal guarantee: at levels that protect attributes, the head's clipped training with group 1; at others the
    model does not depend on what is protected and epsilon is 0.
    """

    method: ClassVar[str] = "mlp"

    def _fit(self, data: _Data, ledger: Ledger) -> torch.Tensor:
        private = "head" in ledger.used
        widths = [self.hidden, self.hidden, data.classes]
        model = Perceptron(data.features, widths, dropout=0.0 if private else self.dropout)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return model(data.features if rows is None else data.features[rows])

        self._train(model, logits, data, ledger, "head")
        with torch.no_grad():
            return model(data.features)
