"""Training, validation and test sets: random splits, and the forms in which files have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphveil import validate
from graphveil.errors import InvalidInput

if TYPE_CHECKING:
    from graphveil.graph.graph import Graph

SPLITS = ("train", "val", "test")
MASKS = ("train_mask", "val_mask", "test_mask")
PAPER_FRACTIONS = (0.75, 0.10, 0.15)


def random_split(
    labels: Any, *, seed: int, fractions: Sequence[float] = PAPER_FRACTIONS
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Masks (train, val, test) over the nodes with a label, drawn uniformly.

    Args:
        labels: Class numbers, -1 for a node without a label.
        seed: The same seed and the same set of labelled nodes give the same masks, with any version of torch.
        fractions: Parts of training, validation and test nodes. Validation and test take the rounded shares; what
            rounding leaves goes to training.

    Returns:
        Three disjoint boolean masks.

    Raises:
        InvalidInput: No node has a label, or the fractions are no shares of one whole.

    Example:
        >>> train, val, test = random_split([0, 1] * 50, seed=0)
        >>> int(train.sum()), int(val.sum()), int(test.sum())
        (75, 10, 15)
    """
    if len(fractions) != 3 or not all(0 <= share <= 1 for share in fractions) or not 0 < sum(fractions) <= 1 + 1e-9:
        raise InvalidInput("fractions", tuple(fractions), "must be shares of train, val and test, at most 1 together")
    y = torch.as_tensor(labels)
    known = np.flatnonzero(y.numpy() >= 0)
    if len(known) == 0:
        raise InvalidInput("labels", len(y), "no node has a label, so there is nothing to split")
    order = np.random.default_rng(validate.seed("seed", seed)).permutation(known)
    val, test = (round(share * len(known)) for share in fractions[1:])
    total = round(sum(fractions) * len(known))
    parts = order[val + test : total], order[:val], order[val : val + test]
    train_mask, val_mask, test_mask = (torch.zeros(len(y), dtype=torch.bool) for _ in parts)
    for mask, nodes in zip((train_mask, val_mask, test_mask), parts, strict=True):
        mask[torch.from_numpy(nodes)] = True
    return train_mask, val_mask, test_mask


def time_split(
    times: np.ndarray, labels: Any, train_before: float, test_after: float | None = None, *, whole: bool = True
) -> dict[str, np.ndarray]:
    """Masks over the nodes with a label by their times: training before, test after, validation in between.

    Args:
        times: A number for each node; NaN: the node is in no set.
        labels: Class numbers, -1 for a node without a label; None: no node has one.
        train_before: Earlier nodes are in training.
        test_after: Nodes of this time or later are in the test set; None: `train_before`.
        whole: Whether these are all nodes, of which some must be in training.

    Returns:
        The masks by their names.

    Raises:
        InvalidInput: No labelled node is early enough for training.

    Formal guarantee: none for the times. Who is in training is public, so this is sound where times are public.
    """
    known = np.zeros(len(times), bool) if labels is None else np.asarray(labels) >= 0
    last = train_before if test_after is None else test_after
    train, test = known & (times < train_before), known & (times >= last)
    if whole and not train.any():
        raise InvalidInput("train_before", train_before, "no node with a label has an earlier time")
    return {"train_mask": train, "val_mask": known & (times >= train_before) & (times < last), "test_mask": test}


def column_of_mask(field: str, mask: Any, split: int) -> Any:
    """Column `split` of a mask that holds several splits."""
    if mask is None or mask.ndim != 2:
        return mask
    if not 0 <= split < mask.shape[1]:
        raise InvalidInput("split", split, f"{field} holds the splits 0 to {mask.shape[1] - 1}")
    return mask[:, split]


def split_names(graph: Graph) -> list[str | None]:
    """For each node "train", "val", "test" or None."""
    names: list[str | None] = [None] * graph.num_nodes
    for part in SPLITS:
        for i in getattr(graph, f"{part}_mask").nonzero()[:, 0].tolist():
            names[i] = part
    return names
