"""`fit` and `save` on several processes: each works on its own rows, and the first one writes the artifact."""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Self

import numpy as np
import torch

from graphveil.artifact import save as save_artifact
from graphveil.artifact.contents import LOGITS, rows_of, weights_of
from graphveil.artifact.predictions import csv_head, csv_rows
from graphveil.distributed.checkpoint import ShardedCheckpoint
from graphveil.distributed.group import Group
from graphveil.distributed.inputs import ShardedInputs
from graphveil.distributed.ledger import ShardedLedger, SharedSource
from graphveil.distributed.shard import Shard, Span
from graphveil.errors import InvalidInput
from graphveil.methods import METHODS
from graphveil.methods.answers import Answers
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.naming import Naming
from graphveil.methods.predictions import FittedState
from graphveil.privacy.plan import Plan
from graphveil.storage.files import unwritable

# Tensors of a model that have a row for each node.
_SHARDED = (LOGITS, "table", "released")
_ROWS_AT_ONCE = 2**16
_TYPES = {torch.float32: "F32", torch.uint8: "U8"}


def check_supported(model: NodeClassifier) -> None:
    """Refuse what needs all rows in one place."""
    if not model.divides:
        known = " or ".join(name for name, each in METHODS.items() if each.load().divides)
        raise InvalidInput("method", model.method, f"does not run on several processes; use {known}")


def check_plan(plan: Plan) -> None:
    """Refuse a plan that needs all rows in one place, before anything is spent."""
    if "choice" in plan.names:
        raise InvalidInput("method", plan.method, "does not run on several processes where links have a direction")


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
    facts = shard.facts(group, edges=model.public_edges)
    plan = group.object_from_first(plan or model.plan_for(facts) if group.rank == 0 else None)
    check_plan(plan)
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
        folder: The folder to create; the first process writes it.
        group: All processes, which call this together.
        budget: As in `artifact.save`.
        also: Further files for the owner.

    Raises:
        InvalidInput: The first process cannot write the folder; raised in all processes.
    """
    with _Beside(folder, group) as beside:
        weights = beside.write("weights", _tensor_bytes(weights_of(model), group))
        rows = beside.write("rows", _tensor_bytes(rows_of(model), group))
        predictions = beside.write("predictions", _prediction_lines(model, group))

        def write() -> None:
            if beside.failed is not None:
                raise beside.failed
            files: dict[str, bytes | Path] = {**also, "predictions.csv": predictions}
            save_artifact(model, folder, budget=budget, also=files, tensors=(weights, rows))

        group.by_first(write)


class _Beside:
    """A folder of the first process beside another one, which is removed at the end.

    `failed` is the first error of writing to it. All processes go on taking part, so that none waits for another.
    """

    def __init__(self, folder: Path, group: Group) -> None:
        self._folder, self._group = folder, group
        self._made: tempfile.TemporaryDirectory[str] | None = None
        self.failed: InvalidInput | None = None

    def __enter__(self) -> Self:
        if self._group.rank == 0:
            try:
                self._folder.parent.mkdir(parents=True, exist_ok=True)
                self._made = tempfile.TemporaryDirectory(prefix=f".{self._folder.name}-", dir=self._folder.parent)
            except OSError as error:
                self.failed = unwritable(self._folder, error, "out")
        return self

    def __exit__(self, *error: object) -> None:
        if self._made is not None:
            self._made.cleanup()

    def write(self, name: str, pieces: Iterable[bytes]) -> Path:
        """Write pieces to a file in the first process; other processes only send theirs."""
        if self._made is None:
            _use_up(pieces)
            return self._folder
        path, pieces = Path(self._made.name) / name, iter(pieces)
        try:
            with path.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.failed = self.failed or unwritable(self._folder, error, "out")
            _use_up(pieces)
        return path


def _use_up(pieces: Iterable[bytes]) -> None:
    for _ in pieces:
        pass


def _tensor_bytes(tensors: Mapping[str, torch.Tensor], group: Group) -> Iterator[bytes]:
    """A safetensors file of the rows of all processes, from its beginning to its end, as that library writes it."""
    header, at = {}, 0
    # Wide types first, and names in order.
    tensors = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
    for name, tensor in tensors.items():
        rows = [sum(group.each(len(tensor)))] if name in _SHARDED else tensor.shape[:1]
        shape = [*rows, *tensor.shape[1:]]
        size = math.prod(shape) * tensor.element_size()
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name, tensor in tensors.items():
        if name not in _SHARDED:
            yield tensor.numpy().tobytes()
            continue
        for block in group.to_first(tensor, _ROWS_AT_ONCE):
            yield block.numpy().tobytes()


def _prediction_lines(model: NodeClassifier, group: Group) -> Iterator[bytes]:
    naming, node = model.fitted_.naming, 0
    yield csv_head(naming, model.logits_.shape[1])
    for block in group.to_first(model.logits_, _ROWS_AT_ONCE):
        names = [naming.node(place) for place in range(node, node + len(block))]
        yield csv_rows(naming, names, torch.softmax(block, dim=1).numpy())
        node += len(block)
