"""What is audited: the plan that a certificate claims, and the code that executes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from graphveil.accounting import Composition
from graphveil.mechanisms import Ledger, NoiseSource
from graphveil.methods.networks import normalize_rows
from graphveil.plan import Kind, Mechanism, Plan

# A replaced node in the training set pays for everything that any node pays for.
KIND: Kind = "training"

MakeLedger = Callable[[Plan, NoiseSource], Ledger]


def held_at(table: torch.Tensor, norm: float) -> torch.Tensor:
    """Rows of W as the methods hold them right before a release: a hair below the norm."""
    return normalize_rows(table.double(), norm * (1 - 1e-6)).float()


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

    def ledger(self, seed: int | None) -> Ledger:
        return self.make_ledger(self.executed, NoiseSource(seed))

    def charged(self) -> list[Mechanism]:
        """The mechanisms that a replaced training node (or an edge) pays for."""
        return [mechanism for mechanism in self.claimed.mechanisms if mechanism.loss(KIND) is not None]

    def claim(self, names: list[str] | None = None) -> Composition:
        """What these mechanisms together may cost (all by default)."""
        return self._part(names).composition(KIND)

    def claimed_epsilon(self, names: list[str] | None = None) -> float:
        return self.claim(names).epsilon(self.claimed.delta)

    def _part(self, names: list[str] | None) -> Plan:
        chosen = tuple(m for m in self.claimed.mechanisms if names is None or m.name in names)
        return replace(self.claimed, mechanisms=chosen, otherwise=())
