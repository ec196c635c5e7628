"""Decoupled convolutions with a given table: a private W of node embeddings, Z = A W + b + noise, and a head."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import ClassVar

import torch

from graphveil.execution import LedgerLike
from graphveil.execution.exact import rounded_weights
from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.methods import defaults, dpdgc_plan
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import (
    ClippedFusion,
    Committee,
    Embedding,
    Fusion,
    LinkxHead,
    Perceptron,
    WithoutVotes,
    log_probabilities,
    normalize_rows,
)
from graphveil.methods.spending import Settings
from graphveil.methods.tables import (
    Tables,
    class_width,
    degree_width,
    in_noises,
    noise_of,
    own_width,
    readable,
    widths,
    without_unused,
)
from graphveil.methods.training import KeptRows, Logits, all_logits, cross_fitted, train_privately
from graphveil.privacy.levels import Public, protects_attributes
from graphveil.privacy.mechanisms import Role
from graphveil.privacy.plan import Plan


@dataclass(eq=False)
class DecoupledConvolution(NodeClassifier):
    """A private table W, Z = A W with noise, and a classifier that reads X and Z. `DPDGC` derives from it.

    Node i reads the targets of its edges: Z_i is the sum of their rows of W, plus noise. With table "trained" this is
    the paper's model (algorithm 2, with the corrections of docs/theory.md): rows of W have norm `row_norm` after every
    step and at the release, and the bias is added after the noise. The other tables need no training on the graph. They
    come with a head of few parameters that combines what X and Z say.

    Formal guarantee: the mechanisms that make W private, a Gaussian release of A W with the level's sensitivity, and
    clipped training of the head with group 1 (free at edge level, where Z is private in all rows).

    Args:
        row_norm: The largest norm of a row of W. Sensitivity and signal grow with it alike.
        table: Which W. "trained": learned on the graph. "labels": labels of training nodes. "posteriors": what
            features say about each node. "readers": labels of the nodes that read a node. "neighbors": the same, with
            weights, in one release. "degrees": the number of neighbours. "attributes": features, at level edge. Several
            are joined by +. "auto": chosen by level and direction (docs/choosing.md).
        response_epsilon: The epsilon of randomised responses to labels, where the table needs them. None: by the number
            of training nodes and by epsilon.
        tau: The weight bound of table "neighbors". None: 2 sqrt(k), 2 sqrt(max_degree) at level `Node`, none at `Edge`.
        folds: Where attributes are public, this many classifiers of features, each without a part of the training
            nodes. Each trains for at most `epochs` steps, and ends when validation nodes no longer gain.
    """

    row_norm: float = 1.0
    table: str = "auto"
    response_epsilon: float | None = None
    tau: float | None = None
    folds: int = 3

    joins: ClassVar[Role | None] = "release"
    needs_features: ClassVar[bool] = False
    chooses_table: ClassVar[bool] = True
    divides: ClassVar[bool] = True

    def _settings(self) -> Settings:
        return replace(
            super()._settings(),
            row_norm=self.row_norm,
            table=self.table,
            response_epsilon=self.response_epsilon,
            tau=self.tau,
        )

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        if self._parts(ledger.plan) != "trained":
            return self._fit_with_table(data, ledger)
        Z = self._released = self._embed(data, ledger)
        Z_of = KeptRows(Z)
        head = self._linkx(data.features, data.classes, 0.0 if "head" in ledger.used else self.dropout)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return head(data.features_of(rows), Z_of(rows))

        self._train(head, logits, data, ledger, "head")
        self._head: torch.nn.Module = head
        return all_logits(logits, data.nodes, Z.device)

    def _fit_with_table(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        """With a table that is private without training, and a head that joins class scores from X and from Z."""
        return self._fuse(data, ledger, *self._opinions(data, ledger))

    def _fuse(
        self, data: Inputs, ledger: LedgerLike, features: torch.nn.Module, opinions: torch.Tensor
    ) -> torch.Tensor:
        tables = Tables(data, opinions, dpdgc_plan.tau_at(self._settings(), ledger.plan.level), ledger, self.arithmetic)
        parts = self._parts(ledger.plan)
        W = self.arithmetic.table(tables.joined(parts), self.row_norm, ledger.plan.facts.terms)
        summed = tables.without_unused(ledger.release("release", data.product(self.arithmetic, W)), parts)
        Z = self._finish(summed, tables.own(parts))
        self._released = Z
        opinions_of, Z_of = KeptRows(log_probabilities(opinions)), KeptRows(Z)
        head = self._fusion(ledger.plan, Z.shape[1])
        self._table, self._head = W, TwoStage(features, head)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return head(opinions_of(rows), Z_of(rows))

        head.to(self.device)
        if "head" in ledger.used:
            train_privately(
                head,
                logits,
                data.target,
                ledger,
                "head",
                learning_rate=defaults.HEAD_RATE,
                show=self.show_progress,
                average=True,
                arithmetic=self.arithmetic,
            )
        else:
            self._fuse_freely(head, logits, data, "head")
        return all_logits(logits, data.nodes, Z.device)

    def _opinions(self, data: Inputs, ledger: LedgerLike) -> tuple[torch.nn.Module, torch.Tensor]:
        """A classifier of features alone, and the class probabilities that it gives to every node."""
        private = "features" in ledger.used

        def make() -> Perceptron:
            return self._opinion(data.features, data.classes, 0.0 if private else self.dropout).to(self.device)

        if not private:
            rate = defaults.FREE_FEATURES_RATE * self.free_learning_rate
            steps = math.ceil(defaults.FREE_FEATURES_EPOCHS * self.epochs)
            fit = partial(
                self._train_freely, name="features", learning_rate=rate, steps=steps, patience=defaults.PATIENCE
            )
            members, opinions = cross_fitted(make, data.features, data.target, folds=self.folds, fit=fit)
            return self._join_feature_neighbors(data, Committee(members), opinions)
        model = make()

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return model(data.features_of(rows))

        self._train(model, logits, data, ledger, "features")
        with torch.no_grad():
            return model, torch.softmax(logits(None), dim=1)

    def _join_feature_neighbors(
        self, data: Inputs, committee: Committee, opinions: torch.Tensor
    ) -> tuple[torch.nn.Module, torch.Tensor]:
        """The classifier joined with votes of training nodes that have similar features; attributes are public."""
        fusion = Fusion(data.classes, data.classes).to(self.device)
        opinions_of, votes_of = KeptRows(log_probabilities(opinions)), KeptRows(data.feature_neighbors())

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return fusion(opinions_of(rows), votes_of(rows))

        self._fuse_freely(fusion, logits, data, "feature neighbours")
        return WithoutVotes(committee, fusion), torch.softmax(all_logits(logits, data.nodes, opinions.device), dim=1)

    def _fuse_freely(self, head: Fusion, logits: Logits, data: Inputs, name: str) -> None:
        """Train a head on inputs that are public or private already, without validation.

        It has so few parameters that the best validation epoch would be the best by chance.
        """
        target = replace(data.target, validation=data.target.validation[:0])
        steps = math.ceil(defaults.FREE_HEAD_EPOCHS * self.epochs)
        self._train_freely(head, logits, target, name, learning_rate=defaults.FREE_HEAD_RATE, steps=steps)

    def _opinion(self, like: Rows, classes: int, dropout: float = 0.0) -> Perceptron:
        return Perceptron(like, [self.hidden, self.hidden, classes], dropout)

    def _fusion(self, plan: Plan, width: int) -> Fusion:
        if "head" in plan.names:
            return ClippedFusion(plan.facts.classes, width, self._degrees(plan))
        return Fusion(plan.facts.classes, width, self._degrees(plan) + self._summed_width(plan))

    def _linkx(self, like: Rows, classes: int, dropout: float = 0.0) -> LinkxHead:
        return LinkxHead(like, self.hidden, classes, dropout)

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, torch.nn.Module | torch.Tensor]:
        classes = plan.facts.classes
        if self._parts(plan) == "trained":
            bias = torch.empty(self.hidden)
            return {"head": self._linkx(like, classes), "bias": bias, **self._tables(plan, public=True)}
        head = TwoStage(self._features_of(plan, like), self._fusion(plan, self._read_width(plan)))
        return {"head": head, **self._tables(plan, public=True)}

    def _features_of(self, plan: Plan, like: Rows) -> torch.nn.Module:
        """The classifier of features of this plan, before it is trained."""
        classes = plan.facts.classes
        if "features" in plan.names:
            return self._opinion(like, classes)
        committee = Committee(torch.nn.ModuleList(self._opinion(like, classes) for _ in range(self.folds)))
        return WithoutVotes(committee, Fusion(classes, classes))

    def owner_parts(self, plan: Plan) -> dict[str, torch.Tensor]:
        released = torch.empty(plan.facts.nodes, self._read_width(plan))
        return {"released": released, **self._tables(plan, public=False)}

    def _tables(self, plan: Plan, *, public: bool) -> dict[str, torch.Tensor]:
        """W, as a part that everybody may see or as one of the owner's.

        A table that was made of public labels without noise shows these labels, so only the owner has it.
        """
        parts = self._parts(plan)
        covered = parts == "trained" or protects_attributes(plan.level)
        width = self.hidden if parts == "trained" else sum(widths(parts, plan.facts))
        return {"table": torch.empty(plan.facts.nodes, width)} if public == covered else {}

    def _read_width(self, plan: Plan) -> int:
        """Columns of Z as the head reads it."""
        parts, classes = self._parts(plan), plan.facts.classes
        if parts == "trained":
            return self.hidden
        width = own_width(parts, classes) + self._blocks(plan) * class_width(parts, plan.facts)
        return width if "head" in plan.names else width + self._summed_width(plan)  # a free head reads Z in two forms

    def _degrees(self, plan: Plan) -> int:
        """Columns of Z that are degrees: one for each relation, after those of classes."""
        return self._blocks(plan) * degree_width(self._parts(plan))

    def _summed_width(self, plan: Plan) -> int:
        """Columns of A W."""
        return self._blocks(plan) * sum(widths(self._parts(plan), plan.facts))

    def reads_relations(self, plan: Plan) -> bool:
        return bool(plan.facts.relations) and self._parts(plan) != "trained"

    def _blocks(self, plan: Plan) -> int:
        """How many products of W are released side by side."""
        return plan.facts.blocks if self.reads_relations(plan) else 1

    def _parts(self, plan: Plan) -> str:
        """The tables that W is made of, joined by +."""
        return dpdgc_plan.table_at(self._settings(), plan.level, plan.facts)

    def draws_noise(self, from_graph: bool) -> bool:
        """W is private already, so a row of neighbours that the asker knows needs no noise."""
        return from_graph and super().draws_noise(from_graph)

    def logits_on(self, data: Inputs) -> torch.Tensor:
        """W has rows for the training graph only, so on another graph Z is that of nodes without neighbours."""
        width = self._blocks(self._ledger.plan) * self._table.shape[1]
        return self._head(data.features, self._finish_new(self._table.new_zeros(data.nodes, width)))

    def logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        summed = self.arithmetic.product(rows, self._table)
        if self.draws_noise(from_graph):
            assert self.joined_release is not None
            summed = self._unused_at_zero(self._ledger.release_new_rows(self.joined_release, summed))
        return self._head(features, self._finish_new(summed.float()))

    def _unused_at_zero(self, summed: torch.Tensor) -> torch.Tensor:
        """Noisy rows of A W without the columns of tables that the fit did not use."""
        plan = self._ledger.plan
        parts = self._parts(plan)
        return without_unused(summed, self._table, parts, plan.facts) if "attributes" in parts.split("+") else summed

    def _finish_new(self, summed: torch.Tensor) -> torch.Tensor:
        """Z of nodes that have no row in any table."""
        plan = self._ledger.plan
        width = own_width(self._parts(plan), plan.facts.classes)
        return self._finish(summed, summed.new_zeros(len(summed), width))

    def _finish(self, summed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Z from A W, row by row.

        With a trained table: with its bias, scaled to norm 1 where the rows of W are held to a norm. With other tables:
        the direction of each table's part, beside the node's own rows of tables that are released in full; for a head
        that is trained freely also A W in units of its noise.
        """
        plan = self._ledger.plan
        parts = self._parts(plan)
        if parts != "trained":
            noise = noise_of(self._ledger, "release")
            blocks = summed.chunk(self._blocks(plan), dim=1) if summed.shape[1] else [summed]
            tables, degrees = zip(*(readable(block, parts, noise, plan.facts) for block in blocks), strict=True)
            read = [own, *tables, *chain.from_iterable(degrees)]
            return torch.cat(read if "head" in plan.names else [*read, in_noises(summed, noise)], dim=1)
        Z = summed + self._bias
        return Z if isinstance(self.level, Public) else normalize_rows(Z)

    def _embed(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        """Z for all nodes, released once; everything after it reads this tensor and never A again."""
        private = not isinstance(self.level, Public)
        model = Embedding(data.adjacency, self.hidden, data.classes, 0.0 if private else self.dropout).to(self.device)
        layer = model.layer

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return model(data.adjacency if rows is None else data.adjacency[rows])

        layer.exact = True
        terms = ledger.plan.facts.terms

        @torch.no_grad()
        def hold_rows() -> None:
            """On the lattice of their sums, and at their norm where that is what is paid for."""
            private_rows = partial(self.arithmetic.table, norm=self.row_norm, terms=terms, stretch=True)
            layer.weight.copy_(private_rows(layer.weight) if private else rounded_weights(layer.weight, terms))

        hold_rows()
        if not private:
            self._train_freely(model, logits, data.target, "embedding", after_step=hold_rows)
            self._table, self._bias = layer.weight.detach(), layer.bias.detach()
            with torch.no_grad():
                return layer(data.adjacency)
        train_privately(
            model,
            logits,
            data.target,
            ledger,
            "embedding",
            learning_rate=self._private_rate(data),
            show=self.show_progress,
            after_step=hold_rows,
            arithmetic=self.arithmetic,
        )
        self._table, self._bias = layer.weight.detach(), layer.bias.detach()
        summed = ledger.release("release", self.arithmetic.product(data.adjacency, self._table))
        return normalize_rows(summed + self._bias)


class TwoStage(torch.nn.Module):
    """Class probabilities from X, then the head that joins them with Z, as one function of a node's own rows."""

    def __init__(self, features: torch.nn.Module, fusion: Fusion) -> None:
        super().__init__()
        self.features, self.fusion = features, fusion

    def forward(self, x: Rows, z: torch.Tensor) -> torch.Tensor:
        return self.fusion(log_probabilities(torch.softmax(self.features(x), dim=1)), z)
