"""What a fit leaves beside its weights: one state, whether it comes from `fit`, several processes or a folder."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from graphveil.execution import LedgerLike
from graphveil.graph.fingerprint import Fingerprint
from graphveil.methods.answers import Answers
from graphveil.methods.naming import Naming
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.plan import Plan


class FitKeeper(Protocol):
    """Keeps an unfinished fit, as `checkpoint.Checkpoint` does, and names the one artifact of a finished one."""

    def following(self, model: Any, graph: Any, ledger: LedgerLike, source: Any) -> AbstractContextManager[None]: ...

    def goes_to(self, artifact: Path, rows: str) -> None: ...


@dataclass(eq=False)
class FittedState:
    """All that a fitted model knows beside its weights.

    Args:
        ledger: The executed ledger; rows of new nodes are drawn from it.
        certificate: What the fit has spent.
        logits: A row for each node of the training graph.
        sparse: Whether features are mostly empty, so that layers that read them are sparse.
        naming: Names of nodes, classes and columns.
        labels: Of the training graph; None where the graph is not at hand.
        fingerprint: Of the training graph; None where it was read in parts.
        answers: What new nodes were told.
        budget: The epsilon that the fit and further releases may cost together.
        keeper: Until the model is saved, the checkpoint that still holds its fit.
    """

    ledger: LedgerLike
    certificate: Certificate
    logits: torch.Tensor
    sparse: bool
    naming: Naming
    labels: torch.Tensor | None
    fingerprint: Fingerprint | None
    answers: Answers
    budget: float
    keeper: FitKeeper | None = None

    @property
    def plan(self) -> Plan:
        """The executed plan, on the branch that was taken."""
        return self.ledger.plan

    def saved(self, answers: Answers, budget: float) -> None:
        """From now on answers are kept in an artifact with this budget, and no checkpoint is needed."""
        self.answers, self.budget, self.keeper = answers, budget, None
