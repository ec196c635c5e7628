"""`torchrun -m graphveil train`: the same command, on as many processes as torchrun starts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import typer

from graphveil.cli.train import show_accuracies
from graphveil.distributed import Group, JobEnded, Shard, ShardedCheckpoint, check_supported, fit, save
from graphveil.distributed.parts import is_parts, read_part
from graphveil.errors import InvalidInput
from graphveil.levels import protects_attributes

if TYPE_CHECKING:
    from graphveil.graph import Graph
    from graphveil.methods.estimator import NodeClassifier


@dataclass(frozen=True)
class Options:
    """What of the command line is not the model's."""

    graph: str
    load: Callable[[], Graph]
    out: Path | None
    budget: float | None
    checkpoint: Path | None
    every: float
    resume: bool
    as_json: bool
    command: str
    declares: bool


def train_sharded(model: NodeClassifier, options: Options) -> None:
    """Fit on all processes; the first one prints and writes the result."""
    if not protects_attributes(model.level):
        model.dropout = 0.0  # its mask would depend on the number of processes
    check_supported(model)
    if model.device != "cpu":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    try:
        with Group.joined(model.device) as group:
            _train(model, options, group)
    except JobEnded as error:
        if options.checkpoint is None:
            raise JobEnded(f"{error}; nothing was kept, as there is no --checkpoint") from None
        raise JobEnded(f"{error}; go on from {options.checkpoint} with --resume") from None


def _train(model: NodeClassifier, options: Options, group: Group) -> None:
    with nullcontext() if options.checkpoint is None else _opened(options, group) as kept:
        path = Path(options.graph)
        if is_parts(path) and options.declares:
            raise InvalidInput("classes", options.graph, "is divided into parts, whose graph.json declares classes")
        shard = read_part(path, group) if is_parts(path) else Shard.of(options.load(), group)
        start = time.perf_counter()
        fit(model, shard, group, kept)
        seconds = time.perf_counter() - start
        certificate = model.certificate_
        result: dict[str, Any] = {
            "graph": shard.name,
            "method": model.method,
            "processes": group.size,
            "test_accuracy": _accuracy(model, shard, shard.test_mask, group),
            "val_accuracy": _accuracy(model, shard, shard.val_mask, group),
            "epsilon": certificate.to_dict()["epsilon"],
            "delta": certificate.delta,
            "seconds": round(seconds, 3),
            "peak_memory_mb": _peak_memory_mb(group),
            "certificate": certificate.to_dict(),
        }
        if options.out is not None:
            metrics = {**result, "evaluation": None, "command": options.command}
            also = {"metrics.json": (json.dumps(metrics, indent=2) + "\n").encode()}
            save(model, options.out, group, budget=options.budget, also=also)
        if kept is not None:
            kept.discard()
    if group.rank:
        return
    if options.out is not None:
        from graphveil.report import write_report

        write_report(options.out)
    if options.as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(f"{shard.name}: {shard.num_nodes:,} nodes on {group.size} processes")
    show_accuracies(result)
    typer.echo(f"trained in {seconds:.1f} s, peak memory {result['peak_memory_mb']} MB a process\n\n{certificate}")
    if options.out is not None:
        typer.echo(f"\nwritten to {options.out}/")


def _opened(options: Options, group: Group) -> ShardedCheckpoint:
    assert options.checkpoint is not None
    if options.resume and not options.checkpoint.is_dir():
        raise InvalidInput("checkpoint", str(options.checkpoint), "there is no such folder to resume from")
    return ShardedCheckpoint(options.checkpoint, group, every=options.every, resume=options.resume)


def _accuracy(model: NodeClassifier, shard: Shard, mask: torch.Tensor, group: Group) -> float | None:
    right = (model.logits_.argmax(1) == shard.labels)[mask]
    found, of = group.total(torch.tensor([int(right.sum()), len(right)])).tolist()
    return found / of if of else None


def _peak_memory_mb(group: Group) -> float:
    """Of the process that has taken most."""
    from graphveil.cli.train import _peak_memory_mb as own

    return round(float(group.largest(torch.tensor([own()], dtype=torch.float64))), 1)
