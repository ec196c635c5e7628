"""Where a run is going to be written, checked before anything is spent: names, permission and space."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

from graphveil import validate
from graphveil.artifact.tensors import row_shapes, weight_shapes
from graphveil.errors import InvalidInput
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.plan import Plan
from graphveil.storage.files import Unwritable, check_new_folder, unwritable

# The longest path in an artifact, while it is written.
_LONGEST = "public/.weights.safetensors-xxxxxxxx"
# Certificate, card, report and the like.
_SMALL_FILES = 2 * 2**20
# What a line of predictions.csv takes for the node, and for each class.
_PER_NODE, _PER_CLASS = 32, 9


def check_new_run(field: str, folder: Path) -> None:
    """Refuse a run folder that exists or that could not be written; nothing is left of the trial."""
    check_new_folder(field, folder, _LONGEST)


def check_apart(out: Path, checkpoint: Path) -> None:
    """Neither may lie in the other: a checkpoint is removed at the end, and a run has no files of others in it."""
    here, there = (Path(os.path.realpath(path)) for path in (out, checkpoint))
    if here == there:
        raise InvalidInput("checkpoint", str(checkpoint), "is the same folder as out; name another one")
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise InvalidInput("checkpoint", str(checkpoint), f"and out, {out}, lie in one another; put them side by side")


def check_budget(budget: float | None, plan: Plan) -> None:
    """Refuse a budget that the fit alone exceeds."""
    if budget is not None and validate.positive("budget", budget) < plan.epsilon:
        raise InvalidInput("budget", budget, f"is less than the epsilon of the fit alone, {plan.epsilon:.6g}")


def check_space(model: NodeClassifier, plan: Plan, out: Path | None, checkpoint: Path | None) -> None:
    """Refuse to begin where the disk cannot hold what the fit will write; sizes follow from public facts."""
    weights, rows = _sizes(model, plan)
    facts = plan.facts
    predictions = facts.nodes * (_PER_NODE + _PER_CLASS * facts.classes)
    needs = {"out": (out, weights + rows + predictions + _SMALL_FILES)}
    # Weights, their moments and their mean, twice while one version replaces another, beside the released rows.
    needs["checkpoint"] = (checkpoint, 8 * weights + 2 * rows + _SMALL_FILES)
    wanted: dict[int, int] = {}
    for field, (path, size) in needs.items():
        if path is None:
            continue
        place = _existing(path)
        try:
            disk, free = os.stat(place).st_dev, shutil.disk_usage(place).free
        except OSError as error:
            raise unwritable(path, error, field) from None
        wanted[disk] = wanted.get(disk, 0) + size
        if wanted[disk] > free:
            why = f"needs about {_megabytes(wanted[disk])}, and {_megabytes(free)} are free there; nothing was spent"
            raise InvalidInput(field, str(path), why)


def other_places() -> Iterator[Path]:
    """New folders for a finished run whose own place failed; whoever asks for the next has no use for the last."""
    for find in (Path.cwd, lambda: Path(tempfile.gettempdir())):
        with suppress(OSError):
            made = Path(tempfile.mkdtemp(prefix="graphveil-unsaved-", dir=find()))
            yield made / "run"
            with suppress(OSError):
                made.rmdir()


def said_where(failed: Unwritable, place: Path) -> Unwritable:
    """The same failure, with the place that took the run instead."""
    return Unwritable(failed.field, failed.value, f"{failed.why}; the finished run is in {place} instead")


def _sizes(model: NodeClassifier, plan: Plan) -> tuple[int, int]:
    """Bytes of weights and of rows, in the largest branch of the plan."""
    sizes = []
    for outcome in plan.outcomes():
        logits = plan.facts.nodes * plan.facts.classes
        weights = _bytes(weight_shapes(model, outcome, sparse=False))
        sizes.append((weights, _bytes(row_shapes(model, outcome)) + 4 * logits))
    return max(weights for weights, _ in sizes), max(rows for _, rows in sizes)


def _bytes(parts: Mapping[str, nn.Module | torch.Tensor]) -> int:
    tensors = [
        tensor
        for part in parts.values()
        for tensor in (part.state_dict().values() if isinstance(part, nn.Module) else [part])
    ]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _existing(path: Path) -> Path:
    """The nearest folder above that is there."""
    path = Path(os.path.realpath(path))
    return next(place for place in (path, *path.parents) if place.exists())


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MB" if size >= 2**20 else f"{size:,} bytes"
