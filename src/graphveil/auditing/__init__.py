"""Attacks that try to break the guarantee, and bounds on epsilon from what they see. docs/audit.md explains them.

`graphveil.audit` is this package's function `audit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphveil import validate
from graphveil.auditing import arithmetic
from graphveil.auditing.adjacent_fits import adjacent_graphs, best_score, run_trials, small_part
from graphveil.auditing.bounds import Bound, Scores, gaussian_bound, lower_bound, threshold_bound
from graphveil.auditing.mechanisms import Subject, attack_mechanisms, attack_name
from graphveil.auditing.report import AuditReport, Finding, Movement
from graphveil.auditing.single_fits import (
    Leak,
    infer_membership,
    one_run_bound,
    one_run_scores,
    shows_readers,
    steal_links,
)
from graphveil.auditing.twins import TWINS, Twin, twin_named
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, LedgerLike
from graphveil.graph import Graph, csbm
from graphveil.methods import method_class
from graphveil.methods.estimator import NodeClassifier
from graphveil.noise import NoiseSource
from graphveil.privacy.levels import KNeighbor, Level, Node, Public, with_unit
from graphveil.privacy.mechanisms import ClippedTraining, Mechanism
from graphveil.privacy.plan import Plan

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


WHITE_BOX = ("release", "table", "gradient", "response", "joint", "one-run", "end-to-end")
BLACK_BOX = ("links", "membership")
# The attacks of an audit unless others are named; "arithmetic" has to be named.
USUAL = WHITE_BOX + BLACK_BOX
ATTACKS = (*USUAL, "arithmetic")

CANARIES = 100_000
FITS = 200
_SMALL = 60
_CHEAP = {"steps": 5, "epochs": 5, "hidden": 8}

# One attack, ready to run: given a seed and a confidence it returns a finding.
Task = Callable[[int, float], Finding]


@dataclass(frozen=True, eq=False)
class Case:
    """A method with its options on a graph, sound or with the mistake of a twin.

    Args:
        cls: The method.
        level: The level.
        epsilon: The budget.
        delta: As in the estimators.
        options: Further parameters of the method.
        graph: The graph.
        twin: The broken twin, if it is one.
    """

    cls: type[NodeClassifier]
    level: Level
    epsilon: float | None
    delta: float | str
    options: dict[str, Any]
    graph: Graph
    twin: Twin | None

    def model(self) -> NodeClassifier:
        """A new model. All models of a case start from the same initial weights, which are public."""
        return self.cls(
            level=self.level, epsilon=self.epsilon, delta=self.delta, seed=0, show_progress=False, **self.options
        )

    def plan(self) -> Plan:
        """The plan that the method claims."""
        return self.model().plan(self.graph)

    def subject(self) -> Subject:
        """The plan, and the code that executes it."""
        plan = self.plan()
        return Subject.sound(plan) if self.twin is None else self.twin.subject(plan)

    def make_ledger(self, plan: Plan, source: NoiseSource) -> LedgerLike:
        """The ledger of the method, or of the twin."""
        if self.twin is None:
            return Ledger(plan, source)
        return self.twin.make_ledger(self.twin.executed(plan), source)

    def target(self) -> arithmetic.Target:
        """What the attack on arithmetic attacks."""
        return arithmetic.Target(self.cls, self.level, self.epsilon, self.options, self.make_ledger)

    def small(self, seed: int) -> Case:
        """The same method on a part of the graph that is small enough for many fits, with few steps."""
        level, options = self.level, _CHEAP | dict(self.twin.options if self.twin else ())
        degree = _SMALL // 4
        if isinstance(level, Node):
            level = replace(level, max_degree=min(level.max_degree, degree))
        for name in ("table", "tau", "response_epsilon", "batch_size", "row_norm", "hops"):
            if name in self.options:
                options[name] = self.options[name]
        if "max_degree" in self.options:
            options["max_degree"] = degree
        if isinstance(level, KNeighbor):
            level = replace(level, k=min(level.k, degree))
        part = small_part(self.graph, _SMALL, seed, most_links=degree - 1)
        return replace(self, level=level, options=options, graph=part, delta=self.plan().delta)


def audit(
    method: str | NodeClassifier = "dpdgc",
    level: Level | None = None,
    epsilon: float | None = None,
    *,
    graph: Graph | None = None,
    delta: float | str = "auto",
    attacks: Sequence[str] | None = None,
    twin: str | Twin | None = None,
    trials: int | None = None,
    fits: int | None = None,
    confidence: float = 0.95,
    scale: float = 1.0,
    seed: int | None = None,
    **options: Any,
) -> AuditReport:
    """Attack a method at a level with a claimed epsilon, and bound epsilon from below.

    Args:
        method: A method's name, or an unfitted estimator, whose parameters are then used.
        level: What is protected; by default `KNeighbor(1)`.
        epsilon: The claim; by default 4.
        graph: The graph that is attacked; by default a built-in cSBM graph.
        delta: As in the estimators.
        attacks: Some of "release", "table", "gradient", "response", "joint", "one-run", "end-to-end", "links",
            "membership" and "arithmetic" (docs/audit.md). By default all that apply, except "arithmetic".
        twin: A broken variant of the method (`graphveil.auditing.twins`), or its name. It must be reported as violated.
        trials: The number of canaries of each attack on a mechanism. For the attack "arithmetic" alone, the number of
            random pairs of graphs beside those that it builds.
        fits: The number of fits of the end-to-end attack.
        confidence: Of the whole audit. A sound method is reported as violated with probability 1 - confidence at most.
        scale: The size of the graphs of the attack "arithmetic", in multiples of the usual one.
        seed: Makes the audit repeatable.
        options: Further parameters of the method.

    Returns:
        A report: `lower_bound` on epsilon, `verdict` ("consistent" or "violated"), and what each attack found.

    Raises:
        InvalidInput: An argument cannot be used, or none of `attacks` applies to the method at this level.

    Formal guarantee: if the claim is true, `lower_bound` is at most the claimed epsilon with probability `confidence`.
    The report describes attacks on `graph` and may show what they learned: use a graph that need not be protected.

    >>> from graphveil.privacy.levels import KNeighbor
    >>> report = audit("dpdgc", KNeighbor(1), 4.0, attacks=["release"], trials=2000, seed=1)
    >>> report.verdict, report.lower_bound <= 4.0
    ('consistent', True)
    """
    validate.open_unit("confidence", confidence)
    if seed is not None:
        validate.seed("seed", seed)
    validate.positive("scale", scale)
    alone = attacks is not None and set(attacks) == {"arithmetic"}
    canaries = CANARIES if trials is None else validate.count("trials", trials, least=1 if alone else 100)
    fits = FITS if fits is None else validate.count("fits", fits, least=40)
    case = _case(method, level, epsilon, graph, delta, twin, options)
    chosen = _checked_attacks(attacks)
    claim = _empty_report(case, confidence, seed)
    tasks, skipped = _tasks(case, canaries, fits, chosen)
    each = 1 - (1 - confidence) / max(1, len(tasks))
    rng = np.random.default_rng(seed)
    findings = [task(int(rng.integers(2**52)), each) for task in tasks]
    leaks = _leaks(case, chosen, rng, skipped)
    movements: list[Movement] = []
    if "arithmetic" in chosen:
        pairs = trials if alone and trials is not None else 0
        movements = arithmetic.attack(case.target(), int(rng.integers(2**31)), pairs=pairs, scale=scale)
        if not movements:
            skipped.append(f"arithmetic: {case.cls.method} releases nothing here")
    if attacks and not findings and not leaks and not movements:
        raise InvalidInput("attack", ", ".join(attacks), f"does not apply: {'; '.join(skipped)}")
    return replace(
        claim,
        findings=tuple(findings),
        leaks=tuple(leaks),
        movements=tuple(movements),
        skipped=() if attacks is None else tuple(skipped),
    )


def _empty_report(case: Case, confidence: float, seed: int | None) -> AuditReport:
    """What was claimed, before any attack."""
    plan = case.plan()
    certified = plan.epsilon
    return AuditReport(
        method=case.cls.method,
        level=plan.level,
        graph=case.graph.name,
        claimed_epsilon=case.epsilon if case.epsilon is not None and certified > 0 else certified,
        certified_epsilon=certified,
        delta=plan.delta,
        confidence=confidence,
        findings=(),
        twin=case.twin.name if case.twin else None,
        seed=seed,
    )


def audit_mechanisms(subject: Subject, trials: int, confidence: float, seed: int | None) -> list[Finding]:
    """The cheap attacks: on every mechanism of a plan, and on all mechanisms of a branch together.

    Args:
        subject: The plan, and the code that executes it.
        trials: The number of canaries of each attack.
        confidence: Of all attacks together.
        seed: Makes them repeatable.

    Returns:
        A finding for each attack.
    """
    groups = [[mechanism] for mechanism in subject.charged()]
    groups += [branch for branch in subject.branches() if len(branch) > 1]
    each = 1 - (1 - confidence) / max(1, len(groups))
    rng = np.random.default_rng(seed)
    return [_mechanism_task(subject, group, trials)(int(rng.integers(2**52)), each) for group in groups]


def _checked_attacks(attacks: Sequence[str] | None) -> Sequence[str]:
    for name in attacks or ():
        if name not in ATTACKS:
            raise InvalidInput("attack", name, f"must be one of {', '.join(ATTACKS)}")
    return attacks or USUAL


def _case(
    method: str | NodeClassifier,
    level: Level | None,
    epsilon: float | None,
    graph: Graph | None,
    delta: float | str,
    twin: str | Twin | None,
    options: dict[str, Any],
) -> Case:
    broken = twin_named(twin) if isinstance(twin, str) else twin
    if isinstance(method, NodeClassifier):
        given = method.get_params()
        level, epsilon, delta = given["level"], given["epsilon"], given["delta"]
        ignored = ("level", "epsilon", "delta", "seed", "show_progress")
        options = {name: value for name, value in given.items() if name not in ignored} | options
        cls: type[NodeClassifier] = type(method)
    else:
        if broken is not None and not broken.replaces and method != broken.method:
            raise InvalidInput("method", method, f"the twin {broken.name} is one of {broken.method}")
        cls = method_class(method)
    if broken is not None:
        level, epsilon = level or broken.level, epsilon or broken.epsilon
        options = (dict(broken.options) if cls.method == broken.method else {}) | options
        cls = broken.applied_to(cls)
    graph = graph if graph is not None else csbm(0.5, n=1000, f=20, seed=0)
    level = with_unit(level if level is not None else KNeighbor(1), graph.directed)
    if epsilon is None and not isinstance(level, Public):
        epsilon = 4.0
    if isinstance(level, KNeighbor) and cls.sums_attributes and options.get("max_degree") is None:
        options["max_degree"] = largest_degree(graph) + level.k
    return Case(cls, level, epsilon, delta, options, graph, broken)


def largest_degree(graph: Graph) -> int:
    """The largest degree of the graph; an audit is about the method and need not protect this graph."""
    both = graph.to_scipy() + graph.to_scipy().T
    return int(max(1, np.diff(both.indptr).max()))


def _tasks(case: Case, canaries: int, fits: int, attacks: Sequence[str]) -> tuple[list[Task], list[str]]:
    if isinstance(case.level, Public):
        return [], ["attacks on a claim: level none claims nothing"]
    subject = case.subject()
    charged = subject.charged()
    tasks, skipped = list[Task](), list[str]()
    for mechanism in charged:
        if attack_name(mechanism) in attacks:
            tasks.append(_mechanism_task(subject, [mechanism], canaries))
    for name in ("release", "table", "gradient", "response"):
        if name in attacks and not any(attack_name(mechanism) == name for mechanism in charged):
            skipped.append(f"{name}: {case.cls.method} has no such mechanism here")
    if "joint" in attacks:
        together = [branch for branch in subject.branches() if len(branch) > 1 or (branch and not tasks)]
        tasks += [_mechanism_task(subject, branch, canaries) for branch in together]
    sampled = any(isinstance(m, ClippedTraining) and m.sampling_rate < 1 for m in charged)
    released = any(map(shows_readers, charged))
    if "one-run" in attacks:
        if released and not sampled and _room(case) >= 40:
            tasks.append(lambda seed, each: _one_run(case, subject, seed, each))
        else:
            skipped.append("one-run: needs released tables, full batches and room for 40 canaries")
    if "end-to-end" in attacks:
        if any(mechanism.role == "edges" for mechanism in charged):
            skipped.append("end-to-end: randomised edges are audited bit by bit")
        else:
            tasks.append(lambda seed, each: _end_to_end(case, fits, seed, each))
    return tasks, skipped


def _room(case: Case) -> int:
    level = case.level
    readers = level.k if isinstance(level, KNeighbor) else level.max_degree if isinstance(level, Node) else 1
    return case.graph.num_nodes // (readers + 1) if readers else 0


def _mechanism_task(subject: Subject, mechanisms: list[Mechanism], trials: int) -> Task:
    names = [mechanism.name for mechanism in mechanisms]

    def run(seed: int, each: float) -> Finding:
        start = time.perf_counter()
        scores = attack_mechanisms(subject, mechanisms, trials, seed)
        claim = subject.claim(names)
        bound = lower_bound(scores, subject.claimed.delta, each, claim)
        attack = attack_name(mechanisms[0]) if len(mechanisms) == 1 else "joint"
        claimed = claim.epsilon(subject.claimed.delta)
        return Finding(attack, " + ".join(names), claimed, bound, scores, time.perf_counter() - start)

    return run


def _one_run(case: Case, subject: Subject, seed: int, each: float) -> Finding:
    start = time.perf_counter()
    few = replace(case, options=case.options | {"steps": min(20, case.options.get("steps", 20))})
    scores = one_run_scores(few.model, case.graph, case.level, seed, case.make_ledger)
    bound = one_run_bound(scores, subject.claimed.delta, each)
    return Finding("one-run", "one fit", few.plan().epsilon, bound, scores, time.perf_counter() - start)


def _end_to_end(case: Case, fits: int, seed: int, each: float) -> Finding:
    start = time.perf_counter()
    small = case.small(seed)
    # Such a twin reads validation labels without the ledger, so a replay would not show it.
    validation = case.twin is not None and case.twin.validation
    pair = adjacent_graphs(small.graph, small.level, seed, validation=validation)
    plan = small.plan()
    trials = run_trials(small.model, pair, fits, seed, small.make_ledger, replay=not validation)
    claim = small.subject().whole_claim()
    name, scores = best_score(trials, plan.delta, each, claim)
    bound = lower_bound(scores, plan.delta, each, claim)
    target = f"{fits} fits by {name}"
    return Finding("end-to-end", target, plan.epsilon, bound, scores, time.perf_counter() - start)


def _leaks(case: Case, chosen: Sequence[str], rng: np.random.Generator, skipped: list[str]) -> list[Leak]:
    """What attacks by predictions found; to `skipped` is added why one of them does not apply."""
    leaks = list[Leak]()
    for name in (name for name in BLACK_BOX if name in chosen):
        arguments = case.model, case.graph, case.level, int(rng.integers(2**52)), case.make_ledger
        found = steal_links(*arguments) if name == "links" else [infer_membership(*arguments)]
        leaks += found
        if not found:
            skipped.append(f"{name}: {case.cls.method} answers nothing about a node without its links")
    return leaks
