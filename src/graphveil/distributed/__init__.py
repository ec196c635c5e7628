"""One fit on several processes, started by `torchrun -m graphveil train` (docs/scale.md).

Each process owns a block of the nodes: their rows of W and of every other table, their columns of A, their features
and labels. A step exchanges what the training rows read and the clipped gradients of it, some rows at a time; gradients
of W, its noise and the optimiser's state never leave their process. Noise has its place in one keystream, whichever
process draws it.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import torch

from graphveil.artifact import save as save_artifact
from graphveil.artifact.contents import LOGITS, rows_of, weights_of
from graphveil.artifact.predictions import csv_head, csv_rows
from graphveil.artifact.saving import NODES
from graphveil.distributed.checkpoint import ShardedCheckpoint
from graphveil.distributed.group import Group, JobEnded, Result
from graphveil.distributed.inputs import ShardedInputs
from graphveil.distributed.shard import Shard, ShardedLedger, SharedSource, Span
from graphveil.errors import InvalidInput
from graphveil.graph.summary import Naming
from graphveil.methods import METHODS
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.new_nodes import Answers
from graphveil.methods.predictions import FittedState
from graphveil.privacy.plan import Plan
from graphveil.storage import Unwritable, unwritable

__all__ = ["Group", "JobEnded", "Shard", "ShardedCheckpoint", "check_supported", "fit", "save"]


# Tensors of a model that have a row for each node.
_SHARDED = (LOGITS, "table", "released")
_ROWS_AT_ONCE = 2**16
_NUMBERS_AT_ONCE = 2**22
_TYPES = {torch.float32: "F32", torch.uint8: "U8"}


def check_supported(model: NodeClassifier) -> None:
    """Refuse a method that needs all rows in one process.

    Args:
        model: The model that is to be fitted.

    Raises:
        InvalidInput: It does not run on several processes.
    """
    if not model.divides:
        known = " or ".join(name for name, each in METHODS.items() if each.load().divides)
        raise InvalidInput("method", model.method, f"does not run on several processes; use {known}")


def fit(
    model: NodeClassifier,
    shard: Shard,
    group: Group,
    checkpoint: ShardedCheckpoint | None = None,
    plan: Plan | None = None,
) -> None:
    """Train on a graph of which every process has a part.

    Afterwards `certificate_` and small weights are the same in all processes; `logits_`, W and Z have this process's
    rows. `save` writes what all of them have together.

    Args:
        model: The model, with the same parameters in all processes. It becomes the fitted model.
        shard: This process's part of the graph.
        group: All processes.
        checkpoint: Keeps the unfinished fit.
        plan: The first process's plan, if it has made one already; that of others is not looked at.

    Raises:
        InvalidInput: The method does not run on several processes, or a parameter or the graph cannot be used.

    Formal guarantee: plan and certificate are made once and sent to all; `ShardedLedger` executes the plan.
    """
    check_supported(model)
    model.check_parameters()
    if model.device != "cpu":
        model.device = f"cuda:{torch.cuda.current_device()}"
    _check_same_parameters(model, group)
    model.check_classes(shard.class_names, shard.num_classes)
    facts = shard.facts(group, edges=model.public_edges)
    plan = group.object_from_first(plan or model.plan_for(facts) if group.rank == 0 else None)
    source = SharedSource(model.seed, group, shard.span)
    train = Span.of(group.each(int(shard.train_mask.sum())), group.rank)
    ledger = ShardedLedger(plan, source, group, shard.span, train)
    _check_degrees(model, plan, shard, group)
    # Initial weights are public randomness, the same everywhere.
    seed = group.object_from_first(secrets.randbits(62) if model.seed is None else model.seed)
    logits, sparse = model.train(
        ledger,
        lambda: ShardedInputs(shard, group, model.device, model.feature_norm, model.learn_scales(shard, group.total)),
        seed,
        checkpoint.following(model, shard, ledger, source) if checkpoint else nullcontext(),
    )
    certificate = group.object_from_first(model.certificate_of(ledger) if group.rank == 0 else None)
    model.take(
        FittedState(
            ledger=ledger,
            certificate=certificate,
            logits=logits,
            sparse=sparse,
            naming=Naming.of(shard),
            labels=shard.labels,
            fingerprint=shard.fingerprint(group),
            answers=Answers(),
            budget=certificate.epsilon,
            keeper=checkpoint,
        )
    )


def _check_same_parameters(model: NodeClassifier, group: Group) -> None:
    parameters = {name: value for name, value in model.get_params().items() if name not in ("device", "show_progress")}
    for name, value in group.object_from_first(parameters).items():
        if parameters[name] != value:
            raise InvalidInput(name, parameters[name], "is not what the first process was given")


def _check_degrees(model: NodeClassifier, plan: Plan, shard: Shard, group: Group) -> None:
    """How often a node is read, where a promise bounds that."""
    room = model.room_for_old_readers(plan)
    if room is None:
        return
    readers = np.bincount(shard.indices, minlength=shard.span.count)
    largest = int(group.largest(torch.tensor([int(readers.max())])))
    if largest > room and model.cap_degrees:
        raise InvalidInput("cap_degrees", True, "does not run on several processes; cap the graph before it is divided")
    model.check_readers(plan, largest)


def save(
    model: NodeClassifier, folder: Path, group: Group, *, budget: float | None = None, also: Mapping[str, bytes]
) -> None:
    """Write a model that was fitted on several processes, so that one process can load it.

    Args:
        model: The fitted model, of which each process has its rows.
        folder: The folder to create, on a disk that all processes share: each writes its own rows.
        group: All processes, which call this together.
        budget: As in `artifact.save`.
        also: Further files for the owner.

    Raises:
        InvalidInput: A process cannot write to it, or does not see it; raised in all processes.
    """
    with _Together(folder, group) as together:
        weights = together.tensors("weights", weights_of(model))
        rows = together.tensors("rows", rows_of(model))
        files: dict[str, bytes | Path] = dict(also)
        files["predictions.csv"] = together.lines("predictions", _prediction_lines(model, group))
        if model.fitted_.naming.nodes is not None:
            files[NODES] = together.lines("names", _name_lines(model.fitted_.naming.nodes, group))
        group.by_first(partial(save_artifact, model, folder, budget=budget, also=files, tensors=(weights, rows)))


class _Together:
    """A folder beside another one that all processes write to, each its own rows. It is removed at the end.

    What one process cannot write is an error of all.
    """

    def __init__(self, folder: Path, group: Group) -> None:
        self._folder, self._group = folder, group
        self._made: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._path = self._group.by_first(self._make)
        try:
            self._group.by_all(self._check_seen)
        except InvalidInput:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._made is not None:
            self._made.cleanup()

    def _make(self) -> Path:
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._made = tempfile.TemporaryDirectory(prefix=f".{self._folder.name}-", dir=self._folder.parent)
        except OSError as error:
            raise unwritable(self._folder, error, "out") from None
        return Path(self._made.name).absolute()

    def _check_seen(self) -> None:
        if not self._path.is_dir():
            why = f"process {self._group.rank} does not see it; name a folder on a disk that all processes share"
            raise Unwritable("out", str(self._folder), why)

    def tensors(self, name: str, tensors: Mapping[str, torch.Tensor]) -> Path:
        """A safetensors file of the rows of all processes, as that library writes it."""
        # Wide types first, and names in order.
        tensors = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
        counts = {key: self._group.each(len(tensor)) for key, tensor in tensors.items() if key in _SHARDED}
        header, at, places = {}, 0, {}
        for key, tensor in tensors.items():
            shape = [sum(counts[key]), *tensor.shape[1:]] if key in counts else list(tensor.shape)
            row = math.prod(shape[1:]) * tensor.element_size()
            size = math.prod(shape) * tensor.element_size()
            places[key] = at + row * sum(counts[key][: self._group.rank]) if key in counts else at
            header[key] = {"dtype": _TYPES[tensor.dtype], "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        start = len(text).to_bytes(8, "little") + text

        def write(file: BinaryIO) -> None:
            if self._group.rank == 0:
                file.write(start)
            for key, tensor in tensors.items():
                file.seek(len(start) + places[key])
                for some in (
                    tensor.reshape(-1).split(_NUMBERS_AT_ONCE) if key in counts or self._group.rank == 0 else ()
                ):
                    file.write(some.numpy().tobytes())

        return self._written(name, write)

    def lines(self, name: str, pieces: Iterable[bytes]) -> Path:
        """A file of the pieces of all processes, one process's after the other's."""
        own = self._path / f"{name}-{self._group.rank}"
        with ExitStack() as files:
            kept = self._attempt(lambda: files.enter_context(own.open("w+b")))
            self._attempt(lambda: kept.writelines(pieces))
            first = sum(self._group.each(kept.tell())[: self._group.rank])
            kept.seek(0)

            def copy(file: BinaryIO) -> None:
                file.seek(first)
                shutil.copyfileobj(kept, file, _NUMBERS_AT_ONCE)

            path = self._written(name, copy)
            self._attempt(own.unlink)
        return path

    def _written(self, name: str, write: Callable[[BinaryIO], object]) -> Path:
        """A file to which every process writes."""
        path = self._path / name

        def write_own() -> None:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())

        self._attempt(write_own)
        return path

    def _attempt(self, work: Callable[[], Result]) -> Result:
        def one_line() -> Result:
            try:
                return work()
            except OSError as error:
                raise unwritable(self._folder, error, "out") from None

        return self._group.by_all(one_line)


def _prediction_lines(model: NodeClassifier, group: Group) -> Iterator[bytes]:
    """The lines of own nodes; those of the first process begin with the header."""
    naming, logits = model.fitted_.naming, model.logits_
    first = sum(group.each(len(logits))[: group.rank])
    if group.rank == 0:
        yield csv_head(naming, logits.shape[1])
    for low in range(0, len(logits), _ROWS_AT_ONCE):
        block = logits[low : low + _ROWS_AT_ONCE]
        places = range(low, low + len(block))
        names = [str(first + place) if naming.nodes is None else naming.nodes[place] for place in places]
        yield csv_rows(naming, names, model.probabilities(block).numpy())


def _name_lines(names: Sequence[str], group: Group) -> Iterator[bytes]:
    """A list of names as JSON, as `json.dumps` writes it with an indent of 2."""
    yield b"[" if group.rank == 0 else b""
    before = "" if group.rank == 0 else ","
    for name in names:
        yield f"{before}\n  {json.dumps(name)}".encode()
        before = ","
    yield b"\n]\n" if group.rank == group.size - 1 else b""
