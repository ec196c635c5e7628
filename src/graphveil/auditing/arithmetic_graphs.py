"""Pairs of adjacent graphs for the attack on arithmetic: in them, one change meets sums of many terms.

Some pairs have hubs whose partial sums cancel, some have many equal terms, some rows that are long or not finite.
`chosen_readers` says which rows a hub should read so that rounding moves its float32 sum apart from the sum with one
row more. A float32 number just below a power of two is rounded twice as finely as one just above. A hub whose partial
sum stays there, below in one graph and above in the other, adds rows that cancel: each addition rounds the two sums
differently, and the differences add up with the number of rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.auditing.adjacent_fits import AdjacentGraphs
from graphveil.auditing.canaries import Canary
from graphveil.graph import Graph
from graphveil.methods.training import NO_LABEL
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, is_zero_out, protects_attributes

# Nodes of a graph with hubs: the construction that docs/audit.md describes has 44,199.
NODES = 44_199
CLASSES = 3
# At most so many of the nodes that start to read the replaced one are hubs.
_MOST_HUBS = 4
_MOST_CHANGING = 50
# Tables with at most so many different values in a column are attacked by sequences of values.
_FEW = 6
_POWERS = 2
_COLUMNS = 2
# A sequence is judged by what it does when it is repeated so often.
_AHEAD = 8
_PLACES = range(-1, 3)


@dataclass(frozen=True, eq=False)
class Shape:
    """Graphs in which node 0 changes, ordinary nodes follow, and hubs come last, so that a hub's row adds node 0 first.

    Hubs read many ordinary nodes. Hubs, and further nodes that read nobody else, read node 0 in one graph or in both.
    On a directed graph ordinary nodes read other hubs, which node 0 reads too. In the zero-out unit node 0 is empty in
    the first graph.

    Args:
        level: The level at which the two graphs are adjacent, with its unit.
        directed: Whether the graphs are directed.
        size: The number of nodes, unless more are needed.
        direction: Which end of an edge reads the other, as the method has it.
        keeps_readers: Whether node 0 changes its attributes and keeps its readers. That is the worst case of methods
            that aggregate rows computed from attributes.
        bounds_degrees: Whether the method relies on a bound on degrees beside the level.
        in_training: Whether node 0 is a training node.
        classes: The number of classes.
        outgoing: At edge level with the directed unit, whether the edge that changes is one of node 0 to a hub.
    """

    level: Level
    directed: bool
    size: int
    direction: str
    keeps_readers: bool = False
    bounds_degrees: bool = False
    in_training: bool = True
    classes: int = CLASSES
    outgoing: bool = False

    @property
    def changing(self) -> int:
        """How many nodes start to read node 0, or have a row that depends on it."""
        if isinstance(self.level, KNeighbor):
            return _MOST_HUBS if self.keeps_readers else min(self.level.k, _MOST_CHANGING)
        return min(self.level.max_degree, _MOST_CHANGING) if isinstance(self.level, Node) else 1

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return max(self.size, 20 + 3 * self.changing)

    @property
    def hubs(self) -> np.ndarray:
        """The last nodes."""
        return np.arange(self.nodes - min(_MOST_HUBS, self.changing), self.nodes)

    @property
    def read_hubs(self) -> np.ndarray:
        """The hubs that ordinary nodes read: on a directed graph as many nodes before `hubs`."""
        return self.hubs - len(self.hubs) if self.directed else self.hubs

    @property
    def ordinary(self) -> np.ndarray:
        """The nodes between node 0 and those that may read it."""
        return np.arange(1, self.nodes - 2 * min(_MOST_HUBS, self.changing) - 2 * self.changing)

    @property
    def degree_bound(self) -> int:
        """A bound that the graphs keep, for methods that need one beside the level."""
        return max(_MOST_HUBS, self.changing, 1)

    def matching(self, labels: np.ndarray, features: np.ndarray) -> AdjacentGraphs:
        """Every node reads one other: what is released shows the rows that are multiplied, one by one."""
        even = np.arange(0, self.nodes - 1, 2)
        links = np.concatenate([np.stack([even, even + 1]), np.stack([even + 1, even])], axis=1)
        before, after = (self._graph(links, labels, features, changed) for changed in (False, True))
        return AdjacentGraphs(before, after, None if isinstance(self.level, Edge) else 0)

    def pair(self, labels: np.ndarray, features: np.ndarray, read: np.ndarray) -> AdjacentGraphs:
        """Hubs read these ordinary nodes, and node 0 in one of the graphs; where attributes are private they change."""
        level = self.level
        most = level.max_degree if isinstance(level, Node) else self.degree_bound if self.bounds_degrees else self.nodes
        if isinstance(level, Node) and not self.directed:
            read = read[: most - 1]
        hubs = self.hubs[: max(1, most // 2)]
        links = [np.stack([np.repeat(hubs, len(read)), np.tile(read, len(hubs))])]
        if self.directed:
            into = self.read_hubs[:1] if isinstance(level, Edge) else self.read_hubs
            readers = read[: most - 1]
            links.append(np.stack([np.tile(readers, len(into)), np.repeat(into, len(readers))]))
        base = np.concatenate(links, axis=1)
        links_before, links_after = self._links_of_node_0(hubs)
        before = self._graph(np.concatenate([base, links_before], axis=1), labels, features, False)
        after = self._graph(np.concatenate([base, links_after], axis=1), labels, features, True)
        return AdjacentGraphs(before, after, None if isinstance(level, Edge) else 0)

    def _links_of_node_0(self, hubs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The links of node 0 before and after."""
        nothing = np.zeros((2, 0), dtype=np.int64)
        last = self.ordinary[-1]
        single = np.arange(last + 1, last + 1 + 2 * self.changing)
        readers = np.concatenate([hubs, single])[: self.changing]
        reading = np.stack([readers, np.zeros_like(readers)])
        emptied = is_zero_out(self.level)
        if self.keeps_readers and not (emptied and isinstance(self.level, Node)):
            return reading, reading
        if isinstance(self.level, Edge):
            return nothing, np.array([[0], [self.read_hubs[0]]]) if self.outgoing else reading[:, :1]
        into = (self.read_hubs if self.directed else hubs)[: self.changing]
        written = np.stack([np.zeros_like(into), into]) if self.directed else nothing
        before = nothing
        if isinstance(self.level, Node) and not emptied:
            others = single[-self.changing :]
            before = np.stack([others, np.zeros_like(others)])
        return before, np.concatenate([reading, written], axis=1)

    def _graph(self, links: np.ndarray, labels: np.ndarray, features: np.ndarray, changed: bool) -> Graph:
        """Links say who reads whom; a method that reads along edges the other way gets them reversed."""
        if not self.directed:
            links = np.concatenate([links, links[::-1]], axis=1)
        elif self.direction == "in":
            links = links[::-1]
        if protects_attributes(self.level) and is_zero_out(self.level) and not changed:
            labels, features = labels.copy(), features.copy()
            labels[0], features[0] = NO_LABEL, 0
        elif protects_attributes(self.level) and changed:
            labels, features = labels.copy(), features.copy()
            labels[0] = (labels[0] + 1) % self.classes
            features[0] = -features[0]
        train = np.ones(self.nodes, dtype=bool)
        train[0] = self.in_training
        return graph_of(links, labels, features, directed=self.directed, classes=self.classes, train=train)


