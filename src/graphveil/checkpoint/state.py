"""What a checkpoint says of itself in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphveil.artifact.manifest import Entry
from graphveil.artifact.signed import check_rendered, parse_signed, render_signed
from graphveil.errors import InvalidInput

FORMAT = "graphveil-checkpoint/1"


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
        return render_signed(FORMAT, asdict(self))

    @classmethod
    def parse(cls, data: bytes) -> State:
        """The state that `render` wrote, to the last byte."""
        body = parse_signed(FORMAT, data)
        stages = tuple(Stage(**stage) for stage in body["stages"])
        state = cls(body["fit"], body["ledger"], body["position"], stages)
        in_order = all(0 < s.steps <= s.of for s in stages) and all(s.steps == s.of for s in stages[:-1])
        if not stages or not in_order:
            raise InvalidInput("stages", len(stages), "do not follow one another")
        check_rendered(state.render(), data)
        return state
