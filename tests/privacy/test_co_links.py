"""The bound on co-link statistics (docs/theory.md, section 5.7) against searches over adjacent directed graphs."""

import itertools
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphveil.execution.sparse_rows import CsrRows
from graphveil.methods import link_statistics
from graphveil.methods.link_statistics import co_link_sums
from graphveil.methods.training import Target
from graphveil.privacy import sensitivity
from graphveil.privacy.levels import KNeighbor
from support.adjacent import Pair, every_graph, every_pair, random_pairs

LEVELS = [KNeighbor(k, unit=unit) for unit in ("replace", "zero-out") for k in (0, 1, 2, 5)]


def name(level):
    return f"{level.k} {level.unit}"


def co_links(A, labels, train, level, classes=3):
    """What is released, by the code that releases it."""
    target = Target(torch.from_numpy(labels), torch.from_numpy(np.flatnonzero(train)), torch.zeros(0, dtype=torch.long))
    adjacency = CsrRows(sp.csr_array(A.astype(np.float32)), "cpu")
    return co_link_sums(SimpleNamespace(adjacency=adjacency, target=target, classes=classes), level).numpy()


def moved(pair, train, level):
    before = co_links(pair.before, pair.labels, train, level)
    return float(np.linalg.norm(co_links(pair.after, pair.labels_after, train, level) - before))


def bound(level, train, inside=True):
    return sensitivity.co_link_statistics(level, len(train), int(train.sum()), in_training=inside)


def by_definition(A, labels, train, k, classes=3):
    """The matrix, in fractions."""
    b, members = max(1, k), np.flatnonzero(train)
    sums = np.full((classes, classes), Fraction(0))
    for t in range(len(A)):
        readers = [i for i in members if A[i, t]]
        for i, j in itertools.combinations(readers, 2):
            if labels[i] >= 0 and labels[j] >= 0:
                low, high = sorted((labels[i], labels[j]))
                sums[low, high] += Fraction(1, int(max(A[i].sum(), A[j].sum(), b)) * max(len(readers), b))
    return sums[np.triu_indices(classes)].astype(float)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_sums_are_what_they_are_said_to_be(k):
    rng = np.random.default_rng(k)
    for density in (0.0, 0.1, 0.5, 1.0):
        A = (rng.random((14, 14)) < density).astype(int)
        np.fill_diagonal(A, 0)
        labels, train = rng.integers(-1, 3, size=14), rng.random(14) < 0.7
        found = co_links(A, labels, train, KNeighbor(k))
        assert found[:6] == pytest.approx(by_definition(A, labels, train, k), abs=1e-12)
        unit = sensitivity.link_statistics_units(KNeighbor(k))[0]
        assert found[6] == unit * A[train].sum()
        assert (found[7:] == np.bincount(labels[train & (labels >= 0)], minlength=3) / 2).all()


def test_weights_of_links_do_not_matter():
    rng = np.random.default_rng(0)
    A = rng.random((20, 20)) * (rng.random((20, 20)) < 0.4)
    labels, train = rng.integers(3, size=20), np.ones(20, dtype=bool)
    assert (co_links(A, labels, train, KNeighbor(2)) == co_links(A > 0, labels, train, KNeighbor(2))).all()


def test_sums_are_whole_steps():
    """Added as integers: the order of nodes does not matter, to the last bit."""
    rng = np.random.default_rng(0)
    A = (rng.random((300, 300)) < 0.2).astype(int)
    labels, train = rng.integers(3, size=300), np.ones(300, dtype=bool)
    order = rng.permutation(300)
    one, other = (
        co_links(A, labels, train, KNeighbor(1)),
        co_links(A[np.ix_(order, order)], labels[order], train, KNeighbor(1)),
    )
    assert (one == other).all()


@pytest.mark.parametrize("level", [each for each in LEVELS if each.k <= 2], ids=name)
def test_every_pair_of_small_graphs(level):
    largest = {True: 0.0, False: 0.0}
    for train in (np.ones(3, dtype=bool), np.array([False, True, True])):
        sums = {}

        def remembered(A, labels, sums=sums, train=train):
            key = (A.tobytes(), labels.tobytes())
            if key not in sums:
                sums[key] = co_links(A, labels, train, level)
            return sums[key]

        for pair in every_pair(level, 3):
            change = remembered(pair.after, pair.labels_after) - remembered(pair.before, pair.labels)
            inside = bool(train[pair.replaced])
            assert np.linalg.norm(change) <= bound(level, train, inside)
            largest[inside] = max(largest[inside], float(np.linalg.norm(change)))
    assert largest[True] > 0.5 * bound(level, np.ones(3, dtype=bool))
    assert (largest[False] > 0) == (level.k > 0)


@pytest.mark.parametrize("nodes", [9, 60])
@pytest.mark.parametrize("level", LEVELS, ids=name)
def test_random_graphs(level, nodes):
    rng = np.random.default_rng(nodes)
    for pair in random_pairs(level, nodes, 80 if nodes < 10 else 30, seed=nodes):
        train = rng.random(nodes) < rng.choice([0.5, 1.0])
        train[[pair.replaced, (pair.replaced + 1) % nodes]] = True
        assert moved(pair, train, level) <= bound(level, train)
        train[pair.replaced] = False
        assert moved(pair, train, level) <= bound(level, train, inside=False)


