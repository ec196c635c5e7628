"""The certificate: the executed plan, as JSON for machines and as text for readers who do not know the theory."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.privacy import wording
from graphveil.privacy.facts import PublicFacts, delta_warning, links_are_public
from graphveil.privacy.levels import (
    Edge,
    KNeighbor,
    Level,
    Public,
    is_zero_out,
    level_from_dict,
    level_to_dict,
    protects_attributes,
)
from graphveil.privacy.mechanisms import (
    SAMPLER_DELTA,
    ClippedTraining,
    GradientLattice,
    Mechanism,
    Responses,
    noise_step,
    table_step,
)
from graphveil.privacy.plan import (
    Branch,
    Plan,
    mechanisms_from_list,
    mechanisms_to_list,
    plan_from_dict,
    plan_to_dict,
)
from graphveil.validate import check_declared, without_infinity

SCHEMA = "graphveil-certificate/4"
_LIBRARIES = ("graphveil", "torch", "numpy", "scipy", "dp-accounting", "cryptography")


@dataclass(frozen=True)
class Certificate:
    """What was protected, at what cost, under which assumptions, and what was not protected.

    Formal guarantee: the fit that this certificate belongs to drew noise exactly as listed in `mechanisms`, and is
    therefore (`epsilon`, `delta`) graph-differentially private at `level` under `assumptions`. A plan with branches is
    certified as a whole: `epsilon`, `epsilon_by_kind` and `rdp_epsilon` are the maximum over all of them
    (docs/theory.md, section 4.5).

    Args:
        method: The method's name.
        level: What is protected.
        epsilon: What the worst kind of node pays.
        delta: The probability that is left out of the guarantee.
        rdp_epsilon: Epsilon by Rényi accounting, a looser cross-check.
        epsilon_by_kind: What nodes in training and unlabelled nodes pay.
        shared: What was drawn before any branch, with sensitivities and noise.
        facts: The public facts that the plan was made from.
        assumptions: What the guarantee relies on.
        not_protected: What the guarantee does not cover.
        random_source: Where the noise came from.
        secure: Whether that source is cryptographic and unseeded.
        versions: Versions of Python and of libraries.
        branches: The branches of the plan; none if `shared` is all there is.
        followed: The name of the branch that was executed; None if there are no branches.
        learnt: What the paid statistics say about the graph, in sentences: post-processing of what was released.
        beside: The other candidates of a search, and the choice among them; `epsilon` is for all of them.

    Raises:
        InvalidInput: A field has the wrong type.
    """

    method: str
    level: Level
    epsilon: float
    delta: float
    rdp_epsilon: float
    epsilon_by_kind: dict[str, float]
    shared: tuple[Mechanism, ...]
    facts: PublicFacts
    assumptions: tuple[str, ...]
    not_protected: tuple[str, ...]
    random_source: str
    secure: bool
    versions: dict[str, str] = field(default_factory=dict)
    branches: tuple[Branch, ...] = ()
    followed: str | None = None
    learnt: tuple[str, ...] = ()
    beside: tuple[Plan, ...] = ()

    @classmethod
    def of(cls, plan: Plan, random_source: str, secure: bool) -> Certificate:
        """The certificate of a plan that was executed in full; `execution.Ledger.certificate` calls this.

        Args:
            plan: The plan, at the branch that was followed.
            random_source: Where the noise came from, in words.
            secure: Whether that is a cryptographic source, and not a seed.

        Returns:
            The certificate, without what was learnt about the graph.
        """
        by_kind = plan.epsilon_by_kind()
        return cls(
            method=plan.method,
            level=plan.level,
            epsilon=max(by_kind.values()),
            delta=plan.delta,
            rdp_epsilon=plan.rdp_epsilon,
            epsilon_by_kind={str(kind): value for kind, value in by_kind.items()},
            shared=plan.shared,
            facts=plan.facts,
            assumptions=assumptions_of(plan),
            not_protected=not_protected_by(plan),
            random_source=random_source,
            secure=secure,
            versions=library_versions(),
            branches=plan.branches,
            followed=plan.followed,
            beside=plan.beside,
        )

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What was drawn, with sensitivities and noise."""
        return self.plan().mechanisms

    @property
    def not_followed(self) -> tuple[Branch, ...]:
        """The branches that were not executed."""
        return tuple(branch for branch in self.branches if branch.name != self.followed)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the owner of the data should reconsider, in sentences."""
        read = self.plan().all_mechanisms
        warning = delta_warning(self.level, self.facts, self.delta) if read else None
        return () if warning is None else (warning,)

    @property
    def arithmetic(self) -> dict[str, Any]:
        """The lattices of this plan.

        Steps of tables (of row norm 1) and of gradients, on which sums are exact; steps to which each result is rounded
        together with its noise; and how far the sampler of noise is from an ideal one.
        """
        gaussian = [m for m in self.mechanisms if not isinstance(m, Responses) and m.noise > 0]
        training = [m for m in gaussian if isinstance(m, ClippedTraining)]
        return {
            "table_step": table_step(1.0, self.facts.terms),
            "gradient_steps": {m.name: GradientLattice(m.clip, self.facts.train_nodes).step for m in training},
            "noise_steps": {m.name: noise_step(m.noise) for m in gaussian},
            "sampler_delta": SAMPLER_DELTA,
        }

    def to_dict(self) -> dict[str, Any]:
        """The certificate as a dictionary that JSON can hold, with its schema and its warnings."""
        return {
            "schema": SCHEMA,
            "method": self.method,
            "level": level_to_dict(self.level),
            "epsilon": without_infinity(self.epsilon),
            "delta": self.delta,
            "accountants": {"pld": without_infinity(self.epsilon), "rdp": without_infinity(self.rdp_epsilon)},
            "epsilon_by_kind": {kind: without_infinity(value) for kind, value in self.epsilon_by_kind.items()},
            "warnings": list(self.warnings),
            "branches": [branch.name for branch in self.branches],
            "followed": self.followed,
            "learnt": list(self.learnt),
            "mechanisms": mechanisms_to_list(self.shared, [b for b in self.branches if b.name == self.followed]),
            "not_executed": mechanisms_to_list((), self.not_followed),
            "facts": self.facts.to_dict(),
            "assumptions": list(self.assumptions),
            "not_protected": list(self.not_protected),
            "arithmetic": self.arithmetic,
            "random_source": self.random_source,
            "secure": self.secure,
            "versions": self.versions,
            **({"beside": [plan_to_dict(plan) for plan in self.beside]} if self.beside else {}),
        }

    def __post_init__(self) -> None:
        check_declared(self)

    def to_json(self) -> str:
        """The certificate as JSON; an infinite epsilon is null."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate that `to_json` wrote.

        Args:
            text: The JSON text.

        Returns:
            The certificate.

        Raises:
            InvalidInput: The text is not JSON, has another schema, or a field is missing or has the wrong form.

        Formal guarantee: none. Reading checks the form only; `graphveil verify` recomputes the figures.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidInput("certificate", text[:40], f"is not JSON: {error}") from None
        schema = data.get("schema") if isinstance(data, dict) else data
        if schema != SCHEMA:
            raise InvalidInput("certificate schema", schema, validate.why_other_format(schema, SCHEMA))
        try:
            shared, branches = mechanisms_from_list([*data["mechanisms"], *data["not_executed"]], data["branches"])
            return cls(
                method=data["method"],
                level=level_from_dict(data["level"]),
                epsilon=_infinite(data["epsilon"]),
                delta=data["delta"],
                rdp_epsilon=_infinite(data["accountants"]["rdp"]),
                epsilon_by_kind={kind: _infinite(value) for kind, value in data["epsilon_by_kind"].items()},
                shared=shared,
                facts=PublicFacts(**data["facts"]),
                assumptions=tuple(data["assumptions"]),
                not_protected=tuple(data["not_protected"]),
                random_source=data["random_source"],
                secure=data["secure"],
                versions=data["versions"],
                branches=branches,
                followed=data["followed"],
                learnt=tuple(data["learnt"]),
                beside=tuple(plan_from_dict(plan) for plan in data.get("beside", ())),
            )
        except InvalidInput:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise InvalidInput("certificate", str(error), "is missing or has the wrong form") from None

    def plan(self) -> Plan:
        """The plan that this certificate says was executed, with all of its branches."""
        return Plan(
            self.method,
            self.level,
            self.facts,
            self.delta,
            self.shared,
            branches=self.branches,
            followed=self.followed,
            beside=self.beside,
        )

    def __str__(self) -> str:
        return wording.text_of(self)

    def _repr_html_(self) -> str:
        return wording.certificate_html(self)


