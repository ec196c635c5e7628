"""Random splits with an explicit seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphveil import validate
from graphveil.errors import InvalidInput

PAPER_FRACTIONS = (0.75, 0.10, 0.15)


def random_split(
    labels: Any, *, seed: int, fractions: Sequence[float] = PAPER_FRACTIONS
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Masks (train, val, test) over the nodes with a label, drawn uniformly; -1 in `labels` means "no label".

    Validation and test take the rounded shares; what rounding leaves goes to training. The draw depends on the seed
    and the set of labelled nodes alone, not on the version of torch.

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
