"""The fusion head of clipped training: what its inputs have in common must not use up the clip."""

import pytest
import torch

import graphveil as gv
from graphveil.graph import csbm
from graphveil.methods.networks import ClippedFusion, Fusion


def test_it_starts_as_the_sum_of_centred_opinions_and_tables():
    opinions, tables, degrees = torch.randn(5, 3), torch.randn(5, 6), torch.randn(5, 1)
    found = ClippedFusion(3, 7)(opinions, torch.cat([tables, degrees], dim=1))
    expected = opinions - opinions.mean(1, keepdim=True) + 4 * (tables[:, :3] + tables[:, 3:])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("head", "changes"), [(ClippedFusion, False), (Fusion, True)])
def test_what_all_opinions_share_reaches_only_the_plain_head(head, changes):
    torch.manual_seed(0)
    model = head(3, 3)
    torch.nn.init.normal_(model.out.weight)
    opinions, z = torch.randn(5, 3), torch.randn(5, 3)
    assert torch.allclose(model(opinions, z), model(opinions - 7, z), atol=1e-4) != changes


def test_common_parts_of_the_inputs_take_no_part_of_a_gradient():
    """With opinions far below zero, as logarithms are, the plain head's clipped gradient hardly moves Z's weights."""
    torch.manual_seed(0)
    opinions, z = torch.randn(1, 10) - 10, torch.randn(1, 10)
    parts = []
    for head in (Fusion, ClippedFusion):
        model = head(10, 10)
        torch.nn.functional.cross_entropy(model(opinions, z), torch.tensor([3])).backward()
        gradient = model.out.weight.grad
        parts.append(float(gradient[:, 10:].norm() / gradient.norm()))
    assert parts[0] < 0.2
    assert parts[1] > 0.9


@pytest.mark.parametrize(
    ("level", "epsilon", "head"), [(gv.KNeighbor(k=1), 8.0, ClippedFusion), (gv.Edge(), 1.0, Fusion)], ids=str
)
def test_only_clipped_training_uses_it(level, epsilon, head):
    model = gv.DPDGC(level=level, epsilon=epsilon, table="labels", seed=0, steps=3, epochs=3).fit(
        csbm(0.5, n=200, f=5, seed=0)
    )
    assert type(model._head.fusion) is head
