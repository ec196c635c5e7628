"""Adjacent graphs, exhaustively where they are few and at random where they are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product

import numpy as np

from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, is_zero_out


@dataclass(frozen=True)
class Pair:
    """Two adjacent graphs: adjacency and labels before and after, and the replaced node (None at edge level)."""

    before: np.ndarray
    after: np.ndarray
    labels: np.ndarray
    labels_after: np.ndarray
    replaced: int | None

    @property
    def others(self) -> np.ndarray:
        """Rows that must be protected: all but the replaced node's own."""
        rows = np.arange(len(self.before))
        return rows if self.replaced is None else rows[rows != self.replaced]


@dataclass(frozen=True)
class Pairs:
    """Many pairs on equally many nodes, the first dimension counts them; `replaced` is -1 at edge level."""

    before: np.ndarray
    after: np.ndarray
    labels: np.ndarray
    labels_after: np.ndarray
    replaced: np.ndarray

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> Pairs:
        rows = [(p.before, p.after, p.labels, p.labels_after, -1 if p.replaced is None else p.replaced) for p in pairs]
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))

    def where(self, kept: np.ndarray) -> Pairs:
        return Pairs(*(column[kept] for column in vars(self).values()))

    @property
    def nodes(self) -> int:
        return self.before.shape[1]

    @property
    def others(self) -> np.ndarray:
        """Rows that must be protected, as a mask: all but the replaced node's own."""
        return np.arange(self.nodes) != self.replaced[:, None]

    def largest_column_sum(self) -> np.ndarray:
        return np.maximum(self.before.sum(1), self.after.sum(1)).max(1)


def every_graph(nodes: int) -> Iterator[np.ndarray]:
    """All directed graphs on this many nodes."""
    entries = [(i, j) for i in range(nodes) for j in range(nodes) if i != j]
    for bits in product((0, 1), repeat=len(entries)):
        adjacency = np.zeros((nodes, nodes), dtype=int)
        for (i, j), bit in zip(entries, bits, strict=True):
            adjacency[i, j] = bit
        yield adjacency


def every_pair(level: Level, nodes: int, classes: int = 2) -> Iterator[Pair]:
    """Every pair of adjacent graphs on few nodes; labels are varied where they are private."""
    labels = np.arange(nodes) % classes
    for adjacency in every_graph(nodes):
        if isinstance(level, Edge):
            for i, j in permutations(range(nodes), 2):
                entries = [(i, j), (j, i)] if level.unit == "undirected" else [(i, j)]
                yield Pair(adjacency, _toggled(adjacency, entries), labels, labels, None)
            continue
        for r in range(nodes):
            others = [i for i in range(nodes) if i != r]
            most = level.k if isinstance(level, KNeighbor) else nodes - 1
            subsets = [c for size in range(min(most, nodes - 1) + 1) for c in combinations(others, size)]
            for row, column in product(subsets, subsets):
                entries = [(r, j) for j in row] + [(i, r) for i in column]
                after = _toggled(adjacency, entries)
                if not keeps_promise(level, adjacency, after) or not _may_change(level, adjacency, after, r):
                    continue
                changed = labels.copy()
                if level.attributes:
                    changed[r] = -1 if is_zero_out(level) else (changed[r] + 1) % classes
                yield Pair(adjacency, after, labels, changed, r)


