"""An artifact of what all processes hold: the first writes it, and receives the others' rows some at a time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch

from graphveil.artifact import save as save_artifact
from graphveil.artifact.predictions import csv_head, csv_rows
from graphveil.artifact.tensors import LOGITS, rows_of, weights_of
from graphveil.distributed.group import Group
from graphveil.errors import InvalidInput
from graphveil.methods.estimator import NodeClassifier

# Tensors of a model that have a row for each node.
_SHARDED = (LOGITS, "table", "released")
_ROWS_AT_ONCE = 2**16
_TYPES = {torch.float32: "F32", torch.uint8: "U8"}


def save(
    model: NodeClassifier, folder: Path, group: Group, *, budget: float | None = None, also: Mapping[str, bytes]
) -> None:
    """Write a model that was fitted on several processes, so that one process can load it; all take part."""
    with _Beside(folder, group) as scratch:
        weights = _write_tensors(scratch / "weights", weights_of(model), group)
        rows = _write_tensors(scratch / "rows", rows_of(model), group)
        predictions = _write(scratch / "predictions", _prediction_lines(model, group), group)
        if group.rank == 0:
            files: dict[str, bytes | Path] = {**also, "predictions.csv": predictions}
            save_artifact(model, folder, budget=budget, also=files, tensors=(weights, rows))
    group.wait()


class _Beside:
    """A folder beside another one, in the first process; it is gone at the end."""

    def __init__(self, folder: Path, group: Group) -> None:
        self._folder, self._group = folder, group
        self._made: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Path:
        if self._group.rank == 0:
            try:
                self._folder.parent.mkdir(parents=True, exist_ok=True)
                self._made = tempfile.TemporaryDirectory(prefix=f".{self._folder.name}-", dir=self._folder.parent)
            except OSError as error:
                raise InvalidInput("out", str(self._folder), f"cannot be written: {error.strerror}") from None
            return Path(self._made.name)
        return self._folder

    def __exit__(self, *error: object) -> None:
        if self._made is not None:
            self._made.cleanup()


def _write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], group: Group) -> Path:
    """A safetensors file of everybody's rows, written front to back."""
    return _write(path, _tensor_bytes(tensors, group), group)


def _tensor_bytes(tensors: Mapping[str, torch.Tensor], group: Group) -> Iterator[bytes]:
    header, at = {}, 0
    for name, tensor in tensors.items():
        rows = sum(group.each(len(tensor))) if name in _SHARDED else len(tensor)
        shape = [rows, *tensor.shape[1:]]
        size = rows * tensor[:1].numel() * tensor.element_size()
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name, tensor in tensors.items():
        if name not in _SHARDED:
            yield tensor.numpy().tobytes()
            continue
        for block in group.to_first(tensor, _ROWS_AT_ONCE):
            yield block.numpy().tobytes()


def _prediction_lines(model: NodeClassifier, group: Group) -> Iterator[bytes]:
    naming, node = model._naming, 0
    yield csv_head(naming, model.logits_.shape[1])
    for block in group.to_first(model.logits_, _ROWS_AT_ONCE):
        names = [naming.node(place) for place in range(node, node + len(block))]
        yield csv_rows(naming, names, torch.softmax(block, dim=1).numpy())
        node += len(block)


def _write(path: Path, pieces: Iterable[bytes], group: Group) -> Path:
    """The pieces in a file, in the first process; the others only take part in making them."""
    if group.rank:
        for _ in pieces:
            pass
        return path
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return path
