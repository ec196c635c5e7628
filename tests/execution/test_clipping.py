"""The clipped-gradient engine against Opacus' per-sample gradients."""

import copy
import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus import GradSampleModule
from torch import nn
from torch.nn.functional import cross_entropy, selu

from graphveil.errors import InvalidInput
from graphveil.execution.clipping import ClippedSums, clipped_row_sum
from graphveil.execution.sparse_rows import CsrRows, SparseLinear
from graphveil.graph import csbm
from graphveil.methods import DPDGC, training
from graphveil.privacy.levels import KNeighbor


class Linkx(nn.Module):
    """Two inputs, a concatenation and residual sums, as in the paper's classifier."""

    def __init__(self, first, width, classes):
        super().__init__()
        self.first = first
        self.wide = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, classes)

    def forward(self, x, z):
        h = self.first(x)
        return self.out(selu(self.wide(selu(torch.cat([h, z], 1))) + h + z))


def oracle(model, inputs, labels, clip):
    """Opacus: materialise each row's gradient, clip, add."""
    wrapped = GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    cross_entropy(wrapped(*inputs), labels, reduction="sum").backward()
    per_row = [parameter.grad_sample for parameter in wrapped.parameters() if parameter.requires_grad]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in per_row]).norm(dim=0)
    scale = (clip / norms).clamp(max=1)
    return [torch.einsum("i...,i->...", g, scale) for g in per_row]


def assert_close(ours, theirs, rounding=0.0):
    """Relative to the size of the whole sum, and up to what factors lose on their lattice."""
    size = math.sqrt(sum(float(t.square().sum()) for t in theirs)) + 1e-12
    gap = math.sqrt(sum(float((o - t).square().sum()) for o, t in zip(ours, theirs, strict=True)))
    assert gap < 1e-5 * size + rounding


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 40),
    features=st.integers(1, 30),
    width=st.integers(1, 12),
    classes=st.integers(2, 6),
    clip=st.sampled_from([0.01, 1.0, 100.0]),
    sparse=st.booleans(),
)
def test_it_agrees_with_opacus(seed, rows, features, width, classes, clip, sparse):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x = (rng.random((rows, features)) < rng.choice([0.0, 0.2, 1.0], size=(rows, 1))).astype(np.float32)  # empty, dense
    z, labels = torch.randn(rows, width), torch.randint(classes, (rows,))
    dense = Linkx(nn.Linear(features, width), width, classes)
    theirs = oracle(dense, (torch.from_numpy(x), z), labels, clip)
    inputs = torch.from_numpy(x)
    if sparse:
        model = copy.deepcopy(dense)
        model.first = SparseLinear(features, width)
        with torch.no_grad():
            model.first.weight.copy_(dense.first.weight.T)
            model.first.bias.copy_(dense.first.bias)
        inputs = CsrRows(sp.csr_array(x))
        theirs[0] = theirs[0].T
    else:
        model = dense
    engine = ClippedSums(model, clip, rows)
    ours = engine.of(lambda: cross_entropy(model(inputs, z), labels, reduction="none"))
    rounding = rows * clip * 2.0**-20
    assert_close(ours, theirs, rounding)
    blocks = torch.arange(rows).split(1 + rows // 3)
    for _ in range(2):  # the second step uses what the first one kept
        in_blocks = engine.over(blocks, lambda i: cross_entropy(model(inputs[i], z[i]), labels[i], reduction="none"))
        assert_close(in_blocks, theirs, rounding)


def test_blocks_do_not_change_a_fit(monkeypatch):
    graph = csbm(0.5, n=300, f=8, seed=0)

    def fitted():
        model = DPDGC(level=KNeighbor(1), epsilon=8.0, table="trained", seed=0, steps=4, show_progress=False)
        return model.fit(graph).logits_

    whole = fitted()
    monkeypatch.setattr(training, "ROWS_AT_ONCE", 50)
    assert torch.equal(fitted(), whole)


def test_the_embeddings_step_with_a_frozen_head():
    torch.manual_seed(0)
    A = sp.csr_array((np.random.default_rng(0).random((50, 50)) < 0.1).astype(np.float32))
    R, labels = torch.randn(8, 3), torch.randint(3, (50,))
    layer = SparseLinear(50, 8)
    dense = nn.Linear(50, 8)
    with torch.no_grad():
        dense.weight.copy_(layer.weight.T)
        dense.bias.copy_(layer.bias)

    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = dense

        def forward(self, x):
            return selu(self.layer(x)) @ R

    rows = CsrRows(A)
    ours = ClippedSums(layer, 1.0, 50).of(lambda: cross_entropy(selu(layer(rows)) @ R, labels, reduction="none"))
    theirs = oracle(Dense(), (torch.from_numpy(A.toarray()),), labels, 1.0)
    assert_close(ours, [theirs[0].T, theirs[1]])


def test_clipped_norms_are_never_above_the_bound():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 7), nn.SELU(), nn.Linear(7, 3))
    for _ in range(50):
        x, y = 100 * torch.randn(1, 5), torch.randint(3, (1,))
        sums = ClippedSums(model, 0.7, 1).of(lambda x=x, y=y: cross_entropy(model(x), y, reduction="none"))
        assert math.sqrt(sum(float(s.square().sum()) for s in sums)) <= 0.7


