"""Attacks that try to break the guarantee, and bounds on epsilon from what they see. docs/audit.md explains them.

`graphveil.audit` is this package's function `audit`.
"""

from graphveil.auditing.bounds import Bound, Scores, gaussian_bound, lower_bound, threshold_bound
from graphveil.auditing.report import AuditReport, Finding, Movement
from graphveil.auditing.run import ATTACKS, audit
from graphveil.auditing.twins import TWINS, Twin
from graphveil.auditing.whole_fits import one_run_bound

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
