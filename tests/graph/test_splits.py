"""Random splits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphveil.errors import InvalidInput
from graphveil.graph import random_split


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=200), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_a_split_is_a_partition_of_the_labelled_nodes(labels: list[int], seed: int) -> None:
    y = torch.tensor(labels)
    known = int((y >= 0).sum())
    if known == 0:
        with pytest.raises(InvalidInput, match="nothing to split"):
            random_split(y, seed=seed)
        return
    masks = random_split(y, seed=seed)
    assert torch.equal(torch.stack(masks).sum(dim=0), (y >= 0).long())
    train, val, test = (int(mask.sum()) for mask in masks)
    assert (val, test) == (round(0.10 * known), round(0.15 * known))
    assert train > 0
    assert all(torch.equal(a, b) for a, b in zip(masks, random_split(y, seed=seed), strict=True))


def test_the_draw_is_uniform() -> None:
    y = torch.zeros(20, dtype=torch.int64)
    often = torch.stack([random_split(y, seed=seed)[0] for seed in range(1000)]).sum(dim=0)
    assert (often - 750).abs().max() < 5 * (1000 * 0.75 * 0.25) ** 0.5


def test_other_fractions() -> None:
    masks = random_split([0] * 100, seed=0, fractions=(0.5, 0.0, 0.25))
    assert [int(mask.sum()) for mask in masks] == [50, 0, 25]
    for wrong in ((0.9, 0.1, 0.1), (0.5, 0.5), (-0.1, 0.5, 0.5), (0.0, 0.0, 0.0)):
        with pytest.raises(InvalidInput, match="fractions"):
            random_split([0] * 100, seed=0, fractions=wrong)


def test_the_draw_never_changes() -> None:
    """Results are reported by seed: the split of a seed is part of the interface."""
    train, val, test = random_split([0] * 20, seed=0)
    assert val.nonzero()[:, 0].tolist() == [4, 19]
    assert test.nonzero()[:, 0].tolist() == [2, 6, 13]
    assert int(train.sum()) == 15
