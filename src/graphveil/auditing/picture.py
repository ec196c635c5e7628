"""An audit as a picture: what the scores look like, how well they tell the graphs apart, and bound against claim.

matplotlib is loaded when a picture is asked for. Every picture has a text that says what is in it.
"""

from __future__ import annotations

import io
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from graphveil.auditing.verdict import AuditReport, Finding
from graphveil.errors import InvalidInput
from graphveil.report.writing import write_files

_TAILS, _HEADS, _CLAIM, _BOUND = "#4477aa", "#ee6677", "#bbbbbb", "#228833"


def text_of(report: AuditReport) -> str:
    """The picture in words, for those who cannot see it."""
    shown = _shown(report)
    if shown is None and report.movements:
        worst = max(report.movements, key=lambda movement: (movement.claimed is not None, movement.ratio))
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


def draw(report: AuditReport, folder: Path) -> list[Path]:
    """audit.svg and audit.png in `folder`."""
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
    words = text_of(report)
    drawn, painted = io.StringIO(), io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    figure.savefig(painted, format="png", dpi=110, metadata={"Description": words})
    whole = _with_words(drawn.getvalue(), f"Audit of {report.method}", words)
    return write_files(folder, {"audit.svg": whole.encode(), "audit.png": painted.getvalue()})


def _shown(report: AuditReport) -> Finding | None:
    """The attack on everything together if it ran, or the one that stands out."""
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
