"""The files of a checkpoint: what each one says, and a folder that one process at a time reads and writes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensor_bytes

from graphveil.artifact.contents import Entry, read_file, read_files, read_manifest
from graphveil.artifact.saving import STATE as ROWS
from graphveil.errors import InvalidInput
from graphveil.storage import lock_at_once, replace_file, unwritable, write_trial
from graphveil.validate import check_rendered, decoding, inside, parse_checksummed, render_checksummed

FORMAT = "graphveil-checkpoint/2"
DESTINATION_FORMAT = "graphveil-checkpoint-artifact/1"
STATE, ARTIFACT = "checkpoint.json", "artifact.json"
# Files of a checkpoint, and what a killed write of one leaves.
_STAGE = re.compile(r"stage-\d+-\d+\.safetensors")
_TORN = re.compile(rf"\.(?:{_STAGE.pattern}|{re.escape(STATE)}|{re.escape(ARTIFACT)})-\w+")


@dataclass(frozen=True)
class Stage:
    """A stage of a fit after `steps` of its `of` steps, with size and checksum of the file that holds its tensors."""

    name: str
    steps: int
    of: int
    size: int
    sha256: str

    @classmethod
    def holding(cls, data: bytes, name: str, steps: int, of: int) -> Stage:
        """The stage whose file has this content."""
        entry = Entry.of(data, "owner")
        return cls(name, steps, of, entry.size, entry.sha256)

    @property
    def entry(self) -> Entry:
        """Size and checksum of its file, as `read_file` wants them."""
        return Entry(self.size, self.sha256, "owner")


@dataclass(frozen=True)
class State:
    """A fit between two steps.

    Args:
        fit: What identifies the fit (`identity`).
        ledger: How often each mechanism was drawn.
        position: How much of a seed's keystream was used; None without a seed, because a secure key is never stored.
        stages: The stages so far; all but the last are finished.
    """

    fit: Mapping[str, Any]
    ledger: Mapping[str, int]
    position: int | None
    stages: tuple[Stage, ...]

    def file(self, number: int) -> str:
        """The name of a stage's file."""
        return f"stage-{number:03d}-{self.stages[number].steps}.safetensors"

    @property
    def files(self) -> set[str]:
        """The names of the files of all stages."""
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
    """The artifact that a fit is saved as: its folder, and the checksum of its rows, which no other fit has."""

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
        destination = cls(str(body["folder"]), str(body["rows"]))
        check_rendered(destination.render(), data)
        return destination


class CheckpointFolder:
    """A folder that this process alone reads and writes, until it is closed or the process ends.

    Formal guarantee: `write` replaces one state by its successor atomically. Files of steps that were killed before
    their state was written are deleted by `remove_the_rest`, which is called before anything is drawn.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._unused = not path.exists()
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidInput("checkpoint", str(path), f"cannot be opened: {error.strerror}") from None
        if not lock_at_once(self._lock):
            os.close(self._lock)
            raise InvalidInput("checkpoint", str(path), "another process is using it")
        try:
            for place in {path, self.home}:
                write_trial(place, prefix=f".{STATE}-")
        except OSError as error:
            self.close()
            raise self._unwritable(error) from None

    @property
    def home(self) -> Path:
        """The folder of the file that says how far the fit is."""
        return self.path

    def close(self) -> None:
        """Give the folder up; an empty one that this process has made is removed."""
        if self._unused:
            with suppress(OSError):  # other files may have come into it
                self.path.rmdir()
        os.close(self._lock)

    def read(self) -> State | None:
        """The state of the fit; None if the folder holds none."""
        path = self.state_path()
        if path is None:
            return None
        with decoding(path, "the state of a checkpoint"):
            try:
                return State.parse(path.read_bytes())
            except InvalidInput as error:
                raise InvalidInput("file", str(path), f"is damaged: {error}") from None

    def state_path(self) -> Path | None:
        """The file that says how far the fit is, if there is one."""
        path = self.path / STATE
        return path if path.exists() else None

    def destination(self) -> Destination | None:
        """The artifact that the fit was to be saved as, if saving was begun."""
        path = self.home / ARTIFACT
        if not path.exists():
            return None
        with decoding(path, "the artifact of a checkpoint"), inside(path):
            return Destination.parse(path.read_bytes())

    def saved(self) -> str | None:
        """The folder of the finished artifact, if there is one; all processes of a job call this together."""
        return self.saved_here()

    def saved_here(self) -> str | None:
        """The same, for one process."""
        destination = self.destination()
        return destination.folder if destination is not None and destination.is_there() else None

    def write_destination(self, destination: Destination) -> None:
        """Write down which artifact the fit is saved as."""
        try:
            replace_file(self.home / ARTIFACT, destination.render())
        except OSError as error:
            raise self._unwritable(error) from None

    def tensors(self, state: State, number: int) -> dict[str, torch.Tensor]:
        """The tensors of a stage, in memory of their own."""
        return self._tensors_in(self.path, state, number)

    def _tensors_in(self, folder: Path, state: State, number: int) -> dict[str, torch.Tensor]:
        name = state.file(number)
        with decoding(folder / name, "safetensors"):
            data = read_file(folder, name, state.stages[number].entry)
            return {key: tensor.clone() for key, tensor in read_tensors(data).items()}

    def write(self, state: State, number: int, data: bytes) -> None:
        """Make this the state; `data` are the tensors of its stage `number`."""
        self._unused = False
        self.put(self.path / state.file(number), data)
        self._commit(state.render())
        self.remove_the_rest(state.files)

    def _commit(self, state: bytes) -> None:
        """Replace the state, atomically."""
        self.put(self.path / STATE, state)

    def put(self, path: Path, data: bytes) -> None:
        """Replace a file of the checkpoint."""
        try:
            replace_file(path, data)
        except OSError as error:
            raise self._unwritable(error) from None

    def remove_the_rest(self, kept: set[str]) -> None:
        """Delete stages that the state does not list; without a state, everything."""
        try:
            for name in os.listdir(self.path):
                if _is_ours(name) and name not in kept and not (kept and name == ARTIFACT):
                    (self.path / name).unlink()
        except OSError as error:
            raise self._unwritable(error) from None

    def check_empty(self) -> None:
        """Refuse a folder with files that are not left from a killed fit."""
        others = [name for name in sorted(os.listdir(self.path)) if not _is_ours(name)]
        if others:
            raise InvalidInput("checkpoint", str(self.path), f"is a folder with other files in it, such as {others[0]}")

    def discard(self) -> None:
        """Delete everything, the state first: if this is killed, what is left is no checkpoint."""
        (self.path / STATE).unlink(missing_ok=True)
        self.remove_the_rest(set())
        self._unused = True

    def _unwritable(self, error: OSError) -> InvalidInput:
        return unwritable(self.path, error, "checkpoint")


def _is_ours(name: str) -> bool:
    return bool(_STAGE.fullmatch(name) or _TORN.fullmatch(name) or name == ARTIFACT)


def stage_bytes(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """The content of a stage's file."""
    return tensor_bytes({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
