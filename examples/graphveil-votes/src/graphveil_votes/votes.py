"""The method itself: who reads whom, what is released, and what a prediction is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch.nn import functional

from graphveil.execution import LedgerLike
from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.graph.graph import Direction
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.spending import Settings, Spend
from graphveil.privacy.levels import protects_attributes
from graphveil.privacy.mechanisms import Role
from graphveil.privacy.plan import Plan
from graphveil_votes import plan as votes_plan


@dataclass(eq=False)
class Votes(NodeClassifier):
    """A node is of the class that most of its neighbours in training say they are of; nothing is trained.

    Formal guarantee: randomised responses to the labels of training nodes where labels are private, and one Gaussian
    release of the votes Z = A W, W one-hot rows of these responses (README.md of this package, lemmas 1 and 2).

    Args:
        response_epsilon: The epsilon of each response. None: 0.4 of the whole, at most 5.
        sharpness: How sure a majority of one vote makes; probabilities are softmax(sharpness Z).
    """

    response_epsilon: float | None = None
    sharpness: float = 1.0

    method: ClassVar[str] = "votes"
    spend: ClassVar[Spend] = staticmethod(votes_plan.spend)
    direction: ClassVar[Direction] = "in"
    joins: ClassVar[Role | None] = "release"
    needs_features: ClassVar[bool] = False

    def _settings(self) -> Settings:
        return replace(super()._settings(), response_epsilon=self.response_epsilon)

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        self._ballots = self._cast(data, ledger)
        self._released = ledger.release("release", self._counted(data.adjacency))
        return self.sharpness * self._released

    def _cast(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        """The table W: one-hot rows of what training nodes answer, zeros for all others."""
        labels = data.target.labels[data.target.train]
        if protects_attributes(self.level):
            labels = ledger.respond("ballots", labels)
        table = torch.zeros(len(data.target.labels), data.classes)
        table[data.target.train] = functional.one_hot(labels, data.classes).float()
        return table

    def _counted(self, rows: SparseRows) -> torch.Tensor:
        """The exact sum over what is read, of rows of norm at most 1 on a lattice."""
        table = self.arithmetic.table(self._ballots, 1.0, self._ledger.plan.facts.terms)
        return self.arithmetic.product(rows, table)

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, torch.nn.Module | torch.Tensor]:
        """The ballots are private responses (or public labels): anybody may see them."""
        del like
        return {"ballots": torch.empty(plan.facts.nodes, plan.facts.classes)}

    def owner_parts(self, plan: Plan) -> dict[str, torch.Tensor]:
        """A node's row of Z shows its own links, so it is for this node alone."""
        return {"released": torch.empty(plan.facts.nodes, plan.facts.classes)}

    def logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        """A new node counts the ballots of those it reads; whose own list it is needs no noise."""
        del features
        summed = self._counted(rows)
        counted = self._ledger.release_new_rows("release", summed) if self.draws_noise(from_graph) else summed.float()
        return self.sharpness * counted

    def draws_noise(self, from_graph: bool) -> bool:
        return from_graph and super().draws_noise(from_graph)
