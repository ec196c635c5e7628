"""Every sensitivity against a search over adjacent graphs that tries to exceed it."""

import math
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.execution.clipping import ClippedSums
from graphveil.graph import Graph
from graphveil.methods.choice import co_reader_margins, neighbor_margins
from graphveil.methods.inputs import Inputs
from graphveil.privacy import sensitivity
from graphveil.privacy.levels import Edge, KNeighbor, Node, Public
from graphveil.privacy.mechanisms import ByKind, ClippedTraining
from support.adjacent import Pairs, every_pair, random_pairs

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
]


def name(level):
    return str(level).replace(" ", "")


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
    "level", [Edge("directed"), Edge("undirected"), KNeighbor(0), KNeighbor(2), KNeighbor(8), Node(4)], ids=name
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
    if not isinstance(level, Edge):  # D readers stay, the row turns: this pair is adjacent at every k
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


@pytest.mark.parametrize("non_negative", [True, False])
def test_posterior_table(non_negative):
    bound = sensitivity.posterior_table(KNeighbor(5), 0.7, non_negative=non_negative)
    rng, largest = np.random.default_rng(0), 0.0
    for _ in range(500):
        rows = rng.normal(size=(2, 3)) * rng.choice([1e-3, 1, 1e3], size=(2, 3))
        rows = np.abs(rows) if non_negative else rows
        rows *= 0.7 / np.linalg.norm(rows, axis=1, keepdims=True)
        largest = max(largest, float(np.linalg.norm(rows[0] - rows[1])))
        assert largest <= bound * (1 + 1e-12)
    assert largest > 0.9 * bound
    assert sensitivity.posterior_table(Edge("directed")) == 0
    assert sensitivity.posterior_table(Node(3, attributes=False)) == 0


MARGIN_LEVELS = [KNeighbor(0), KNeighbor(1), KNeighbor(2), KNeighbor(5), Node(2), Node(4)]


def margins(A, labels, guesses, train, level):
    """What `methods.choice` releases, by the code that releases it; guesses of the model and of its noisier copies."""
    masks = {"train_mask": train, "val_mask": np.zeros_like(train), "test_mask": ~train}
    links = sp.csr_array(A.astype(np.float32))
    graph = Graph.from_scipy(links, np.zeros((len(A), 1)), labels, directed=True, num_classes=3, **masks)
    data = Inputs(graph, graph.to_scipy(), "cpu")
    opinions, *noisier = torch.eye(3)[torch.from_numpy(guesses)]
    return neighbor_margins(data, opinions, noisier, level).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("level", MARGIN_LEVELS, ids=name)
def test_neighbor_margins(level):
    """Labels, guesses and links of the replaced node change; all other guesses are those of a private model."""
    rng, nodes, largest = np.random.default_rng(5), 12, 0.0
    for pair in random_pairs(level, nodes, 150, seed=8):
        if isinstance(level, Node) and max(pair.before.sum(0).max(), pair.after.sum(0).max()) > level.max_degree:
            continue
        guesses = rng.integers(3, size=(3, nodes))
        train = rng.random(nodes) < rng.choice([0.5, 1.0])
        train[:2] = True
        after = guesses.copy()
        after[:, pair.replaced] = rng.integers(3, size=3)
        inside = bool(train[pair.replaced])
        change = margins(pair.after, pair.labels_after, after, train, level)
        change -= margins(pair.before, pair.labels, guesses, train, level)
        assert (np.abs(change) <= np.array(sensitivity._EMPHASIS) * (1 + 1e-9)).all(), "each sum by itself"
        moved = np.linalg.norm(change)
        assert moved <= sensitivity.neighbor_margins(level, len(train), in_training=inside) * (1 + 1e-9)
        largest = max(largest, moved)
    assert largest > 0.2 * sensitivity.neighbor_margins(level, len(train)), "the search must come somewhere near"


@pytest.mark.parametrize("level", [KNeighbor(8), Node(4)], ids=name)
def test_margins_without_weights_are_caught(level, monkeypatch):
    """The broken twin: links are counted as they are, so that a node with many readers moves many of them."""
    monkeypatch.setattr("graphveil.methods.choice.np.maximum", lambda a, b: np.ones_like(a))
    monkeypatch.setattr("graphveil.methods.choice.np.minimum", lambda a, b: np.ones_like(b))
    hub = np.zeros((14, 14), dtype=int)
    hub[1 : 1 + (level.max_degree if isinstance(level, Node) else 13), 0] = 1
    labels, guesses = np.ones(14, dtype=np.int64), np.zeros((2, 14), dtype=np.int64)
    turned = labels.copy()
    turned[0] = 0
    train = np.ones(14, dtype=bool)
    moved = np.linalg.norm(margins(hub, turned, guesses, train, level) - margins(hub, labels, guesses, train, level))
    assert moved > sensitivity.neighbor_margins(level, len(train))


