"""`fit`, on several processes: the same stages as on one, each process on its own rows."""

from __future__ import annotations

import secrets
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphveil.distributed.group import Group
from graphveil.distributed.inputs import ShardedInputs
from graphveil.distributed.layout import Span
from graphveil.distributed.ledger import ShardedLedger
from graphveil.distributed.shard import Shard
from graphveil.distributed.source import SharedSource
from graphveil.errors import InvalidInput
from graphveil.methods import METHODS
from graphveil.methods.answers import Answers
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.fitted import FittedState
from graphveil.methods.naming import Naming
from graphveil.privacy.levels import protects_attributes
from graphveil.privacy.plan import Plan

if TYPE_CHECKING:
    from graphveil.distributed.checkpoint import ShardedCheckpoint


def check_supported(model: NodeClassifier) -> None:
    """Refuse what needs all rows in one place."""
    if not model.divides:
        known = " or ".join(name for name, each in METHODS.items() if each.load().divides)
        raise InvalidInput("method", model.method, f"does not run on several processes; use {known}")
    if not protects_attributes(model.level) and model.dropout:
        why = "must be 0 on several processes where attributes are public: it would depend on their number"
        raise InvalidInput("dropout", model.dropout, why)


def fit(
    model: NodeClassifier,
    shard: Shard,
    group: Group,
    checkpoint: ShardedCheckpoint | None = None,
    plan: Plan | None = None,
) -> None:
    """Train on a graph of which every process has a part; by the first process's `plan`, if it has made one already.

    Afterwards `certificate_` and small weights are the same in all processes; `logits_`, W and Z have this process's
    rows. `saving.save` writes what all of them have together.

    Formal guarantee: plan and certificate are made once and sent to all; `ShardedLedger` executes the plan.
    """
    check_supported(model)
    model.check_parameters()
    if model.device != "cpu":
        model.device = f"cuda:{torch.cuda.current_device()}"
    options = {name: value for name, value in model.get_params().items() if name not in ("device", "show_progress")}
    for name, value in group.object_from_first(options).items():
        if options[name] != value:
            raise InvalidInput(name, options[name], "is not what the first process was given")
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
        lambda: ShardedInputs(shard, group, model.device),
        seed,
        checkpoint.following(model, shard, ledger, source) if checkpoint else nullcontext(),
    )
    certificate = group.object_from_first(ledger.certificate() if group.rank == 0 else None)
    model.take(
        FittedState(
            ledger=ledger,
            certificate=certificate,
            logits=logits,
            sparse=sparse,
            naming=Naming.of(shard),
            labels=shard.labels,
            fingerprint=shard.fingerprint,
            answers=Answers(),
            budget=certificate.epsilon,
            keeper=checkpoint,
        )
    )


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
