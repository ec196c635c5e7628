"""DPDGC: a private table W of node embeddings, Z = A W + b + noise, and a head on [X | Z]."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from graphveil.mechanisms import Ledger
from graphveil.methods.estimator import NodeClassifier, _Data
from graphveil.methods.networks import Embedding, LinkxHead, normalize_rows
from graphveil.methods.plans import Settings
from graphveil.methods.training import train_privately


@dataclass(eq=False)
class DPDGC(NodeClassifier):
    """The paper's model with a trained embedding (paper, algorithm 2, with the corrections of docs/theory.md).

    Node i reads the targets of its edges. Rows of W are held at norm `row_norm` after every step and once more before
    the release; b is added after the noise.

    Formal guarantee: clipped training of W with the level's group, a Gaussian release of A W with the level's
    sensitivity, clipped training of the head with group 1 (free at edge level, where Z is private in all rows).

    >>> from graphveil.graph import csbm
    >>> from graphveil.levels import KNeighbor
    >>> graph = csbm(0.5, n=300, f=8, seed=0)
    >>> model = DPDGC(level=KNeighbor(k=1), epsilon=8.0, seed=0, steps=5).fit(graph)
    >>> model.certificate_.epsilon <= 8.0
    True
    """

    row_norm: float = 1.0
    embedding_learning_rate: float = 0.01

    method: ClassVar[str] = "dpdgc"

    def _settings(self) -> Settings:
        return replace(super()._settings(), row_norm=self.row_norm)

    def _fit(self, data: _Data, ledger: Ledger) -> torch.Tensor:
        Z = self._embed(data, ledger)
        head = LinkxHead(data.features, self.hidden, data.classes, 0.0 if "head" in ledger.used else self.dropout)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return head(data.features, Z) if rows is None else head(data.features[rows], Z[rows])

        self._train(head, logits, data, ledger, "head")
        with torch.no_grad():
            return logits(None)

    def _embed(self, data: _Data, ledger: Ledger) -> torch.Tensor:
        """Z for all nodes, released once; everything after it reads this tensor and never A again."""
        private = "embedding" in ledger.used
        model = Embedding(data.nodes, self.hidden, data.classes, 0.0 if private else self.dropout).to(self.device)
        layer = model.layer

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return model(data.adjacency if rows is None else data.adjacency[rows])

        if not private:
            self._train_freely(model, logits, data, "embedding")
            with torch.no_grad():
                return layer(data.adjacency)

        @torch.no_grad()
        def hold_norms() -> None:
            layer.weight.copy_(normalize_rows(layer.weight, self.row_norm))

        hold_norms()
        train_privately(
            model,
            logits,
            data.target,
            ledger,
            "embedding",
            learning_rate=self.embedding_learning_rate,
            show=self.show_progress,
            after_step=hold_norms,
        )
        with torch.no_grad():
            # In double precision the norm is held to 1e-16; a hair below the bound absorbs what is left.
            W = normalize_rows(layer.weight.double(), self.row_norm * (1 - 1e-6)).float()
            released = ledger.release("release", data.adjacency.times(W))
            return normalize_rows(released + layer.bias)
