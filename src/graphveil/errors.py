"""Errors that a user can act on: one line, naming the field and the offending value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class GraphveilError(Exception):
    """Base of everything graphveil raises on purpose; the command line prints it and exits with code 2.

    `everywhere` says that all processes of a job raise the same, so that the first one alone has to print it.
    """

    everywhere = False


class InvalidInput(GraphveilError, ValueError):
    """A value that cannot be used.

    Args:
        field: The name of the field or argument.
        value: What was given for it.
        why: What is wrong with it, or what it must be.
    """

    def __init__(self, field: str, value: object, why: str) -> None:
        self.field, self.value, self.why = field, value, why
        super().__init__(f"{field} = {_shown(value)}: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        """How to make the same error in another process: subclasses have constructors of their own."""
        return _made_again, (type(self), self.__dict__, self.args)


class BudgetExceeded(GraphveilError, RuntimeError):
    """An attempt to draw noise that was not planned, or more often than planned."""


def _shown(value: object) -> str:
    """The value as it was given, its middle left out if it is very long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print numbers of more than 4300 digits
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= 400 else f"{text[:200]}...{text[-100:]}"


def _made_again(kind: type[InvalidInput], parts: Mapping[str, Any], words: tuple[str, ...]) -> InvalidInput:
    error = kind.__new__(kind, *words)
    error.__dict__.update(parts)
    return error