def test_an_empty_batch_gives_zeros():
    model = nn.Linear(3, 2)
    sums = ClippedSums(model, 1.0, 5).of(lambda: model(torch.empty(0, 3)).sum(1))
    assert all((s == 0).all() for s in sums)


def test_a_layer_used_twice_is_refused():
    layer = nn.Linear(3, 3)
    with pytest.raises(InvalidInput, match="used 2 times"):
        ClippedSums(layer, 1.0, 2).of(lambda: layer(layer(torch.ones(2, 3))).sum(1))


def test_a_parameter_outside_linear_layers_is_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    with pytest.raises(InvalidInput, match="used 0 times"):
        ClippedSums(model, 1.0, 2).of(lambda: model(torch.ones(2, 3)).sum(1))


def test_sparse_products_have_gradients():
    A = sp.csr_array(np.array([[0, 1, 1], [0, 0, 0]], dtype=np.float32))
    layer = SparseLinear(3, 2)
    layer(CsrRows(A)).sum().backward()
    assert torch.equal(layer.weight.grad, torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]))


def drawn_rows(seed, count=200, columns=2, scale=1.0):
    return torch.randn(count, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * scale


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1e-12, 0.01, 1.0, 1e6, 1e200]),
    clip=st.sampled_from([0.25, 1.0, 3.0]),
)
def test_sums_of_rows_do_not_depend_on_their_order(seed, scale, clip):
    rows = drawn_rows(seed, scale=scale)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    whole = clipped_row_sum(rows, clip, len(rows))
    assert torch.equal(whole, clipped_row_sum(rows[order], clip, len(rows)))
    parts = [clipped_row_sum(part, clip, len(rows)) for part in rows.split(37)]
    assert torch.equal(whole, torch.stack(parts).sum(0))


@settings(max_examples=60, deadline=None)
@given(
    row=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=2),
    clip=st.sampled_from([0.25, 1.0, 3.0]),
    most=st.sampled_from([1, 1000, 10**6]),
)
def test_a_row_adds_at_most_the_clip_and_nothing_if_it_is_not_finite(row, clip, most):
    added = clipped_row_sum(torch.tensor([row], dtype=torch.float64), clip, most)[0:2]
    assert added.norm() <= clip
    if not np.isfinite(row).all():
        assert not added.any()
    elif 1e-3 < math.hypot(*row) < clip:
        assert added.tolist() == pytest.approx(row, abs=clip * 1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), row=st.lists(st.floats(), min_size=2, max_size=2))
def test_one_replaced_row_moves_the_sum_by_twice_the_clip_at_most(seed, row):
    rows = drawn_rows(seed, scale=100.0)
    after = rows.clone()
    after[seed % 200] = torch.tensor(row, dtype=torch.float64)
    moved = clipped_row_sum(after, 0.5, 200) - clipped_row_sum(rows, 0.5, 200)
    assert moved.norm() <= 1.0


def test_sums_of_rows_are_rounded_towards_zero():
    rows = drawn_rows(0, scale=1e-3).abs()
    exact = rows.sum(0)
    rounded = clipped_row_sum(rows, 1.0, 2**34)
    assert (rounded < exact).all()
    assert (clipped_row_sum(-rows, 1.0, 2**34) == -rounded).all()
    assert rounded.tolist() == pytest.approx(exact.tolist(), rel=0.05)


def test_no_rows_add_nothing():
    assert clipped_row_sum(torch.zeros(0, 2, dtype=torch.float64), 1.0, 5).tolist() == [0, 0]
