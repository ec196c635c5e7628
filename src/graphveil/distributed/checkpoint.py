"""One checkpoint of all processes: each keeps its own tensors, and one file says which versions belong together.

    DIR/
      checkpoint.json                 the number of processes, and the generation that counts
      artifact.json                   once saving has begun: the one artifact that the fit becomes
      rank-NNNN/generation-G.json     this process's stages, with checksums, and what the ledger has counted
      rank-NNNN/stage-*.safetensors   its rows of released values and trainings

All processes write a generation, then the first one makes it count, then all remove the one before. So whenever a
process dies, one complete generation is there.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from graphveil.checkpoint import Checkpoint
from graphveil.checkpoint.folder import ARTIFACT, STATE, CheckpointFolder
from graphveil.distributed.group import Group
from graphveil.errors import InvalidInput
from graphveil.storage.decoding import check_rendered, decoding, parse_checksummed, render_checksummed
from graphveil.storage.files import replace_file

FORMAT = "graphveil-sharded-checkpoint/2"
_RANK = re.compile(r"rank-(\d{4})")
_GENERATION = re.compile(r"generation-\d+\.json|\.generation-\d+\.json-\w+")


class ShardedCheckpoint(Checkpoint):
    """A folder that all processes can write to, and that keeps one fit of as many processes as began it."""

    def __init__(self, folder: str | Path, group: Group, *, every: float = 60.0, resume: bool = False) -> None:
        super().__init__(folder, every=every, resume=resume)
        self._group = group

    def _open_folder(self) -> CheckpointFolder:
        return ShardedFolder(self.folder, self._group)

    def _together(self, flag: bool) -> bool:
        return self._group.any(flag)


class ShardedFolder(CheckpointFolder):
    """This process's folder in the checkpoint's.

    Formal guarantee: that of `CheckpointFolder`, for what all processes hold together.
    """

    def __init__(self, path: Path, group: Group) -> None:
        self._all, self._group = path, group
        super().__init__(path / f"rank-{group.rank:04d}")
        self._generation = 0

    @property
    def home(self) -> Path:
        return self._all

    def saved(self) -> str | None:
        """The answer of the first process, for all."""
        return self._group.by_first(self.saved_here)

    def state_path(self) -> Path | None:
        committed = self._group.by_first(self._committed)
        if committed is None:
            return None
        self._generation, processes = committed
        if processes != self._group.size:
            why = f"this checkpoint is of {processes}; resume with as many"
            raise InvalidInput("processes", self._group.size, why)
        return self.path / self._name

    def check_empty(self) -> None:
        for name in sorted(os.listdir(self._all)):
            rank = _RANK.fullmatch(name)
            ours = name == ARTIFACT or name.startswith((f".{STATE}-", f".{ARTIFACT}-"))
            if not (rank and int(rank[1]) < self._group.size) and not ours:
                why = f"is a folder with other files in it, such as {name}"
                raise InvalidInput("checkpoint", str(self._all), why)

    def discard(self) -> None:
        if self._group.rank == 0:
            (self._all / STATE).unlink(missing_ok=True)
        self._group.wait()
        self._generation = 0
        self.remove_the_rest(set())
        self._unused = True

    def close(self) -> None:
        super().close()
        if self._unused:
            with suppress(OSError):  # only the last process can remove it
                self._all.rmdir()

    @property
    def _name(self) -> str:
        return f"generation-{self._generation}.json"

    def _committed(self) -> tuple[int, int] | None:
        """The generation that counts, and the number of processes."""
        path = self._all / STATE
        if not path.exists():
            return None
        with decoding(path, "the state of a checkpoint"):
            data = path.read_bytes()
            body = parse_checksummed(FORMAT, data)
            check_rendered(_render(body["generation"], body["processes"]), data)
            return body["generation"], body["processes"]

    def _commit(self, state: bytes) -> None:
        self._generation += 1
        replace_file(self.path / self._name, state)
        self._group.wait()
        if self._group.rank == 0:
            replace_file(self._all / STATE, _render(self._generation, self._group.size))
        self._group.wait()

    def remove_the_rest(self, kept: set[str]) -> None:
        super().remove_the_rest(kept)
        if not kept and self._group.rank == 0:
            (self._all / ARTIFACT).unlink(missing_ok=True)
        for name in os.listdir(self.path):
            if _GENERATION.fullmatch(name) and name != self._name:
                (self.path / name).unlink()


def _render(generation: int, processes: int) -> bytes:
    return render_checksummed(FORMAT, {"generation": generation, "processes": processes})
