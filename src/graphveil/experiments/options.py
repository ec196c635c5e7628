"""Options that a spec may give to a method, and whether the method can be run at a level, before anything is run."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from graphveil.errors import InvalidInput
from graphveil.methods import method_class
from graphveil.methods.plans import Settings, spending_of
from graphveil.privacy.levels import Level, with_unit
from graphveil.privacy.plan import PublicFacts

# What the runner decides itself: a run's fields, and a display of its own.
_RESERVED = ("level", "epsilon", "delta", "seed", "show_progress", "public_edges")
# Large enough for every k and D; only compatibility is asked, no noise is computed.
_ANY_GRAPH = PublicFacts(nodes=10**9, train_nodes=10**8, features=1, classes=2)


def check_option(method: str, name: str, value: object) -> None:
    """Refuse an option that the method does not have, or a value of another type than the option's."""
    cls = method_class(method)
    kinds = typing.get_type_hints(cls)
    known = [field.name for field in dataclasses.fields(cls) if field.name not in _RESERVED]
    if name not in known:
        raise InvalidInput(name, value, f"is not an option of {method}; there are {', '.join(known)}")
    if not _fits(value, kinds[name]):
        raise InvalidInput(name, value, f"must be {_describe(kinds[name])}")


def check_method(method: str, level: Level, epsilon: float | None, options: Mapping[str, Any]) -> None:
    """Refuse a method that does not exist, does not protect at this level, or lacks what it needs there."""
    method_class(method)
    settled = with_unit(level, directed=_ANY_GRAPH.directed)
    settings = Settings(max_degree=options.get("max_degree"), capped=options.get("cap_degrees", False))
    spending_of(method, settled, _ANY_GRAPH, settings, epsilon)


def _fits(value: object, kind: Any) -> bool:
    if isinstance(kind, types.UnionType):
        return any(_fits(value, part) for part in typing.get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if typing.get_origin(kind) is not None:
        item = typing.get_args(kind)[-1]
        return isinstance(value, Mapping) and all(_fits(part, item) for part in value.values())
    return isinstance(value, kind)


def _describe(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if isinstance(kind, types.UnionType):
        return " or ".join(_describe(part) for part in typing.get_args(kind) if part is not types.NoneType)
    return words.get(kind, "a table of numbers")
