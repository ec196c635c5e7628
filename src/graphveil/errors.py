"""Errors that a user can act on: one line, naming the field and the offending value."""

from __future__ import annotations


class GraphveilError(Exception):
    """Base of everything graphveil raises on purpose; the command line prints it and exits with code 2."""


class InvalidInput(GraphveilError, ValueError):
    """A value that cannot be used, with the name of the field it was given for."""

    def __init__(self, field: str, value: object, why: str) -> None:
        self.field, self.value, self.why = field, value, why
        super().__init__(f"{field} = {value!r}: {why}")


class BudgetExceeded(GraphveilError, RuntimeError):
    """An attempt to draw noise that was not planned, or more often than planned."""
