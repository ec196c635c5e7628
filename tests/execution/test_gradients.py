"""Gradients of training that needs no protection: those of autograd, the same bits however rows are divided."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.functional import selu as plain_selu

from graphveil.errors import InvalidInput
from graphveil.execution import sums
from graphveil.execution.exact import column_totals, rounded_weights
from graphveil.execution.gradients import ExactGradients
from graphveil.execution.rowwise import Linear, selu
from graphveil.execution.sparse_rows import CsrRows, SparseLinear
from support.threads import on_threads

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

    def found_by(place):
        model, mine = models[place], torch.from_numpy(pieces[place])
        inputs = CsrRows(sp.csr_array(a[pieces[place]])), x[mine]
        largest, total = (functools.partial(processes.together, join, place) for join in (torch.maximum, torch.add))
        engine = ExactGradients(model, ROWS, largest, total)
        for _ in range(passes):
            found = engine.of(lambda: cross_entropy(model(*inputs), y[mine], reduction="none"))
        return found

    with ThreadPoolExecutor(len(pieces)) as threads:
        return list(threads.map(found_by, range(len(pieces))))


@pytest.mark.parametrize("binary", [False, True])
def test_they_are_those_of_autograd(binary):
    a, x, y = rows(binary)
    model = net().double()
    read = torch.from_numpy(a).double() @ model.sparse.weight + model.sparse.bias
    out = model.out(plain_selu(read + model.dense(x.double())))
    loss = cross_entropy(out, y, reduction="sum")
    expected = torch.autograd.grad(loss, list(model.parameters()))
    (found,) = gradients(binary)
    for (name, _), ours, theirs in zip(model.named_parameters(), found, expected, strict=True):
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
    for found in divided:
        assert all(torch.equal(mine, other) for mine, other in zip(found, expected, strict=True))


def test_ones_beside_large_numbers_of_another_process():
    """One process has only ones in a column, another one numbers beside which a one is nothing."""
    a = sp.csr_array(np.array([[1.0], [1.0], [3e9]], np.float32))
    layers = [SparseLinear(1, 2) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())

    def found(pieces):
        processes = Processes(len(pieces))

        def found_by(place):
            layer = layers[place]
            inputs = CsrRows(sp.csr_array(a[pieces[place]]))
            largest, total = (functools.partial(processes.together, join, place) for join in (torch.maximum, torch.add))
            labels = torch.zeros(len(pieces[place]), dtype=torch.long)
            engine = ExactGradients(layer, 3, largest, total)
            return engine.of(lambda: cross_entropy(layer(inputs), labels, reduction="none"))

        with ThreadPoolExecutor(len(pieces)) as threads:
            return list(threads.map(found_by, range(len(pieces))))

    (expected,) = found([[0, 1, 2]])
    for mine in found([[0, 1], [2]]):
        assert all(torch.equal(each, other) for each, other in zip(mine, expected, strict=True))


def test_a_layer_used_twice_is_refused():
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
