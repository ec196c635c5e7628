"""The two ways to train: freely, with the best epoch chosen by validation, or privately, through the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from graphveil.errors import InvalidInput
from graphveil.execution import LedgerLike, Stages
from graphveil.execution.exact import EXACT, Arithmetic, cross_entropy
from graphveil.execution.gradients import ClippedSums, ExactGradients
from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.methods.networks import Best, RunningMean, TrainingState, begin_step, mean_of

# Parameters from which the steps of mini-batch training are long enough to share among threads.
_WORTH_THREADS = 4_000_000
# Rows of a full batch that are worked on at a time: 16,384 rows of a layer's 64 numbers are 4 MiB, so what one
# operation makes is in the cache for the next, however large the graph is.
ROWS_AT_ONCE = 2**14

# What the loss of a validation node counts at most.
_LARGEST_LOSS = 100.0

# The label of a node that has none. A training node that was emptied (zero-out) has it too.
NO_LABEL = -1

# Given indices of rows (None: all of them), the model's logits for these rows.
Logits = Callable[[torch.Tensor | None], torch.Tensor]


class Kept:
    """What is made of some of the rows, kept while their index exists: full-batch training asks for the same at every
    step.

    Args:
        make: Makes it, given indices of rows.
    """

    def __init__(self, make: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._make = make
        self._kept = WeakIdKeyDictionary()

    def __call__(self, index: torch.Tensor) -> torch.Tensor:
        if index not in self._kept:
            self._kept[index] = self._make(index)
        kept: torch.Tensor = self._kept[index]
        return kept


class KeptRows:
    """Some of the rows, cached while their index exists."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._some = None if isinstance(rows, SparseRows) else Kept(rows.__getitem__)

    def __call__(self, index: torch.Tensor | None) -> Rows:
        if index is None:
            return self._rows
        return self._rows[index] if self._some is None else self._some(index)  # sparse rows have a cache of their own


