"""The division of long tables that is not complete: its folder, its state on disk, and how much memory it may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphveil.errors import InvalidInput
from graphveil.storage.decoding import check_rendered, decoding, parse_checksummed, render_checksummed
from graphveil.storage.files import lock_at_once, replace_file

_STATE = "graphveil-division/1"
# What Python and its libraries take by themselves, and the least that is of use beside it.
_LIBRARIES, _LEAST = 400 * 2**20, 64 * 2**20
# Called with what is done, how much of it, and how much there is in all (None: nobody knows yet).
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Memory:
    """How much of the memory each piece of work may use.

    Args:
        total: Bytes of the whole process.
    """

    total: int

    @property
    def free(self) -> int:
        """Bytes beside those of Python and its libraries."""
        return self.total - _LIBRARIES

    @property
    def database(self) -> int:
        return self.free // 3

    @property
    def edges_at_once(self) -> int:
        """An edge takes about 400 bytes while its ids are looked up."""
        return min(2**22, self.free // 1600)

    @property
    def entries_at_once(self) -> int:
        """An entry takes about 60 bytes while it is sorted and written."""
        return self.free // 128

    def nodes_at_once(self, columns: int) -> int:
        """A cell takes about 40 bytes while it is encoded, a cell of text more."""
        return max(1, min(2**18, self.free // (400 * (columns + 4))))


def parse_memory(text: str) -> Memory:
    """Bytes, from a number with a unit: 4GiB, 500MB, 2e9.

    Raises:
        InvalidInput: It is no such number, or too little to work with.
    """
    units = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
    units |= {f"{letter}ib": units[letter] for letter in "kmgt"}
    word = text.strip().lower()
    digits = word.rstrip("bikmgt")
    unit = word[len(digits) :]
    try:
        memory = int(float(digits) * units[unit])
    except (ValueError, KeyError, OverflowError):
        raise InvalidInput("memory", text, "must be a number of bytes, such as 4GiB or 500MB") from None
    if memory < _LIBRARIES + _LEAST:
        least = f"{(_LIBRARIES + _LEAST) // 2**20}MiB"
        raise InvalidInput("memory", text, f"is less than {least}, which Python and its libraries need")
    return Memory(memory)


class Unfinished:
    """The folder of a division that is not complete, and its state on disk."""

    def __init__(self, folder: Path, state: dict[str, Any]) -> None:
        self.folder, self.state = folder, state

    @classmethod
    @contextmanager
    def opened(cls, out: Path, asked: dict[str, Any]) -> Iterator[Unfinished]:
        """The folder for `out`, new or as an earlier division has left it, held by this process alone."""
        folder = out.parent / f".{out.name}.unfinished"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder, os.O_RDONLY)
        try:
            if not lock_at_once(handle):
                raise InvalidInput("out", str(out), "another process is writing it")
            path = folder / "state.json"
            state = {"asked": asked}
            if path.exists():
                with decoding(path, "the state of a division"):
                    data = path.read_bytes()
                    state = parse_checksummed(_STATE, data)
                    state = {key: value for key, value in state.items() if key not in ("format", "sha256")}
                    check_rendered(render_checksummed(_STATE, state), data)
            if state["asked"] != asked:
                why = "is the unfinished division of other tables or with other options; remove it to start again"
                raise InvalidInput("out", str(folder), why)
            yield cls(folder, state)
        finally:
            os.close(handle)

    def keep(self, **done: Any) -> None:
        """Write down what is done, in place of what was said before."""
        self.state |= done
        replace_file(self.folder / "state.json", render_checksummed(_STATE, self.state))
