"""Checks: of arguments, of files that may be damaged, and of values whose types were declared.

Every message is one line, which names the field or the file and prints the offending value.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import numbers
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from graphveil.errors import GraphveilError, InvalidInput

# What a 64-bit number can hold.
LARGEST = 2**63 - 1


def real(field: str, value: object) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidInput(field, value, "must be a finite number")
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond all floats
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(field, value, "must be a finite number")
    return number


def positive(field: str, value: object) -> float:
    """A finite number above 0."""
    number = real(field, value)
    if number <= 0:
        raise InvalidInput(field, value, "must be greater than 0")
    return number


def scale(field: str, value: object) -> float:
    """A number from 1e-12 to 1e12, so that float32 can hold its products and squares."""
    number = positive(field, value)
    if not 1e-12 <= number <= 1e12:
        raise InvalidInput(field, value, "must lie between 1e-12 and 1e12")
    return number


def non_negative(field: str, value: object) -> float:
    """A finite number of at least 0."""
    number = real(field, value)
    if number < 0:
        raise InvalidInput(field, value, "must not be negative")
    return number


def open_unit(field: str, value: object) -> float:
    """A number strictly between 0 and 1."""
    number = real(field, value)
    if not 0 < number < 1:
        raise InvalidInput(field, value, "must lie strictly between 0 and 1")
    return number


def rate(field: str, value: object) -> float:
    """A sampling rate: above 0, at most 1."""
    number = real(field, value)
    if not 0 < number <= 1:
        raise InvalidInput(field, value, "must be greater than 0 and at most 1")
    return number


def count(field: str, value: object, least: int = 1, most: int = LARGEST) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidInput(field, value, "must be a whole number")
    if int(value) < least:
        raise InvalidInput(field, value, f"must be at least {least}")
    if int(value) > most:
        raise InvalidInput(field, value, f"must be at most {most}")
    return int(value)


def seed(field: str, value: object) -> int:
    """A seed of any generator: a whole number from 0 to 2^63 - 1."""
    return count(field, value, least=0)


def flag(field: str, value: object) -> bool:
    """True or False, and no other value that Python takes for one of them."""
    if not isinstance(value, bool):
        raise InvalidInput(field, value, "must be True or False")
    return value


def device(value: object) -> str:
    """A device of PyTorch that this machine has: cpu, cuda or cuda:N."""
    import torch

    try:
        named = torch.device(value) if isinstance(value, str) else None
    except RuntimeError:
        named = None
    if named is None or named.type not in ("cpu", "cuda"):
        raise InvalidInput("device", value, "must be cpu or cuda")
    if named.type == "cuda" and (named.index or 0) >= torch.cuda.device_count():
        raise InvalidInput("device", value, f"this machine has {torch.cuda.device_count()} CUDA devices for PyTorch")
    return str(value)


def why_other_format(given: object, wanted: str) -> str:
    """What is wrong with a file of this format, where another one is read."""
    stem = wanted.rpartition("/")[0]
    if isinstance(given, str) and given.rpartition("/")[0] == stem:
        return f"was written by another version of graphveil (0.1.0 wrote {stem}/1), and this one reads {wanted}"
    return f"must be {wanted}"


@contextmanager
def decoding(path: Path, kind: str) -> Iterator[None]:
    """Turn every exception of a decoder into an `InvalidInput` that names `path` and says that it is not a `kind`.

    Every `Exception` is caught on purpose: on damaged bytes, zipfile, zlib, numpy, pickle, torch and Arrow raise a
    dozen unrelated classes.
    """
    try:
        yield
    except GraphveilError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInput("path", str(path), f"cannot be read as {kind}: {said}") from None


@contextmanager
def inside(path: Path) -> Iterator[None]:
    """Let errors about a field say that it is a field of the file `path`."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{path.name}: {error.field}", error.value, error.why) from None


def without_infinity(value: float) -> float | None:
    """A number for JSON, which has no infinity: null stands for it."""
    return value if math.isfinite(value) else None


def render_checksummed(form: str, body: Mapping[str, Any]) -> bytes:
    """JSON with the name of its format and a checksum over all of it.

    The checksum shows damage. It does not stop anybody who means to change the content.
    """
    named = {"format": form, **body}
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**named, "sha256": digest}, indent=2, allow_nan=False) + "\n").encode()


def parse_checksummed(form: str, data: bytes) -> dict[str, Any]:
    """The content that `render_checksummed` wrote, not yet compared with its checksum.

    The caller renders what it understood again and compares that with `data` (`check_rendered`): so nothing is accepted
    that would not be written.
    """
    body = json.loads(data)
    if not isinstance(body, dict) or body.get("format") != form:
        given = body.get("format") if isinstance(body, dict) else body
        raise InvalidInput("format", given, why_other_format(given, form))
    return body


def check_rendered(rendered: bytes, data: bytes) -> None:
    """Refuse data that is not, to the last byte, what its content is rendered to."""
    if rendered != data:
        raise InvalidInput("sha256", "given", "does not belong to the rest: it was changed")


def check_declared(value: object, within: str = "") -> None:
    """Refuse a dataclass whose values, or those of dataclasses in it, do not have the types that its fields declare.

    Whole numbers must fit 64 bits; NaN is no number.

    Args:
        value: The dataclass.
        within: The name of the field that holds it, with a dot, for the message.

    Raises:
        InvalidInput: A value has another type.
    """
    declared: Any = type(value)
    for name, kind in _fields(declared).items():
        item = getattr(value, name)
        if not _is(item, kind):
            raise InvalidInput(within + name, item, "is missing or has the wrong form")
        for below in item if isinstance(item, tuple) else [item]:
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
