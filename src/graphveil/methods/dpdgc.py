"""DPDGC: a private table W of node embeddings, Z = A W + b + noise, and a head on [X | Z]."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from graphveil.levels import Public
from graphveil.mechanisms import Ledger
from graphveil.mechanisms.sparse import Rows, SparseRows
from graphveil.methods.estimator import Inputs, NodeClassifier
from graphveil.methods.networks import Embedding, Fusion, LinkxHead, Perceptron, normalize_rows
from graphveil.methods.plans import Settings
from graphveil.methods.tables import clip_rows, make_table, shrunk_rows
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
    table: str = "trained"
    response_epsilon: float | None = None
    tau: float = 2.0

    method: ClassVar[str] = "dpdgc"

    def _settings(self) -> Settings:
        return replace(
            super()._settings(),
            row_norm=self.row_norm,
            table=self.table,
            response_epsilon=self.response_epsilon,
            tau=self.tau,
        )

    def _fit(self, data: Inputs, ledger: Ledger) -> torch.Tensor:
        self._ledger = ledger
        if self.table != "trained":
            return self._fit_with_table(data, ledger)
        Z = self._embed(data, ledger)
        head = LinkxHead(data.features, self.hidden, data.classes, 0.0 if "head" in ledger.used else self.dropout)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return head(data.features, Z) if rows is None else head(data.features[rows], Z[rows])

        self._train(head, logits, data, ledger, "head")
        self._head: torch.nn.Module = head
        with torch.no_grad():
            return logits(None)

    def _fit_with_table(self, data: Inputs, ledger: Ledger) -> torch.Tensor:
        """A table that is private without training, and a head that fuses what X and Z say about each class."""
        W = clip_rows(make_table(self.table, data, ledger, self.tau), self.row_norm * (1 - 1e-6))
        Z = self._finish(ledger.release("release", data.adjacency.times(W)))
        dropout = 0.0 if "features" in ledger.used else self.dropout
        features = Perceptron(data.features, [self.hidden, self.hidden, data.classes], dropout)

        def from_features(rows: torch.Tensor | None) -> torch.Tensor:
            return features(data.features if rows is None else data.features[rows])

        self._train(features, from_features, data, ledger, "features")
        with torch.no_grad():
            opinion = torch.log_softmax(from_features(None), dim=1)
        head = Fusion(data.classes, Z.shape[1])
        self._table, self._head = W, _TwoStage(features, head)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return head(opinion, Z) if rows is None else head(opinion[rows], Z[rows])

        self._train(head, logits, data, ledger, "head")
        with torch.no_grad():
            return logits(None)

    def _logits_on(self, data: Inputs) -> torch.Tensor:
        """W knows the training graph's nodes only: on another graph every node reads nobody it knows."""
        Z = self._finish(torch.zeros(data.nodes, self._table.shape[1], device=self.device))
        return self._head(data.features, Z)

    def _logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        """W is private already, so a row that the asker supplies needs no noise; one from the graph does."""
        summed = rows.times(self._table)
        if from_graph:
            summed = self._ledger.release_new_rows("release", summed)
        return self._head(features, self._finish(summed))

    def _finish(self, summed: torch.Tensor) -> torch.Tensor:
        """Z from A W, row by row: shrunk to its direction, or with the trained bias, at norm 1 where W's is held."""
        if self.table != "trained":
            planned = {mechanism.name: mechanism.noise for mechanism in self._ledger.plan.mechanisms}
            return shrunk_rows(summed, planned.get("release", 0.0))
        Z = summed + self._bias
        return Z if isinstance(self.level, Public) else normalize_rows(Z)

    def _embed(self, data: Inputs, ledger: Ledger) -> torch.Tensor:
        """Z for all nodes, released once; everything after it reads this tensor and never A again."""
        private = not isinstance(self.level, Public)
        model = Embedding(data.nodes, self.hidden, data.classes, 0.0 if private else self.dropout).to(self.device)
        layer = model.layer

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return model(data.adjacency if rows is None else data.adjacency[rows])

        if not private:
            self._train_freely(model, logits, data, "embedding")
            self._table, self._bias = layer.weight.detach(), layer.bias.detach()
            with torch.no_grad():
                return layer(data.adjacency)

        @torch.no_grad()
        def hold_norms() -> None:
            layer.weight.mul_(self.row_norm / layer.weight.norm(dim=1, keepdim=True).clamp_min_(1e-12))

        hold_norms()
        train_privately(
            model,
            logits,
            data.target,
            ledger,
            "embedding",
            learning_rate=self._private_rate(data),
            show=self.show_progress,
            after_step=hold_norms,
        )
        with torch.no_grad():
            # In double precision the norm is held to 1e-16; a hair below the bound absorbs what is left.
            W = normalize_rows(layer.weight.double(), self.row_norm * (1 - 1e-6)).float()
            self._table, self._bias = W, layer.bias.detach()
            return normalize_rows(ledger.release("release", data.adjacency.times(W)) + self._bias)


class _TwoStage(torch.nn.Module):
    """Opinions from X, then their fusion with Z, as one function of a node's own row."""

    def __init__(self, features: Perceptron, fusion: Fusion) -> None:
        super().__init__()
        self.features, self.fusion = features, fusion

    def forward(self, x: Rows, z: torch.Tensor) -> torch.Tensor:
        return self.fusion(torch.log_softmax(self.features(x), dim=1), z)
