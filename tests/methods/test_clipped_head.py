"""The fusion head of clipped training: what its inputs have in common must not use up the clip."""

import pytest
import torch

import graphveil as gv
from graphveil.graph import csbm
from graphveil.methods.networks import ClippedFusion, Fusion


def test_it_starts_as_the_sum_of_centred_opinions_and_tables():
    opinions, tables, degrees = torch.randn(5, 3), torch.randn(5, 6), torch.randn(5, 1)
    found = ClippedFusion(3, 7, beside=1)(opinions, torch.cat([tables, degrees], dim=1))
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
    model = gv.DPDGC(level=level, epsilon=epsilon, table="labels", seed=0, steps=3, epochs=3)
    model.fit(csbm(0.5, n=200, f=5, seed=0))
    assert type(model._head.fusion) is head


@pytest.mark.parametrize("level", [gv.KNeighbor(1), gv.Node(60), gv.Edge("directed")], ids=str)
@pytest.mark.parametrize("table", ["degrees", "labels+degrees"])
def test_degrees_in_several_relations_are_no_classes(level, table):
    """With as many relations as classes, degrees took the place of a table: a node of many links was of one class."""
    plain = csbm(0.5, n=200, f=5, seed=0)
    ends = plain.to_scipy().tocoo().coords
    kinds = (ends[0] + ends[1]) % 2
    fields = {name: getattr(plain, name) for name in ("num_classes", "train_mask", "val_mask", "test_mask")}
    graph = gv.Graph.from_edge_index(
        ends, plain.features, plain.labels, directed=True, edge_relation=kinds, relations=["one", "two"], **fields
    )
    model = gv.DPDGC(level, 8.0, 1e-3, table=table, seed=0, steps=1, epochs=1).fit(graph)
    tables = 2 * (table == "labels+degrees")  # one for each relation
    head = model._fusion(model.plan_, model._read_width(model.plan_))
    first = torch.zeros_like(head.out.weight)
    first[:, : 2 * (1 + tables)] = torch.eye(2).repeat(1, 1 + tables)
    assert torch.equal(head.out.weight, first)
    if isinstance(level, gv.Edge):  # there is little noise in these
        degrees = model._released[:, 2 * tables : 2 * tables + 2]
        counts = torch.stack([torch.bincount(torch.from_numpy(ends[0][kinds == t]), minlength=200) for t in (0, 1)])
        assert (degrees - counts.T.log1p()).abs().mean() < 0.5
