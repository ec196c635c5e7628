"""Argument checks; every message names the field and prints the offending value."""

from __future__ import annotations

import math
import numbers

from graphveil.errors import InvalidInput


def real(field: str, value: object) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(float(value)):
        raise InvalidInput(field, value, "must be a finite number")
    return float(value)


def positive(field: str, value: object) -> float:
    """A finite number above 0."""
    number = real(field, value)
    if number <= 0:
        raise InvalidInput(field, value, "must be greater than 0")
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


def count(field: str, value: object, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidInput(field, value, "must be a whole number")
    if int(value) < least:
        raise InvalidInput(field, value, f"must be at least {least}")
    return int(value)
