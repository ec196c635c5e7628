"""Which fit a checkpoint belongs to: method, options, plan, data and code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphveil.artifact.saving import params_of
from graphveil.errors import InvalidInput
from graphveil.graph import GraphView
from graphveil.graph.fingerprint import Fingerprint
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.certificate import library_versions
from graphveil.privacy.levels import Public, level_to_dict
from graphveil.privacy.mechanisms import ClippedTraining, Mechanism
from graphveil.privacy.plan import Plan, plan_from_dict, plan_to_dict
from graphveil.provenance import code_digest

_WHY = {
    "graph": "is not the graph that this checkpoint was made on",
    "code": "is another version of graphveil than the one that made this checkpoint",
    "libraries": "are other versions than those that made this checkpoint",
    "plan": "is another plan than this checkpoint's",
}


def identity(model: NodeClassifier, plan: Plan, graph: GraphView, salt: str | None = None) -> dict[str, Any]:
    """Everything that a resumed fit must have in common with the one that was killed, as JSON.

    The seed is not in it. The fingerprint of the graph is for the owner.
    """
    fit = {
        **{f"option {name}": value for name, value in params_of(model).items()},
        "option level": level_to_dict(model.level),
        "method": model.method,
        "seeded": model.seed is not None,
        "plan": plan_to_dict(plan),
        "graph": Fingerprint.of(graph, salt).to_dict(),
        "code": code_digest(),
        "libraries": library_versions(),
    }
    same: dict[str, Any] = json.loads(json.dumps(fit, default=str))
    return same


def check_same(kept: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse to go on with another fit than the one that was begun."""
    for name in ["method", *sorted({*kept, *given} - {"method", *_WHY}), *_WHY]:
        if kept.get(name) == given.get(name):
            continue
        if name == "seeded":
            why = "was made with a seed: give the same one" if kept.get(name) else "was made without a seed: give none"
            raise InvalidInput("seed", "none" if kept.get(name) else "given", f"this checkpoint {why}")
        if name in _WHY:
            raise InvalidInput(name, "given", _WHY[name])
        raise InvalidInput(name.removeprefix("option "), given.get(name), f"this checkpoint has {kept.get(name)!r}")


def spent(fit: Mapping[str, Any], ledger: Mapping[str, int]) -> str:
    """What the draws of an unfinished fit cost."""
    plan = plan_from_dict(fit["plan"])
    if isinstance(plan.level, Public):
        return "nothing, as nothing is protected"
    epsilon = plan.changed(lambda m: _drawn(m, ledger[m.name]) if ledger.get(m.name) else None).epsilon
    counts = ", ".join(f"{name} {drawn} of {plan[name].uses}" for name, drawn in ledger.items())
    return f"epsilon {epsilon:.4g} of {plan.epsilon:.4g} at delta {plan.delta:.3g} (draws: {counts or 'none planned'})"


def _drawn(mechanism: Mechanism, times: int) -> Mechanism:
    if isinstance(mechanism, ClippedTraining):
        return replace(mechanism, steps=times)
    return replace(mechanism, uses=times)
