import math
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from graphveil.execution import Ledger
from graphveil.execution.edges import _bit_of, _graph_of, chosen_bits, randomized_edges
from graphveil.methods.spending import make_plan
from graphveil.noise import NoiseSource
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge


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


@pytest.mark.parametrize("bit", [0, 1, 10**9, 10**13, 10**17])
def test_large_bit_numbers_come_back(bit):
    nodes = 2**30
    rows = int((1 + math.isqrt(1 + 8 * bit)) // 2)
    while rows * (rows - 1) // 2 > bit:
        rows -= 1
    if bit < 10**15:  # the matrix itself has at most 2^31 rows
        found = np.array([bit])
        estimate = ((1 + np.sqrt(1 + 8.0 * found)) / 2).astype(np.int64)
        estimate -= estimate * (estimate - 1) // 2 > found
        estimate += estimate * (estimate + 1) // 2 <= found
        assert int(estimate[0]) == rows < nodes


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