def graph_of(
    links: np.ndarray,
    labels: np.ndarray,
    features: np.ndarray,
    *,
    directed: bool,
    classes: int = CLASSES,
    train: np.ndarray | None = None,
) -> Graph:
    """A graph with these stored entries; all nodes are training nodes unless `train` says which are. A
    node whose label is -1 has none."""
    nodes = len(labels)
    A = sp.csr_array((np.ones(links.shape[1], np.float32), (links[0], links[1])), shape=(nodes, nodes))
    A.sum_duplicates()
    A.data[:] = 1
    train = np.ones(nodes, dtype=bool) if train is None else train
    masks = {"train_mask": train, "val_mask": np.zeros_like(train), "test_mask": ~train}
    x = np.clip(features, -3e38, 3e38).astype(np.float32)
    graph = Graph.from_scipy(A, x, np.maximum(labels, 0), directed=directed, num_classes=classes, **masks)
    for node in np.flatnonzero(labels == NO_LABEL):
        graph = graph.emptied(int(node), keep_links=True)
    return graph


def cycle_labels(nodes: int) -> np.ndarray:
    """Labels for hubs: a block of class 0, then 1, 0, 2 again and again, then the rest.

    With 44,199 nodes the classes have 14,733, 14,781 and 14,685 of them, and the block has 10,052.
    """
    part = nodes / NODES
    lead, cycles = int(10_052 * part), int(4_000 * part)
    sizes = [int(14_733 * part), int(14_781 * part)]
    sizes.append(nodes - sum(sizes))
    labels = np.concatenate([np.zeros(lead, np.int64), np.tile([1, 0, 2], cycles)])
    rest = [np.full(max(0, size - int((labels == c).sum())), c) for c, size in enumerate(sizes)]
    return np.concatenate([labels, *rest])[:nodes].astype(np.int64)


