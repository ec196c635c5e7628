"""What a checkpoint says of itself in JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphveil.artifact.manifest import Entry, read_files, read_manifest
from graphveil.artifact.saving import STATE as ROWS
from graphveil.errors import InvalidInput
from graphveil.storage.decoding import check_rendered, parse_checksummed, render_checksummed

FORMAT = "graphveil-checkpoint/3"
DESTINATION_FORMAT = "graphveil-checkpoint-artifact/1"


@dataclass(frozen=True)
class Stage:
    """A stage of a fit after `steps` of its `of` steps, and the checksum of the file that holds what it gave."""

    name: str
    steps: int
    of: int
    size: int
    sha256: str

    @classmethod
    def holding(cls, data: bytes, name: str, steps: int, of: int) -> Stage:
        entry = Entry.of(data, "owner")
        return cls(name, steps, of, entry.size, entry.sha256)

    @property
    def entry(self) -> Entry:
        return Entry(self.size, self.sha256, "owner")


@dataclass(frozen=True)
class State:
    """A fit between two steps: what was asked for, the ledger's counts, how far the keystream of a seed was used up
    (None: a secure key, which is never stored), and its stages; all but the last are finished.
    """

    fit: Mapping[str, Any]
    ledger: Mapping[str, int]
    position: int | None
    stages: tuple[Stage, ...]

    def file(self, number: int) -> str:
        return f"stage-{number:03d}-{self.stages[number].steps}.safetensors"

    @property
    def files(self) -> set[str]:
        return {self.file(number) for number in range(len(self.stages))}

    def render(self) -> bytes:
        return render_checksummed(FORMAT, asdict(self))

    @classmethod
    def parse(cls, data: bytes) -> State:
        """The state that `render` wrote, to the last byte."""
        body = parse_checksummed(FORMAT, data)
        stages = tuple(Stage(**stage) for stage in body["stages"])
        state = cls(body["fit"], body["ledger"], body["position"], stages)
        in_order = all(0 < s.steps <= s.of for s in stages) and all(s.steps == s.of for s in stages[:-1])
        if not stages or not in_order:
            raise InvalidInput("stages", len(stages), "do not follow one another")
        check_rendered(state.render(), data)
        return state


@dataclass(frozen=True)
class Destination:
    """The artifact that a finished fit becomes: its folder, and the checksum of its rows, which no other fit has."""

    folder: str
    rows: str

    def is_there(self) -> bool:
        """Whether the artifact was written; what lies in its place and cannot be read is an error."""
        folder = Path(self.folder)
        if not os.path.lexists(folder):
            return False
        try:
            rows = read_manifest(folder).files.get(ROWS)
            if rows is None or rows.sha256 != self.rows:
                return False  # another run has taken the place
            read_files(folder)
        except InvalidInput as error:
            why = f"is where this checkpoint's fit was to be saved, and cannot be read ({error.why})"
            raise InvalidInput("artifact", self.folder, f"{why}; if it is something else, move it away") from None
        return True

    def render(self) -> bytes:
        return render_checksummed(DESTINATION_FORMAT, asdict(self))

    @classmethod
    def parse(cls, data: bytes) -> Destination:
        body = parse_checksummed(DESTINATION_FORMAT, data)
        found = cls(str(body["folder"]), str(body["rows"]))
        check_rendered(found.render(), data)
        return found
