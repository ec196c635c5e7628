"""Whether what was read from a file has the types that a dataclass declares."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from graphveil.errors import InvalidInput
from graphveil.validate import LARGEST


def check_declared(found: object, within: str = "") -> None:
    """Refuse a dataclass that holds something else than its fields declare, in it or below it.

    Whole numbers must fit 64 bits; NaN is no number.
    """
    declared: Any = type(found)
    for name, kind in _fields(declared).items():
        value = getattr(found, name)
        if not _is(value, kind):
            raise InvalidInput(within + name, value, "is missing or has the wrong form")
        for below in value if isinstance(value, tuple) else [value]:
            if dataclasses.is_dataclass(below):
                check_declared(below, f"{within}{name}.")


@cache
def _fields(kind: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _is(value: object, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_is(value, part) for part in parts)
    if origin is Literal:
        return any(value is part or (type(value) is type(part) and value == part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is(item, parts[0]) for item in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(_is(k, parts[0]) and _is(v, parts[1]) for k, v in value.items())
    if kind is Any:
        return True
    if kind in (int, float):
        number = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
        return number or (kind is float and isinstance(value, float) and not math.isnan(value))
    return isinstance(value, kind or types.NoneType)
