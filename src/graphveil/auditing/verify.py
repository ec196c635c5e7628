"""Checks a run folder against its certificate: recomputes its figures, compares files, and runs the cheap attacks."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from graphveil.auditing import audit_mechanisms
from graphveil.auditing.mechanisms import Subject
from graphveil.auditing.report import Finding
from graphveil.errors import GraphveilError, InvalidInput
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.search import METRICS
from graphveil.methods.spending import Settings, choice_plan, make_plan
from graphveil.privacy.certificate import Certificate, assumptions_of, not_protected_by
from graphveil.privacy.levels import Public
from graphveil.privacy.mechanisms import KINDS, ClippedTraining, GaussianRelease, Mechanism, Responses
from graphveil.privacy.plan import SEARCH, Plan
from graphveil.validate import without_infinity

_TOLERANCE = 1e-6
# All branches of a plan are calibrated to the same epsilon, each to within a tenth of this.
_SAME_BUDGET = 1e-2
# Beyond this epsilon plans do not change.
_LARGE = 64.0
CANARIES = 20_000
CONFIDENCE = 0.999


@dataclass(frozen=True, eq=False)
class Verification:
    """The result of a check.

    Args:
        problems: What is wrong, one sentence for each problem.
        findings: What the cheap attacks found.
        epsilon_spent: The cost with later releases for new nodes; None where nothing is protected or the model cannot
            be loaded.
    """

    problems: tuple[str, ...]
    findings: tuple[Finding, ...]
    epsilon_spent: float | None = None

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "problems": list(self.problems),
            "epsilon_spent": self.epsilon_spent,
            "audits": [finding.to_dict() for finding in self.findings],
        }


def verify(run: str | Path, *, audits: bool = True) -> Verification:
    """Check a run folder against its certificate.

    Args:
        run: A folder that `graphveil train --out` or `model.save` wrote; only the former has metrics.
        audits: Whether the cheap attacks are run.

    Returns:
        The problems, if there are any.

    Raises:
        InvalidInput: If the folder or its certificate cannot be read.

    Formal guarantee: none beyond the certificate's own. A run without problems has a certificate whose figures follow
    from its mechanisms by both accountants, and whose mechanisms are those of the method at the level; the other files
    belong to it and have their checksums; the model can be loaded; and the library's mechanisms, with the certified
    noise, pass the attacks.
    """
    run = Path(run)
    certificate = _certificate(run)
    problems = check_certificate(certificate)
    problems += [*_text(run, certificate), *_metrics(run, certificate), *_predictions(run, certificate)]
    damage, spent = _artifact(run)
    problems += [problem for problem in damage if problem not in problems]
    findings: list[Finding] = []
    if audits and not isinstance(certificate.level, Public) and not problems:
        plans = dict.fromkeys((certificate.plan().alone, *certificate.beside))  # equal candidates once
        findings = [f for plan in plans for f in audit_mechanisms(Subject.sound(plan), CANARIES, CONFIDENCE, seed=0)]
        problems += [
            f"audit: {f.attack} on {f.target} shows epsilon >= {f.bound.epsilon:.4g}, claimed {f.claimed_epsilon:.4g}"
            for f in findings
            if f.verdict == "violated"
        ]
    return Verification(tuple(problems), tuple(findings), spent)


def _artifact(run: Path) -> tuple[list[str], float | None]:
    """Checksums of all files, whether the model can be loaded from them, and what it has cost by now."""
    from graphveil.artifact import load, problems

    damage = list(problems(run))
    if damage:
        return damage, None
    try:
        model = load(run)
    except GraphveilError as error:
        return [f"model: cannot be loaded ({error})"], None
    spent = model.epsilon_spent
    if spent > model.budget_ * (1 + _TOLERANCE):
        damage = [f"owner/new_nodes.jsonl: epsilon {spent:.4g} is spent, the budget is {model.budget_:.4g}"]
    return [*damage, *_as_configured(model)], without_infinity(spent)


def _as_configured(model: NodeClassifier) -> Iterator[str]:
    """Problems if the certificate's sensitivities or sentences are not those of the settings in config.json.

    Noise is left out, because epsilon was recomputed from it.
    """
    claimed = model.certificate_
    try:
        plan = model.plan_for(claimed.facts)
    except GraphveilError as error:
        yield f"public/config.json: has no plan ({error})"
        return
    if _names(plan) != _names(claimed.plan()):
        yield f"certificate: lists the mechanisms {_listed(claimed.plan())}; its settings give {_listed(plan)}"
        return
    for wanted in plan.all_mechanisms:
        listed = claimed.plan()[wanted.name]
        for name, value in _figures_of(wanted).items():
            if not _close(_figures_of(listed).get(name, math.nan), value):
                yield f"certificate: {name} of {wanted.name} is not {value:.6g}, which its settings give"
    plan = replace(plan, beside=claimed.beside)
    for name, sentences in (("assumptions", assumptions_of(plan)), ("not_protected", not_protected_by(plan))):
        if getattr(claimed, name) != sentences:
            yield f"certificate: {name} are not those of its method, level and settings"


def _figures_of(mechanism: Mechanism) -> dict[str, float]:
    """The figures that decide what a mechanism costs, except for its noise."""
    figures = {f"sensitivity ({kind})": mechanism.sensitivity.of(kind) for kind in KINDS} | {"uses": mechanism.uses}
    if isinstance(mechanism, ClippedTraining):
        figures |= {"clip": mechanism.clip, "sampling rate": mechanism.sampling_rate}
    return figures | ({"classes": mechanism.classes} if isinstance(mechanism, Responses) else {})


def check_certificate(certificate: Certificate) -> list[str]:
    """What is wrong with a certificate by itself, one sentence for each problem.

    Args:
        certificate: The certificate.

    Returns:
        The problems: figures that do not follow from its mechanisms, or mechanisms that the method does not have.
    """
    try:
        plan = certificate.plan()
        problems = [*_figures(certificate), *_search(plan)]
        for each in (plan.alone, *(other for other in plan.beside if other.method != SEARCH)):
            problems += [*_branch_budgets(each), *_mechanisms(each)]
        return problems
    except GraphveilError:
        raise
    except (ArithmeticError, ValueError) as error:
        return [f"certificate: its numbers cannot be accounted for ({error})"]


def _certificate(run: Path) -> Certificate:
    """The certificate of a run; without one it is an error."""
    if not run.is_dir():
        raise InvalidInput("run", str(run), "is not a folder")
    return Certificate.from_json(_read(run / "certificate.json"))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("run", str(path), f"cannot be read: {error}") from None


def _figures(certificate: Certificate) -> Iterator[str]:
    """Problems if epsilon is not what both accountants compute from the mechanisms."""
    plan = certificate.plan()
    by_kind = {str(kind): value for kind, value in plan.epsilon_by_kind().items()}
    stated = [
        ("epsilon", certificate.epsilon, max(by_kind.values())),
        ("Rényi epsilon", certificate.rdp_epsilon, plan.rdp_epsilon),
    ]
    for kind, value in by_kind.items():
        stated.append((f"epsilon of {kind} nodes", certificate.epsilon_by_kind.get(kind, math.nan), value))
    for name, claimed, computed in stated:
        if not _close(claimed, computed):
            yield f"certificate: {name} is stated as {claimed:.6g}, its mechanisms give {computed:.6g}"
    if plan.rdp_epsilon < max(by_kind.values()) * (1 - 1e-3) and math.isfinite(plan.rdp_epsilon):
        yield f"certificate: the accountants disagree ({max(by_kind.values()):.6g} and {plan.rdp_epsilon:.6g})"


def _branch_budgets(plan: Plan) -> Iterator[str]:
    """Problems if the branches of a plan do not cost the same.

    A branch without noise of its own costs what it costs; the others are calibrated to one epsilon.
    """
    calibrated = [b for b in plan.branches if any(not isinstance(m, Responses) and m.noise > 0 for m in b.mechanisms)]
    each = [max(plan.follow(branch.name).followed_epsilon_by_kind().values()) for branch in calibrated]
    if each and not math.isclose(min(each), max(each), rel_tol=_SAME_BUDGET):
        yield f"certificate: its branches have budgets of their own ({', '.join(f'{value:.6g}' for value in each)})"


def _search(plan: Plan) -> Iterator[str]:
    """Problems if a search does not list one choice, among as many candidates as there are, at its sensitivity."""
    if not plan.beside:
        return
    choices = [other for other in plan.beside if other.method == SEARCH]
    if len(choices) != 1:
        yield f"certificate: a search makes one choice, and {len(choices)} are listed"
        return
    claimed = choices[0]
    possible = [choice_plan(plan.level, plan.facts, plan.delta, len(plan.beside), metric, 1.0) for metric in METRICS]
    if not any(_names(each) == _names(claimed) and _same_sensitivities(each, claimed) for each in possible):
        yield f"certificate: its choice is not one among {len(plan.beside)} candidates, which are listed"


def _same_sensitivities(plan: Plan, claimed: Plan) -> bool:
    return all(
        _close(ours.sensitivity.of(kind), claimed[ours.name].sensitivity.of(kind))
        for ours in plan.all_mechanisms
        for kind in KINDS
    )


def _mechanisms(claimed: Plan) -> Iterator[str]:
    """Problems if none of the method's plans at this level has these mechanisms, branches and sensitivities."""
    try:
        possible = list(_possible(claimed))
    except GraphveilError as error:
        yield f"certificate: {claimed.method} has no such plan ({error})"
        return
    expected = next((each for each in possible if _names(each) == _names(claimed)), None)
    if expected is None:
        wanted = " or ".join(dict.fromkeys(map(_listed, possible)))
        yield f"certificate: lists the mechanisms {_listed(claimed)}; the method has {wanted}"
        return
    for ours in expected.all_mechanisms:
        theirs = claimed[ours.name]
        if (ours.type, ours.role) != (theirs.type, theirs.role):
            is_one, has_one = (f"{each.type} for the {each.role}" for each in (theirs, ours))
            yield f"certificate: {theirs.name} is a {is_one}; the method has a {has_one}"
        elif not (
            _close(ours.sensitivity.training, theirs.sensitivity.training)
            and _close(ours.sensitivity.unlabelled, theirs.sensitivity.unlabelled)
        ):
            yield (
                f"certificate: {theirs.name} has sensitivity {theirs.sensitivity.worst:.6g}; "
                f"at this level it is {ours.sensitivity.worst:.6g}"
            )


