"""A TOML document that knows on which line each of its values stands."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphveil.errors import InvalidInput

Key = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


class Document:
    """The values of a TOML file as `data`, and their lines.

    The standard parser keeps no positions, so they are found in the text: the line of an assignment, and within a list
    the line on which the value is written. A value inside an inline table has the line of its key.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines = text.splitlines()
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _not_toml(name, error, len(self._lines)) from None
        self._found = _positions(self._lines)

    @classmethod
    def read(cls, path: Path) -> Document:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:  # the latter also for a name that no file can have
            why = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
            raise InvalidInput("experiment", str(path), why or "cannot be read") from None
        return cls(text, path.name)

    def line(self, *key: str | int, value: object = None) -> int:
        """The line of this key, or of the nearest key around it that has one; from there on, of `value`."""
        while key and key not in self._found:
            key = key[:-1]
        first = self._found.get(key, 1)
        if value is None:
            return first
        last = min((line for line in self._found.values() if line > first), default=len(self._lines) + 1)
        written = str(value).lower() if isinstance(value, bool) else str(value)
        for number in range(first, last):
            if re.search(rf"(?<![\w.]){re.escape(written)}(?![\w.])", self._lines[number - 1]):
                return number
        return first

    @contextmanager
    def at(self, *key: str | int, value: object = None) -> Iterator[None]:
        """Errors about the value of this key are given its line."""
        try:
            yield
        except InvalidInput as error:
            if error.field.startswith(f"{self.name}, line "):
                raise
            place = f"{self.name}, line {self.line(*key, value=value)}: {error.field}"
            raise InvalidInput(place, error.value, error.why) from None


def _not_toml(name: str, error: tomllib.TOMLDecodeError, lines: int) -> InvalidInput:
    found = re.search(r"\s*\((?:at line (\d+), column \d+|at end of document)\)$", str(error))
    line = found[1] if found and found[1] else str(max(lines, 1))
    why = str(error)[: found.start()] if found else str(error)
    return InvalidInput(f"{name}, line {line}: text", name, f"is not TOML: {why}")


def _positions(lines: list[str]) -> dict[Key, int]:
    """The line of every table header and assignment; entries of an array of tables are numbered as they come."""
    found: dict[Key, int] = {}
    counts: Counter[Key] = Counter()
    table: Key = ()
    for number, line in enumerate(lines, start=1):
        if header := _HEADER.match(line):
            table = _table(_parts(header[2]), header[1] == "[[", counts)
            found.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            found.setdefault((*table, *_parts(assignment[1])), number)
    return found


def _table(names: tuple[str, ...], array: bool, counts: Counter[Key]) -> Key:
    """The key of a table: below an array of tables, a header means its latest entry."""
    key: Key = ()
    for depth, name in enumerate(names, start=1):
        key = (*key, name)
        if array and depth == len(names):
            counts[key] += 1
        if counts[key]:
            key = (*key, counts[key] - 1)
    return key


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
