"""The choice between reading the graph and leaving it, paid for and on the certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from graphveil.errors import InvalidInput
from graphveil.execution import LedgerLike
from graphveil.methods import auto_plan
from graphveil.methods.choice import co_reader_margins, co_readers_pay, neighbor_margins, neighbors_pay, with_more_noise
from graphveil.methods.dpdgc import DPDGC, TwoStage
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import Fusion
from graphveil.methods.spending import Settings, Spend
from graphveil.privacy.plan import Plan


@dataclass(eq=False)
class Auto(DPDGC):
    """DPDGC where a paid measurement says that the graph helps, and DP-MLP with nearly the whole budget elsewhere.

    Where attributes are private and batches are full, a classifier of features is trained first, with a part of the
    budget. A small release then tells whether neighbours know better. The rest of the budget goes to DPDGC's tables
    (the branch "graph") or into more training of that classifier (the branch "features"). Where public facts say that
    the graph cannot help, features get everything at once. With public attributes this is DPDGC with its default table,
    whose head learns whether Z helps.

    Formal guarantee: both branches are planned, and each is accounted at half of delta (docs/theory.md, section 4.5).

    >>> from graphveil.graph import csbm
    >>> from graphveil.privacy.levels import KNeighbor
    >>> model = Auto(level=KNeighbor(k=1), epsilon=8.0, seed=0, steps=5).fit(csbm(0.0, n=300, f=8, seed=0))
    >>> [mechanism.name for mechanism in model.certificate_.mechanisms], model.certificate_.epsilon <= 8.0
    (['features', 'choice', 'more features'], True)

    Parameters are those of DPDGC; `table` must stay "auto".
    """

    method: ClassVar[str] = "auto"
    spend: ClassVar[Spend] = staticmethod(auto_plan.spend)
    chooses_table: ClassVar[bool] = False
    divides: ClassVar[bool] = False

    def _settings(self) -> Settings:
        if self.table != "auto":
            raise InvalidInput("table", self.table, "is what auto chooses; give it to dpdgc")
        return super()._settings()

    def degree_bound(self, plan: Plan) -> int | None:
        """Where the plan never reads the graph, no promise about it is needed."""
        reads = any(mechanism.role == "release" for mechanism in plan.all_mechanisms)
        return super().degree_bound(plan) if reads else None

    def _fit_with_table(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        if not ledger.plan.branches:
            if ledger.plan.with_role("release"):
                return super()._fit_with_table(data, ledger)
            return self._finish_without_graph(data, self._opinions(data, ledger)[0])
        features, opinions = self._opinions(data, ledger)
        if self._graph_pays(data, ledger, features, opinions):
            ledger.follow("graph")
            return self._fuse(data, ledger, features, opinions)
        ledger.follow("features")
        return self._leave_the_graph(data, ledger, features)

    def _graph_pays(self, data: Inputs, ledger: LedgerLike, features: torch.nn.Module, opinions: torch.Tensor) -> bool:
        plan = ledger.plan
        if plan.facts.directed:
            return co_readers_pay(ledger.release("choice", co_reader_margins(data, opinions)), plan)
        # Where noise is large, Adam moves every weight by its rate at every step, in directions that are mostly noise.
        spread = self._private_rate(data) * math.sqrt(ledger.training("features").steps)
        others = with_more_noise(features, data.features, spread)
        return neighbors_pay(ledger.release("choice", neighbor_margins(data, opinions, others, plan.level)), plan)

    def _leave_the_graph(self, data: Inputs, ledger: LedgerLike, features: torch.nn.Module) -> torch.Tensor:
        """More training of features."""

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return features(data.features_of(rows))

        self._train(features, logits, data, ledger, "more features")
        return self._finish_without_graph(data, features)

    def _finish_without_graph(self, data: Inputs, features: torch.nn.Module) -> torch.Tensor:
        """Fusion with a Z of no columns."""
        nothing = torch.zeros(data.nodes, 0, device=self.device)
        self._table = self._released = nothing
        self._head = TwoStage(features, Fusion(data.classes, 0).to(self.device))
        with torch.no_grad():
            return self._head(data.features, nothing)

    def _parts(self, plan: Plan) -> str:
        without_graph = plan.with_role("features") and not plan.with_role("release")
        return "" if without_graph else super()._parts(plan)
