"""Layers and losses whose result for a row depends on that row alone."""

import pytest
import torch
from torch.nn import functional

from graphveil.execution.exact import cross_entropy


@pytest.mark.parametrize("classes", [1, 2, 4, 7, 8, 20])
@pytest.mark.parametrize("count", [0, 1, 31, 32, 5003])
def test_cross_entropy_has_the_bits_of_torch(count, classes):
    generator = torch.Generator().manual_seed(count)
    for size in (1e-3, 1.0, 60.0):
        logits = (size * torch.randn(count, classes, generator=generator)).requires_grad_()
        labels = torch.randint(-1, classes, (count,), generator=generator)
        counts = torch.rand(count, generator=generator)
        ours = cross_entropy(logits, labels, -1)
        theirs = functional.cross_entropy(logits, labels, reduction="none", ignore_index=-1)
        assert torch.equal(ours, theirs)
        assert torch.equal(*(torch.autograd.grad(each, [logits], counts)[0] for each in (ours, theirs)))


def test_cross_entropy_of_a_row_does_not_depend_on_the_others():
    logits, labels = torch.randn(5003, 5, generator=torch.Generator().manual_seed(0)), torch.arange(5003) % 5
    every = cross_entropy(logits, labels, -1)
    for some in (slice(0, 1), slice(17, 50), slice(4990, None)):
        assert torch.equal(cross_entropy(logits[some], labels[some], -1), every[some])


def test_cross_entropy_of_logits_that_are_not_finite_is_not_finite():
    losses = cross_entropy(torch.tensor([[0.0, torch.nan], [torch.inf, 0.0], [0.0, 0.0]]), torch.tensor([0, 1, 1]), -1)
    assert losses.isfinite().tolist() == [False, False, True]
