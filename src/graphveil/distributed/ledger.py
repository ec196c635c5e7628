"""The ledger of a job: every process books the same draws, and draws the noise of its own rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from graphveil.distributed.group import Group
from graphveil.distributed.layout import Span
from graphveil.distributed.source import RowShard, SharedSource
from graphveil.execution import Ledger
from graphveil.privacy.plan import Plan


class ShardedLedger(Ledger):
    """A ledger whose released values have a row for each node of this process, and whose responses and samples are
    about the training nodes of this process.

    Formal guarantee: what all processes are given together is what one `Ledger` would give, from the same noise.
    """

    def __init__(self, plan: Plan, source: SharedSource, group: Group, nodes: Span, train: Span) -> None:
        super().__init__(plan, source)
        self._shared, self._group, self._nodes, self._train = source, group, nodes, train

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        with self._shared.only(self._nodes):
            return super().release(name, value)

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor:
        with self._shared.only(self._train):
            return super().respond(name, symbols)

    def sample(self, name: str, rows: int) -> torch.Tensor | None:
        with self._shared.only(self._train):
            return super().sample(name, rows)

    def noisy_sum(self, name: str, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Sums over this process's training nodes; rows of W are complete already, everything else is added up."""
        whole = [part if isinstance(part, RowShard) else self._group.total(part) for part in sums]
        return [part.as_subclass(torch.Tensor) for part in super().noisy_sum(name, whole)]
