"""A process's part of a graph as the methods read it: they work on own rows, and ask here for what all rows say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional

from graphveil.distributed.group import Group
from graphveil.distributed.rows import ROWS_AT_ONCE, ShardedLinear, ShardedRows
from graphveil.distributed.shard import Shard
from graphveil.methods.estimator import Inputs
from graphveil.methods.training import Target


@dataclass(frozen=True)
class ShardedTarget(Target):
    """Labels of own nodes; all processes together train one model."""

    group: Group
    of: list[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", self.group.each(len(self.train)))  # training nodes by rank

    @property
    def count(self) -> int:
        return sum(self.of)

    def blocks(self, rows_at_once: int) -> Sequence[torch.Tensor]:
        """As many for every process, because blocks are exchanged; some may be empty."""
        size = max(1, ROWS_AT_ONCE // len(self.of))
        return [self.train[low : low + size] for low in range(0, max(self.of), size)]

    @property
    def validates(self) -> bool:
        return self.group.any(len(self.validation) > 0)

    def loss(self, logits: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, self.labels[self.train], reduction="sum") / self.count

    def share(self, model: nn.Module) -> None:
        own = {id(layer.weight) for layer in model.modules() if isinstance(layer, ShardedLinear)}
        for parameter in model.parameters():
            if parameter.grad is not None and id(parameter) not in own:
                parameter.grad = self.group.total(parameter.grad)

    def accuracy(self, logits: torch.Tensor) -> float:
        right = int((logits.argmax(1) == self.labels[self.validation]).sum())
        found, of = self.group.total(torch.tensor([right, len(logits)])).tolist()
        return found / of

    def shuffled(self) -> torch.Tensor:
        """In their own order: a permutation of all would have to be known to all."""
        return self.train

    def held_out(self, fold: int, folds: int) -> slice:
        return slice((fold - sum(self.of[: self.group.rank])) % folds, None, folds)


class ShardedInputs(Inputs):
    """Own nodes' features and labels, and A with own columns."""

    def __init__(self, shard: Shard, group: Group, device: str) -> None:
        self._group = group
        super().__init__(shard, sp.csr_array((0, 0)), device)
        self.nodes = shard.span.count
        ones = np.ones(len(shard.indices), np.float32)
        matrix = sp.csr_array((ones, shard.indices, shard.indptr), shape=(shard.num_nodes, shard.span.count))
        self.adjacency = ShardedRows(matrix, shard.layout, group, device)
        own = self.target
        self.target = ShardedTarget(own.labels, own.train, own.validation, group)

    def feature_neighbors(self) -> torch.Tensor:
        """Nobody's: to compare features with those of other processes' nodes would send these around."""
        return torch.zeros(self.nodes, self.classes, device=self.target.labels.device)

    def count(self, rows: torch.Tensor) -> int:
        return sum(self._group.each(len(rows)))

    def total(self, rows: torch.Tensor) -> torch.Tensor:
        return self._group.total(super().total(rows))

    def longest(self, rows: torch.Tensor) -> torch.Tensor:
        return self._group.largest(rows.norm(dim=1).max())
