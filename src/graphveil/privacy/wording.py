"""Certificates, plans and fitted models for readers: as text, and as a part of a page for notebooks.

Pages have no script and need no network; they take the colours of a light or a dark surrounding.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from graphveil.privacy.facts import what_a_link_is
from graphveil.privacy.levels import Level, Public, describe, is_zero_out
from graphveil.privacy.mechanisms import Mechanism
from graphveil.privacy.plan import SEARCH, Plan

if TYPE_CHECKING:
    from graphveil.privacy.certificate import Certificate

# Where the sections that mechanisms cite can be read.
_PROOFS = "Proofs: docs/theory.md (graphveil docs theory prints it)"


def text_of(certificate: Certificate) -> str:
    """The certificate for readers who do not know the theory."""
    facts, level = certificate.facts, certificate.level
    plain = not facts.weighted and not facts.relations
    protected = (describe(level, degrees=plain), *what_a_link_is(level, facts))
    lines = ["PRIVACY CERTIFICATE", "", *(f"  {sentence}" for sentence in protected)]
    if isinstance(level, Public):
        lines += ["  No noise was added and no guarantee is given.", ""]
    else:
        lines += [f"  {_in_words(certificate.epsilon, certificate.delta, level)}", "", *_figures(certificate), ""]
        lines += [f"WARNING: {line}" for line in certificate.warnings] + ([""] if certificate.warnings else [])
        lines += _uses_of_data(certificate)
    lines += ["What is assumed", *(f"  - {line}" for line in certificate.assumptions), ""]
    lines += ["What is NOT protected", *(f"  - {line}" for line in certificate.not_protected), ""]
    versions = ", ".join(f"{name} {version}" for name, version in certificate.versions.items())
    drawn = not isinstance(level, Public) and certificate.mechanisms
    lines += [_arithmetic_line(certificate)] if drawn else []
    lines += [f"Random numbers: {certificate.random_source}", f"Software: {versions}", _PROOFS]
    return "\n".join(lines)


def _uses_of_data(certificate: Certificate) -> list[str]:
    lines = ["What private data was used for", *_mechanism_lines(certificate), ""]
    if certificate.learnt:
        lines += ["What was learnt about the graph", *(f"  - {line}" for line in certificate.learnt), ""]
    for branch in certificate.not_followed:
        lines += [f"What the branch {branch.name} would have used it for, after what all branches share"]
        lines += [*map(_mechanism_line, branch.mechanisms), ""]
    for number, plan in enumerate(certificate.beside, start=1):
        lines += [f"What else was used for this result, {number} of {len(certificate.beside)}: {_role_beside(plan)}"]
        lines += [*map(_mechanism_line, plan.all_mechanisms)] or ["  - nothing"]
        lines += [""]
    return lines


def _figures(certificate: Certificate) -> list[str]:
    by_kind = ", ".join(f"{value:.4g} for {kind} nodes" for kind, value in certificate.epsilon_by_kind.items())
    kinds = f"; {by_kind}" if len(set(certificate.epsilon_by_kind.values())) > 1 else ""
    # `beside` has the choice and all candidates but this one: as many as there are candidates.
    candidates = len(certificate.beside)
    return [
        f"  epsilon {certificate.epsilon:.4g} at delta {certificate.delta:.3g} (method {certificate.method}{kinds})",
        *(
            [f"  for all {candidates} candidates of a search and the choice among them; this one was chosen"]
            if candidates
            else []
        ),
        f"  cross-check by Rényi accounting: {certificate.rdp_epsilon:.4g} (looser by design)",
    ]


def _mechanism_lines(certificate: Certificate) -> list[str]:
    if not certificate.mechanisms:
        return ["  - nothing: the model does not read what is protected"]
    names = ", ".join(branch.name for branch in certificate.branches)
    chosen = (
        f"  The plan has the branches {names}. What was released led to the branch {certificate.followed}. The figures "
        f"above are the largest of all branches, each at delta / {len(certificate.branches)}."
    )
    if certificate.beside:
        chosen = f"  The plan has the branches {names}. What was released led to the branch {certificate.followed}."
    return ([chosen] if certificate.branches else []) + [*map(_mechanism_line, certificate.mechanisms)]


def _mechanism_line(m: Mechanism) -> str:
    return f"  - {m.name} ({m.type}): sensitivity {m.sensitivity.worst:.4g}, noise {m.describe_noise()}; {m.source}"


def _role_beside(plan: Plan) -> str:
    return "the choice" if plan.method == SEARCH else f"a candidate that was not chosen ({plan.method})"


def _arithmetic_line(certificate: Certificate) -> str:
    lattices = certificate.arithmetic
    rounded = ", ".join(f"{name} {_power(step)}" for name, step in lattices["noise_steps"].items())
    steps = [f"{_power(lattices['table_step'])} of its bound for rows of tables"]
    steps += [f"{_power(step)} for {name} gradients" for name, step in lattices["gradient_steps"].items()]
    results = f"Results are rounded once, with their noise, to multiples of: {rounded}. " if rounded else ""
    return (
        f"Arithmetic: released sums are exact; every term is a multiple of {', '.join(steps)}. {results}"
        f"The noise is within {_power(lattices['sampler_delta'])} of ideal noise, which is part of delta."
    )


def _power(step: float) -> str:
    """A power of two as text, such as 2^-23."""
    return f"2^{round(math.log2(step))}"


def _in_words(epsilon: float, delta: float, level: Level) -> str:
    if epsilon == 0:
        return "The model does not depend on it at all."
    # At even prior odds, any test errs with probability at least (1 - delta) / (1 + e^epsilon).
    sure = 1 - (1 - delta) / (1 + math.exp(min(epsilon, 700)))
    question = "whether it is there" if is_zero_out(level) else "between two versions of it"
    return (
        f"Someone who knows everything else and has to guess {question}, at even odds beforehand, "
        f"is right with probability at most {sure:.6g}."
    )


# No colours of its own but for lines between rows: text and background are those of the notebook, light or dark.
_STYLE = (
    "font-family:system-ui,sans-serif;line-height:1.45;max-width:60rem;overflow-x:auto;color:inherit;"
    "background:transparent"
)
_CELL = "padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid rgba(128,128,128,.4);color:inherit"


def certificate_html(certificate: Certificate) -> str:
    """The text of a certificate as a part of a page: the guarantee and the figures first, the rest to be unfolded."""
    title, *lines = str(certificate).splitlines()
    first = lines.index("What is assumed") if "What is assumed" in lines else len(lines)
    rest = f"<details><summary>What is assumed, and what is not protected</summary>{_lists(lines[first:])}</details>"
    return _part(title.capitalize(), _lists(lines[:first]), rest)


def plan_html(plan: Plan) -> str:
    """What a plan would draw, as tables, and what it costs."""
    parts = [_table(plan.shared)] if plan.shared else ["<p>It draws nothing from what is protected.</p>"]
    for branch in plan.branches:
        parts += [f"<p>then, in the branch <b>{_safe(branch.name)}</b></p>", _table(branch.mechanisms)]
    for other in plan.beside:
        what = "the choice" if other.method == SEARCH else f"another candidate ({other.method})"
        parts += [f"<p>beside it: {_safe(what)}</p>", _table(other.all_mechanisms)]
    cost = "no guarantee" if math.isinf(plan.epsilon) else f"epsilon {plan.epsilon:.4g} at delta {plan.delta:.3g}"
    assumed = "".join(f"<li>{_safe(line)}</li>" for line in plan.assumptions)
    about = f"<p>{_safe(describe(plan.level))}</p><p><b>{cost}</b></p>"
    return _part(f"Plan of {plan.method}", about, *parts, f"<ul>{assumed}</ul>" if assumed else "")


def model_html(name: str, params: Iterable[tuple[str, object]], certificate: Certificate | None) -> str:
    """A model: the parameters that were given, and its certificate once it is fitted."""
    fitted = "<p>not fitted yet</p>" if certificate is None else certificate_html(certificate)
    return _part(name, _rows(("parameter", "value"), params), fitted)


def _part(title: str, *content: str) -> str:
    heading = f'<p style="font-weight:600;margin:.4rem 0">{_safe(title)}</p>'
    return f'<div class="graphveil" style="{_STYLE}">{heading}{"".join(content)}</div>'


def _table(mechanisms: Sequence[Mechanism]) -> str:
    rows = [(m.name, m.type, f"{m.sensitivity.worst:.4g}", m.describe_noise()) for m in mechanisms]
    return _rows(("mechanism", "what", "sensitivity", "noise"), rows)


def _rows(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def row(tag: str, cells: Sequence[object]) -> str:
        made = (f'<{tag} style="{_CELL}">{_safe(cell)}</{tag}>' for cell in cells)
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(row("td", cells) for cells in rows)
    style = "border-collapse:collapse;background:transparent"
    return f'<table style="{style}"><thead>{row("th", heads)}</thead><tbody>{body}</tbody></table>'


# "h" a heading, "p" a sentence, "i" an item of a list: the script of a report, page.js, knows the same letters.
Block = tuple[Literal["h", "p", "i"], str]


def blocks(lines: Iterable[str]) -> Iterator[Block]:
    """Lines of a certificate, divided into headings, sentences and items."""
    kept = [line for line in lines if line.strip()]
    for line, after in zip(kept, [*kept[1:], ""], strict=True):
        if line.startswith("  - "):
            yield "i", line[4:]
        else:
            yield "h" if not line.startswith(" ") and after.startswith("  ") else "p", line.strip()


def _lists(lines: Iterable[str]) -> str:
    """Lines of a certificate as HTML."""
    forms = {"h": "<p><b>{}</b></p>", "p": "<p>{}</p>", "i": "<li>{}</li>"}
    made = []
    for items, group in groupby(blocks(lines), key=lambda block: block[0] == "i"):
        parts = "".join(forms[kind].format(_safe(text)) for kind, text in group)
        made.append(f"<ul>{parts}</ul>" if items else parts)
    return "".join(made)


def _safe(text: object) -> str:
    return html.escape(str(text))
