"""The result of an audit: a lower bound beside every claim, a verdict, and both as text, JSON and a picture."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from graphveil.auditing.bounds import Bound, Scores
from graphveil.auditing.single_fits import Leak
from graphveil.errors import InvalidInput
from graphveil.privacy.levels import Level, describe, level_to_dict
from graphveil.storage import write_files
from graphveil.validate import without_infinity

Verdict = Literal["consistent", "violated"]
# A movement above the sensitivity counts if it exceeds it by this part.
TOLERANCE = 1e-9
_TAILS, _HEADS, _CLAIM, _BOUND = "#4477aa", "#ee6677", "#bbbbbb", "#228833"


@dataclass(frozen=True, eq=False)
class Finding:
    """The result of one attack on one claim.

    Args:
        attack: The attack's name.
        target: What it attacked.
        claimed_epsilon: The claim.
        bound: The lower bound.
        scores: The trials.
        seconds: How long it took.
    """

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
    """How far a released sum moved between two adjacent graphs (`auditing.arithmetic`).

    Args:
        mechanism: The mechanism that releases the sum.
        family: How the graphs were made.
        claimed: The sensitivity.
        moved: The distance.
        nodes: The number of nodes.
        entries: The number of stored entries of A.
    """

    mechanism: str
    family: str
    claimed: float
    moved: float
    nodes: int
    entries: int

    @property
    def ratio(self) -> float:
        """The movement in multiples of the claim."""
        if self.claimed == 0:
            return math.inf if self.moved > 0 else 0.0
        return self.moved / self.claimed

    @property
    def verdict(self) -> Verdict:
        """Whether the movement exceeds the claim by more than the rounding of both, which are float64 numbers."""
        return "violated" if self.ratio > 1 + TOLERANCE else "consistent"

    def to_dict(self) -> dict[str, Any]:
        return {
            "attack": "arithmetic",
            "mechanism": self.mechanism,
            "family": self.family,
            "claimed_sensitivity": self.claimed,
            "moved": without_infinity(self.moved),
            "ratio": without_infinity(self.ratio),
            "verdict": self.verdict,
            "nodes": self.nodes,
            "entries": self.entries,
        }


@dataclass(frozen=True, eq=False)
class AuditReport:
    """The result of an audit.

    Args:
        method: The method's name.
        level: The level.
        graph: The graph's name.
        claimed_epsilon: The budget that was asked for.
        certified_epsilon: The epsilon of the plan.
        delta: The delta of the plan.
        confidence: Of all bounds together.
        findings: What attacks on the claim found.
        leaks: What attacks by predictions alone found.
        movements: How far released sums moved.
        skipped: Attacks that do not apply, and why.
        twin: The broken twin that was audited.
        seed: The seed of the audit.

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
        """The largest of all bounds; the whole costs at least what each part costs."""
        return max((finding.bound.epsilon for finding in self.findings), default=0.0)

    @property
    def verdict(self) -> Verdict:
        """Violated, if a bound exceeds a claim or a sum moved by more than its sensitivity."""
        verdicts = [f.verdict for f in self.findings] + [m.verdict for m in self.movements]
        broken = self.lower_bound > self.claimed_epsilon or "violated" in verdicts
        return "violated" if broken else "consistent"

    @property
    def worst(self) -> Finding | None:
        """The finding whose bound exceeds its claim most, or comes closest to it."""
        return max(self.findings, key=lambda f: f.bound.epsilon - f.claimed_epsilon, default=None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "twin": self.twin,
            "level": level_to_dict(self.level),
            "graph": self.graph,
            "claimed_epsilon": without_infinity(self.claimed_epsilon),
            "certified_epsilon": without_infinity(self.certified_epsilon),
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
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        name = self.method if self.twin is None else f"{self.method}, broken twin {self.twin}"
        lines = [
            f"AUDIT of {name} on {self.graph}",
            f"  {describe(self.level)}",
            f"  claimed: epsilon {self.claimed_epsilon:.4g} at delta {self.delta:.3g}",
        ]
        if self.findings or not self.movements:
            bound = f"epsilon is at least {self.lower_bound:.4g}, with {self.confidence:.3g} confidence"
            lines.append(f"  audited: {bound}")
        lines += [f"  verdict: {self.verdict.upper()}", ""]
        if self.findings:
            lines.append("  attack      on                    claimed  at least  bound             AUC    trials")
        lines += map(_finding_line, self.findings)
        if self.movements:
            lines.append("  released sum    family of graphs     claimed      moved    ratio      nodes    entries")
        lines += map(_movement_line, self.movements)
        lines += map(_leak_line, self.leaks)
        lines += [f"  not run: {reason}" for reason in self.skipped]
        return "\n".join(lines)


def _finding_line(finding: Finding) -> str:
    bound, scores = finding.bound, finding.scores
    return (
        f"  {finding.attack:<11} {finding.target:<21} {finding.claimed_epsilon:>7.3f}  {bound.epsilon:>8.3f}  "
        f"{bound.kind:<16}  {scores.auc:.3f}  {len(scores):>6}{_mark(finding.verdict)}"
    )


def _movement_line(movement: Movement) -> str:
    moved = f"{movement.claimed:>10.6g} {movement.moved:>10.6g} {movement.ratio:>8.5f}"
    return (
        f"  {movement.mechanism:<15} {movement.family:<17} {moved} {movement.nodes:>10} {movement.entries:>10}"
        f"{_mark(movement.verdict)}"
    )


def _leak_line(leak: Leak) -> str:
    rates = leak.to_dict()
    return (
        f"  by predictions alone, {leak.attack} ({leak.statistic}): AUC {rates['auc']:.3f}, "
        f"{rates['tpr_at_0.1%_fpr']:.2%} found at 0.1 % false positives"
    )


def _mark(verdict: Verdict) -> str:
    return "  <-- VIOLATED" if verdict == "violated" else ""


def picture_in_words(report: AuditReport) -> str:
    """The picture in words, for those who cannot see it."""
    shown = _shown(report)
    if shown is None and report.movements:
        worst = max(report.movements, key=lambda movement: movement.ratio)
        return (
            f"Audit of {report.method}, verdict {report.verdict}. The released sum that moved most beside its "
            f"sensitivity is {worst.mechanism} ({worst.family}): {worst.ratio:.5g} times."
        )
    if shown is None:
        return f"Audit of {report.method}: no attack on its claim was run."
    heads, tails = shown.scores.heads, shown.scores.tails
    bars = "; ".join(
        f"{f.attack} on {f.target}: claimed {f.claimed_epsilon:.3g}, at least {f.bound.epsilon:.3g}"
        for f in report.findings
    )
    return (
        f"Audit of {report.method} on {report.graph}, verdict {report.verdict}. "
        f"Left: scores of the attack {shown.attack} on {shown.target}; with the change their mean is "
        f"{heads.mean():.3g} (standard deviation {heads.std():.3g}), without it {tails.mean():.3g} "
        f"({tails.std():.3g}). "
        f"Middle: ROC curves, areas {', '.join(f'{f.attack} {f.scores.auc:.3f}' for f in report.findings)}. "
        f"Right: lower bounds beside claims, {bars}."
    )


def draw_picture(report: AuditReport, folder: Path) -> list[Path]:
    """Draw the distribution of scores, ROC curves, and bounds beside claims, to audit.svg and audit.png.

    Args:
        report: The audit.
        folder: Where the files are written.

    Returns:
        The files; none if no attack on the claim was run.

    Raises:
        InvalidInput: If matplotlib is not installed, or the files cannot be written.
    """
    try:
        figures, agg = import_module("matplotlib.figure"), import_module("matplotlib.backends.backend_agg")
    except ImportError:
        raise InvalidInput("out", str(folder), "pictures need matplotlib: pip install matplotlib") from None
    shown = _shown(report)
    if shown is None:
        return []
    figure = figures.Figure(figsize=(13, 4.2), layout="constrained")
    agg.FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.1, 1, 1.3])
    _distributions(left, shown)
    _curves(middle, report)
    _bars(right, report)
    figure.suptitle(f"{report.method}{f' ({report.twin})' if report.twin else ''} on {report.graph}: {report.verdict}")
    words = picture_in_words(report)
    drawn, painted = io.StringIO(), io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    figure.savefig(painted, format="png", dpi=110, metadata={"Description": words})
    whole = _with_words(drawn.getvalue(), f"Audit of {report.method}", words)
    return write_files(folder, {"audit.svg": whole.encode(), "audit.png": painted.getvalue()})


