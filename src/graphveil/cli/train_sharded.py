"""`torchrun -m graphveil train`: the same command on several processes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import typer

from graphveil.artifact.saving import check_budget, check_new_run, check_space, other_places, save_somewhere
from graphveil.checkpoint import AlreadySaved
from graphveil.checkpoint.folder import STATE
from graphveil.cli.experiments import report_on
from graphveil.cli.options import command_line
from graphveil.cli.train import Options, show_accuracies, show_saved
from graphveil.distributed import Group, JobEnded, Shard, ShardedCheckpoint, check_supported, fit, save
from graphveil.distributed.parts import is_parts, read_part
from graphveil.errors import BudgetExceeded, InvalidInput
from graphveil.process import check_job, peak_memory_mb

if TYPE_CHECKING:
    from graphveil.methods.estimator import NodeClassifier
    from graphveil.privacy.facts import PublicFacts
    from graphveil.privacy.plan import Plan


def train_sharded(model: NodeClassifier, options: Options) -> None:
    """Fit on all processes; the first one prints and writes the result.

    Args:
        model: The model, not fitted yet.
        options: The other options.

    Raises:
        InvalidInput: If the method or an option cannot be used on several processes.
        JobEnded: If another process ended.
    """
    check_supported(model)
    check_job()
    model.check_parameters()
    if model.device != "cpu":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    try:
        with Group.joined(model.device) as group:
            try:
                _train(model, options, group)
            except AlreadySaved as saved:
                if group.rank == 0:
                    show_saved(saved, options.as_json)
            except InvalidInput as error:
                known = error.everywhere and group.rank > 0  # the first process says it
                if known or not group.has_to_say(str(error)):
                    raise typer.Exit(2) from None
                raise
    except JobEnded as error:
        if options.checkpoint is None:
            raise JobEnded(f"{error}; nothing was kept, as there is no --checkpoint") from None
        if not (options.checkpoint / STATE).exists():
            raise JobEnded(f"{error}; no checkpoint was complete yet: start again without --resume") from None
        raise JobEnded(f"{error}; go on from {options.checkpoint} with --resume") from None


def _train(model: NodeClassifier, options: Options, group: Group) -> None:
    with nullcontext() if options.checkpoint is None else _opened(options, group) as kept:
        group.by_first(partial(_check_out, options))
        shard = _own_part(model, options, group)
        facts = shard.facts(group, edges=model.public_edges)
        group.by_first(partial(_check_room, model, facts, options))
        group.by_first(partial(_spend, model.plan_for(facts), options))
        start = time.perf_counter()
        fit(model, shard, group, kept)
        seconds = time.perf_counter() - start
        if options.ledger is not None and group.rank == 0:
            options.ledger.finish(model.plan_)
        result = _result(model, shard, group, seconds)
        if options.out is not None:
            metrics = {**result, "evaluation": None, "command": command_line()}
            also = {"metrics.json": (json.dumps(metrics, indent=2) + "\n").encode()}
            write = partial(save, model, group=group, budget=options.budget, also=also)
            save_somewhere(write, options.out, options.checkpoint, _other_places(group))
        if kept is not None:
            kept.discard()
    if group.rank == 0:
        _show(model, options, shard, group, result)


def _own_part(model: NodeClassifier, options: Options, group: Group) -> Shard:
    """The part of the graph that this process works on."""
    path = Path(options.graph)
    if not is_parts(path):
        return Shard.of(options.load(), group, model.direction)
    if options.declares:
        raise InvalidInput("graph", options.graph, "is divided into parts, so options about tables do not apply")
    return read_part(path, group, model.direction)


def _result(model: NodeClassifier, shard: Shard, group: Group, seconds: float) -> dict[str, Any]:
    """What `--json` prints, and metrics.json holds. All processes make it together."""
    certificate = model.certificate_
    return {
        "graph": shard.name,
        "method": model.method,
        "processes": group.size,
        "test_accuracy": _accuracy(model, shard, shard.test_mask, group),
        "val_accuracy": _accuracy(model, shard, shard.val_mask, group),
        "graph_used": model.graph_used_,
        "epsilon": certificate.to_dict()["epsilon"],
        "delta": certificate.delta,
        "seconds": round(seconds, 3),
        "peak_memory_mb": _peak_memory_mb(group),
        "certificate": certificate.to_dict(),
    }


def _show(model: NodeClassifier, options: Options, shard: Shard, group: Group, result: dict[str, Any]) -> None:
    if options.out is not None:
        report_on(options.out)
    if options.as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(f"{shard.name}: {shard.num_nodes:,} nodes on {group.size} processes")
    show_accuracies(result)
    needed = f"trained in {result['seconds']:.1f} s, peak memory {result['peak_memory_mb']} MB a process"
    typer.echo(f"{needed}\n\n{model.certificate_}")
    if options.out is not None:
        typer.echo(f"\nwritten to {options.out}/")


def _other_places(group: Group) -> Iterator[Path]:
    """The places that the first process would try, on all processes."""
    own = other_places() if group.rank == 0 else iter(())
    while (place := group.object_from_first(next(own, None))) is not None:
        yield place


def _check_out(options: Options) -> None:
    if options.out is not None:
        check_new_run(options.out)


def _check_room(model: NodeClassifier, facts: PublicFacts, options: Options) -> None:
    plan = model.plan_for(facts)
    check_budget(options.budget, plan.epsilon)
    check_space(model, plan, options.out, options.checkpoint)


def _spend(plan: Plan, options: Options) -> None:
    """Before the processes draw anything, the ledger of these people gets its entry."""
    if options.ledger is None:
        return
    try:
        options.ledger.spend(plan, None, options.checkpoint, options.resume)
    except BudgetExceeded as error:
        raise InvalidInput("ledger", str(options.ledger.path), str(error)) from None


def _opened(options: Options, group: Group) -> ShardedCheckpoint:
    assert options.checkpoint is not None
    if options.resume and not options.checkpoint.is_dir():
        raise InvalidInput("checkpoint", str(options.checkpoint), "there is no such folder to resume from")
    return ShardedCheckpoint(options.checkpoint, group, every=options.every, resume=options.resume)


def _accuracy(model: NodeClassifier, shard: Shard, mask: torch.Tensor, group: Group) -> float | None:
    right = (model.logits_.argmax(1) == shard.labels)[mask]
    correct, total = group.total(torch.tensor([int(right.sum()), len(right)])).tolist()
    return correct / total if total else None


def _peak_memory_mb(group: Group) -> float:
    """The peak memory of the process that used most."""
    return round(float(group.largest(torch.tensor([peak_memory_mb()], dtype=torch.float64))), 1)