def _names(plan: Plan) -> dict[str | None, set[str]]:
    """The names of the mechanisms in each branch; None stands for what they share."""
    shared: dict[str | None, set[str]] = {None: {m.name for m in plan.shared}}
    return shared | {branch.name: {m.name for m in branch.mechanisms} for branch in plan.branches}


def _listed(plan: Plan) -> str:
    names = ", ".join(m.name for m in plan.shared) or "none"
    branches = [f"{b.name}: {', '.join(m.name for m in b.mechanisms) or 'none'}" for b in plan.branches]
    return f"{names}, then by branch ({'; '.join(branches)})" if branches else names


def _possible(plan: Plan) -> Iterator[Plan]:
    """The plans that the method may have had. What was spent is a little less than what was asked for."""
    spent = min(plan.epsilon, _LARGE) if plan.epsilon > 0 else 1.0
    settings = _settings(plan)
    # A release names its table; whether it was asked for or chosen by "auto" shows in the other mechanisms.
    for table in dict.fromkeys((settings.table, "auto")):
        made = partial(make_plan, plan.method, plan.level, plan.facts, settings=replace(settings, table=table))
        for epsilon in (None,) if isinstance(plan.level, Public) else (spent, 1.01 * spent):
            yield made(epsilon=epsilon, delta=plan.delta)


