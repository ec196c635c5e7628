"""Every sensitivity against a search over adjacent graphs that tries to exceed it."""

import itertools
import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.execution.gradients import ClippedSums
from graphveil.execution.sparse_rows import CsrRows
from graphveil.methods.link_statistics import link_sums
from graphveil.methods.training import Target
from graphveil.privacy import sensitivity
from graphveil.privacy.levels import Edge, KNeighbor, Node, Public
from graphveil.privacy.mechanisms import ByKind, ClippedTraining
from support.adjacent import (
    Pair,
    Pairs,
    every_pair,
    every_undirected_graph,
    keeps_promise,
    random_pairs,
    random_undirected_pair,
)

NODES = 4
SMALL_LEVELS = [
    Edge("directed"),
    Edge("undirected"),
    KNeighbor(0),
    KNeighbor(1),
    KNeighbor(2),
    KNeighbor(NODES - 1),
    KNeighbor(1, attributes=False),
    KNeighbor(2, attributes=False),
    Node(1),
    Node(2),
    Node(2, attributes=False),
    KNeighbor(1, unit="zero-out"),
    KNeighbor(2, unit="zero-out"),
    KNeighbor(2, attributes=False, unit="zero-out"),
    Node(2, unit="zero-out"),
]
LARGE_LEVELS = [
    Edge("directed"),
    Edge("undirected"),
    KNeighbor(1),
    KNeighbor(3),
    KNeighbor(8),
    Node(2),
    Node(4),
    Node(4, attributes=False),
    KNeighbor(3, unit="zero-out"),
    Node(4, unit="zero-out"),
]


def name(level):
    return str(level).replace(" ", "").replace(",unit='replace'", "")


@cache
def some_pairs(level, nodes, count, seed):
    return Pairs.of(random_pairs(level, nodes, count, seed=seed))


@cache
def all_pairs(level, nodes=3):
    return Pairs.of(every_pair(level, nodes))


def pairs(level, large=12, count=300, seed=1):
    """All pairs on a few nodes, and random ones on more."""
    return all_pairs(level), some_pairs(level, large, count, seed)


def norms(tables: np.ndarray) -> np.ndarray:
    """The L2 norm of each table."""
    return np.linalg.norm(tables, axis=(1, 2))