def climbed(level, nodes, steps, seed, inside=True):
    """The largest movement that small random changes of a pair lead to, as a part of the bound; node 0 is replaced."""
    rng = np.random.default_rng(seed)
    train = np.ones(nodes, dtype=bool)
    train[0] = inside
    A = (rng.random((nodes, nodes)) < 0.4).astype(int)
    np.fill_diagonal(A, 0)
    labels, own, largest = rng.integers(2, size=nodes), 1, 0.0
    row, column = (rng.permutation(np.arange(1, nodes))[: level.k] for _ in range(2))
    best = (A, labels, own, row, column)
    for _ in range(steps):
        A, labels, own, row, column = (np.copy(each) for each in best)
        for _ in range(rng.integers(1, 4)):
            kind = rng.integers(5)
            if kind == 0:
                own = np.array(rng.integers(3))
            elif kind == 1:
                labels[rng.integers(nodes)] = rng.integers(3)
            elif kind == 2:
                i, j = rng.choice(nodes, 2, replace=False)
                A[i, j] = 1 - A[i, j]
            elif kind == 3:
                row = rng.permutation(np.arange(1, nodes))[: level.k]
            else:
                column = rng.permutation(np.arange(1, nodes))[: level.k]
        after, turned = A.copy(), labels.copy()
        after[0, row] = 1 - A[0, row]
        after[column, 0] = 1 - A[column, 0]
        turned[0] = own
        found = moved(Pair(A, after, labels, turned, 0), train, level)
        if found >= largest:
            best, largest = (A, labels, own, row, column), found
    return largest / bound(level, train, inside)


@pytest.mark.parametrize("inside", [True, False])
def test_a_search_comes_near_the_bound(inside):
    """A few nodes reach less than the canaries of `auditing.canaries` with their crowds, which reach 80 to 90 %."""
    assert 0.55 < max(climbed(KNeighbor(1), 8, 250, seed, inside) for seed in range(2)) <= 1


def without_readers(degrees, company, bound, train_nodes):
    return 2**40 // np.maximum(degrees, bound)


def without_degrees(degrees, company, bound, train_nodes):
    return 2**40 // np.maximum(company, bound)


BROKEN = [(KNeighbor(1), without_readers), (KNeighbor(1), without_degrees)]


@pytest.mark.parametrize(("level", "broken"), BROKEN, ids=lambda value: getattr(value, "__name__", str(value)))
def test_broken_weights_are_caught(level, broken, monkeypatch):
    monkeypatch.setattr("graphveil.methods.link_statistics._co_link_weights", broken)
    monkeypatch.setattr("graphveil.methods.link_statistics.count_step", lambda count: 2.0**-40)
    assert any(climbed(level, 14, 300, seed) > 1 for seed in range(4))


def test_weights_without_a_bound_are_caught(monkeypatch):
    """k nodes that read nothing else begin to read node 0: without a bound their pairs weigh 1 / m, not 1 / (k m)."""
    k, nodes = 5, 30
    before = np.zeros((nodes, nodes), dtype=int)
    before[6:, 0] = 1
    after = before.copy()
    after[1:6, 0] = 1
    labels, train = (np.arange(nodes) > 5).astype(np.int64), np.ones(nodes, dtype=bool)
    pair, level = Pair(before, after, labels, labels, 0), KNeighbor(k)
    assert moved(pair, train, level) <= bound(level, train)
    sound = link_statistics._co_link_weights
    monkeypatch.setattr(link_statistics, "_co_link_weights", lambda d, m, bound, n: sound(d, m, 1, n))
    assert moved(pair, train, level) > bound(level, train)


def test_the_smaller_degree_of_a_pair_is_caught(monkeypatch):
    """A hub that reads what k nodes read alone counts with each of them by their degree of 1."""
    nodes, level = 30, KNeighbor(1)
    before = np.zeros((nodes, nodes), dtype=int)
    before[0, 15:] = 1
    before[np.arange(1, 15), np.arange(15, 29)] = 1
    labels, train = np.zeros(nodes, dtype=np.int64), np.ones(nodes, dtype=bool)
    turned = labels.copy()
    turned[0] = 1
    pair = Pair(before, before, labels, turned, 0)
    assert moved(pair, train, level) <= bound(level, train)
    lexsort = np.lexsort
    monkeypatch.setattr("graphveil.methods.link_statistics.np.lexsort", lambda keys: lexsort((-keys[0], keys[1])))
    assert moved(pair, train, level) > bound(level, train)


@pytest.mark.parametrize("k", [0, 1, 5])
def test_an_emptied_node_moves_less(k):
    level = KNeighbor(k)
    train = np.ones(10, dtype=bool)
    assert bound(replace(level, unit="zero-out"), train) < bound(level, train)
    for A in itertools.islice(every_graph(3), 20, 40):
        labels = np.array([0, 1, 0])
        emptied = np.array([-1, 1, 0])
        found = co_links(A, emptied, np.ones(3, dtype=bool), level)
        assert found[6] == co_links(A, labels, np.ones(3, dtype=bool), level)[6]
        assert found[7:].sum() == 1.0
