"""Argument checks; every message names the field and prints the offending value."""

from __future__ import annotations

import math
import numbers

from graphveil.errors import InvalidInput

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