def random_pairs(level: Level, nodes: int, count: int, seed: int, classes: int = 3) -> Iterator[Pair]:
    """Random adjacent pairs of mixed density, symmetric ones included, biased towards many changes."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        density = rng.choice([0.05, 0.3, 0.7])
        adjacency = (rng.random((nodes, nodes)) < density).astype(int)
        np.fill_diagonal(adjacency, 0)
        symmetric = rng.random() < 0.5
        if symmetric:
            adjacency = np.triu(adjacency) + np.triu(adjacency).T
        if rng.random() < 0.3:  # isolated nodes and empty rows
            adjacency[rng.integers(nodes)] = 0
        labels = rng.integers(classes, size=nodes)
        if isinstance(level, Edge):
            i, j = rng.choice(nodes, 2, replace=False)
            entries = [(i, j), (j, i)] if level.unit == "undirected" else [(i, j)]
            yield Pair(adjacency, _toggled(adjacency, entries), labels, labels, None)
            continue
        r = int(rng.integers(nodes))
        if isinstance(level, Node):
            adjacency = _thinned(adjacency, level.max_degree, rng)
            after = adjacency.copy()
            after[:, r], after[r] = 0, 0
            readers = rng.permutation(np.delete(np.arange(nodes), r))
            readers = readers[np.argsort(adjacency[readers, r], kind="stable")]  # new readers first: disjoint
            if not is_zero_out(level):
                after[readers[: level.max_degree], r] = 1
                room = np.flatnonzero(after.sum(0) < level.max_degree)
                after[r, rng.permutation(room[room != r])[: rng.integers(nodes)]] = 1
        else:
            size = rng.integers(max(0, level.k - 1), level.k + 1)
            others = np.delete(np.arange(nodes), r)
            column = rng.choice(others, min(size, nodes - 1), replace=False)
            row = column if symmetric else rng.choice(others, min(size, nodes - 1), replace=False)
            after = _toggled(adjacency, [(r, j) for j in row] + [(i, r) for i in column])
            if is_zero_out(level):  # the larger graph has them all
                adjacency, after = np.maximum(adjacency, after), np.minimum(adjacency, after)
        changed = labels.copy()
        if level.attributes:
            changed[r] = -1 if is_zero_out(level) else rng.integers(classes)
        yield Pair(adjacency, after, labels, changed, r)


def every_undirected_graph(nodes: int) -> Iterator[np.ndarray]:
    """All undirected graphs on this many nodes."""
    for bits in product((0, 1), repeat=nodes * (nodes - 1) // 2):
        upper = np.zeros((nodes, nodes), dtype=int)
        upper[np.triu_indices(nodes, 1)] = bits
        yield upper + upper.T


def random_undirected_pair(level: KNeighbor | Node, nodes: int, rng: np.random.Generator, classes: int = 3) -> Pair:
    """An adjacent pair with a few hubs, biased towards many changes."""
    upper = np.triu(rng.random((nodes, nodes)) < rng.choice([0.5, 2, 6]) / nodes, 1)
    hubs = rng.integers(nodes, size=rng.integers(3))
    upper[hubs] |= rng.random((len(hubs), nodes)) < 0.5
    adjacency = np.triu(upper | upper.T, 1).astype(int)
    adjacency = adjacency + adjacency.T
    r = int(hubs[0]) if len(hubs) and rng.random() < 0.5 else int(rng.integers(nodes))
    others = rng.permutation(np.delete(np.arange(nodes), r))
    if isinstance(level, Node):
        adjacency = _with_few_links(adjacency, level.max_degree, rng)
        after = adjacency.copy()
        after[r] = after[:, r] = 0
        room = others[after[others].sum(1) < level.max_degree]
        new = room[: 0 if is_zero_out(level) else rng.integers(level.max_degree + 1)]
        after[r, new] = after[new, r] = 1
    else:
        others = others[np.argsort(adjacency[r, others] * rng.choice([-1, 0, 1]), kind="stable")]
        changed = others[: rng.integers(max(0, level.k - 1), level.k + 1)]
        after = _toggled(adjacency, [(r, j) for j in changed] + [(j, r) for j in changed])
        if is_zero_out(level):
            adjacency, after = np.maximum(adjacency, after), np.minimum(adjacency, after)
    labels = rng.integers(classes, size=nodes) * rng.integers(2, size=nodes)
    labels_after = labels.copy()
    labels_after[r] = -1 if is_zero_out(level) else rng.integers(classes)
    return Pair(adjacency, after, labels, labels_after, r)


def _may_change(level: Level, before: np.ndarray, after: np.ndarray, r: int) -> bool:
    """Whether an emptied node changes in this way: entries are taken away, at node level all of them."""
    if not is_zero_out(level):
        return True
    gone = isinstance(level, KNeighbor) or not (after[r].any() or after[:, r].any())
    return bool((after <= before).all()) and gone


def keeps_promise(level: Level, *graphs: np.ndarray) -> bool:
    return not isinstance(level, Node) or all(graph.sum(0).max() <= level.max_degree for graph in graphs)


def _toggled(adjacency: np.ndarray, entries: list[tuple[int, int]]) -> np.ndarray:
    after = adjacency.copy()
    for i, j in entries:
        after[i, j] = 1 - after[i, j]
    return after


def _thinned(adjacency: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Column sums of at most `most`."""
    thinned = np.zeros_like(adjacency)
    for j in range(len(adjacency)):
        readers = rng.permutation(np.flatnonzero(adjacency[:, j]))[:most]
        thinned[readers, j] = 1
    return thinned


def _with_few_links(adjacency: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """A symmetric part of the graph with at most `most` links of a node."""
    kept = np.zeros_like(adjacency)
    for i, j in rng.permutation(np.argwhere(np.triu(adjacency))):
        if max(kept[i].sum(), kept[j].sum()) < most:
            kept[i, j] = kept[j, i] = 1
    return kept
