"""The peer: the same training on Opacus' per-sample-gradient optimiser, fed with dense rows.

Where there was a choice it is in the peer's favour: its noise is torch's ordinary generator (Opacus' default), and its
batches are made dense off the clock.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.nn import functional

import graphveil as gv
from graphveil.methods.networks import LinkxHead

# Said at every step: the inputs need no gradient.
warnings.filterwarnings("ignore", message="Full backward hook is firing")

HIDDEN = 64
# Changes neither time nor memory.
_NOISE_MULTIPLIER = 5.0


class DenseEmbedding(nn.Module):
    """selu(A W + b) R with a dense linear layer and a frozen R."""

    head: torch.Tensor

    def __init__(self, nodes: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(nodes, HIDDEN)
        self.register_buffer("head", nn.init.orthogonal_(torch.empty(HIDDEN, classes)))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return functional.selu(self.layer(rows)) @ self.head


class DenseTraining:
    """Steps of clipped training; `batch` draws a Poisson batch of dense inputs and labels."""

    def __init__(
        self,
        model: nn.Module,
        batch: Callable[[], tuple[Sequence[torch.Tensor], torch.Tensor]],
        batch_size: int,
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        self._model, self.draw, self._after_step = GradSampleModule(model), batch, after_step
        self._optimizer = DPOptimizer(
            torch.optim.Adam(model.parameters(), lr=1e-3),
            noise_multiplier=_NOISE_MULTIPLIER,
            max_grad_norm=1.0,
            expected_batch_size=batch_size,
        )

    def step(self, inputs: Sequence[torch.Tensor], labels: torch.Tensor) -> None:
        functional.cross_entropy(self._model(*inputs), labels).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()  # lets the per-sample gradients go
        self._after_step()


def embedding_training(graph: gv.Graph, batch_size: int) -> DenseTraining:
    """DP-Emb, with W's rows (columns of the layer's weight) scaled back after each step."""
    model = DenseEmbedding(graph.num_nodes, graph.num_classes)
    A = graph.reads("out")

    def batch() -> tuple[Sequence[torch.Tensor], torch.Tensor]:
        rows = _poisson(graph, batch_size)
        return [torch.from_numpy(A[rows.numpy()].toarray())], graph.labels[rows]

    @torch.no_grad()
    def hold_norms() -> None:
        weight = model.layer.weight
        weight.div_(weight.norm(dim=0, keepdim=True).clamp_min_(1e-12))

    return DenseTraining(model, batch, batch_size, hold_norms)


def head_training(graph: gv.Graph, batch_size: int) -> DenseTraining:
    """The head on [X | Z] with dense features; Z's values do not matter for the time."""
    X = graph.features_torch().to_dense()
    Z = functional.normalize(torch.randn(graph.num_nodes, HIDDEN))

    def batch() -> tuple[Sequence[torch.Tensor], torch.Tensor]:
        rows = _poisson(graph, batch_size)
        return [X[rows], Z[rows]], graph.labels[rows]

    return DenseTraining(LinkxHead(X, HIDDEN, graph.num_classes), batch, batch_size)


def _poisson(graph: gv.Graph, batch_size: int) -> torch.Tensor:
    train = graph.train_mask.nonzero().squeeze(1)
    return train[torch.rand(len(train)) < batch_size / len(train)]
