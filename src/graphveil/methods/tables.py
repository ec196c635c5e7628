"""Tables W that are private without training (docs/theory.md, section 5)."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from graphveil.levels import protects_attributes
from graphveil.mechanisms import Ledger
from graphveil.mechanisms.sparse import SparseRows
from graphveil.methods.estimator import Inputs
from graphveil.methods.networks import normalize_rows


def make_table(name: str, data: Inputs, ledger: Ledger, tau: float) -> torch.Tensor:
    """The table `name`: one row for each node, of norm at most 1.

    Formal guarantee: what the mechanisms "labels" and "neighbors" of the plan say; everything else is post-processing.
    """
    parts = []
    if "labels" in name:
        parts.append(response_table(data, ledger))
    if "neighbors" in name:
        parts.append(neighbor_table(data, ledger, tau))
    return torch.cat(parts, dim=1) / math.sqrt(len(parts))


def response_table(data: Inputs, ledger: Ledger) -> torch.Tensor:
    """One-hot rows of the training nodes' labels, by randomised response where labels are private; others are zero.

    Centred by the public constant 1 / C, which shortens the rows.
    """
    train = data.target.train
    labels = data.target.labels[train]
    if protects_attributes(ledger.plan.level):
        labels = ledger.respond("labels", labels)
    table = torch.zeros(data.nodes, data.classes, device=labels.device)
    table[train] = functional.one_hot(labels, data.classes).float() - 1 / data.classes
    # Scaled to norm 1, so that every table uses the whole of the release's row norm.
    return table / math.sqrt(1 - 1 / data.classes)


def neighbor_table(data: Inputs, ledger: Ledger, tau: float) -> torch.Tensor:
    """Whose readers have which labels: S = A^T diag(w) Y + noise over training rows, rows scaled to norm 1."""
    counts = neighbor_label_counts(data.adjacency, data.target.labels, data.target.train, data.classes, tau)
    return normalize_rows(ledger.release("neighbors", counts))


def neighbor_label_counts(
    adjacency: SparseRows, labels: torch.Tensor, train: torch.Tensor, classes: int, tau: float
) -> torch.Tensor:
    """A^T diag(w) Y with w_i = min(1, tau / sqrt(deg_i))."""
    weighted = torch.zeros(len(adjacency), classes, device=labels.device)
    degrees = adjacency.squared_norms[train].clamp_min(1.0)  # entries are 0/1, so this is the number of them
    weights = (tau / degrees.sqrt()).clamp_(max=1.0)
    weighted[train] = functional.one_hot(labels[train], classes).float() * weights[:, None]
    return adjacency.transposed_times(weighted)


def clip_rows(table: torch.Tensor, norm: float) -> torch.Tensor:
    """Rows longer than `norm` are shortened to it."""
    return table * (norm / table.norm(dim=1, keepdim=True).clamp_min(norm))


def shrunk_rows(table: torch.Tensor, noise: float) -> torch.Tensor:
    """Each row's direction, shrunk where noise could have made it: z / (|z| + noise sqrt(width)). Row by row: free."""
    return table / (table.norm(dim=1, keepdim=True) + noise * math.sqrt(table.shape[1]) + 1e-12)
