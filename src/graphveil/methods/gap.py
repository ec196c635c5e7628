"""GAP, CARIBOU and ProGAP: noisy sums over what a network says of the neighbours, one hop after the other."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.execution import LedgerLike
from graphveil.execution.exact import Linear, selu
from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.graph.graph import Direction
from graphveil.methods import baseline_plans, defaults
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import Dropout, HopsHead, Perceptron, normalize_rows
from graphveil.methods.spending import Settings, Spend
from graphveil.methods.tables import noise_of, shrunk_rows
from graphveil.methods.training import KeptRows
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
    spend: ClassVar[Spend] = staticmethod(baseline_plans.spend_gap)
    sums_attributes: ClassVar[bool] = True
    divides: ClassVar[bool] = True

    def _settings(self) -> Settings:
        return replace(super()._settings(), hops=self.hops)

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        self._encoded: torch.Tensor | None = self._encode(data, ledger)
        hops = self._hops(data, ledger, self._encoded)
        # Without the encoded features themselves, which only the node itself may see.
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
            hops.append(self._layer(data.adjacency.times(hops[-1]), hops[0], 0.0))
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
            noisy = self._ledger.release_new_rows("hops", summed)
            hops.append(self._layer(noisy, hops[0], noise_of(self._ledger, "hops")))
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
            noisy = ledger.release("hops", self.arithmetic.product(data.adjacency, rows))
            hops.append(self._layer(noisy, H, noise_of(ledger, "hops")))
        return torch.stack(hops, dim=1)

    def _layer(self, noisy: torch.Tensor, first: torch.Tensor, noise: float) -> torch.Tensor:
        """What the next hop sums, row by row: from the noisy sums, the rows H and the noise of the sums."""
        del first, noise
        return normalize_rows(noisy)


@dataclass(eq=False)
class Caribou(GAP):
    """The contractive layers of CARIBOU (Zheng et al. 2026, arXiv:2506.22727) in place of GAP's normalisation.

    A layer keeps a part of a node's own encoded features and gives the other part to its neighbours' noisy sum, which
    is shrunk where it could be noise. So rows are of norm at most 1 without being stretched to it.

    Two things of the paper are left out. Its layer adds a mean over all nodes, which would show a node's own row to
    others. Its accounting, in which the cost of many layers converges, holds if nobody sees what lies between them;
    here every layer is paid for, so that checkpoints, audits and new nodes may read all of them (docs/peers.md).

    Formal guarantee: that of `GAP`: `hops` Gaussian releases of A H with rows H of norm at most 1 (docs/theory.md,
    section 3).

    Args:
        contraction: The part that the neighbours have in a layer, above 0 and up to 1.
    """

    contraction: float = defaults.CARIBOU_CONTRACTION

    method: ClassVar[str] = "caribou"

    def check_parameters(self) -> None:
        super().check_parameters()
        if not 0 < validate.positive("contraction", self.contraction) <= 1:
            raise InvalidInput("contraction", self.contraction, "must be above 0 and at most 1")

    def _layer(self, noisy: torch.Tensor, first: torch.Tensor, noise: float) -> torch.Tensor:
        return self.contraction * shrunk_rows(noisy, noise) + (1 - self.contraction) * first


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
    spend: ClassVar[Spend] = staticmethod(baseline_plans.spend_progap)
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
            dropout = 0.0 if baseline_plans.stage_name(stage) in ledger.used else self.dropout
            bases.append(self._base(read[-1], dropout))
            network = Stage(bases, self.hidden, data.classes, dropout).to(self.device)
            self._train_stage(network, read, data, ledger, baseline_plans.stage_name(stage))
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
        """Each row scaled to a norm of at most 1, shorter where it may be noise alone."""
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
