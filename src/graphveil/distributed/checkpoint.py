"""One checkpoint of all processes: each keeps its own tensors, and one file says which versions belong together.

    DIR/
      checkpoint.json                         the generation that counts, and how many nodes each process has
      artifact.json                           once saving has begun: the one artifact that the fit becomes
      rank-NNNN-of-MMMM/generation-G.json     this process's stages, with checksums, and what the ledger has counted
      rank-NNNN-of-MMMM/stage-*.safetensors   its rows of released values and trainings, and what all have in common

All processes write a generation, then the first one makes it count, then all remove the one before. So whenever a
process dies, one complete generation is there. Another number of processes goes on from it by dividing its rows anew,
which makes a generation of its own.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch

from graphveil.checkpoint import Checkpoint
from graphveil.checkpoint.folder import ARTIFACT, STATE, CheckpointFolder, Stage, State, stage_bytes
from graphveil.distributed.group import Group
from graphveil.distributed.shard import Shard, ShardedLedger, SharedSource, Span
from graphveil.errors import InvalidInput
from graphveil.execution import Carried, LedgerLike
from graphveil.graph import Fingerprint, GraphView
from graphveil.methods.estimator import NodeClassifier
from graphveil.noise import NoiseSource
from graphveil.validate import check_rendered, decoding, parse_checksummed, render_checksummed

FORMAT = "graphveil-sharded-checkpoint/3"
_RANK = re.compile(r"rank-(\d{4})-of-(\d{4})")
_GENERATION = re.compile(r"generation-\d+\.json|\.generation-\d+\.json-\w+")
# How the names of tensors begin that have a row for each node, or for each training node, of a process.
_NODES, _TRAIN = "nodes: ", "train: "


@dataclass(frozen=True)
class Divided:
    """How many nodes, and how many training nodes, each process has."""

    nodes: tuple[int, ...]
    train: tuple[int, ...]

    def span(self, name: str, rank: int) -> Span | None:
        """The rows of a process in the tensor with this name; None if all processes have the same."""
        counts = {_NODES: self.nodes, _TRAIN: self.train}.get(name[: len(_NODES)])
        return None if counts is None else Span.of(counts, rank)


class ShardedCheckpoint(Checkpoint):
    """A folder that all processes can write to, and that keeps one fit. Any number of processes can go on with it."""

    def __init__(self, folder: str | Path, group: Group, *, every: float = 60.0, resume: bool = False) -> None:
        super().__init__(folder, every=every, resume=resume)
        self._group = group
        self._marks: dict[str, str] = {}

    def _open_folder(self) -> CheckpointFolder:
        self._sharded = ShardedFolder(self.folder, self._group)
        return self._sharded

    def _together(self, flag: bool) -> bool:
        return self._group.any(flag)

    def _fingerprint(self, graph: GraphView, salt: str | None) -> Fingerprint:
        assert isinstance(graph, Shard)
        return graph.fingerprint(self._group, salt)

    @contextmanager
    def following(
        self, model: NodeClassifier, graph: GraphView, ledger: LedgerLike, source: NoiseSource
    ) -> Iterator[None]:
        assert isinstance(graph, Shard)
        assert isinstance(ledger, ShardedLedger)
        train = self._group.each(int(graph.train_mask.sum()))
        self._sharded.divided = Divided(tuple(graph.layout.counts), tuple(train))
        if self._resumed is not None:
            self._resumed = self._sharded.divided_anew(self._resumed)
        with super().following(model, graph, ledger, source):
            yield

    def draw(self, name: str, draw: Callable[[], torch.Tensor], fits: Callable[[torch.Tensor], bool]) -> torch.Tensor:
        assert isinstance(self._ledger, ShardedLedger)
        assert isinstance(self._source, SharedSource)
        drawn = {self._ledger.train: _TRAIN, self._ledger.nodes: _NODES}
        span = self._source.drawing
        self._marks = {} if span is None else {"value": drawn[span]}
        return super().draw(name, draw, fits)

    def steps(
        self, count: int, name: str, carried: Carried, show: bool | None, enough: Callable[[], bool] = lambda: False
    ) -> Iterable[int]:
        self._marks = dict.fromkeys(carried.divided(), _NODES)
        return super().steps(count, name, carried, show, enough)

    def _reach(self, name: str) -> tuple[Stage, dict[str, torch.Tensor]] | None:
        kept = super()._reach(name)
        if kept is None:
            return None
        return kept[0], {key.removeprefix(_NODES).removeprefix(_TRAIN): tensor for key, tensor in kept[1].items()}

    def _keep(self, name: str, steps: int, of: int, tensors: dict[str, torch.Tensor]) -> None:
        super()._keep(name, steps, of, {self._marks.get(key, "") + key: tensor for key, tensor in tensors.items()})


class ShardedFolder(CheckpointFolder):
    """This process's folder in the checkpoint's.

    Formal guarantee: that of `CheckpointFolder`, for what all processes hold together.
    """

    # How the rows of this fit are divided, once it is known, and how they were in the state that was read.
    divided: Divided
    _before: Divided | None = None

    def __init__(self, path: Path, group: Group) -> None:
        self._all, self._group = path, group
        super().__init__(self._of(group.rank, group.size))
        self._generation = 0

    def _of(self, rank: int, size: int) -> Path:
        return self._all / f"rank-{rank:04d}-of-{size:04d}"

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
        self._generation, self._before = committed
        size = len(self._before.nodes)
        return self._of(self._group.rank if size == self._group.size else 0, size) / self._name

    def divided_anew(self, state: State) -> State:
        """The state of this process in a fit that perhaps another number of processes has begun."""
        assert self._before is not None
        before, ranks = self._before, range(len(self._before.nodes))
        if len(ranks) == self._group.size:
            if before != self.divided:
                why = "as many processes have begun with other rows: divide the graph into as many parts as then"
                raise InvalidInput("checkpoint", str(self._all), why)
            return state
        states = []
        for rank in ranks:
            path = self._of(rank, len(ranks)) / self._name
            with decoding(path, "the state of a checkpoint"):
                states.append(State.parse(path.read_bytes()))
        made: list[Stage] = []
        for number, stage in enumerate(state.stages):
            data = stage_bytes(self._own_rows(before, states, number))
            made.append(Stage.holding(data, stage.name, stage.steps, stage.of))
            state = replace(state, stages=(*made, *state.stages[number + 1 :]))
            if number + 1 < len(state.stages):
                self.put(self.path / state.file(number), data)
        self._before = None
        self.write(state, len(made) - 1, data)
        return state

    def _own_rows(self, before: Divided, states: Sequence[State], number: int) -> dict[str, torch.Tensor]:
        """The tensors of a stage with the rows of this process, from the files of those that have written it."""
        own = self.divided.span(_NODES, self._group.rank)
        assert own is not None
        rows: dict[str, list[torch.Tensor]] = {}
        for rank, state in enumerate(states):
            there = before.span(_NODES, rank)
            assert there is not None
            if there.first >= own.first + own.count or there.first + there.count <= own.first:
                continue
            folder = self._of(rank, len(states))
            for name, tensor in self._tensors_in(folder, state, number).items():
                theirs, ours = before.span(name, rank), self.divided.span(name, self._group.rank)
                if theirs is None or ours is None:
                    rows[name] = [tensor]
                    continue
                low, high = max(ours.first, theirs.first), min(ours.first + ours.count, theirs.first + theirs.count)
                some = tensor[max(0, low - theirs.first) : max(0, high - theirs.first)]
                rows.setdefault(name, []).append(some.clone())
        return {name: torch.cat(parts) if len(parts) > 1 else parts[0] for name, parts in rows.items()}

    def check_empty(self) -> None:
        for name in sorted(os.listdir(self._all)):
            rank = _RANK.fullmatch(name)
            ours = name == ARTIFACT or name.startswith((f".{STATE}-", f".{ARTIFACT}-"))
            if not (rank and int(rank[1]) < self._group.size == int(rank[2])) and not ours:
                why = f"is a folder with other files in it, such as {name}"
                raise InvalidInput("checkpoint", str(self._all), why)

    def discard(self) -> None:
        if self._group.rank == 0:
            (self._all / STATE).unlink(missing_ok=True)
        self._group.wait()
        self._generation, self._before = 0, None
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

    def _committed(self) -> tuple[int, Divided] | None:
        """The generation that counts, and how it is divided."""
        path = self._all / STATE
        if not path.exists():
            return None
        with decoding(path, "the state of a checkpoint"):
            data = path.read_bytes()
            body = parse_checksummed(FORMAT, data)
            divided = Divided(tuple(body["nodes"]), tuple(body["train"]))
            check_rendered(_render(body["generation"], divided), data)
            return body["generation"], divided

    def _commit(self, state: bytes) -> None:
        self._generation += 1
        self.put(self.path / self._name, state)
        self._group.by_first(partial(super().put, self._all / STATE, _render(self._generation, self.divided)))

    def put(self, path: Path, data: bytes) -> None:
        """All processes replace a file of their own; what one of them cannot write ends the fit of all."""
        self._group.by_all(partial(super().put, path, data))

    def remove_the_rest(self, kept: set[str]) -> None:
        super().remove_the_rest(kept)
        if not kept and self._group.rank == 0:
            (self._all / ARTIFACT).unlink(missing_ok=True)
        for name in os.listdir(self.path):
            if _GENERATION.fullmatch(name) and name != self._name:
                (self.path / name).unlink()
        if self._group.rank == 0 and (self._before is None or len(self._before.nodes) == self._group.size):
            # Those of another number of processes are not needed any more.
            for name in os.listdir(self._all):
                rank = _RANK.fullmatch(name)
                if rank and int(rank[2]) != self._group.size:
                    shutil.rmtree(self._all / name)


def _render(generation: int, divided: Divided) -> bytes:
    return render_checksummed(FORMAT, {"generation": generation, **asdict(divided)})
