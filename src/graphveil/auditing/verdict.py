"""What an audit found: a lower bound beside every claim, and a verdict."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from graphveil.auditing.black_box import Leak
from graphveil.auditing.bounds import Bound
from graphveil.auditing.scores import Scores
from graphveil.privacy.levels import Level, describe, level_to_dict

Verdict = Literal["consistent", "violated"]
# By how much a sum may move beyond its sensitivity, relative to it, before that counts.
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Finding:
    """One attack on one claim."""

    attack: str
    target: str
    claimed_epsilon: float
    bound: Bound
    scores: Scores
    seconds: float

    @property
    def verdict(self) -> Verdict:
        return "violated" if self.bound.epsilon > self.claimed_epsilon else "consistent"

    def to_dict(self) -> dict[str, Any]:
        return {
            "attack": self.attack,
            "target": self.target,
            "claimed_epsilon": self.claimed_epsilon,
            "lower_bound": self.bound.epsilon,
            "confidence": self.bound.confidence,
            "verdict": self.verdict,
            "bound": self.bound.kind,
            "trials": len(self.scores),
            "held_out": self.bound.trials,
            "true_positive_rate": self.bound.true_positive_rate,
            "false_positive_rate": self.bound.false_positive_rate,
            "auc": self.scores.auc,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Movement:
    """How far a released sum moved between two adjacent graphs, beside its sensitivity (`auditing.arithmetic`).

    Without a claim it is how far the sums of one graph are apart that were added in different ways.
    """

    mechanism: str
    family: str
    claimed: float | None
    moved: float
    nodes: int
    entries: int

    @property
    def ratio(self) -> float:
        """The movement in units of what is claimed; where nothing is claimed, the difference itself."""
        if self.claimed is None:
            return self.moved
        if self.claimed == 0:
            return math.inf if self.moved > 0 else 0.0
        return self.moved / self.claimed

    @property
    def verdict(self) -> Verdict:
        """Claims are computed in float64, and so is the distance: 1e-9 is far above both and far below any leak."""
        return "violated" if self.claimed is not None and self.ratio > 1 + TOLERANCE else "consistent"

    def to_dict(self) -> dict[str, Any]:
        return {
            "attack": "arithmetic",
            "mechanism": self.mechanism,
            "family": self.family,
            "claimed_sensitivity": self.claimed,
            "moved": _finite(self.moved),
            "ratio": _finite(self.ratio),
            "verdict": self.verdict,
            "nodes": self.nodes,
            "entries": self.entries,
        }


@dataclass(frozen=True, eq=False)
class AuditReport:
    """All findings of one audit.

    Formal guarantee: if the method keeps its claim, `verdict` is "violated" with probability at most
    1 - `confidence`: each of the findings has its part of that error. Movements of sums have none: they are exact.
    """

    method: str
    level: Level
    graph: str
    claimed_epsilon: float
    certified_epsilon: float
    delta: float
    confidence: float
    findings: tuple[Finding, ...]
    leaks: tuple[Leak, ...] = ()
    movements: tuple[Movement, ...] = ()
    skipped: tuple[str, ...] = ()
    twin: str | None = None
    seed: int | None = None

    @property
    def lower_bound(self) -> float:
        """The largest of all bounds: what a part costs, the whole costs too."""
        return max((finding.bound.epsilon for finding in self.findings), default=0.0)

    @property
    def verdict(self) -> Verdict:
        verdicts = [f.verdict for f in self.findings] + [m.verdict for m in self.movements]
        broken = self.lower_bound > self.claimed_epsilon or "violated" in verdicts
        return "violated" if broken else "consistent"

    @property
    def worst(self) -> Finding | None:
        """The finding that stands out most against its claim."""
        return max(self.findings, key=lambda f: f.bound.epsilon - f.claimed_epsilon, default=None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "twin": self.twin,
            "level": level_to_dict(self.level),
            "graph": self.graph,
            "claimed_epsilon": _finite(self.claimed_epsilon),
            "certified_epsilon": _finite(self.certified_epsilon),
            "delta": self.delta,
            "lower_bound": self.lower_bound,
            "confidence": self.confidence,
            "verdict": self.verdict,
            "attacks": [finding.to_dict() for finding in self.findings],
            "arithmetic": [movement.to_dict() for movement in self.movements],
            "black_box": [leak.to_dict() for leak in self.leaks],
            "skipped": list(self.skipped),
            "seed": self.seed,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        name = self.method if self.twin is None else f"{self.method}, broken twin {self.twin}"
        lines = [
            f"AUDIT of {name} on {self.graph}",
            f"  {describe(self.level)}",
            f"  claimed: epsilon {self.claimed_epsilon:.4g} at delta {self.delta:.3g}",
            f"  verdict: {self.verdict.upper()}",
            "",
        ]
        if self.findings or not self.movements:
            audited = f"  audited: epsilon is at least {self.lower_bound:.4g}, with {self.confidence:.3g} confidence"
            lines.insert(3, audited)
        if self.findings:
            lines.append("  attack      on                    claimed  at least  bound             AUC    trials")
        for f in self.findings:
            mark = "  <-- VIOLATED" if f.verdict == "violated" else ""
            lines.append(
                f"  {f.attack:<11} {f.target:<21} {f.claimed_epsilon:>7.3f}  {f.bound.epsilon:>8.3f}  "
                f"{f.bound.kind:<16}  {f.scores.auc:.3f}  {len(f.scores):>6}{mark}"
            )
        if self.movements:
            lines.append("  released sum    family of graphs     claimed      moved    ratio      nodes    entries")
        for m in self.movements:
            mark = "  <-- VIOLATED" if m.verdict == "violated" else ""
            claimed, ratio = ("", "") if m.claimed is None else (f"{m.claimed:.6g}", f"{m.ratio:.5f}")
            lines.append(
                f"  {m.mechanism:<15} {m.family:<17} {claimed:>10} {m.moved:>10.6g} {ratio:>8} {m.nodes:>10} "
                f"{m.entries:>10}{mark}"
            )
        for leak in self.leaks:
            found = leak.to_dict()
            lines.append(
                f"  by predictions alone, {leak.attack} ({leak.statistic}): AUC {found['auc']:.3f}, "
                f"{found['tpr_at_0.1%_fpr']:.2%} found at 0.1 % false positives"
            )
        lines += [f"  not run: {reason}" for reason in self.skipped]
        return "\n".join(lines)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
