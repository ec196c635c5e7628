import math
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from graphveil.accounting import RandomizedResponse
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from graphveil.execution.draws import (
    _bit_of,
    _graph_of,
    add_gaussian,
    chosen_bits,
    pairs_of,
    randomized_edges,
    randomized_response,
    rounding_of,
)
from graphveil.methods.spending import make_plan
from graphveil.noise import NoiseSource
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge
from graphveil.privacy.mechanisms import OUTWARD, noise_step
from support.checks import answers_truthfully, has_noise

pytestmark = pytest.mark.usefixtures("arithmetic")


@given(std=st.floats(1e-8, 1e8))
def test_the_step_is_a_power_of_two_and_small(std):
    step = noise_step(std)
    assert math.frexp(step)[0] == 0.5
    assert std / 2048 < step <= std / 1024
    assert rounding_of(std).std == std * OUTWARD > std


@pytest.mark.parametrize("std", [1e-6, 0.3, 17.0])
def test_noise_has_the_planned_scale_around_the_value(std):
    value = 1000 * std * torch.randn(300, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noisy = add_gaussian(value, std, NoiseSource(seed=1))
    assert has_noise(noisy - value, std)


def test_results_lie_on_the_public_lattice_whatever_the_value():
    for value in (torch.full((1000,), 1 / 3), torch.full((1000,), math.pi * 1e-12), torch.zeros(1000)):
        steps = add_gaussian(value.double(), 0.7, NoiseSource(seed=2)) / noise_step(0.7)
        assert torch.equal(steps, steps.round())


def test_a_multiple_of_the_step_is_moved_by_rounded_noise():
    """round(value + noise) = value + round(noise): the same noise whatever the value, however large it is."""
    step, value = noise_step(0.7), torch.arange(-500, 500).double()
    alone = add_gaussian(torch.zeros(1000), 0.7, NoiseSource(seed=2))
    for size in (1, 2.0**20, 2.0**40):
        together = add_gaussian(size * step * value, 0.7, NoiseSource(seed=2))
        assert torch.equal(together, size * step * value + alone)


def test_nothing_to_protect_needs_no_noise():
    value = torch.randn(10)
    assert torch.equal(add_gaussian(value, 0.0, NoiseSource(seed=0)), value.double())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(InvalidInput, match="value"):
        add_gaussian(torch.tensor([0.0, bad]), 1.0, NoiseSource(seed=0))


@pytest.mark.parametrize(("epsilon", "classes"), [(0.1, 2), (1.0, 3), (4.0, 7)])
def test_answers_have_the_right_odds(epsilon, classes):
    for truth in (0, classes - 1):
        symbols = torch.full((100_000,), truth)
        answers = randomized_response(symbols, RandomizedResponse(epsilon, classes), NoiseSource(seed=truth + 1))
        assert answers_truthfully(answers, truth, epsilon, classes)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_no_symbol_is_answered_uniformly(classes):
    """And the answers of others are what they would be without it."""
    loss = RandomizedResponse(3.0, classes)
    symbols = torch.full((100_000,), -1)
    answers = randomized_response(symbols, loss, NoiseSource(seed=5))
    assert answers_truthfully(answers, 0, 0.0, classes)
    mixed = torch.where(torch.arange(100_000) % 2 == 0, -1, 1)
    everybody = randomized_response(torch.ones_like(mixed), loss, NoiseSource(seed=5))
    assert torch.equal(randomized_response(mixed, loss, NoiseSource(seed=5))[1::2], everybody[1::2])


@pytest.mark.parametrize("bad", [-2, 3])
def test_symbols_out_of_range_are_refused(bad):
    with pytest.raises(InvalidInput, match="symbols"):
        randomized_response(torch.tensor([0, bad]), RandomizedResponse(1.0, 3), NoiseSource(seed=0))


def test_no_symbols_no_answers():
    nobody = torch.empty(0, dtype=torch.long)
    assert randomized_response(nobody, RandomizedResponse(1.0, 3), NoiseSource()).shape == (0,)


def random_graph(nodes, density, symmetric, seed=0):
    A = np.random.default_rng(seed).random((nodes, nodes)) < density
    A = np.triu(A, 1) | np.triu(A, 1).T if symmetric else A & ~np.eye(nodes, dtype=bool)
    return sp.csr_array(A.astype(np.float32))


def answer(A, epsilon, paired, seed):
    facts = PublicFacts(A.shape[0], 10, 2, 2, directed=not paired)
    plan = make_plan("randedge", Edge(), facts, epsilon=epsilon)
    return randomized_edges(A, Ledger(plan, NoiseSource(seed=seed)), "edges", paired=paired)


@pytest.mark.parametrize("paired", [True, False])
def test_bits_are_numbered_one_to_one(paired):
    nodes = 30
    A = sp.csr_array((1 - np.eye(nodes)).astype(np.float32))
    bits = np.sort(_bit_of(A, paired))
    assert np.array_equal(bits, np.arange(nodes * (nodes - 1) // (2 if paired else 1)))
    assert (_graph_of(bits, nodes, paired).toarray() == A.toarray()).all()


@pytest.mark.parametrize("row", [2, 3, 1000, 10**7, 447_213_596, 2**31 - 1])
def test_the_first_and_the_last_pair_of_a_row_come_back_from_their_numbers(row):
    """A square root that is off by one would give another row."""
    first = row * (row - 1) // 2
    rows, columns = pairs_of(np.array([first - 1, first, first + row - 1]))
    assert rows.tolist() == [row - 1, row, row]
    assert columns.tolist() == [row - 2, 0, row - 1]


@pytest.mark.parametrize("probability", [0.001, 0.27, 0.9])
def test_each_bit_is_chosen_with_the_probability_and_independently(probability):
    count = 300_000
    chosen = chosen_bits(count, probability, NoiseSource(seed=1))
    assert (np.diff(chosen) > 0).all()
    assert chosen[0] >= 0
    assert chosen[-1] < count
    assert stats.binomtest(len(chosen), count, probability).pvalue > 1e-4
    hit = np.zeros(count, dtype=bool)
    hit[chosen] = True
    both = int((hit[1:] & hit[:-1]).sum())
    assert stats.binomtest(both, count - 1, probability**2).pvalue > 1e-4


@pytest.mark.parametrize("paired", [True, False])
def test_edges_and_non_edges_flip_with_the_right_odds(paired):
    epsilon, nodes = 1.0, 400
    A = random_graph(nodes, 0.1, symmetric=paired)
    B = answer(A, epsilon, paired, seed=3)
    before, after = A.toarray() > 0, B.toarray() > 0
    assert not after.diagonal().any()
    if paired:
        assert (after == after.T).all()
        keep = np.tril(np.ones_like(before), -1)
    else:
        keep = ~np.eye(nodes, dtype=bool)
    flip = 1 / (math.exp(epsilon) + 1)
    for present in (True, False):
        asked = keep & (before == present)
        flipped = int((asked & (after != before)).sum())
        assert stats.binomtest(flipped, int(asked.sum()), flip).pvalue > 1e-4


def test_memory_is_proportional_to_the_answer():
    A = random_graph(2000, 0.01, symmetric=True)
    tracemalloc.start()
    B = answer(A, 5.0, paired=True, seed=0)  # flips 0.7 % of 2 million pairs
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150 * B.nnz + 30e6
