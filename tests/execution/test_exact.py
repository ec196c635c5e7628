"""Released sums are exact: whatever the order, the blocks, the threads and the routine that adds."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.functional import selu as plain_selu

from graphveil.execution import sparse_rows, sums
from graphveil.execution.exact import EXACT, Linear, product, selu
from graphveil.execution.gradients import ClippedSums
from graphveil.execution.sparse_rows import CsrRows, SparseLinear
from graphveil.execution.sums import Factor
from graphveil.privacy.mechanisms import GradientLattice, noise_step, table_step
from support.threads import on_threads

SIZES = [1e-30, 1e-3, 1.0, 1e6, 1e30]


def exact_norm_squared(row):
    return sum(Fraction(float(value)) ** 2 for value in row)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    norm=st.sampled_from([1e-8, 0.3, 1.0, 1.5, 7.0]),
    terms=st.sampled_from([1, 1000, 10**6, 10**9]),
    stretch=st.booleans(),
)
def test_rows_of_a_table_are_on_the_lattice_and_not_too_long(seed, norm, terms, stretch):
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(20, 5)) * rng.choice(SIZES, size=(20, 1)) * norm)
    rows[0] = 0
    table = EXACT.table(rows, norm, terms, stretch=stretch)
    step = table_step(norm, terms)
    assert table.dtype == torch.float32
    assert torch.equal((table.double() / step).round() * step, table.double())
    assert (table.abs().double().sum() <= 20 * 5 * norm).all()
    for row, made in zip(rows, table, strict=True):
        assert exact_norm_squared(made) <= Fraction(norm) ** 2
        apart = float((made.double() - row).norm())
        if not stretch and float(row.norm()) < norm / 2:
            assert apart <= step * math.sqrt(5)
    if stretch:
        seen = rows.norm(dim=1) >= 2.0**-100
        assert (table.double().norm(dim=1)[seen] > norm * (1 - 1e-5) - 3 * step).all()
        assert not table[~seen].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
def test_a_row_whose_norm_is_not_finite_becomes_zero(bad):
    rows = torch.ones(3, 4).double()
    rows[1, 2] = bad
    table = EXACT.table(rows, 1.0, 10, stretch=True)
    assert table.isfinite().all()
    assert table[0].norm() > 0.99
    assert not table[1].any()


def test_long_rows_have_the_right_norm_where_float32_does_not():
    """Small squares after a large one vanish in float32: a row of 100,000 features would be 0.15 % too long."""
    row = torch.full((1, 100_000), 1.0)
    row[0, 0] = 4096.0
    one_after_the_other = float(np.cumsum(row[0].numpy() ** 2, dtype=np.float32)[-1]) ** 0.5
    assert float(row.double().norm()) > 1.001 * one_after_the_other
    assert float(EXACT.lengths(row)) == pytest.approx(float(row.double().norm()), rel=1e-12)
    sparse = CsrRows(sp.csr_array(row.numpy()))
    assert float(EXACT.lengths(sparse)) == pytest.approx(float(row.double().norm()), rel=1e-12)


def hub(entries, seed=0):
    """A hub that reads everybody, with rows that cancel and one that is huge beside the others."""
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.choice([1.0, -1.0], size=(entries, 3)) * rng.choice([1, 1e-4, 1e-7], size=(entries, 1)))
    return CsrRows(sp.csr_array(np.ones((1, entries), np.float32))), EXACT.table(rows, 1.0, entries)


@pytest.mark.parametrize("entries", [1000, 10**5, 10**6])
def test_a_sum_of_many_terms_is_the_sum(entries):
    rows, table = hub(entries)
    step = table_step(1.0, entries)
    whole = (table.double() / step).long().sum(0)
    assert torch.equal(EXACT.product(rows, table)[0], whole.double() * step)


def test_order_threads_and_routine_do_not_change_a_sum(monkeypatch):
    rng = np.random.default_rng(0)
    matrix = sp.csr_array(sp.random(400, 300, 0.3, random_state=0, format="csr", dtype=np.float32))
    matrix.data = rng.integers(1, 100, size=matrix.nnz).astype(np.float32)
    table = EXACT.table(torch.from_numpy(rng.normal(size=(300, 7))), 1.0, 300)
    expected = EXACT.product(CsrRows(matrix), table)
    assert torch.equal(expected, torch.from_numpy(matrix.toarray()).double() @ table.double())
    order = rng.permutation(300)
    shuffled = CsrRows(sp.csr_array(matrix[:, order]))
    assert torch.equal(EXACT.product(shuffled, table[torch.from_numpy(order)]), expected)
    monkeypatch.setattr(sums, "_WORTH_A_THREAD", 10)
    with on_threads(3):
        assert torch.equal(EXACT.product(CsrRows(matrix), table), expected)
    monkeypatch.setattr(sums, "compiled_library", lambda: None)
    assert torch.equal(EXACT.product(CsrRows(matrix), table), expected)
    transposed = EXACT.transposed_product(CsrRows(matrix.T), table)
    assert torch.equal(transposed, expected)
    few = CsrRows(sp.csr_array(matrix.T[:20]))
    assert torch.equal(EXACT.transposed_product(few, table[:20]), expected_of(matrix.T[:20], table[:20]))


def expected_of(matrix, table):
    return torch.from_numpy(matrix.toarray()).double().T @ table.double()


class Net(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first, self.out = first, Linear(6, 3)

    def forward(self, x):
        return self.out(selu(self.first(x)))


def gradients(x, y, clip=1.0, blocks=None, order=None, sparse=False, seed=0):
    torch.manual_seed(seed)
    width = x.shape[1]
    model = Net(SparseLinear(width, 6) if sparse else Linear(width, 6))
    order = torch.arange(len(x)) if order is None else order
    rows = CsrRows(sp.csr_array(x[order].numpy())) if sparse else x[order]
    labels = y[order]
    engine = ClippedSums(model, clip, len(x))

    def losses(chosen):
        return cross_entropy(model(rows[chosen]), labels[chosen], reduction="none")

    return engine.over(torch.arange(len(x)).split(blocks or len(x)), losses), engine.lattice


def sample(rows=3000, width=9, seed=0, sizes=SIZES):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)) * rng.choice(sizes, size=(rows, 1))
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(rng.integers(3, size=rows))


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_clipped_sums_do_not_depend_on_order_blocks_or_threads(sparse):
    x, y = sample()
    expected, lattice = gradients(x, y, sparse=sparse)
    for part in expected:
        assert torch.equal((part / lattice.step).round() * lattice.step, part)
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(x)))
    for count, blocks, how in ((1, 1000, None), (2, 1000, order), (2, None, order), (1, 7, None), (2, 1, None)):
        with on_threads(count):
            sums, _ = gradients(x, y, blocks=blocks, order=how, sparse=sparse)
        assert all(torch.equal(a, b) for a, b in zip(sums, expected, strict=True)), (count, blocks)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_one_row_is_never_longer_than_the_clip(sparse, size):
    """Whatever the scale of features; and where the gradient is longer than the clip it is nearly as long as that."""
    for seed in range(5):
        x, y = sample(1, 400, seed, sizes=[size])
        sums, _ = gradients(x, y, clip=0.7, sparse=sparse, seed=seed)
        length = math.sqrt(sum(exact_norm_squared(part.flatten()) for part in sums))
        assert length <= 0.7
        assert length > 0.69 or size < 1 or size > 1e18


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_whose_pass_is_not_finite_adds_nothing(bad, sparse):
    x, y = sample(50, 4, sizes=[1.0])
    without, _ = gradients(x, y, sparse=sparse)
    x[7] = bad * torch.tensor([1.0, -1.0, 1.0, -1.0])
    sums, _ = gradients(x, y, sparse=sparse)
    x[7] = 0
    y_without = y.clone()
    zero, _ = gradients(x, y_without, sparse=sparse)
    for part, other, empty in zip(sums, without, zero, strict=True):
        assert part.isfinite().all()
        assert not torch.equal(part, other)
        # One row less than with an ordinary row there, and one less than with an empty one.
        assert float((part - other).norm()) <= 1
        assert float((part - empty).norm()) <= 1


@pytest.mark.parametrize("rows", [1, 100, 10**4, 10**6, 10**9])
@pytest.mark.parametrize("clip", [0.01, 1.0, 3.0])
def test_sums_stay_within_the_integers_of_float64(rows, clip):
    lattice = GradientLattice(clip, rows)
    assert rows * clip / lattice.step <= 2**53
    assert 2 * clip / (lattice.step * 2**lattice.input_bits) <= 2**24  # a factor fits into float32
    assert lattice.input_bits <= 23
    assert rows / table_step(1.0, rows) <= 2**53
    assert math.frexp(noise_step(clip))[0] == 0.5


def test_a_row_of_a_product_does_not_depend_on_the_others():
    """Neither on their values nor on how many there are, nor on threads; a plain product of few columns does."""
    rng = np.random.default_rng(0)
    plain_differs = False
    for width, columns in ((9, 2), (17, 2), (13, 7), (64, 3), (200, 64), (1433, 64), (5, 16), (64, 27), (300, 65)):
        x = torch.from_numpy(rng.normal(size=(301, width)).astype(np.float32))
        w = torch.from_numpy(rng.normal(size=(width, columns)).astype(np.float32))
        whole = product(x, w)
        other = torch.from_numpy(rng.normal(size=(301, width)).astype(np.float32) * 1e6)
        for threads, (first, last) in enumerate(((0, 150), (150, 301), (1, 301), (7, 9), (20, 21), (300, 301))):
            with on_threads(1 + threads % 4):
                assert torch.equal(product(x[first:last].clone(), w), whole[first:last])
                mixed = other.clone()
                mixed[first:last] = x[first:last]
                assert torch.equal(product(mixed, w)[first:last], whole[first:last])
                assert torch.equal(product(x, w.T.contiguous().T), whole)
            plain_differs |= not torch.equal(x[first:last].clone() @ w, (x @ w)[first:last])
    assert plain_differs or not torch.backends.mkl.is_available()


@pytest.mark.parametrize(("rows", "width"), [(1003, 1), (1003, 6), (1003, 32), (1003, 64), (1003, 85), (13, 8415)])
def test_an_activation_does_not_depend_on_its_place(rows, width):
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(0), requires_grad=True)
    whole = selu(x)
    torch.testing.assert_close(whole, plain_selu(x))
    (slopes,) = torch.autograd.grad(whole.sum(), x)
    torch.testing.assert_close(slopes, torch.autograd.grad(plain_selu(x).sum(), x)[0])
    half = rows // 2
    for count, (first, last) in (
        (1, (0, half)),
        (2, (1, rows)),
        (3, (0, rows)),
        (4, (7, 9)),
        (4, (0, half)),
        (5, (3, 8)),
    ):
        with on_threads(count):
            part = x[first:last].detach().clone().requires_grad_()
            result = selu(part)
            assert torch.equal(result, whole[first:last])
            assert torch.equal(torch.autograd.grad(result.sum(), part)[0], slopes[first:last])


def test_transposed_products_of_some_blocks_add_up_to_that_of_all(monkeypatch):
    rng = np.random.default_rng(0)
    rows = CsrRows(sp.csr_array((rng.random((40, 6)) < 0.5).astype(np.float32)))
    blocks = [rows[index] for index in torch.arange(40).split(5)]
    gradients = torch.from_numpy(rng.integers(-99, 99, size=(40, 3)).astype(np.float32) / 64)

    def total():
        sums = sparse_rows.CollectedSums(EXACT.product)
        for _ in range(2):
            for block, outputs in zip(blocks, gradients.split(5), strict=True):
                sums.add(block, Factor(outputs))
            found = sums.weight_sum().clone()
        return len(sums._transposed), found

    count, at_once = total()
    monkeypatch.setattr(sparse_rows, "_NUMBERS_TOGETHER", 20)
    parts, added = total()
    assert (count, parts) == (1, 4)
    assert torch.equal(added, at_once)
    assert torch.equal(added, torch.from_numpy(rows.matrix.toarray().T).double() @ gradients.double())