@dataclass(frozen=True)
class Target:
    """Labels of all nodes, which of them train and validate, and what each class weighs.

    Formal guarantee: weights are public or released already, and at most 1. A clipped gradient that is multiplied by
    such a number is still within the clipping norm, so weights change no sensitivity (docs/theory.md, section 5.10).
    """

    labels: torch.Tensor
    train: torch.Tensor
    validation: torch.Tensor
    # What a row counts, for each class, at most 1; None: all rows count 1.
    weights: torch.Tensor | None = field(default=None, kw_only=True)

    def losses(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The loss of each of these rows, whose logits are given. A row without a label has none: it is 0."""
        return cross_entropy(logits, self.labels[rows], NO_LABEL)

    def row_weights(self, rows: torch.Tensor) -> torch.Tensor | None:
        """What each of these rows counts; None: all of them count 1."""
        return None if self.weights is None else self.weights[self.labels[rows].clamp_min(0)]

    @property
    def count(self) -> int:
        """How many nodes train."""
        return len(self.train)

    def blocks(self, rows_at_once: int) -> Sequence[torch.Tensor]:
        """The training nodes, so many at a time."""
        return self.train.split(rows_at_once)

    @property
    def first(self) -> int:
        """The place of the first of these among all nodes that train, where other processes have some too."""
        return 0

    def largest(self, value: torch.Tensor) -> torch.Tensor:
        """The largest, entry by entry, of what all processes give."""
        return value

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """The sum of what all processes give."""
        return value

    @property
    def validates(self) -> bool:
        return len(self.validation) > 0

    def accuracy(self, logits: torch.Tensor) -> float:
        """On the validation nodes, whose logits these are."""
        return float((logits.argmax(1) == self.labels[self.validation]).float().mean())

    def likelihood(self, logits: torch.Tensor, rows: torch.Tensor | None = None) -> float:
        """The mean log-likelihood of these rows, whose logits are given; None: the validation nodes.

        Whole multiples of 2^-20 are added up, so that their order does not matter.
        """
        labels = self.labels[self.validation if rows is None else rows]
        losses = functional.cross_entropy(logits, labels, reduction="none")
        steps = (losses.nan_to_num(_LARGEST_LOSS).clamp_max(_LARGEST_LOSS) * 2**20).long().sum()
        total, count = self.total(torch.stack([steps, torch.full_like(steps, len(losses))])).tolist()
        return -total / count / 2**20

    def score(self, logits: torch.Tensor) -> float:
        """Accuracy plus mean log-likelihood: accuracy alone does not see what is learnt about rare classes."""
        return self.accuracy(logits) + self.likelihood(logits)

    @property
    def first_node(self) -> int:
        """The number of the first of these nodes among the nodes of all processes."""
        return 0

    def gathered(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows of all processes, one process's below the other's."""
        return rows

    def folds(self, key: int, count: int) -> torch.Tensor:
        """The fold of each training node, by its place among all that train: the same for any number of processes."""
        block, before = divmod(self.first, 4)  # Philox makes four numbers at a time
        drawn = np.random.Philox(key=key, counter=[block, 0, 0, 0]).random_raw(before + len(self.train))[before:]
        return torch.from_numpy((drawn % count).astype(np.int64)).to(self.train.device)


def label_rows(labels: torch.Tensor, classes: int) -> torch.Tensor:
    """One-hot rows in float32; the row of a node without a label is zero."""
    return (labels[:, None] == torch.arange(classes, device=labels.device)).float()


def train_freely(
    model: nn.Module,
    logits: Logits,
    target: Target,
    stages: Stages,
    name: str,
    *,
    steps: int,
    learning_rate: float,
    show: bool | None,
    after_step: Callable[[], None] | None = None,
    patience: int | None = None,
) -> None:
    """Full-batch Adam; keeps the weights of the best validation epoch. Nothing private may reach this function.

    The best is that of the highest accuracy. With `patience` it is that of the highest `Target.score`, and training
    ends after so many epochs without a better one. Gradients are exact sums (`execution.gradients`), and masks of
    dropout belong to rows: the weights do not depend on the number of threads and processes.
    """
    # Adam divides by the gradient's size, so a sum does as well as a mean once its eps is as many times larger.
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, eps=1e-8 * target.count, fused=True)
    best = Best(model)
    gradients = ExactGradients(model, target.count, target.largest, target.total)
    key, weights = int(torch.randint(2**62, ())), target.row_weights(target.train)

    def row_losses() -> torch.Tensor:
        losses = target.losses(logits(target.train), target.train)
        return losses if weights is None else losses * weights

    def enough() -> bool:
        return patience is not None and best.offers_since >= patience

    score = target.accuracy if patience is None else target.score
    for step in stages.steps(steps, name, TrainingState(model, optimizer, best), show, enough):
        model.train()
        begin_step(model, key, step, target.first)
        _take_step(model, optimizer, gradients.of(row_losses))
        if after_step is not None:
            after_step()
        if target.validates:
            model.eval()
            with torch.no_grad():
                best.offer(score(logits(target.validation)))
    best.take()
    model.eval()
    broken = torch.tensor(sum(int((~each.isfinite()).any()) for each in model.parameters()))
    if int(target.total(broken)):
        why = "is where weights are no longer finite: features are too large, or the learning rate is"
        raise InvalidInput("training", name, why)


