"""Clipped gradients against Opacus; gradients that need no protection against autograd, however rows are divided."""

import copy
import functools
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus import GradSampleModule
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.functional import selu as plain_selu

from graphveil.errors import InvalidInput
from graphveil.execution import sums
from graphveil.execution.exact import Linear, column_totals, rounded_weights, selu
from graphveil.execution.gradients import ClippedSums, ExactGradients
from graphveil.execution.sparse_rows import CsrRows, SparseLinear
from graphveil.graph import csbm
from graphveil.methods import DPDGC, training
from graphveil.privacy.levels import KNeighbor
from support.threads import on_threads


class Linkx(nn.Module):
    """Two inputs, a concatenation and residual sums, as in the paper's classifier."""

    def __init__(self, first, width, classes):
        super().__init__()
        self.first = first
        self.wide = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, classes)

    def forward(self, x, z):
        h = self.first(x)
        return self.out(plain_selu(self.wide(plain_selu(torch.cat([h, z], 1))) + h + z))


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
            return plain_selu(self.layer(x)) @ R

    rows = CsrRows(A)
    ours = ClippedSums(layer, 1.0, 50).of(lambda: cross_entropy(plain_selu(layer(rows)) @ R, labels, reduction="none"))
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


ROWS = 700


class Net(nn.Module):
    """Reads sparse and dense rows, and what it has made of them."""

    def __init__(self):
        super().__init__()
        self.sparse, self.dense = SparseLinear(40, 19), Linear(9, 19)
        self.out = Linear(19, 3)

    def forward(self, a, x):
        return self.out(selu(self.sparse(a) + self.dense(x)))


def net():
    torch.manual_seed(0)
    return Net()


def rows(binary):
    """Columns of very different sizes, one of them zero."""
    rng = np.random.default_rng(0)
    entries = 1 if binary else rng.normal(size=(ROWS, 40)) * 10.0 ** rng.integers(-3, 1, size=40)
    a = np.where(rng.random((ROWS, 40)) < 0.1, entries, 0).astype(np.float32)
    x = (rng.normal(size=(ROWS, 9)) * 10.0 ** np.arange(-7, 2)).astype(np.float32)
    x[:, 3] = 0
    return a, torch.from_numpy(x), torch.from_numpy(rng.integers(3, size=ROWS))


class Processes:
    """Threads that exchange what processes would."""

    def __init__(self, count):
        self._given, self._barrier = [None] * count, threading.Barrier(count, timeout=60)

    def together(self, join, place, value):
        self._given[place] = value
        self._barrier.wait()
        joined = functools.reduce(join, self._given)
        self._barrier.wait()
        return joined


def gradients(binary, cuts=(), order=None, passes=1):
    """As each of the processes finds them that have the rows between two cuts."""
    a, x, y = rows(binary)
    order = np.arange(ROWS) if order is None else order
    pieces = [order[first:last] for first, last in zip((0, *cuts), (*cuts, ROWS), strict=True)]
    processes, models = Processes(len(pieces)), [net() for _ in pieces]

    def result_of(place):
        model, mine = models[place], torch.from_numpy(pieces[place])
        inputs = CsrRows(sp.csr_array(a[pieces[place]])), x[mine]
        largest, total = (functools.partial(processes.together, join, place) for join in (torch.maximum, torch.add))
        engine = ExactGradients(model, ROWS, largest, total)
        for _ in range(passes):
            result = engine.of(lambda: cross_entropy(model(*inputs), y[mine], reduction="none"))
        return result

    with ThreadPoolExecutor(len(pieces)) as threads:
        return list(threads.map(result_of, range(len(pieces))))


