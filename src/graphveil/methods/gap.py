"""GAP: an encoder on X, then noisy hops of its row-normalised output, then a head on all hops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from graphveil.errors import InvalidInput
from graphveil.execution import LedgerLike
from graphveil.execution.sparse_rows import KeptRows, Rows, SparseRows
from graphveil.graph.graph import Direction
from graphveil.methods import gap_plan
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import HopsHead, Perceptron, normalize_rows
from graphveil.methods.spending import Settings, Spend
from graphveil.privacy.mechanisms import Role
from graphveil.privacy.plan import Plan


@dataclass(eq=False)
class GAP(NodeClassifier):
    """GAP (Sajadmanesh et al. 2023): an encoder of features, noisy sums over neighbours, a head that reads all of them.

    As the paper analyses it (algorithm 1, with A in the hop; docs/theory.md, section 3). Node i reads the sources of
    the edges that point at it.

    Formal guarantee: clipped training of encoder and head with group 1 where attributes are private, and `hops`
    Gaussian releases of A H with unit rows H, of sensitivity 2 sqrt(max_degree) (edge level: 1 or sqrt(2)).

    Args:
        hops: How many times neighbours are summed. Each is a release of its own and costs budget.
    """

    free_learning_rate: float = 0.003
    hops: int = 2

    method: ClassVar[str] = "gap"
    direction: ClassVar[Direction] = "in"
    joins: ClassVar[Role | None] = "aggregation"
    spend: ClassVar[Spend] = staticmethod(gap_plan.spend)
    sums_attributes: ClassVar[bool] = True
    divides: ClassVar[bool] = True

    def _settings(self) -> Settings:
        return replace(super()._settings(), hops=self.hops)

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        self._encoded: torch.Tensor | None = self._encode(data, ledger)
        hops = self._hops(data, ledger, self._encoded)
        # Without the first: nobody may see it but the node itself.
        self._released = hops[:, 1:].contiguous()
        hops_of = KeptRows(hops)
        head = self._head_network(data.classes, 0.0 if "head" in ledger.used else self.dropout)
        self._train(head, lambda rows: head(hops_of(rows)), data, ledger, "head")
        self._head = head
        with torch.no_grad():
            return head(hops)

    def _head_network(self, classes: int, dropout: float = 0.0) -> HopsHead:
        return HopsHead(self.hops + 1, self.hidden, self.hidden, classes, dropout)

    def _encoder_network(self, like: Rows, classes: int, dropout: float = 0.0) -> Perceptron:
        return Perceptron(like, [self.hidden, self.hidden, classes], dropout)

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, torch.nn.Module | torch.Tensor]:
        classes = plan.facts.classes
        return {"encoder": self._encoder_network(like, classes), "head": self._head_network(classes)}

    def owner_parts(self, plan: Plan) -> dict[str, torch.Tensor]:
        return {"released": torch.empty(plan.facts.nodes, self.hops, self.hidden)}

    def recall(self, data: Inputs | None) -> None:
        with torch.no_grad():
            self._encoded = None if data is None else normalize_rows(self._encoder.hidden(data.features))

    def logits_on(self, data: Inputs) -> torch.Tensor:
        hops = [normalize_rows(self._encoder.hidden(data.features))]
        for _ in range(self.hops):
            hops.append(normalize_rows(data.adjacency.times(hops[-1])))
        return self._head(torch.stack(hops, dim=1))

    def logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        """What a new node aggregates is not private by itself, so its hops take noise whoever supplies the row."""
        del from_graph
        if self._encoded is None:
            raise InvalidInput("graph", None, "new nodes read their neighbours; load the model with its training graph")
        hops = [normalize_rows(self._encoder.hidden(features))]
        for seen in [self._encoded, *self._released.unbind(1)][: self.hops]:
            table = self.arithmetic.table(seen, 1.0, self.plan_.facts.terms)
            summed = self.arithmetic.product(rows, table)
            hops.append(normalize_rows(self._ledger.release_new_rows("hops", summed)))
        return self._head(torch.stack(hops, dim=1))

    def _encode(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        """Unit rows H; each depends on its own node's features and on the encoder's weights, nothing else."""
        dropout = 0.0 if "encoder" in ledger.used else self.dropout
        encoder = self._encoder_network(data.features, data.classes, dropout)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return encoder(data.features_of(rows))

        self._train(encoder, logits, data, ledger, "encoder")
        self._encoder = encoder
        with torch.no_grad():
            return normalize_rows(encoder.hidden(data.features))

    def _hops(self, data: Inputs, ledger: LedgerLike, H: torch.Tensor) -> torch.Tensor:
        """H and its L noisy hops as one tensor of nodes x (L + 1) x width."""
        hops = [H]
        for _ in range(self.hops):
            rows = self.arithmetic.table(hops[-1], 1.0, ledger.plan.facts.terms)
            hops.append(normalize_rows(ledger.release("hops", self.arithmetic.product(data.adjacency, rows))))
        return torch.stack(hops, dim=1)