def _settings(plan: Plan) -> Settings:
    """The settings, as far as the mechanisms show them."""
    listed = plan.all_mechanisms
    trainings = [m for m in listed if isinstance(m, ClippedTraining)]
    trained = next(iter(trainings), None)
    releases = [m for m in listed if isinstance(m, GaussianRelease)]
    released = next((m for m in releases if m.role == "release"), None)
    summed = next((m for m in releases if m.role == "aggregation"), None)
    return Settings(
        steps=trained.steps if trained else None,
        clip=trained.clip if trained else 1.0,
        hops=summed.uses if summed else 2,
        layers=summed.uses if summed else 1,
        max_degree=summed.degree_bound if summed else None,
        table=released.table if released else "auto",
        row_norm=released.row_norm if released else 1.0,
        tau=next((m.tau for m in releases if m.tau is not None), None),
        counts_classes=any(m.role == "classes" for m in releases),
    )


def _text(run: Path, certificate: Certificate) -> Iterator[str]:
    path = run / "certificate.txt"
    if not path.exists():
        yield "certificate.txt: is missing"
    elif _read(path).strip() != str(certificate).strip():
        yield "certificate.txt: does not say what certificate.json says"
    if json.loads(_read(run / "certificate.json")) != certificate.to_dict():
        yield "certificate.json: its warnings or its arithmetic are not those of its figures"


