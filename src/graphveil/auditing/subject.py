"""What is audited: the plan that a certificate claims, and the code that executes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from graphveil.auditing.bounds import Branches, Claim
from graphveil.execution import Ledger, LedgerLike, MakeLedger
from graphveil.execution.exact import EXACT
from graphveil.noise import NoiseSource
from graphveil.privacy.accounting import Composition
from graphveil.privacy.mechanisms import Kind, Mechanism
from graphveil.privacy.plan import Plan

# A replaced node in the training set pays for everything that any node pays for.
KIND: Kind = "training"


def held_at(table: torch.Tensor, norm: float) -> torch.Tensor:
    """Rows of W as the methods hold them right before a release."""
    return EXACT.table(table, norm, 2**24, stretch=True)


def as_released(tables: torch.Tensor) -> torch.Tensor:
    """What a method makes public of released tables (one per graph): the tables."""
    return tables


@dataclass(frozen=True)
class Subject:
    """A claimed plan, the plan that is really executed, and the parts of a method that surround its draws.

    For a sound method claimed and executed plan are the same. `make_ledger` builds the ledger, `make_table` holds the
    rows of W, `publish` is what happens to a released table before others see it (first dimension: separate graphs).
    """

    claimed: Plan
    executed: Plan
    make_ledger: MakeLedger = Ledger
    make_table: Callable[[torch.Tensor, float], torch.Tensor] = held_at
    publish: Callable[[torch.Tensor], torch.Tensor] = as_released

    @classmethod
    def sound(cls, plan: Plan) -> Subject:
        return cls(plan, plan)

    def ledger(self, name: str, seed: int | None) -> LedgerLike:
        """A new ledger on the branch of the plan that draws `name`."""
        ledger = self.make_ledger(replace(self.executed, followed=None), NoiseSource(seed))
        for branch in self.executed.branches:
            if any(mechanism.name == name for mechanism in branch.mechanisms):
                ledger.follow(branch.name)
        return ledger

    def branches(self) -> list[list[Mechanism]]:
        """The mechanisms that a replaced training node (or an edge) pays for, for each branch of the plan."""
        return [
            [mechanism for mechanism in plan.mechanisms if mechanism.loss(KIND) is not None]
            for plan in self.claimed.outcomes()
        ]

    def charged(self) -> list[Mechanism]:
        """All that such a node may pay for, whichever branch is taken."""
        return list({mechanism.name: mechanism for branch in self.branches() for mechanism in branch}.values())

    def whole_claim(self) -> Claim:
        """What a fit may cost."""
        each = tuple(self.claim([mechanism.name for mechanism in branch]) for branch in self.branches())
        return each[0] if len(each) == 1 else Branches(each)

    def claim(self, names: list[str] | None = None) -> Composition:
        """What these mechanisms together may cost (by default the first branch)."""
        chosen = self.branches()[0] if names is None else [self.claimed[name] for name in names]
        losses = (mechanism.loss(KIND) for mechanism in chosen)
        return Composition(tuple(loss for loss in losses if loss is not None))