def table(nodes: int, seed: int, aligned: bool, norm: float = 1.0, non_negative: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = np.tile(rng.normal(size=5), (nodes, 1)) if aligned else rng.normal(size=(nodes, 5))
    rows = np.abs(rows) if non_negative else rows
    return norm * rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("level", SMALL_LEVELS + LARGE_LEVELS, ids=name)
def test_embedding_group(level):
    most = {True: 0, False: 0}
    for found in pairs(level):
        differ = (found.before != found.after).any(2) | (found.labels != found.labels_after)
        for train in ([0, 1], range(found.nodes)):
            rows = np.isin(np.arange(found.nodes), list(train))
            changed = (differ & rows).sum(1)
            in_training = (found.replaced < 0) | rows[found.replaced]
            for inside in (True, False):
                largest = changed[in_training == inside].max(initial=0)
                assert largest <= sensitivity.embedding_group(level, int(rows.sum()), in_training=inside)
                most[inside] = max(most[inside], largest)
    assert most[True] == sensitivity.embedding_group(level, 12), "the bound is claimed tight"


@pytest.mark.parametrize("level", SMALL_LEVELS + LARGE_LEVELS, ids=name)
def test_head_group(level):
    """Rows that change and that a release of all rows != r does not hide: labels, and what the replaced node reads."""
    most = 0
    for found in pairs(level):
        reads = (found.before != found.after).any(2) & ~found.others
        changed = (reads | (found.labels != found.labels_after)).sum(1)
        assert (changed <= sensitivity.head_group(level, found.nodes)).all()
        most = max(most, int(changed.max()))
    assert most == sensitivity.head_group(level, 12), "the bound is claimed tight"


@pytest.mark.parametrize("kind", ["training", "unlabelled"])
@pytest.mark.parametrize("group", [1, 2, 7, 26])
def test_clipped_training_is_linear_in_the_group(group, kind):
    """The sums of the engine that trains against the sensitivity that the plan states; all rows turn round at worst."""
    clip, rows = 0.5, 30
    mechanism = ClippedTraining("head", ByKind(group, group - 1), 1.0, steps=1, source="", clip=clip, role="head")
    bound, changed = mechanism.sensitivity.of(kind), int(mechanism.group.of(kind))
    layer = torch.nn.Linear(3, 2)
    engine = ClippedSums(layer, clip, rows)

    def sums(x, weights):
        return torch.cat([g.flatten() for g in engine.of(lambda: (layer(x) * weights).sum(1))])

    torch.manual_seed(group)
    for _ in range(50):
        x, weights = 10 * torch.randn(rows, 3), torch.randn(rows, 2)
        x_after, weights_after = x.clone(), weights.clone()
        x_after[:changed], weights_after[:changed] = torch.randn(changed, 3), 10 * torch.randn(changed, 2)
        assert (sums(x, weights) - sums(x_after, weights_after)).norm() <= bound * (1 + 1e-9)
    x, weights = torch.full((rows, 3), 10.0), torch.ones(rows, 2)
    turned = weights.clone()
    turned[:changed] *= -1
    assert (sums(x, weights) - sums(x, turned)).norm() == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize("level", SMALL_LEVELS + LARGE_LEVELS, ids=name)
def test_product_rows(level):
    largest = 0.0
    for found in pairs(level):
        for aligned in (True, False):
            W = table(found.nodes, 7, aligned, norm=0.3)
            moved = norms((found.after @ W - found.before @ W) * found.others[:, :, None]).max()
            assert moved <= sensitivity.product_rows(level, 0.3, found.nodes) * (1 + 1e-12)
            largest = max(largest, moved / max(sensitivity.product_rows(level, 0.3, 12), 1e-12))
    if level != KNeighbor(0):
        assert largest > 0.9, "the bound is claimed tight"


@pytest.mark.parametrize("transposed", [False, True], ids=["A W", "A^T W"])
@pytest.mark.parametrize("level", [KNeighbor(1), KNeighbor(3), KNeighbor(8), Edge("undirected")], ids=name)
def test_product_full(level, transposed):
    """A^T W is the table of readers (docs/theory.md, section 5.4): N_k bounds rows and columns alike."""
    largest = 0.0
    for found in pairs(level):
        W = table(found.nodes, 7, aligned=True)
        change = found.after - found.before
        moved = norms((change.swapaxes(1, 2) if transposed else change) @ W).max()
        assert moved <= sensitivity.product_full(level, 1.0, found.nodes) * (1 + 1e-12)
        largest = max(largest, moved / sensitivity.product_full(level, 1.0, 12))
    if isinstance(level, KNeighbor):
        largest = max(largest, all_at_once(level) / sensitivity.product_full(level, 1.0, 12))
    assert largest > 0.9


def all_at_once(level) -> float:
    """k entries of row and column appear together, all rows of W the same."""
    before, after = np.zeros((12, 12)), np.zeros((12, 12))
    after[0, 1 : level.k + 1] = 1
    after[1 : level.k + 1, 0] = 1
    W = table(12, 7, aligned=True)
    return float(np.linalg.norm(after @ W - before @ W))


def test_the_full_product_has_no_bound_at_node_level():
    with pytest.raises(InvalidInput, match="nothing bounds what a node reads"):
        sensitivity.product_full(Node(3), 1.0, 10)


@pytest.mark.parametrize(
    "level",
    [
        Edge("directed"),
        Edge("undirected"),
        KNeighbor(0),
        KNeighbor(2),
        KNeighbor(8),
        Node(4),
        KNeighbor(2, unit="zero-out"),
        Node(4, unit="zero-out"),
    ],
    ids=name,
)
def test_gap_hop(level):
    """Rows of H are unit vectors and the replaced node's own may turn round."""
    D, largest = 4, 0.0
    for found in pairs(level):
        if not isinstance(level, Edge):
            found = found.where(found.largest_column_sum() <= D)
        H = table(found.nodes, 3, aligned=False)
        others = found.others[:, :, None]
        H_after = np.where(others, H, -H)
        moved = norms((found.after @ H_after - found.before @ H) * others).max(initial=0)
        assert moved <= sensitivity.gap_hop(level, D, found.nodes) * (1 + 1e-12)
        largest = max(largest, moved)
    readers = np.zeros((12, 12))
    readers[1 : D + 1, 0] = 1
    if level == Node(4, unit="zero-out"):  # D readers, then none
        largest = max(largest, float(np.linalg.norm((readers @ table(12, 3, aligned=False))[1:])))
    elif not isinstance(level, Edge):  # D readers stay, the row turns: this pair is adjacent at every k
        H = table(12, 3, aligned=False)
        turned = H.copy()
        turned[0] *= -1
        largest = max(largest, float(np.linalg.norm((readers @ turned - readers @ H)[1:])))
    assert largest == pytest.approx(sensitivity.gap_hop(level, D, 12))


def test_gap_without_a_degree_promise_is_refused():
    with pytest.raises(InvalidInput, match="max_degree"):
        sensitivity.gap_hop(KNeighbor(3), None, 100)


@pytest.mark.parametrize("level", SMALL_LEVELS, ids=name)
def test_label_responses(level):
    found = all_pairs(level)
    assert (found.labels != found.labels_after).sum(1).max() == sensitivity.label_responses(level)


def test_posterior_table():
    bound = sensitivity.posterior_table(KNeighbor(5))
    rng, largest = np.random.default_rng(0), 0.0
    for _ in range(500):
        rows = np.abs(rng.normal(size=(2, 3)) * rng.choice([1e-3, 1, 1e3], size=(2, 3)))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        largest = max(largest, float(np.linalg.norm(rows[0] - rows[1])))
        assert largest <= bound * (1 + 1e-12)
    assert largest > 0.9 * bound
    assert sensitivity.posterior_table(Edge("directed")) == 0
    assert sensitivity.posterior_table(Node(3, attributes=False)) == 0


LINK_LEVELS = [KNeighbor(0), KNeighbor(1), KNeighbor(2), KNeighbor(5), Node(1), Node(2), Node(4)]
ZERO_OUT_LEVELS = [replace(level, unit="zero-out") for level in LINK_LEVELS]


def link_statistics(A, labels, train, level, classes=3):
    """What `methods.link_statistics` releases, by the code that releases it."""
    target = Target(torch.from_numpy(labels), torch.from_numpy(np.flatnonzero(train)), torch.zeros(0, dtype=torch.long))
    adjacency = CsrRows(sp.csr_array(A.astype(np.float32)), "cpu")
    return link_sums(SimpleNamespace(adjacency=adjacency, target=target, classes=classes), level).numpy()


def links_moved(pair, train, level):
    before = link_statistics(pair.before, pair.labels, train, level)
    return float(np.linalg.norm(link_statistics(pair.after, pair.labels_after, train, level) - before))


@pytest.mark.slow
@pytest.mark.parametrize("level", LINK_LEVELS, ids=name)
def test_link_statistics_on_every_small_graph(level):
    """All undirected graphs on four nodes with all labels of two classes; node 0 is replaced, in all ways."""
    graphs = [A for A in every_undirected_graph(4) if keeps_promise(level, A)]
    labelings = np.array(list(itertools.product((0, 1), repeat=4)))
    rest = np.array([A[1:, 1:] for A in graphs])
    own = np.array([A[0] for A in graphs])
    adjacent = (rest[:, None] == rest).all((2, 3))
    if isinstance(level, KNeighbor):
        adjacent &= (own[:, None] != own).sum(2) <= level.k
    alike = (labelings[:, None, 1:] == labelings[:, 1:]).all(2)
    for train in (np.ones(4, dtype=bool), np.array([True, True, True, False]), np.array([False, True, True, True])):
        sums = np.array([[link_statistics(A, y, train, level) for y in labelings] for A in graphs])
        changes = np.linalg.norm(sums[:, None, :, None] - sums[None, :, None], axis=-1)
        largest = changes[adjacent[:, :, None, None] & alike].max()
        bound = sensitivity.link_statistics(level, int(train.sum()))
        assert largest <= (bound if train[0] else 0)
        if train.all() and level in (KNeighbor(0), KNeighbor(1)):
            assert largest > 0.9 * bound, "four nodes are enough for the worst case"


@pytest.mark.slow
@pytest.mark.parametrize("level", ZERO_OUT_LEVELS, ids=name)
def test_link_statistics_of_an_emptied_node(level):
    """All undirected graphs on four nodes with all labels of two classes; node 0 is emptied."""
    labelings = np.array(list(itertools.product((0, 1), repeat=4)))
    train, largest = np.ones(4, dtype=bool), 0.0
    for A in every_undirected_graph(4):
        if not keeps_promise(level, A):
            continue
        linked = np.flatnonzero(A[0])
        removed = [linked] if isinstance(level, Node) else itertools.combinations(linked, min(level.k, len(linked)))
        for gone in removed:
            after = A.copy()
            after[0, list(gone)] = after[list(gone), 0] = 0
            for labels in labelings:
                empty = labels.copy()
                empty[0] = -1
                largest = max(largest, links_moved(Pair(A, after, labels, empty, 0), train, level))
    bound = sensitivity.link_statistics(level, 4)
    assert largest <= bound
    assert largest > 0.6 * bound or level.k == 5, "four nodes are too few for five links"
    assert bound < sensitivity.link_statistics(replace(level, unit="replace"), 4)


@pytest.mark.parametrize("nodes", [9, 60, 700])
@pytest.mark.parametrize("level", LINK_LEVELS + ZERO_OUT_LEVELS, ids=name)
def test_link_statistics_on_random_graphs(level, nodes):
    rng = np.random.default_rng(nodes)
    for _ in range(60 if nodes < 100 else 8):
        pair = random_undirected_pair(level, nodes, rng)
        train = rng.random(nodes) < rng.choice([0.5, 1.0])
        train[[pair.replaced, (pair.replaced + 1) % nodes]] = True
        assert links_moved(pair, train, level) <= sensitivity.link_statistics(level, int(train.sum()))
        train[pair.replaced] = False
        assert links_moved(pair, train, level) == 0


def climbed(level, nodes, steps, seed):
    """The largest movement that small random changes of a pair lead to; node 0 is replaced."""
    rng = np.random.default_rng(seed)
    train = np.ones(nodes, dtype=bool)
    best, largest = random_undirected_pair(level, nodes, rng, classes=2), 0.0
    changed = rng.permutation(np.arange(1, nodes))[: level.k]
    for _ in range(steps):
        before, labels, labels_after = best.before.copy(), best.labels.copy(), best.labels_after.copy()
        chosen = changed
        for _ in range(rng.integers(1, 4)):
            kind = rng.integers(4)
            if kind == 0:
                labels_after[0] = rng.integers(3)
            elif kind == 1:
                labels[rng.integers(nodes)] = rng.integers(3)
            elif kind == 2:
                i, j = rng.choice(nodes, 2, replace=False)
                before[i, j] = before[j, i] = 1 - before[i, j]
            else:
                chosen = rng.permutation(np.arange(1, nodes))[: level.k]
        after = before.copy()
        after[0, chosen] = after[chosen, 0] = 1 - before[0, chosen]
        labels_after[1:] = labels[1:]
        pair = Pair(before, after, labels, labels_after, 0)
        moved = links_moved(pair, train, level)
        if moved >= largest:
            best, largest, changed = pair, moved, chosen
    return largest / sensitivity.link_statistics(level, nodes)


def test_the_bound_on_link_statistics_is_nearly_attained():
    assert 0.9 < max(climbed(KNeighbor(1), 6, 400, seed) for seed in range(3)) <= 1


@pytest.mark.parametrize("k", [1, 2, 5, 25])
def test_link_statistics_of_a_replaced_node_that_joins_full_neighborhoods(k):
    """Node 0 turns its label and links to k nodes, each of which has k links: docs/theory.md, section 5.5."""
    nodes = 1 + 2 * k + k
    before = np.zeros((nodes, nodes), dtype=int)
    joined, linked, others = np.arange(1, k + 1), np.arange(k + 1, 2 * k + 1), np.arange(2 * k + 1, nodes)
    before[0, linked] = before[linked, 0] = 1
    before[np.ix_(joined, others)] = 1
    before[np.ix_(others, joined)] = 1
    after = before.copy()
    after[0, joined] = after[joined, 0] = 1
    labels = np.zeros(nodes, dtype=np.int64)
    turned = labels.copy()
    turned[0] = 1
    pair = Pair(before, after, labels, turned, 0)
    matrix, pairs_of_k = math.hypot(1, 1 + k / (k + 1)), k * sensitivity.link_statistics_units(KNeighbor(k))[0]
    moved = links_moved(pair, np.ones(nodes, dtype=bool), KNeighbor(k))
    assert moved == pytest.approx(math.hypot(matrix, pairs_of_k, math.sqrt(0.5)))
    assert 0.9 * sensitivity.link_statistics(KNeighbor(k), nodes) < moved


def smallest_degree(first, second, bound):
    return 1 / np.maximum(np.minimum(first, second), bound)


def without_bound(first, second, bound):
    return 1 / np.maximum(first, second)


def both_orders(reads):
    links = reads.tocoo()
    return *links.coords, links.data


BROKEN_LINKS = [
    (KNeighbor(1), "methods.link_statistics._weights", smallest_degree),
    (KNeighbor(5), "methods.link_statistics._weights", without_bound),
    (KNeighbor(1), "execution.sparse_rows.mutual_pairs", both_orders),
]


@pytest.mark.parametrize(
    ("level", "part", "broken"), BROKEN_LINKS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_broken_link_statistics_are_caught(level, part, broken, monkeypatch):
    monkeypatch.setattr(f"graphveil.{part}", broken)
    assert any(climbed(level, 14, 500, seed) > 1 for seed in range(4))


def test_links_that_cutting_left_in_one_direction_do_not_count():
    """A promise bounds who reads a node. A hub may read everybody after its own readers were cut."""
    nodes, level = 40, Node(2)
    before, after = np.zeros((nodes, nodes), dtype=int), np.zeros((nodes, nodes), dtype=int)
    after[0, 1:] = 1
    after[1:3, 0] = 1
    pair = Pair(before, after, np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64), 0)
    assert keeps_promise(level, before, after)
    assert 0 < links_moved(pair, np.ones(nodes, dtype=bool), level) <= sensitivity.link_statistics(level, nodes)


def neighbor_labels(A, labels, train, tau, classes=3):
    """S = A^T diag(w) Y over training rows."""
    degrees = A.sum(-1)
    weights = np.minimum(1.0, tau / np.sqrt(np.maximum(degrees, 1))) * train
    return A.swapaxes(-1, -2) @ (weights[..., None] * np.vstack([np.eye(classes), np.zeros(classes)])[labels])


@pytest.mark.parametrize("tau", [0.5, 1.0, 1.7, 3.0])
@pytest.mark.parametrize(
    "level",
    [
        Edge("directed"),
        Edge("undirected"),
        KNeighbor(0),
        KNeighbor(1),
        KNeighbor(3),
        Node(2),
        KNeighbor(1, unit="zero-out"),
        KNeighbor(3, unit="zero-out"),
        KNeighbor(3, attributes=False, unit="zero-out"),
        Node(2, unit="zero-out"),
    ],
    ids=name,
)
def test_neighbor_label_table(level, tau):
    rng = np.random.default_rng(2)
    for found in pairs(level, 10, 400, 5):
        shape = found.labels.shape
        for train in (np.ones(shape), (rng.random(shape) < 0.6).astype(float)):
            before = neighbor_labels(found.before, found.labels, train, tau)
            after = neighbor_labels(found.after, found.labels_after, train, tau)
            moved = norms(after - before)
            in_training = (found.replaced < 0) | (train[np.arange(len(train)), found.replaced] > 0)
            for inside in (True, False):
                bound = sensitivity.neighbor_label_table(level, tau, found.nodes, in_training=inside)
                assert (moved[in_training == inside] <= bound * (1 + 1e-12)).all()


@pytest.mark.parametrize("tau", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("level", [KNeighbor(0), KNeighbor(1), KNeighbor(3), KNeighbor(10), Node(1), Node(5)], ids=name)
def test_neighbor_label_table_is_attained(level, tau):
    """Rows that start (or stop) reading r share their other neighbours with r, whose own label turns."""
    appear = level.k if isinstance(level, KNeighbor) else level.max_degree
    vanish = 0 if isinstance(level, KNeighbor) else level.max_degree
    largest = 0.0
    for degree in range(int(tau**2) + 2):
        # node 0 is r; 1.. are the rows that change; then the neighbours they share with r; then r's own further ones
        changing, shared = appear + vanish, max(degree, int(tau**2))
        nodes = 1 + changing + shared
        before = np.zeros((nodes, nodes))
        before[0, 1 + changing :] = 1
        before[1 : 1 + changing, 1 + changing : 1 + changing + degree] = 1
        after = before.copy()
        after[1 : 1 + appear, 0] = 1
        before[1 + appear : 1 + changing, 0] = 1
        labels = np.zeros(nodes, dtype=int)
        labels[1 + appear : 1 + changing] = 1
        labels_after = labels.copy()
        labels_after[0] = 1
        train = np.ones(nodes)
        moved = neighbor_labels(after, labels_after, train, tau) - neighbor_labels(before, labels, train, tau)
        bound = sensitivity.neighbor_label_table(level, tau, nodes)
        assert np.linalg.norm(moved) <= bound * (1 + 1e-12)
        largest = max(largest, float(np.linalg.norm(moved) / bound))
    assert largest > 0.97


def test_neighbor_label_table_where_appearing_and_vanishing_rows_differ_in_number():
    """Four nodes, D = 2: two rows start and one stops reading node 0, at different degrees."""
    before, after = np.zeros((4, 4)), np.zeros((4, 4))
    before[3, 0] = before[3, 1] = before[0, 1] = 1
    after[1, 0] = after[2, 0] = after[3, 1] = after[0, 1] = 1
    moved = neighbor_labels(after, np.array([0, 1, 1, 0]), np.ones(4), 1.0) - neighbor_labels(
        before, np.array([1, 1, 1, 0]), np.ones(4), 1.0
    )
    assert np.linalg.norm(moved) == pytest.approx(2.67798, abs=1e-4)
    assert np.linalg.norm(moved) <= sensitivity.neighbor_label_table(Node(2), 1.0, 4)


def test_neighbor_label_table_matches_the_simple_bounds():
    for k in (1, 5, 25):
        for tau in (0.5, 1.0, 2.0, 4.0):
            exact = sensitivity.neighbor_label_table(KNeighbor(k), tau, 1000)
            assert exact <= math.sqrt(k**2 + k + 2 * tau**2) * (1 + 1e-4)
            outside = sensitivity.neighbor_label_table(KNeighbor(k), tau, 1000, in_training=False)
            assert outside <= k * (1 + 1e-4)


def sees(A, r, layers):
    """Nodes whose `layers`-hop neighbourhood holds r, r itself included."""
    seen = np.eye(A.shape[-1])[r] > 0
    for _ in range(layers):
        seen = seen | (A @ seen[..., None] > 0)[..., 0]
    return seen


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    "level",
    [
        KNeighbor(0),
        KNeighbor(1),
        KNeighbor(3),
        KNeighbor(8),
        Node(2),
        Node(4),
        KNeighbor(3, unit="zero-out"),
        Node(4, unit="zero-out"),
    ],
    ids=name,
)
def test_sage_group(level, layers):
    D = level.max_degree if isinstance(level, Node) else 3
    for found in pairs(level, 14, 400, 6):
        found = found.where(found.largest_column_sum() <= D)
        affected = sees(found.before, found.replaced, layers) | sees(found.after, found.replaced, layers)
        most = affected.sum(1).max(initial=1)
        assert most <= sensitivity.sage_group(level, D, layers, found.nodes)


@pytest.mark.parametrize("layers", [1, 2])
def test_sage_group_is_attained_at_node_level(layers):
    D = 2
    nodes = 1 + 2 * D + 2 * D * D
    before, after = np.zeros((nodes, nodes)), np.zeros((nodes, nodes))
    for reader in range(1, 2 * D + 1):
        for step in range(D):
            before[1 + 2 * D + (reader - 1) * D + step, reader] = 1
    after[:] = before
    before[1 : D + 1, 0] = 1
    after[D + 1 : 2 * D + 1, 0] = 1
    affected = sees(before, 0, layers) | sees(after, 0, layers)
    assert affected.sum() == sensitivity.sage_group(Node(D), None, layers, nodes)


@pytest.mark.parametrize("level", [*SMALL_LEVELS, KNeighbor(8), Node(4)], ids=name)
def test_randomized_edges(level):
    for found in pairs(level):
        bits = (found.before != found.after).sum((1, 2))
        assert bits.max() <= sensitivity.randomized_edges(level, found.nodes, paired=False)
        mirrored = [(A.swapaxes(1, 2) == A).all((1, 2)) for A in (found.before, found.after)]
        both = bits[mirrored[0] & mirrored[1]].max(initial=0)
        assert both // 2 <= sensitivity.randomized_edges(level, found.nodes, paired=True)


def test_nothing_moves_at_the_public_level():
    level = Public()
    assert sensitivity.embedding_group(level, 10) == sensitivity.head_group(level, 10) == 0
    assert sensitivity.product_rows(level, 1.0, 10) == sensitivity.product_full(level, 1.0, 10) == 0
    assert sensitivity.gap_hop(level, None, 10) == sensitivity.neighbor_label_table(level, 1.0, 10) == 0
    assert sensitivity.label_responses(level) == sensitivity.randomized_edges(level, 10, paired=True) == 0


def test_an_unsettled_edge_unit_is_refused():
    with pytest.raises(InvalidInput, match="unit"):
        sensitivity.product_rows(Edge(), 1.0, 10)


def test_bounds_are_capped_by_the_graph():
    assert sensitivity.embedding_group(Node(100), 7) == 7
    assert sensitivity.product_rows(Node(100), 1.0, 5) == 2.0
    assert sensitivity.gap_hop(Node(100), None, 5) == 4.0