def _metrics(run: Path, certificate: Certificate) -> Iterator[str]:
    path = run / "metrics.json"
    if not path.exists():
        return  # the manifest says whether there should be one
    try:
        metrics = json.loads(_read(path))
    except json.JSONDecodeError as error:
        yield f"metrics.json: is not JSON ({error})"
        return
    if not isinstance(metrics, dict):
        yield "metrics.json: is not an object"
        return
    stated = certificate.to_dict()
    if metrics.get("certificate") != stated:
        yield "metrics.json: carries another certificate"
    for name in ("epsilon", "delta", "method"):
        if metrics.get(name) != stated[name]:
            yield f"metrics.json: {name} is {metrics.get(name)!r}, the certificate says {stated[name]!r}"
    for name in ("test_accuracy", "val_accuracy"):
        value = metrics.get(name)
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1):
            yield f"metrics.json: {name} is {value!r}"


def _predictions(run: Path, certificate: Certificate) -> Iterator[str]:
    path = run / "predictions.csv"
    if not path.exists():
        return
    table = list(csv.reader(io.StringIO(_read(path))))
    facts = certificate.facts
    if not table or table[0][:2] != ["node", "prediction"] or len(table[0]) != 2 + facts.classes:
        yield f"predictions.csv: its columns are not node, prediction and {facts.classes} classes"
        return
    if len(table) - 1 != facts.nodes:
        yield f"predictions.csv: has {len(table) - 1} nodes, the certificate says {facts.nodes}"
        return
    for number, row in enumerate(table[1:]):
        try:
            values = [float(cell) for cell in row[2:]]
            good = len(values) == facts.classes and abs(sum(values) - 1) < 1e-3 and all(0 <= p <= 1 for p in values)
            good = good and table[0][2 + values.index(max(values))] == f"p({row[1]})"
        except (ValueError, IndexError):
            good = False
        if not good:
            yield f"predictions.csv: row {number} is not a node, its class and {facts.classes} probabilities"
            return
    if len({row[0] for row in table[1:]}) != facts.nodes:
        yield "predictions.csv: names a node twice"


def _close(claimed: float, computed: float) -> bool:
    return claimed == computed or math.isclose(claimed, computed, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
