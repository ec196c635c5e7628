"""The files of a checkpoint: one version of each stage, one process at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensor_bytes

from graphveil.artifact.manifest import read_file
from graphveil.checkpoint.state import Destination, State
from graphveil.errors import InvalidInput
from graphveil.storage.decoding import decoding, inside
from graphveil.storage.files import lock_at_once, replace_file, unwritable, write_trial

STATE, ARTIFACT = "checkpoint.json", "artifact.json"
# Files of ours, and what a killed write of one leaves.
_STAGE = re.compile(r"stage-\d+-\d+\.safetensors")
_TORN = re.compile(rf"\.(?:{_STAGE.pattern}|{re.escape(STATE)}|{re.escape(ARTIFACT)})-\w+")


class CheckpointFolder:
    """A folder that this process alone reads and writes, until it is closed or the process ends.

    Formal guarantee: `write` replaces one state by its successor, in one moment. Whatever else a kill has left, of
    steps that no state remembers, `remove_the_rest` deletes; it is called before anything is drawn.
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
        """Where the file lies that says how far the fit is."""
        return self.path

    def close(self) -> None:
        if self._unused:
            with suppress(OSError):  # other files may have come into it
                self.path.rmdir()
        os.close(self._lock)

    def read(self) -> State | None:
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
        """The artifact that the fit was to become, if its saving was begun."""
        path = self.home / ARTIFACT
        if not path.exists():
            return None
        with decoding(path, "the artifact of a checkpoint"), inside(path):
            return Destination.parse(path.read_bytes())

    def saved(self) -> str | None:
        """The folder of the artifact that the fit has become; all processes that keep it ask together."""
        return self.saved_here()

    def saved_here(self) -> str | None:
        """The same, for one process."""
        found = self.destination()
        return found.folder if found is not None and found.is_there() else None

    def write_destination(self, destination: Destination) -> None:
        try:
            replace_file(self.home / ARTIFACT, destination.render())
        except OSError as error:
            raise self._unwritable(error) from None

    def tensors(self, state: State, number: int) -> dict[str, torch.Tensor]:
        """What a stage gave, in memory of its own."""
        name = state.file(number)
        with decoding(self.path / name, "safetensors"):
            data = read_file(self.path, name, state.stages[number].entry)
            return {key: tensor.clone() for key, tensor in read_tensors(data).items()}

    def write(self, state: State, number: int, data: bytes) -> None:
        """Make this the state; `data` is what its stage `number` gave."""
        self._unused = False
        try:
            replace_file(self.path / state.file(number), data)
            self._commit(state.render())
        except OSError as error:
            raise self._unwritable(error) from None
        self.remove_the_rest(state.files)

    def _commit(self, state: bytes) -> None:
        """From the moment that this ends, the new state counts."""
        replace_file(self.path / STATE, state)

    def remove_the_rest(self, kept: set[str]) -> None:
        """Delete stages that the state does not list; without a state, everything."""
        try:
            for name in os.listdir(self.path):
                if _is_ours(name) and name not in kept and not (kept and name == ARTIFACT):
                    (self.path / name).unlink()
        except OSError as error:
            raise self._unwritable(error) from None

    def check_empty(self) -> None:
        """Refuse a folder with files in it that no killed fit has left."""
        others = [name for name in sorted(os.listdir(self.path)) if not _is_ours(name)]
        if others:
            raise InvalidInput("checkpoint", str(self.path), f"is a folder with other files in it, such as {others[0]}")

    def discard(self) -> None:
        """Delete everything; what a kill leaves of that is no checkpoint any more."""
        (self.path / STATE).unlink(missing_ok=True)
        self.remove_the_rest(set())
        self._unused = True

    def _unwritable(self, error: OSError) -> InvalidInput:
        return unwritable(self.path, error, "checkpoint")


def _is_ours(name: str) -> bool:
    return bool(_STAGE.fullmatch(name) or _TORN.fullmatch(name) or name == ARTIFACT)


def stage_bytes(tensors: Mapping[str, torch.Tensor]) -> bytes:
    return tensor_bytes({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