def _shown(report: AuditReport) -> Finding | None:
    """The finding whose scores are drawn: the attack on all mechanisms together if it ran, or the worst one."""
    joint = [finding for finding in report.findings if finding.attack == "joint"]
    return joint[0] if joint and report.verdict == "consistent" else report.worst


def _distributions(axes: Any, finding: Finding) -> None:
    heads, tails = finding.scores.heads, finding.scores.tails
    low, high = np.quantile(finding.scores.values, [0.001, 0.999])
    edges = np.linspace(low, high if high > low else low + 1, 60)
    axes.hist(tails, edges, density=True, alpha=0.6, color=_TAILS, label="without the change")
    axes.hist(heads, edges, density=True, alpha=0.6, color=_HEADS, label="with the change")
    if finding.bound.kind != "one-run":
        axes.axvline(finding.bound.threshold, color="black", linestyle=":", label="threshold")
    axes.set(title=f"scores: {finding.attack}", xlabel="log-likelihood ratio or score", ylabel="density")
    axes.legend(fontsize=8)


def _curves(axes: Any, report: AuditReport) -> None:
    for finding in report.findings:
        falls, rises = finding.scores.roc()
        places = np.unique(np.linspace(0, len(falls) - 1, 400).astype(int))
        name = f"{finding.attack} {finding.target}"[:30]
        axes.plot(falls[places], rises[places], label=f"{name} {finding.scores.auc:.3f}")
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
    axes.set(title="ROC (area)", xlabel="false positives", ylabel="true positives")
    axes.legend(fontsize=7, loc="lower right")


def _bars(axes: Any, report: AuditReport) -> None:
    names = [f"{finding.attack}\n{finding.target[:26]}" for finding in report.findings]
    places = np.arange(len(names))
    axes.barh(places - 0.2, [f.claimed_epsilon for f in report.findings], 0.38, color=_CLAIM, label="claimed epsilon")
    colors = [_HEADS if f.verdict == "violated" else _BOUND for f in report.findings]
    axes.barh(places + 0.2, [f.bound.epsilon for f in report.findings], 0.38, color=colors, label="at least")
    axes.set_yticks(places, names, fontsize=7)
    axes.invert_yaxis()
    axes.set(title=f"bound against claim ({report.confidence:.0%} together)", xlabel="epsilon")
    axes.legend(fontsize=8)


def _with_words(svg: str, title: str, words: str) -> str:
    """The title and description that screen readers look for."""
    start = svg.index("<svg")
    end = svg.index(">", start)
    inside = f'<title id="title">{escape(title)}</title>\n<desc id="words">{escape(words)}</desc>'
    return f'{svg[:end]} role="img" aria-labelledby="title words">\n{inside}{svg[end + 1 :]}'
