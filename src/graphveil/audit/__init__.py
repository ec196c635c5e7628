"""Attacks that try to break the guarantee, and bounds on epsilon from what they see. docs/audit.md explains them.

The module can be called: `graphveil.audit("dpdgc", gv.KNeighbor(1), 4.0)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from graphveil.audit.bounds import Bound, gaussian_bound, lower_bound, one_run_bound, threshold_bound
from graphveil.audit.run import ATTACKS, audit
from graphveil.audit.scores import Scores
from graphveil.audit.twins import TWINS, Twin
from graphveil.audit.verdict import AuditReport, Finding, Movement

__all__ = [
    "ATTACKS",
    "TWINS",
    "AuditReport",
    "Bound",
    "Finding",
    "Movement",
    "Scores",
    "Twin",
    "audit",
    "gaussian_bound",
    "lower_bound",
    "one_run_bound",
    "threshold_bound",
]


class _CallableModule(ModuleType):
    """Importing `graphveil.audit` makes it an attribute of `graphveil`: so the module answers `gv.audit(...)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> AuditReport:
        return audit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
