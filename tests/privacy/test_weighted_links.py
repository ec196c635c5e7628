"""Sensitivities with weights and several relations: searches over adjacent graphs, through the code that releases.

docs/theory.md, section 2.7. Raw weights reach three times the declared maximum, so that cutting matters.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphveil.execution.exact import EXACT
from graphveil.execution.sparse_rows import CsrRows
from graphveil.graph import Graph, column_sums
from graphveil.graph.links import on_lattice
from graphveil.methods.inputs import Inputs
from graphveil.methods.link_statistics import co_link_sums, link_sums
from graphveil.methods.tables import neighbor_label_counts
from graphveil.methods.training import Target
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge, KNeighbor, Node
from graphveil.privacy.mechanisms import WEIGHT_BITS

pytestmark = pytest.mark.slow

LEVELS = [Edge("directed"), Edge("undirected"), KNeighbor(1), KNeighbor(3), Node(2), Node(4)]
MOST = 10.0


def name(level):
    return str(level).replace(" ", "")


def raw_weights(rng, shape):
    """Nothing, little, all, or more than all."""
    return MOST * rng.choice([0.0, 0.0, rng.random() / 4, rng.random(), 1.0, 3.0], size=shape)


def adjacent(level, nodes, relations, rng, symmetric=False):
    """Raw weights of `relations` adjacent graphs, before and after: two arrays, relations x nodes x nodes."""
    before = raw_weights(rng, (relations, nodes, nodes)) * (rng.random((relations, nodes, nodes)) < rng.random())
    before[:, range(nodes), range(nodes)] = 0
    if symmetric or level == Edge("undirected"):
        before = np.triu(before) + np.triu(before).transpose(0, 2, 1)
    after, r = before.copy(), int(rng.integers(nodes))
    others = rng.permutation(np.delete(np.arange(nodes), r))
    if isinstance(level, Edge):
        t, j = rng.integers(relations), others[0]
        after[t, r, j] = raw_weights(rng, ())
        if level.unit == "undirected":
            after[t, j, r] = after[t, r, j]
        return before, after, None
    if isinstance(level, KNeighbor):
        places = [(t, i) for t in range(relations) for i in others]
        for t, i in rng.permutation(places)[: level.k]:
            after[t, i, r] = raw_weights(rng, ())
            after[t, r, i] = after[t, i, r] if symmetric else after[t, r, i]
        for t, j in rng.permutation(places)[: 0 if symmetric else level.k]:
            after[t, r, j] = raw_weights(rng, ())
        return before, after, r
    after[:, r] = raw_weights(rng, (relations, nodes))
    after[:, :, r] = after[:, r] if symmetric else raw_weights(rng, (relations, nodes))
    after[:, r, r] = 0
    for weights in (before, after):  # the promise: sums of squares over all relations
        parts = on_lattice(weights, MOST).astype(float)
        while (parts**2).sum((0, 1)).max() > level.max_degree:
            column = int((parts**2).sum((0, 1)).argmax())
            t, i = rng.permutation(np.argwhere(parts[:, :, column]))[0]
            for graph in (before, after) if r not in (i, column) else (weights,):
                graph[t, i, column] = 0
                graph[t, column, i] = 0 if symmetric else graph[t, column, i]
            parts = on_lattice(weights, MOST).astype(float)
    return before, after, r


def graph_of(weights, max_weight=MOST):
    """The graph that a user's list of edges becomes."""
    t, i, j = np.nonzero(weights)
    names = [f"relation {t}" for t in range(len(weights))]
    options = {"edge_weight": weights[t, i, j], "max_weight": max_weight, "edge_relation": t, "relations": names}
    return Graph.from_edge_index([i, j], num_nodes=weights.shape[1], y=[0, 1] * (weights.shape[1] // 2), directed=True,
                                 **options)  # fmt: skip


def inputs_of(graph):
    return Inputs(graph, graph.reads("out", by_relation=True), "cpu")


def table(nodes, seed, aligned):
    rng = np.random.default_rng(seed)
    rows = np.tile(rng.normal(size=5), (nodes, 1)) if aligned else rng.normal(size=(nodes, 5))
    return EXACT.table(torch.from_numpy(rows).float(), 1.0, nodes << WEIGHT_BITS, stretch=True)


def released(weights, W, make=graph_of):
    return inputs_of(make(weights)).product(EXACT, W).numpy()


def moved(level, relations, rng, make=graph_of, nodes=8):
    before, after, r = adjacent(level, nodes, relations, rng)
    W = table(nodes, int(rng.integers(99)), bool(rng.integers(2)))
    change = released(after, W, make) - released(before, W, make)
    return np.linalg.norm(change if r is None else np.delete(change, r, axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("relations", [1, 2, 3])
@pytest.mark.parametrize("level", LEVELS, ids=name)
def test_side_by_side_releases_move_as_one_graph_does(level, relations):
    bound = sensitivity.product_rows(level, 1.0, 8 * relations)
    rng = np.random.default_rng(relations)
    largest = max(moved(level, relations, rng) for _ in range(150))
    assert largest <= bound * (1 + 1e-12)
    assert largest > 0.5 * bound


@pytest.mark.parametrize("relations", [1, 2])
@pytest.mark.parametrize("k", [1, 4])
def test_the_bound_is_attained(k, relations):
    """k nodes begin to read node 0, in several relations, with the largest weight."""
    before = np.zeros((relations, 6, 6))
    after = before.copy()
    for place in range(k):
        after[place % relations, 1 + place // relations, 0] = 2 * MOST
    W = table(6, 0, aligned=True)
    change = np.linalg.norm(released(after, W) - released(before, W))
    assert change == pytest.approx(sensitivity.product_rows(KNeighbor(k), 1.0, 6 * relations), rel=1e-5)


def measured_maximum(weights):
    return graph_of(weights, max_weight=max(weights.max(), 1e-9))


def not_cut(weights):
    """Weights that are divided by the maximum and not cut at 1."""
    return Inputs(graph_of(weights), sp.csr_array(np.concatenate(weights / MOST).astype(np.float32)), "cpu")


@pytest.mark.parametrize("level", [Edge("directed"), KNeighbor(1)], ids=name)
def test_a_measured_maximum_is_caught(level):
    """One heavier link changes the weights of all others."""
    rng = np.random.default_rng(0)
    bound = sensitivity.product_rows(level, 1.0, 16)
    assert max(moved(level, 2, rng, measured_maximum) for _ in range(150)) > 1.2 * bound


def test_weights_that_are_not_cut_are_caught():
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(100):
        before, after, _ = adjacent(Edge("directed"), 8, 2, rng)
        W = table(8, 1, aligned=True)
        change = not_cut(after).product(EXACT, W) - not_cut(before).product(EXACT, W)
        largest = max(largest, float(change.norm()))
    assert largest > 1.5 * sensitivity.product_rows(Edge("directed"), 1.0, 16)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_all_rows_of_a_release(k):
    bound, largest = sensitivity.product_full(KNeighbor(k), 1.0, 8), 0.0
    rng = np.random.default_rng(k)
    for _ in range(150):
        before, after, _ = adjacent(KNeighbor(k), 8, 1, rng)
        W = table(8, 1, aligned=True)
        for turned in (False, True):  # a hop in all rows, and that of the table "readers", which reads columns
            made = [np.swapaxes(weights, 1, 2) if turned else weights for weights in (before, after)]
            largest = max(largest, np.linalg.norm(released(made[1], W) - released(made[0], W)))
    assert 0.5 * bound < largest <= bound * (1 + 1e-12)


@pytest.mark.parametrize("level", [KNeighbor(2), Node(2), Node(5)], ids=name)
def test_hop_of_gap(level):
    """The promise is about squared weights of the sum of relations, and the replaced node's row turns round."""
    degree, largest = 5 if isinstance(level, KNeighbor) else level.max_degree, 0.0
    bound = sensitivity.gap_hop(level, degree, 8)
    rng = np.random.default_rng(0)
    for _ in range(300):
        before, after, r = adjacent(level, 8, 2, rng)
        graphs = [graph_of(weights).reads("out") for weights in (before, after)]
        if max(column_sums(A, 2).max() for A in graphs) > degree:
            continue
        H = table(8, 1, aligned=True)
        turned = H.clone()
        turned[r] *= -1
        change = EXACT.product(CsrRows(graphs[1]), turned) - EXACT.product(CsrRows(graphs[0]), H)
        change[r] = 0
        largest = max(largest, float(change.norm()))
    assert 0.4 * bound < largest <= bound * (1 + 1e-12)


def label_counts(weights, labels, train, tau):
    adjacency = CsrRows(graph_of(weights[None]).reads("out"))
    return neighbor_label_counts(adjacency, torch.from_numpy(labels), torch.from_numpy(train), 3, tau).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("tau", [0.3, 1.0, 1.7, 3.0])
@pytest.mark.parametrize("level", [Edge("directed"), Edge("undirected"), KNeighbor(1), KNeighbor(3)], ids=name)
def test_labels_of_readers(level, tau):
    rng = np.random.default_rng(7)
    bounds = {
        inside: sensitivity.neighbor_label_table(level, tau, 8, in_training=inside, weighted=True)
        for inside in (True, False)
    }
    largest = 0.0
    for _ in range(300):
        before, after, r = adjacent(level, 8, 1, rng)
        labels = rng.integers(3, size=8)
        changed = labels.copy()
        train = np.flatnonzero(rng.random(8) < 0.8) if rng.random() < 0.5 else np.arange(8)
        if r is not None:
            changed[r] = rng.integers(3)
        inside = r is None or r in train
        change = label_counts(after[0], changed, train, tau) - label_counts(before[0], labels, train, tau)
        assert np.linalg.norm(change) <= bounds[inside] * (1 + 1e-9)
        largest = max(largest, np.linalg.norm(change) / bounds[inside])
    assert largest > (0.6 if tau >= 1 else 0.2)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("tau", [1.0, 1.3, 2.0])
def test_labels_of_readers_nearly_attain_their_bound(tau, k):
    """k nodes of one class begin to read node 0, which turns its label; all of them read the same others before."""
    others, readers = np.arange(k + 1, k + 1 + math.ceil(tau**2)), np.arange(1, k + 1)
    n = int(others[-1]) + 1 + (int(others[-1]) + 1) % 2
    best = 0.0
    for weight in np.linspace(0.1, 1, 10):
        before = np.zeros((n, n))
        before[np.ix_([0, *readers], others)] = weight * MOST
        after = before.copy()
        after[readers, 0] = MOST
        labels = np.zeros(n, dtype=np.int64)
        labels[0], turned = 0, labels.copy()
        turned[0] = 1
        change = label_counts(after, turned, np.arange(n), tau) - label_counts(before, labels, np.arange(n), tau)
        best = max(best, np.linalg.norm(change))
    bound = sensitivity.neighbor_label_table(KNeighbor(k), tau, n, weighted=True)
    assert 0.75 * bound < best <= bound


def statistics(weights, labels, train, level, sums=link_sums):
    target = Target(torch.from_numpy(labels), torch.from_numpy(np.flatnonzero(train)), torch.zeros(0, dtype=torch.long))
    adjacency = CsrRows(graph_of(weights).reads("out"))
    return sums(SimpleNamespace(adjacency=adjacency, target=target, classes=3), level).numpy()


@pytest.mark.parametrize("relations", [1, 2])
@pytest.mark.parametrize("level", [KNeighbor(0), KNeighbor(1), KNeighbor(2), KNeighbor(5), Node(2), Node(4)], ids=name)
def test_link_statistics(level, relations):
    """At node level the promise is about sums of weights."""
    rng, largest = np.random.default_rng(5), 0.0
    for _ in range(120):
        before, after, r = adjacent(level, 8, relations, rng, symmetric=True)
        sums = [column_sums(graph_of(weights).reads("out"), 1).max() for weights in (before, after)]
        if isinstance(level, Node) and max(sums) > level.max_degree:
            continue
        labels = rng.integers(3, size=8)
        changed = labels.copy()
        changed[r] = rng.integers(3)
        train = rng.random(8) < 0.8
        train[[r, r - 1]] = True
        pair = [(before, labels), (after, changed)]
        one, other = (statistics(weights, y, train, level) for weights, y in pair)
        bound = sensitivity.link_statistics(level, int(train.sum()))
        assert np.linalg.norm(other - one) <= bound
        largest = max(largest, np.linalg.norm(other - one) / bound)
        train[r] = False
        one, other = (statistics(weights, y, train, level) for weights, y in pair)
        assert (one == other).all()
    assert largest > 0.4


@pytest.mark.parametrize("relations", [1, 2])
@pytest.mark.parametrize("level", [KNeighbor(0), KNeighbor(1), KNeighbor(5)], ids=name)
def test_co_link_statistics(level, relations):
    """Weights do not count; an entry is there or not, in any of the relations."""
    rng, largest = np.random.default_rng(5), 0.0
    for _ in range(60):
        before, after, r = adjacent(level, 8, relations, rng)
        labels, train = rng.integers(3, size=8), rng.random(8) < 0.8
        changed = labels.copy()
        changed[r] = rng.integers(3)
        for inside in (True, False):
            train[r], train[r - 1] = inside, True
            one = statistics(before, labels, train, level, co_link_sums)
            other = statistics(after, changed, train, level, co_link_sums)
            bound = sensitivity.co_link_statistics(level, 8, int(train.sum()), in_training=inside)
            assert np.linalg.norm(other - one) <= bound
            largest = max(largest, np.linalg.norm(other - one))
    assert largest > 0.4


def test_reweighting_is_largest_at_the_bound():
    """The step of the proof of section 5.5 with weights: q (1/max(q, b) - 1/max(q + 1, b)) <= 1/(b + 1) for real q."""
    q = np.linspace(0, 50, 100_001)
    for b in (1, 2, 5, 25):
        assert (q * (1 / np.maximum(q, b) - 1 / np.maximum(q + 1, b))).max() <= 1 / (b + 1) + 1e-12


def test_sums_of_weighted_rows_are_exact():
    """Against integers: a hub reads many nodes with all weights, and the order of the entries does not matter."""
    rng = np.random.default_rng(0)
    nodes = 40_000
    facts = PublicFacts(nodes, 2, 1, 2, max_weight=MOST)
    W = EXACT.table(torch.from_numpy(rng.normal(size=(nodes, 3))).float(), 1.0, facts.terms, stretch=True)
    steps = rng.integers(1, 2**WEIGHT_BITS + 1, size=nodes - 1)
    weights = (steps * 2.0**-WEIGHT_BITS).astype(np.float32)
    for order in (np.arange(nodes - 1), rng.permutation(nodes - 1)):
        rows = sp.csr_array((weights[order], order + 1, [0, nodes - 1]), shape=(1, nodes))
        exact = EXACT.product(CsrRows(rows), W).numpy()[0]
        integers = (W.numpy().astype(np.float64)[1:] * 2.0**23).astype(np.int64)
        assert (exact * 2.0 ** (23 + WEIGHT_BITS) == (integers * steps[:, None]).sum(0)).all()


def test_steps_of_tables_leave_room_for_weights():
    """2^52 steps hold the sum of all sizes, weights included."""
    for nodes in (10, 2**18, 2**24, 2**30):
        facts = PublicFacts(nodes, 2, 1, 2, max_weight=1.0)
        step = sensitivity.table_step(1.0, facts.terms)
        assert nodes * 1.0 / (step * 2.0**-WEIGHT_BITS) <= 2.0**52


@pytest.mark.parametrize("level", LEVELS, ids=name)
def test_the_sum_of_relations_moves_as_one_graph_does(level):
    """What methods read that do not tell relations apart: the sum, cut at 1."""
    rng, largest = np.random.default_rng(3), 0.0
    bound = sensitivity.product_rows(level, 1.0, 8)
    for _ in range(150):
        before, after, r = adjacent(level, 8, 3, rng)
        W = table(8, 1, aligned=True)
        one, other = (EXACT.product(CsrRows(graph_of(weights).reads("out")), W).numpy() for weights in (before, after))
        largest = max(largest, np.linalg.norm(other - one if r is None else np.delete(other - one, r, axis=0)))
    assert 0.5 * bound < largest <= bound * (1 + 1e-12)


def test_a_sum_that_is_not_cut_is_caught():
    """Node level: D readers in each of three relations would be three times as much in one sum."""
    level, rng, largest = Node(2), np.random.default_rng(3), 0.0
    for _ in range(150):
        weights = np.zeros((3, 8, 8))
        weights[:, rng.choice(np.arange(1, 8), 2, replace=False), 0] = MOST
        parts = on_lattice(weights, MOST).sum(0)
        assert column_sums(graph_of(weights).reads("out"), 2).max() <= level.max_degree
        largest = max(largest, np.linalg.norm(parts[1:] @ table(8, 1, aligned=True).numpy()))
    assert largest > 1.2 * sensitivity.product_rows(level, 1.0, 8)


def test_one_changed_entry_of_a_clipped_row():
    """(a') and (c') of section 5.3: p^2 + 2 q^2 <= 1 and 2 tau q <= 1, and neither is loose."""
    rng = np.random.default_rng(0)
    tau, d = rng.exponential(2, 400_000), rng.exponential(2, 400_000)
    low, high = np.sort(
        rng.choice([0, 1, 2], (2, 400_000), p=[0.3, 0.3, 0.4]).clip(max=1) * rng.random((2, 400_000)), 0
    )
    high = np.where(rng.random(400_000) < 0.5, 1.0, high)

    def clipped(a):
        scale = np.minimum(1, tau / np.maximum(np.hypot(a, d), 1e-12))
        return a * scale, d * scale

    (p_before, q_before), (p_after, q_after) = clipped(low), clipped(high)
    p, q = p_after - p_before, q_before - q_after
    assert p.min() >= -1e-12
    assert q.min() >= -1e-12
    assert 0.999 < (p**2 + 2 * q**2).max() <= 1 + 1e-12
    assert 0.9 < (2 * tau * q).max() <= 1 + 1e-12