def assumptions_of(plan: Plan) -> tuple[str, ...]:
    """What the guarantee of a plan takes for granted: what is public, and what was promised."""
    facts, level = plan.facts, plan.level
    kind = "directed" if facts.directed else "undirected"
    known = (
        f"Public: there are {facts.nodes} nodes, {facts.train_nodes} of them (a known set) in training, "
        f"{facts.features} features, {facts.classes} classes; the graph is declared {kind}."
    )
    if facts.edges is not None:
        edges: tuple[str, ...] = (f"Declared: at most {facts.edges} stored edges.",)
    else:
        edges = () if links_are_public(level) else ("The number of edges is not assumed to be known.",)
    simple = f"{facts.entries} without self-loops or duplicates, and features are not computed from it."
    read = tuple(f"Treated as public, read from the data and not declared: {fact}." for fact in facts.undeclared)
    nodes = "Which nodes exist was settled beforehand, without looking at private data (no filter on class or degree)."
    settled = () if isinstance(level, Edge | Public) else (nodes,)
    held_out = ("Public: which nodes are held out for the choice among the candidates.",) if plan.beside else ()
    return (known, *held_out, *read, *facts.declared_links(), *edges, simple, *settled, *plan.assumptions)


def not_protected_by(plan: Plan) -> tuple[str, ...]:
    """What the guarantee of a plan does not cover."""
    level = plan.level
    if isinstance(level, Public):
        return ("Anything: the model was trained without noise.",)
    lines = []
    if isinstance(level, Edge):
        lines.append("Features and labels of any node; more than one edge at a time (two cost about twice epsilon).")
        # Randomised response answers a connection once, in both directions.
        twice = any(not isinstance(mechanism, Responses) for mechanism in plan.mechanisms)
        if level.unit == "directed" and not plan.facts.directed and twice:
            lines.append(
                "A connection of this undirected graph: it is stored in both directions and only one direction at a "
                "time is protected, so a connection is exposed more than epsilon says (about 1.5 where 1 is claimed)."
            )
        return tuple(lines)
    if plan.mechanisms:
        lines.append(
            "A node's own published prediction: it is computed from the node's own features and, if the model reads "
            "links, its links. Hand it to that node only; the guarantee covers the model and the predictions of "
            "everybody else."
        )
    if links_are_public(level):
        lines.append("Who is connected to whom.")
    elif isinstance(level, KNeighbor):
        lines.append(f"More than {level.k} of the nodes that a node reads, or of those that read it, at a time.")
    if not protects_attributes(level):
        lines.append("Features and labels of any node.")
    if is_zero_out(level):
        lines.append(
            "Which of two records a node has, where it is known to have one: that is exposed about twice as much."
        )
    lines.append("Groups: what many nodes have in common is what a model is meant to learn.")
    lines.append("Accuracy figures on validation or test labels, if they are published: they were not accounted for.")
    return tuple(lines)


def library_versions() -> dict[str, str]:
    """The versions of Python and of the libraries that the result depends on."""
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _infinite(value: float | None) -> float:
    return math.inf if value is None else float(value)