def many_readers(shape: Shape) -> AdjacentGraphs:
    """Nearly all nodes have one class and the same features: sums of many terms of one sign."""
    labels = np.zeros(shape.nodes, dtype=np.int64)
    labels[-3:] = 1
    return shape.pair(labels, np.ones((shape.nodes, 3)), shape.ordinary)


def many_rows(shape: Shape, seed: int) -> AdjacentGraphs:
    """Many training rows, all of them clipped, and one whose label changes: its gradient is negated in a large sum."""
    features = np.random.default_rng(seed).normal(size=(shape.nodes, 3)) + 5.0
    return _with_equal_features(shape.pair(np.arange(shape.nodes) % 2, features, shape.ordinary[:5]))


def long_rows(shape: Shape, width: int, seed: int) -> Iterator[AdjacentGraphs]:
    """A training row with many features, whose label changes: its gradient is negated, and its norm has to be right."""
    small = np.random.default_rng(seed).random((shape.nodes, width)) + 0.5
    for dense in (False, True):
        for huge in (1.0, 2.0**12, 1e6, 1e30):
            features = small.copy() if dense else np.where(np.arange(width) < 3, small, 0.0)
            features[0] = small[0]
            features[0, 0] = huge
            yield _with_equal_features(shape.pair(np.arange(shape.nodes) % 2, features, shape.ordinary[:5]))


def not_finite(shape: Shape) -> AdjacentGraphs:
    """Features so large that a pass of the model is not finite: a fit that stopped would tell about the node."""
    pair = shape.pair(np.arange(shape.nodes) % 2, np.ones((shape.nodes, 4)), shape.ordinary[:5])
    large = pair.after.features.clone()
    large[0] = 3e38 * torch.tensor([1.0, -1.0, 1.0, -1.0])
    return AdjacentGraphs(pair.after.replace(features=large), pair.before, pair.own)


def _with_equal_features(pair: AdjacentGraphs) -> AdjacentGraphs:
    """The same features in both graphs: if only the label changes, a gradient is exactly negated."""
    if int(pair.before.labels[0]) == NO_LABEL:
        return pair
    return replace(pair, after=pair.after.replace(features=pair.before.features))


def shared_readers(canary: Canary, level: Level, readers: int) -> Iterator[AdjacentGraphs]:
    """The worst pair for one-shot neighbour labels, a canary, with many more readers of every node in it."""
    read = np.flatnonzero(canary.before.any(0) | canary.after.any(0))
    nodes = canary.size + readers
    labels_after = canary.labels_after if protects_attributes(level) else canary.labels
    for part in (1.0, 0.83, 0.71):
        others = np.arange(canary.size, canary.size + int(part * readers))
        more = np.stack([np.repeat(others, len(read)), np.tile(read, len(others))])
        before, after = (
            graph_of(
                np.concatenate([np.stack(np.nonzero(links)), more], axis=1),
                np.concatenate([labels, np.arange(readers) % 2]),
                np.ones((nodes, 3)),
                directed=True,
            )
            for links, labels in ((canary.before, canary.labels), (canary.after, labels_after))
        )
        yield AdjacentGraphs(before, after, 0)