@pytest.mark.parametrize("binary", [False, True])
def test_they_are_those_of_autograd(binary):
    a, x, y = rows(binary)
    model = net().double()
    read = torch.from_numpy(a).double() @ model.sparse.weight + model.sparse.bias
    out = model.out(plain_selu(read + model.dense(x.double())))
    loss = cross_entropy(out, y, reduction="sum")
    expected = torch.autograd.grad(loss, list(model.parameters()))
    (result,) = gradients(binary)
    for (name, _), ours, theirs in zip(model.named_parameters(), result, expected, strict=True):
        assert ours.dtype == torch.float32
        # The gradients of each input's weights keep their digits, whatever the sizes of the other inputs.
        of_inputs = [each if name == "sparse.weight" else each.reshape(len(each), -1).T for each in (ours, theirs)]
        for mine, other in zip(*of_inputs, strict=True):
            assert float((mine - other).norm()) <= 1e-4 * float(other.norm())


@pytest.mark.parametrize("binary", [False, True])
def test_neither_order_nor_processes_nor_threads_change_them(binary, monkeypatch):
    (expected,) = gradients(binary)
    order = np.random.default_rng(1).permutation(ROWS)
    divided = [*gradients(binary, (350,)), *gradients(binary, (1, 200, 200), order), *gradients(binary, (), order, 2)]
    monkeypatch.setattr(sums, "_WORTH_A_THREAD", 100)
    with on_threads(3):
        divided += gradients(binary)
    monkeypatch.setattr(sums, "compiled_library", lambda: None)
    divided += gradients(binary, (17,))
    assert len(divided) == 10
    for result in divided:
        assert all(torch.equal(mine, other) for mine, other in zip(result, expected, strict=True))


def test_ones_beside_large_numbers_of_another_process():
    """One process has only ones in a column, another one numbers beside which a one is nothing."""
    a = sp.csr_array(np.array([[1.0], [1.0], [3e9]], np.float32))
    layers = [SparseLinear(1, 2) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())

    def results_of(pieces):
        processes = Processes(len(pieces))

        def result_of(place):
            layer = layers[place]
            inputs = CsrRows(sp.csr_array(a[pieces[place]]))
            largest, total = (functools.partial(processes.together, join, place) for join in (torch.maximum, torch.add))
            labels = torch.zeros(len(pieces[place]), dtype=torch.long)
            engine = ExactGradients(layer, 3, largest, total)
            return engine.of(lambda: cross_entropy(layer(inputs), labels, reduction="none"))

        with ThreadPoolExecutor(len(pieces)) as threads:
            return list(threads.map(result_of, range(len(pieces))))

    (expected,) = results_of([[0, 1, 2]])
    for mine in results_of([[0, 1], [2]]):
        assert all(torch.equal(each, other) for each, other in zip(mine, expected, strict=True))


def test_a_layer_used_twice_is_refused_without_clipping_too():
    layer = Linear(3, 3)
    engine = ExactGradients(layer, 2, lambda value: value, lambda value: value)
    with pytest.raises(InvalidInput, match="used 2 times"):
        engine.of(lambda: layer(layer(torch.ones(2, 3))).sum(1))


def test_weights_on_a_lattice():
    weights = torch.tensor([0.3, -1e-3, 5.0, 1e9, -1e9, 0.0])
    rounded = rounded_weights(weights, 1000)
    assert torch.equal(rounded.double() * 2**24, (rounded.double() * 2**24).round())
    assert torch.allclose(rounded[:3], weights[:3], atol=2**-25, rtol=0)
    assert rounded[3:].tolist() == [2.0**18, -(2.0**18), 0.0]
    assert 1000 * 2.0**18 * 2**24 <= 2**53


def test_sums_of_any_rows_do_not_depend_on_their_order():
    table = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1e-20, 1.0, 1e20])
    expected = column_totals(table, 1000, lambda value: value)
    torch.testing.assert_close(expected, table.double().sum(0), rtol=1e-9, atol=0)
    largest = table.abs().amax(0)
    parts = [column_totals(part, 1000, lambda value: largest) for part in table.flip(0).split([1, 300, 699])]
    assert torch.equal(functools.reduce(torch.add, parts), expected)