def test_margins_in_other_units_are_caught(monkeypatch):
    """The broken twin: sums as they are, with the noise of sums in their units."""
    monkeypatch.setattr("graphveil.methods.choice.neighbor_margin_units", lambda level: (1.0,) * 5)
    level, train = KNeighbor(1), np.ones(4, dtype=bool)
    pair = np.zeros((4, 4), dtype=int)
    pair[0, 1] = pair[1, 0] = 1
    labels, guesses = np.array([0, 0, 0, 0]), np.array([[1, 1, 1, 1], [1, 1, 1, 1]])
    turned = np.array([1, 0, 0, 0])
    moved = np.linalg.norm(margins(pair, turned, guesses, train, level) - margins(pair, labels, guesses, train, level))
    assert moved > sensitivity.neighbor_margins(level, len(train))


def co_readers(A, labels, guesses, train):
    masks = {"train_mask": train, "val_mask": np.zeros_like(train), "test_mask": ~train}
    links = sp.csr_array(A.astype(np.float32))
    graph = Graph.from_scipy(links, np.zeros((len(A), 1)), labels, directed=True, num_classes=3, **masks)
    return co_reader_margins(Inputs(graph, graph.to_scipy(), "cpu"), torch.eye(3)[torch.from_numpy(guesses)]).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("level", [KNeighbor(0), KNeighbor(1), KNeighbor(2), KNeighbor(5)], ids=name)
def test_co_reader_margins(level):
    rng, nodes, largest = np.random.default_rng(6), 9, 0.0
    for pair in random_pairs(level, nodes, 300, seed=9):
        guesses = rng.integers(3, size=nodes)
        train = rng.random(nodes) < rng.choice([0.5, 1.0])
        train[:2] = True
        after = guesses.copy()
        after[pair.replaced] = rng.integers(3)
        found = co_readers(pair.after, pair.labels_after, after, train) - co_readers(
            pair.before, pair.labels, guesses, train
        )
        inside = bool(train[pair.replaced])
        assert np.linalg.norm(found) <= sensitivity.co_reader_margins(level, 20, in_training=inside) * (1 + 1e-9)
        for moved, most in zip(np.abs(found), (inside, 6 * (level.k + inside), 3 * (level.k + inside)), strict=True):
            assert moved <= most * (1 + 1e-9)
        largest = max(largest, float(np.linalg.norm(found)))
    assert largest > 0.12 * sensitivity.co_reader_margins(level, 20), "the search must come somewhere near"


def test_co_readers_that_are_summed_are_caught(monkeypatch):
    """The broken twin: sums over a group instead of means, so that one node moves the terms of all others by 1."""
    level = KNeighbor(1)
    A = np.zeros((40, 40), dtype=int)
    A[1:, 0] = 1
    train, labels, guesses = np.ones(40, dtype=bool), np.ones(40, dtype=np.int64), np.zeros(40, dtype=np.int64)
    turned = labels.copy()
    turned[5] = 0
    sound = co_readers(A, turned, guesses, train) - co_readers(A, labels, guesses, train)
    assert np.linalg.norm(sound) <= sensitivity.co_reader_margins(level, 20)
    monkeypatch.setattr("graphveil.methods.choice._share", lambda votes, others: votes)
    broken = co_readers(A, turned, guesses, train) - co_readers(A, labels, guesses, train)
    assert np.linalg.norm(broken) > sensitivity.co_reader_margins(level, 20)


def neighbor_labels(A, labels, train, tau, classes=3):
    """S = A^T diag(w) Y over training rows."""
    degrees = A.sum(-1)
    weights = np.minimum(1.0, tau / np.sqrt(np.maximum(degrees, 1))) * train
    return A.swapaxes(-1, -2) @ (weights[..., None] * np.eye(classes)[labels])


@pytest.mark.parametrize("tau", [0.5, 1.0, 1.7, 3.0])
@pytest.mark.parametrize(
    "level", [Edge("directed"), Edge("undirected"), KNeighbor(0), KNeighbor(1), KNeighbor(3), Node(2)], ids=name
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
@pytest.mark.parametrize("level", [KNeighbor(0), KNeighbor(1), KNeighbor(3), KNeighbor(8), Node(2), Node(4)], ids=name)
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
