"""ProGAP: a network that grows stage by stage, each stage on noisy sums over what the last one says of neighbours."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from graphveil.errors import InvalidInput
from graphveil.execution import LedgerLike
from graphveil.execution.rowwise import Linear, selu
from graphveil.execution.sparse_rows import KeptRows, Rows, SparseRows
from graphveil.graph.graph import Direction
from graphveil.methods import gap_plan
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import Dropout, Perceptron, normalize_rows
from graphveil.methods.spending import Settings, Spend
from graphveil.methods.tables import noise_of, shrunk_rows
from graphveil.privacy.mechanisms import Role
from graphveil.privacy.plan import Plan


@dataclass(eq=False)
class ProGAP(NodeClassifier):
    """ProGAP (Sajadmanesh and Gatica-Perez 2024, arXiv:2304.08928): stages that grow, with noisy sums that are kept.

    Stage 0 is a classifier of features. Each further stage sums, over the nodes that a node reads, what the part of the
    stage before last learnt about them, adds noise once and keeps the result; then all parts are trained together on
    features and on all kept sums. Node i reads the sources of the edges that point at it.

    Where the paper's code normalises over all nodes (batch norm), rows are scaled one by one here: statistics over
    nodes would show a node's own row to others.

    Formal guarantee: `depth` Gaussian releases of A H with unit rows H, of sensitivity 2 sqrt(max_degree) (zero-out at
    node level: sqrt(max_degree); edge level: 1 or sqrt(2)), and clipped training of each stage with group 1 where it
    reads something private (docs/theory.md, section 3).

    Args:
        depth: How many times neighbours are summed. Each is a release of its own and costs budget.
        base_layers: Layers of the part that each stage adds.
    """

    hidden: int = 16
    dropout: float = 0.3
    depth: int = 2
    base_layers: int = 2

    method: ClassVar[str] = "progap"
    direction: ClassVar[Direction] = "in"
    joins: ClassVar[Role | None] = "aggregation"
    spend: ClassVar[Spend] = staticmethod(gap_plan.spend_progap)
    sums_attributes: ClassVar[bool] = True

    def _settings(self) -> Settings:
        return replace(super()._settings(), hops=self.depth)

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        read: list[Rows] = [data.features]
        bases: list[nn.Module] = []
        self._frozen = nn.ModuleList()
        for stage in range(self.depth + 1):
            if stage > 0:
                said = self._said(stage - 1, read[-1])
                read.append(self._readable(ledger.release("hops", self._summed(data.adjacency, said)), ledger))
            dropout = 0.0 if gap_plan.stage_name(stage) in ledger.used else self.dropout
            bases.append(self._base(read[-1], dropout))
            network = Stage(bases, self.hidden, data.classes, dropout).to(self.device)
            self._train_stage(network, read, data, ledger, gap_plan.stage_name(stage))
            # The sums of the next stage are made with these weights, and kept while later stages change them.
            self._frozen.append(copy.deepcopy(bases[-1]))
        self._network = network
        self._released = torch.stack([table for table in read[1:] if isinstance(table, torch.Tensor)], dim=1)
        self._encoded: torch.Tensor | None = self._said(0, data.features)
        with torch.no_grad():
            return network(read)

    def _train_stage(self, network: Stage, read: Sequence[Rows], data: Inputs, ledger: LedgerLike, name: str) -> None:
        kept = [data.features_of, *(KeptRows(table) for table in read[1:])]
        self._train(network, lambda rows: network([each(rows) for each in kept]), data, ledger, name)

    @torch.no_grad()
    def _said(self, stage: int, rows: Rows) -> torch.Tensor:
        """Unit rows H: what a stage's part says of each node, from the node's own row of what it reads."""
        return normalize_rows(selu(self._frozen[stage](rows)))

    def _summed(self, adjacency: SparseRows, said: torch.Tensor) -> torch.Tensor:
        nodes = self._ledger.plan.facts.nodes
        return self.arithmetic.product(adjacency, self.arithmetic.table(said, 1.0, nodes))

    def _readable(self, released: torch.Tensor, ledger: LedgerLike) -> torch.Tensor:
        """Directions, shrunk where noise could have made them: row by row."""
        return shrunk_rows(released, noise_of(ledger, "hops"))

    def _base(self, like: Rows, dropout: float = 0.0) -> Perceptron:
        return Perceptron(like, [self.hidden] * self.base_layers, dropout)

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, nn.Module | torch.Tensor]:
        sums = torch.empty(0, self.hidden)
        bases, frozen = ([self._base(like), *(self._base(sums) for _ in range(self.depth))] for _ in range(2))
        return {"network": Stage(bases, self.hidden, plan.facts.classes), "frozen": nn.ModuleList(frozen)}

    def owner_parts(self, plan: Plan) -> dict[str, torch.Tensor]:
        return {"released": torch.empty(plan.facts.nodes, self.depth, self.hidden)}

    def recall(self, data: Inputs | None) -> None:
        self._encoded = None if data is None else self._said(0, data.features)

    def logits_on(self, data: Inputs) -> torch.Tensor:
        read: list[Rows] = [data.features]
        for stage in range(self.depth):
            read.append(shrunk_rows(data.adjacency.times(self._said(stage, read[-1])), 0.0))
        return self._network(read)

    def logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        """What a new node sums is not private by itself, so it takes noise whoever supplies the row."""
        del from_graph
        if self._encoded is None:
            raise InvalidInput("graph", None, "new nodes read their neighbours; load the model with its training graph")
        read: list[Rows] = [features]
        for stage in range(self.depth):
            said = self._encoded if stage == 0 else self._said(stage, self._released[:, stage - 1])
            noisy = self._ledger.release_new_rows("hops", self._summed(rows, said))
            read.append(self._readable(noisy, self._ledger))
        return self._network(read)


class Stage(nn.Module):
    """The parts of all stages so far side by side, scaled to norm 1, and a linear head.

    Args:
        bases: One part for each table that is read: features, then the kept sums.
        width: Columns of what each part gives.
        classes: The number of classes.
        dropout: The chance of dropout before the head.
    """

    def __init__(self, bases: Sequence[nn.Module], width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.bases = nn.ModuleList(bases)
        self.out = Linear(len(bases) * width, classes)
        self.dropout = Dropout(dropout)

    def forward(self, read: Sequence[Rows]) -> torch.Tensor:
        parts = [selu(base(rows)) for base, rows in zip(self.bases, read, strict=True)]
        return self.out(self.dropout(normalize_rows(torch.cat(parts, dim=1))))