def chosen_readers(rows: np.ndarray, start: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The rows that a hub should read.

    One column is attacked, the one in which most is gained.

    Args:
        rows: The rows that a hub may read.
        start: The row with which the hub's sum begins in one graph.
        other: The same in the other graph.

    Returns:
        Indices of rows, ascending, that move the two float32 sums apart; all rows if no column has both signs.
    """
    best, chosen = 0.0, np.arange(len(rows))
    columns = np.argsort(-np.abs(other - start), kind="stable")[:_COLUMNS]
    for column, sign in product(columns, (np.float32(1), np.float32(-1))):
        values = sign * rows[:, column].astype(np.float32)
        if other[column] != start[column] and (values > 0).any() and (values < 0).any():
            first, second = (sign * np.float32(begin[column]) for begin in (start, other))
            method = _by_sequences if len(np.unique(values)) <= _FEW else _greedy
            apart, read = method(values, first, second)
            gained = apart**2 - float(other[column] - start[column]) ** 2
            if gained > best:
                best, chosen = gained, read
    return chosen


def _powers(values: np.ndarray) -> list[float]:
    """The largest powers of two that a part of the positive values can reach."""
    mass = float(values[values > 0].sum())
    top = int(np.floor(np.log2(max(0.75 * mass, 2.0))))
    return [2.0**power for power in range(top, max(0, top - _POWERS), -1)]


def _by_sequences(values: np.ndarray, first: np.float32, second: np.float32) -> tuple[float, np.ndarray]:
    """The largest value up to a power of two, then again and again the three values that move the sums apart most."""
    few = np.unique(values)
    places = {float(value): np.flatnonzero(values == value).tolist() for value in few}
    up = float(few.max())
    best, chosen = -1.0, np.arange(len(values))
    for power in _powers(values):
        near = int((power - float(max(first, second))) / up)
        for lead in (near + shift for shift in _PLACES):
            if 0 < lead < len(places[up]):
                apart, read = _moved_apart(np.array([first, second]), power, places, lead)
                if apart > best:
                    best, chosen = apart, read
    return best, chosen


def _moved_apart(sums: np.ndarray, power: float, places: dict[float, list[int]], lead: int) -> tuple[float, np.ndarray]:
    """How far both sums are moved apart near a power of two, until no rows are left, and by which rows."""
    up = max(places)
    read = places[up][:lead]
    for _ in read:
        sums = sums + np.float32(up)
    sequences = np.array([each for each in product([*places, 0.0], repeat=3) if any(each)])
    steps = sequences.astype(np.float32)
    here = read[-1] + 1
    while True:
        then = np.repeat(sums[:, None], len(steps), axis=1)
        for column in np.tile(steps.T, (_AHEAD, 1)):
            then = then + column
        apart = np.abs(then[1].astype(np.float64) - then[0])
        centred = np.abs((then[0].astype(np.float64) + then[1]) / 2 - power)
        score = np.where(centred <= apart / 2, apart, -centred)  # with the power between them
        chosen = np.tile(sequences[int(np.argmax(score))], _AHEAD // 2)
        places_read = []
        for value in chosen[chosen != 0].tolist():
            at = bisect_left(places[value], here)
            if at == len(places[value]):
                return float(abs(float(sums[1]) - float(sums[0]))), np.array(read, dtype=np.int64)
            places_read.append(places[value][at])
            here = places_read[-1] + 1
        read.extend(places_read)
        for value in chosen[chosen != 0]:
            sums = sums + np.float32(value)


def _greedy(values: np.ndarray, first: np.float32, second: np.float32) -> tuple[float, np.ndarray]:
    """For values that are all different: read what keeps a power of two between the sums and moves them apart."""
    best, chosen = -1.0, np.arange(len(values))
    for power in _powers(values):
        low, high, read = first, second, []
        led = False
        for place, value in enumerate(values):
            below, above = np.float32(low + value), np.float32(high + value)
            straddles = bool(min(below, above) < power <= max(below, above))
            if led:
                take = straddles and abs(float(above) - float(below)) >= abs(float(high) - float(low))
            else:
                take = bool(value > 0) and (straddles or bool(max(below, above) < power))
                led = straddles
            if take:
                low, high = below, above
                read.append(place)
        apart = abs(float(high) - float(low))
        if apart > best:
            best, chosen = apart, np.array(read, dtype=np.int64)
    return best, chosen