def _take_step(model: nn.Module, optimizer: torch.optim.Optimizer, gradients: Sequence[torch.Tensor]) -> None:
    """One step of the optimizer with these gradients, in the model's order."""
    for parameter, gradient in zip((p for p in model.parameters() if p.requires_grad), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
    optimizer.zero_grad()  # the next step does without this one's gradients in memory


def train_privately(
    model: nn.Module,
    logits: Logits,
    target: Target,
    ledger: LedgerLike,
    name: str,
    *,
    learning_rate: float,
    show: bool | None,
    after_step: Callable[[], None] | None = None,
    average: bool = False,
    halfway: nn.Module | None = None,
    arithmetic: Arithmetic = EXACT,
) -> None:
    """Clipped training as `name` plans it: its steps, its sampling, its noise.

    The last iterate, or with `average` the mean of the second half of them, which averages noise away. `halfway` is a
    model that gets the weights after half of the steps. Formal guarantee: the weights after every step are
    post-processing of what the ledger returned, and so is their mean.
    """
    planned = ledger.training(name)
    half = halfway_of(planned.steps)
    # Sums of gradients, and an eps to match, as in free training.
    expected = planned.sampling_rate * target.count
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, eps=1e-8 * expected, fused=True)
    model.eval()  # dropout would only add noise to noise
    kept = RunningMean(model, range(planned.steps // 2, planned.steps) if average else range(half - 1, half))
    mean = kept if average or halfway is not None else None
    small = planned.sampling_rate < 1 and sum(p.numel() for p in model.parameters()) < _WORTH_THREADS
    blocks = target.blocks(ROWS_AT_ONCE)
    clipped = ClippedSums(model, planned.clip, target.count, arithmetic)

    def row_losses(rows: torch.Tensor) -> torch.Tensor:
        return target.losses(logits(rows), rows)

    def take_step() -> None:
        drawn = ledger.sample(name, len(target.train))
        if drawn is None:
            sums = clipped.over(blocks, row_losses, target.row_weights)
        else:
            rows = target.train[drawn]
            sums = clipped.of(partial(row_losses, rows), target.row_weights(rows))
        _take_step(model, optimizer, ledger.noisy_sum(name, sums))
        if after_step is not None:
            after_step()

    with _one_thread() if small else nullcontext():
        for step in ledger.stages.steps(planned.steps, name, TrainingState(model, optimizer, mean), show):
            take_step()
            if mean is not None:
                mean.after(step)
    if mean is not None:
        mean.give(model if halfway is None else halfway)


def halfway_of(steps: int) -> int:
    """How many steps are half of these: at least one."""
    return max(1, steps // 2)


@torch.no_grad()
def all_logits(logits: Logits, nodes: int, device: torch.device) -> torch.Tensor:
    """The logits of all nodes, some rows at a time."""
    if nodes <= ROWS_AT_ONCE:
        return logits(None)
    # Each index of its own, which ends with its turn: what is kept for an index is kept as long as the index lives.
    blocks = range(0, nodes, ROWS_AT_ONCE)
    return torch.cat([logits(torch.arange(i, min(i + ROWS_AT_ONCE, nodes), device=device)) for i in blocks])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on the calling thread alone: waking others takes longer than the short operations of a small step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def cross_fitted(
    make: Callable[[], nn.Module], rows: Rows, target: Target, *, folds: int, fit: Callable[..., None]
) -> tuple[nn.ModuleList, torch.Tensor]:
    """Models that each leave out one part of the training nodes, and class probabilities of all nodes.

    A training node's come from the model that has not seen it, as everybody else's do, so that what is trained on
    them next sees how good they really are; other nodes get the mean. `fit` is `train_freely` with its settings.
    """
    fold_of = target.folds(int(torch.randint(2**62, ())), folds)
    sizes = target.total(torch.bincount(fold_of, minlength=folds)).tolist()
    # Few training nodes may all be in one fold. There is no model without it then: all models learn from all of them.
    if max(sizes) == sum(sizes):
        fold_of = torch.full_like(fold_of, folds)
    models = nn.ModuleList()
    probabilities = []
    for fold in range(folds):
        model, inputs = make(), KeptRows(rows)

        def logits(rows: torch.Tensor | None, model: nn.Module = model, inputs: KeptRows = inputs) -> torch.Tensor:
            return model(inputs(rows))

        fit(model, logits, replace(target, train=target.train[fold_of != fold]))
        models.append(model)
        with torch.no_grad():
            probabilities.append(torch.softmax(model(rows), dim=1))
    mean = mean_of(probabilities)
    for fold in range(folds):
        held_out = target.train[fold_of == fold]
        mean[held_out] = probabilities[fold][held_out]
    return models, mean
