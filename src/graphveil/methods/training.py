"""The two ways to train: freely, with the best epoch chosen by validation, or privately, through the ledger."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from graphveil import progress
from graphveil.mechanisms import Ledger
from graphveil.mechanisms.clipping import clipped_gradient_sum

# Given indices of rows (None: all of them), the model's logits for these rows.
Logits = Callable[[torch.Tensor | None], torch.Tensor]


@dataclass(frozen=True)
class Target:
    """Labels of all nodes and which of them train and validate."""

    labels: torch.Tensor
    train: torch.Tensor
    validation: torch.Tensor


def train_freely(
    model: nn.Module, logits: Logits, target: Target, *, steps: int, learning_rate: float, show: bool | None, name: str
) -> None:
    """Full-batch Adam; keeps the weights of the best validation epoch. Nothing private may reach this function."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    best, kept = -1.0, None
    for _ in progress.steps(steps, name, show):
        model.train()
        optimizer.zero_grad()
        functional.cross_entropy(logits(None)[target.train], target.labels[target.train]).backward()
        optimizer.step()
        if len(target.validation):
            model.eval()
            with torch.no_grad():
                guess = logits(None)[target.validation].argmax(1)
            accuracy = float((guess == target.labels[target.validation]).float().mean())
            if accuracy > best:
                best, kept = accuracy, copy.deepcopy(model.state_dict())
    if kept is not None:
        model.load_state_dict(kept)
    model.eval()


def train_privately(
    model: nn.Module,
    logits: Logits,
    target: Target,
    ledger: Ledger,
    name: str,
    *,
    learning_rate: float,
    show: bool | None,
    after_step: Callable[[], None] | None = None,
) -> None:
    """Clipped training as `name` plans it: its steps, its sampling, its noise; the last iterate.

    Formal guarantee: the weights after every step are post-processing of what the ledger returned.
    """
    planned = ledger.training(name)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    expected = planned.sampling_rate * len(target.train)
    model.eval()  # dropout would only add noise to noise
    for _ in progress.steps(planned.steps, name, show):
        drawn = ledger.sample(name, len(target.train))
        rows = target.train if drawn is None else target.train[drawn]

        def row_losses(rows: torch.Tensor = rows) -> torch.Tensor:
            return functional.cross_entropy(logits(rows), target.labels[rows], reduction="none")

        sums = clipped_gradient_sum(model, row_losses, planned.clip)
        noisy = ledger.noisy_sum(name, sums)
        for parameter, gradient in zip((p for p in model.parameters() if p.requires_grad), noisy, strict=True):
            parameter.grad = gradient.div_(expected)
        optimizer.step()
        optimizer.zero_grad()  # the next step does without this one's gradient in memory
        if after_step is not None:
            after_step()
