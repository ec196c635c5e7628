"""Does a released sum move by more than its sensitivity, because a machine adds with rounding?

A sensitivity is proved for real numbers. A float32 sum is rounded at every addition, relative to the partial sum and
not to the sensitivity: a graph can be chosen in which one link moves a sum by several times what was proved. This
attack builds such pairs of adjacent graphs, runs the method itself on both with the outcomes of all earlier draws held
fixed, and compares what each run puts into the ledger. No noise is involved and no statistics: a movement above the
sensitivity is a violation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.auditing.canaries import canary_of, hides_own_row
from graphveil.auditing.end_to_end import MakeModel, recorded_fit, replayed_fit
from graphveil.auditing.hubs import chosen_readers
from graphveil.auditing.instruments import DelegatingLedger, Recorder, Replay
from graphveil.auditing.pairs import AdjacentGraphs
from graphveil.auditing.subject import held_at
from graphveil.auditing.verdict import Movement
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, LedgerLike, MakeLedger
from graphveil.execution.edges import randomized_edges
from graphveil.graph import Graph
from graphveil.methods import training
from graphveil.methods.auto import Auto
from graphveil.methods.dpdgc import DPDGC
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.networks import Committee
from graphveil.methods.sage import RandEdge
from graphveil.noise import NoiseSource
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, protects_attributes, with_unit
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease, Kind, Responses
from graphveil.privacy.plan import Plan
from graphveil.privacy.sensitivity import neighbor_margin_units

# Nodes of a graph with hubs: the construction that docs/audit.md describes has 44,199.
NODES = 44_199
# Readers of a node and training nodes, where sums have many terms of the same sign.
MANY = 100_000
FEATURES = 100_000
# Few steps are enough: every step is compared by itself.
_CHEAP: dict[str, Any] = {"steps": 1, "epochs": 1, "hidden": 4, "seed": 0, "show_progress": False}
# At most so many of the nodes that start to read the replaced one read many others too.
_HUBS = 4
_CLASSES = 3
_SIZES = (200, 1000, 5000, 20_000, 50_000, 100_000)


@dataclass(frozen=True, eq=False)
class Target:
    """What is attacked: a method with its options at a level, and the ledger that it draws through."""

    cls: type[NodeClassifier]
    level: Level
    epsilon: float | None
    options: dict[str, Any]
    make_ledger: MakeLedger = Ledger

    def maker(self, graph: Graph, **options: Any) -> MakeModel:
        """Models for graphs with the public facts of this one."""
        words = {**_CHEAP, **self.options, **options}
        known = {field.name for field in fields(self.cls)}
        words = {name: value for name, value in words.items() if name in known}
        level = with_unit(self.level, graph.directed)
        return partial(_quick(self.cls), level=level, epsilon=self.epsilon, delta=1e-5, **words)

    def variants(self) -> list[dict[str, Any]]:
        """Options that lead to different sums: all tables of DPDGC that the level has, unless one was asked for."""
        if not self.cls.chooses_table or "table" in self.options:
            return [{}]
        tables = ["labels", "neighbors+degrees", "posteriors", "degrees", "trained"]
        if not isinstance(self.level, Node):
            tables.insert(1, "readers")
        return [{"table": table} for table in tables]

    def ledgers(self, plan: Plan) -> list[MakeLedger]:
        """Where a plan branches, one ledger for each outcome of the choice: both are possible on every graph."""
        if not plan.branches:
            return [self.make_ledger]
        return [partial(_decided, outcome, self.make_ledger) for outcome in (True, False)]

    @property
    def promises(self) -> bool:
        """Whether the method needs to be told how many nodes read one, beside the level."""
        return self.cls.sums_attributes and isinstance(self.level, KNeighbor)

    @property
    def turns(self) -> bool:
        """Whether a row of what is multiplied follows the node's own attributes, so that its readers stay."""
        return self.cls.sums_attributes and not isinstance(self.level, Edge)

    def directions(self) -> tuple[bool, ...]:
        """Whether graphs are directed: as the edge unit says; directed where degrees are promised, which bounds columns
        alone; both for `Auto`, which plans by it."""
        if isinstance(self.level, Edge):
            return (self.level.unit == "directed",)
        if issubclass(self.cls, Auto):
            return (False, True)
        return (isinstance(self.level, Node) or self.turns,)


def attack(target: Target, seed: int, *, pairs: int = 0, scale: float = 1.0) -> list[Movement]:
    """The largest movement of every released sum in each family of pairs; `pairs` random ones after the built ones.

    `scale` makes the graphs smaller: 1 takes up to a minute, 0.1 a few seconds. Nothing is found where nothing is
    released.
    """
    if isinstance(target.level, Public):
        return []
    if issubclass(target.cls, RandEdge):
        return _flipped_bits(target, seed)
    return largest([*_built(target, seed, scale), *search(target, pairs, seed, scale=scale)])


def search(target: Target, pairs: int, seed: int, *, scale: float = 1.0) -> list[Movement]:
    """The largest movements over random pairs with up to 100,000 nodes, hubs, many classes and features of any size."""
    rng = np.random.default_rng(seed)
    found: list[Movement] = []
    for _ in range(pairs):
        directed = bool(rng.choice(target.directions()))
        options = dict(rng.choice(np.array(target.variants(), dtype=object)))
        attributes = 10.0 ** rng.uniform(-3, 6)
        shape = _Shape(target, directed, max(30, int(scale * rng.choice(_SIZES))), options, inside=rng.random() < 0.9)
        labels = rng.integers(_CLASSES, size=shape.nodes)
        if rng.random() < 0.5:
            labels.sort()
        features = attributes * rng.normal(size=(shape.nodes, 3))
        read = shape.crowd[rng.random(len(shape.crowd)) < rng.choice([0.1, 0.5, 0.9, 1.0])]
        pair = shape.pair(labels, features, read)
        found = largest([*found, *_compare(target, pair, shape, "random", int(rng.integers(2**31)))])
    return found


def largest(found: Sequence[Movement]) -> list[Movement]:
    """For every sum and family the movement that stands out most."""
    best: dict[tuple[str, str], Movement] = {}
    for movement in found:
        key = (movement.family, movement.mechanism)
        if key not in best or movement.ratio > best[key].ratio:
            best[key] = movement
    return list(best.values())


def _built(target: Target, seed: int, scale: float) -> Iterator[Movement]:
    private = protects_attributes(target.level)
    for directed in target.directions():
        for options in target.variants():
            shape = _Shape(target, directed, max(300, int(scale * NODES)), options)
            yield from _hubs(target, shape, seed)
            many = replace(shape, size=max(300, int(scale * MANY)))
            yield from _compare(target, many.pair(*many.alike()), many, "many readers", seed)
            if target.level == Edge("directed"):
                yield from _hubs(target, replace(shape, written=True), seed)
            if private:
                yield from _hubs(target, replace(shape, inside=False), seed, families=("cancelling",))
                yield from _many_rows(target, replace(many, classes=2), seed)
            if "neighbors" in {**target.options, **options}.get("table", "") and isinstance(target.level, KNeighbor):
                yield from _shared_readers(target, options, seed, scale)
        if private:
            yield from _long_rows(target, directed, seed, scale)
    yield from _same_graph(target, seed, scale)


@dataclass(frozen=True, eq=False)
class _Shape:
    """Graphs in which node 0 changes, a crowd follows, and hubs come last, so that a hub's row adds node 0 first.

    `hubs` read many of the crowd, `plain` nodes nobody: both read node 0 in one graph or in both. On a directed graph
    the crowd reads further hubs, which node 0 reads too.
    """

    target: Target
    directed: bool
    size: int
    options: dict[str, Any]
    inside: bool = True
    classes: int = _CLASSES
    # At edge level with the directed unit: whether the link that changes is one of node 0 to a hub.
    written: bool = False

    @property
    def level(self) -> Level:
        return with_unit(self.target.level, self.directed)

    @property
    def changing(self) -> int:
        """Nodes that start to read node 0 (or whose row follows it)."""
        if isinstance(self.level, KNeighbor):
            return _HUBS if self.target.turns else min(self.level.k, 50)
        return min(self.level.max_degree, 50) if isinstance(self.level, Node) else 1

    @property
    def hubs(self) -> np.ndarray:
        """The last nodes; on a directed graph as many more before them are read by the crowd."""
        return np.arange(self.nodes - min(_HUBS, self.changing), self.nodes)

    @property
    def read_hubs(self) -> np.ndarray:
        return self.hubs - len(self.hubs) if self.directed else self.hubs

    @property
    def nodes(self) -> int:
        return max(self.size, 20 + 3 * self.changing)

    @property
    def crowd(self) -> np.ndarray:
        """The nodes between, as many as a promise on degrees lets a hub have."""
        last = self.nodes - 2 * min(_HUBS, self.changing) - 2 * self.changing
        return np.arange(1, last)

    @property
    def promise(self) -> int:
        return max(_HUBS, self.changing, 1)

    def maker(self, graph: Graph) -> MakeModel:
        promise = {"max_degree": self.promise} if self.target.promises else {}
        return self.target.maker(graph, **self.options, **promise)

    def alike(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Everybody has one class and the same features: sums of many terms of one sign."""
        labels = np.zeros(self.nodes, dtype=np.int64)
        labels[-3:] = 1
        return labels, np.ones((self.nodes, 3)), self.crowd

    def matching(self, labels: np.ndarray, features: np.ndarray) -> AdjacentGraphs:
        """Every node reads one other: what is released shows the rows that are multiplied, one by one."""
        even = np.arange(0, self.nodes - 1, 2)
        links = np.concatenate([np.stack([even, even + 1]), np.stack([even + 1, even])], axis=1)
        first, then = (self._graph(links, labels, features, turned) for turned in (False, True))
        return AdjacentGraphs(first, then, None if isinstance(self.level, Edge) else 0)

    def pair(self, labels: np.ndarray, features: np.ndarray, read: np.ndarray) -> AdjacentGraphs:
        """The hubs read these nodes of the crowd, and node 0 in one of the graphs; its attributes turn if private."""
        level = self.level
        most = level.max_degree if isinstance(level, Node) else self.promise if self.target.promises else self.nodes
        if isinstance(level, Node) and not self.directed:
            read = read[: most - 1]
        hubs = self.hubs[: max(1, most // 2)]
        links = [np.stack([np.repeat(hubs, len(read)), np.tile(read, len(hubs))])]
        if self.directed:
            into = self.read_hubs[:1] if isinstance(level, Edge) else self.read_hubs
            readers = read[: most - 1]
            links.append(np.stack([np.tile(readers, len(into)), np.repeat(into, len(readers))]))
        base = np.concatenate(links, axis=1)
        before, after = self._changes(hubs)
        first = self._graph(np.concatenate([base, before], axis=1), labels, features, False)
        then = self._graph(np.concatenate([base, after], axis=1), labels, features, True)
        return AdjacentGraphs(first, then, None if isinstance(level, Edge) else 0)

    def _changes(self, hubs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Links of node 0 before and after."""
        nothing = np.zeros((2, 0), dtype=np.int64)
        plain = np.arange(self.crowd[-1] + 1, self.crowd[-1] + 1 + 2 * self.changing)
        readers = np.concatenate([hubs, plain])[: self.changing]
        reading = np.stack([readers, np.zeros_like(readers)])
        if self.target.turns:
            return reading, reading
        if isinstance(self.level, Edge):
            ends = reading[:, :1]
            if self.written:
                ends = np.array([[0], [self.read_hubs[0]]])
            return nothing, ends
        into = self.read_hubs if self.directed else hubs
        into = into[: self.changing]
        written = np.stack([np.zeros_like(into), into]) if self.directed else nothing
        before = nothing
        if isinstance(self.level, Node):
            others = plain[-self.changing :]
            before = np.stack([others, np.zeros_like(others)])
        return before, np.concatenate([reading, written], axis=1)

    def _graph(self, links: np.ndarray, labels: np.ndarray, features: np.ndarray, turned: bool) -> Graph:
        """Links say who reads whom; a method that reads along edges the other way gets them that way round."""
        if not self.directed:
            links = np.concatenate([links, links[::-1]], axis=1)
        elif self.target.cls.direction == "in":
            links = links[::-1]
        if turned and protects_attributes(self.level):
            labels, features = labels.copy(), features.copy()
            labels[0] = (labels[0] + 1) % self.classes
            features[0] = -features[0]
        train = np.ones(self.nodes, dtype=bool)
        train[0] = self.inside
        return _graph_of(links, labels, features, directed=self.directed, classes=self.classes, train=train)


def _graph_of(
    links: np.ndarray,
    labels: np.ndarray,
    features: np.ndarray,
    *,
    directed: bool,
    classes: int = _CLASSES,
    train: np.ndarray | None = None,
) -> Graph:
    """Everybody trains unless it is said who."""
    nodes = len(labels)
    A = sp.csr_array((np.ones(links.shape[1], np.float32), (links[0], links[1])), shape=(nodes, nodes))
    A.sum_duplicates()
    A.data[:] = 1
    train = np.ones(nodes, dtype=bool) if train is None else train
    masks = {"train_mask": train, "val_mask": np.zeros_like(train), "test_mask": ~train}
    x = np.clip(features, -3e38, 3e38).astype(np.float32)
    return Graph.from_scipy(A, x, labels, directed=directed, num_classes=classes, **masks)


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


def _hubs(
    target: Target, shape: _Shape, seed: int, families: Sequence[str] = ("cancelling", "powers of two")
) -> Iterator[Movement]:
    """Hubs whose partial sums stay at a power of two, by the rows that the method multiplies; and hubs that read
    everybody, class by class, so that large partial sums cancel."""
    labels = cycle_labels(shape.nodes)
    # A few kinds of features, and their opposites: rows that are computed from them cancel too.
    kinds = 5 * np.random.default_rng(seed).normal(size=(2, 3))
    features = np.concatenate([kinds, -kinds])[np.arange(shape.nodes) % 4]
    features[0] *= 1e3
    if "cancelling" in families:
        yield from _compare(target, shape.pair(np.sort(labels), features, shape.crowd), shape, "cancelling", seed)
    if "powers of two" not in families:
        return
    # What is multiplied, row by row: each node reads one other.
    plain = shape.matching(labels, features)
    make = shape.maker(plain.before)
    plan = make().plan(plain.before)
    partner = np.minimum(np.arange(shape.nodes) ^ 1, shape.nodes - 1)
    for make_ledger in target.ledgers(plan):
        recorder, _ = recorded_fit(make, plain.before, seed, make_ledger, plan)
        turned = replayed_fit(make, plain.after, recorder, plain.own)
        tried: set[bytes] = set()
        for entry, after in zip(recorder.entries, turned.given, strict=True):
            if not isinstance(recorder.plan[entry.name], GaussianRelease) or len(entry.given) != shape.nodes:
                continue
            rows, rows_after = (given.double().numpy()[partner] for given in (entry.given, after))
            start = rows[0] if target.turns else np.zeros_like(rows[0])
            other = rows_after[0] if target.turns else rows[0]
            for read in (chosen_readers(rows[shape.crowd], start, other), np.arange(shape.nodes * 22_051 // NODES)):
                if read.tobytes() in tried:
                    continue
                tried.add(read.tobytes())
                pair = shape.pair(labels, features, shape.crowd[read])
                runs = [replayed_fit(make, graph, recorder, pair.own).given for graph in (pair.before, pair.after)]
                yield from _moved(recorder, runs[0], runs[1], pair, "powers of two")


def _compare(target: Target, pair: AdjacentGraphs, shape: _Shape, family: str, seed: int) -> Iterator[Movement]:
    """A recorded fit on one graph and a replayed one on the other; for each branch of the plan."""
    make = shape.maker(pair.before)
    plan = make().plan(pair.before)
    for make_ledger in target.ledgers(plan):
        try:
            recorder, _ = recorded_fit(make, pair.before, seed, make_ledger, plan)
            replayed = replayed_fit(make, pair.after, recorder, pair.own)
        except InvalidInput as error:
            if error.field != "value":  # what a ledger refuses to release
                raise
            yield Movement("the fit", family, 0.0, math.inf, pair.before.num_nodes, int(pair.before.to_scipy().nnz))
            continue
        yield from _moved(recorder, [entry.given for entry in recorder.entries], replayed.given, pair, family)


def _moved(
    recorder: Recorder, before: Sequence[torch.Tensor], after: Sequence[torch.Tensor], pair: AdjacentGraphs, family: str
) -> Iterator[Movement]:
    """How far apart the two runs are in every draw, in the rows that an adversary may see, against the plan's claim."""
    kind: Kind = "training" if pair.own is None or bool(pair.before.train_mask[pair.own]) else "unlabelled"
    size = {"nodes": pair.before.num_nodes, "entries": int(pair.before.to_scipy().nnz)}
    for entry, ours, theirs in zip(recorder.entries, before, after, strict=True):
        mechanism = recorder.plan[entry.name]
        claimed = mechanism.sensitivity.of(kind)
        if isinstance(mechanism, Responses):
            moved = float((ours != theirs).sum())
        else:
            apart = ours.double() - theirs.double()
            released = isinstance(mechanism, GaussianRelease)
            if pair.own is not None and released and hides_own_row(recorder.plan, entry.name):
                apart[pair.own] = 0
            moved = float(torch.linalg.vector_norm(apart))
        yield Movement(entry.name, family, claimed, math.inf if math.isnan(moved) else moved, **size)


def _many_rows(target: Target, shape: _Shape, seed: int) -> Iterator[Movement]:
    """Many training rows, all of them clipped, and one whose label turns: its gradient turns round in a large sum."""
    labels = np.arange(shape.nodes) % 2
    features = np.random.default_rng(seed).normal(size=(shape.nodes, 3)) + 5.0
    pair = shape.pair(labels, features, shape.crowd[:5])
    yield from _compare(target, _with_features_of_before(pair), shape, "many rows", seed)


def _with_features_of_before(pair: AdjacentGraphs) -> AdjacentGraphs:
    """The same features in both graphs: with another label alone, a gradient points exactly the other way."""
    return replace(pair, after=pair.after.replace(features=pair.before.features))


def _shared_readers(target: Target, options: dict[str, Any], seed: int, scale: float) -> Iterator[Movement]:
    """The worst pair for one-shot neighbour labels (`canaries`), with many more readers of every node in it."""
    level, readers = target.level, max(200, int(scale * MANY))
    facts = PublicFacts(readers, readers, 3, _CLASSES, directed=True)
    plan = target.cls(level=level, epsilon=target.epsilon, **{**target.options, **options}).plan_for(facts)
    mechanism = next(m for m in plan.all_mechanisms if isinstance(m, GaussianRelease) and m.tau is not None)
    canary, _ = canary_of(plan, mechanism, held_at)
    read = np.flatnonzero(canary.before.any(0) | canary.after.any(0))
    nodes = canary.size + readers
    turned = canary.labels_after if protects_attributes(level) else canary.labels
    for part in (1.0, 0.83, 0.71):
        crowd = np.arange(canary.size, canary.size + int(part * readers))
        more = np.stack([np.repeat(crowd, len(read)), np.tile(read, len(crowd))])
        before, after = (
            _graph_of(
                np.concatenate([np.stack(np.nonzero(links)), more], axis=1),
                np.concatenate([labels, np.arange(readers) % 2]),
                np.ones((nodes, 3)),
                directed=True,
            )
            for links, labels in ((canary.before, canary.labels), (canary.after, turned))
        )
        shape = _Shape(target, True, nodes, options)
        yield from _compare(target, AdjacentGraphs(before, after, 0), shape, "shared readers", seed)


def _long_rows(target: Target, directed: bool, seed: int, scale: float) -> Iterator[Movement]:
    """Training rows with many features, whose label turns: the gradient turns round, and its norm has to be right."""
    options = target.variants()[0]
    shape = _Shape(target, directed, 60, options, classes=2)
    width = max(200, int(scale * FEATURES))
    labels = np.arange(shape.nodes) % 2
    small = np.random.default_rng(seed).random((shape.nodes, width)) + 0.5
    for dense in (False, True):
        for huge in (1.0, 2.0**12, 1e6, 1e30):
            features = small.copy() if dense else np.where(np.arange(width) < 3, small, 0.0)
            features[0] = small[0]
            features[0, 0] = huge
            pair = shape.pair(labels, features, shape.crowd[:5])
            yield from _compare(target, _with_features_of_before(pair), shape, "long rows", seed)
    yield from _not_finite(target, shape, seed)


def _not_finite(target: Target, shape: _Shape, seed: int) -> Iterator[Movement]:
    """Features so large that a pass of the model is not finite: a fit that stops would give the node away."""
    labels = np.arange(shape.nodes) % 2
    features = np.ones((shape.nodes, 4))
    pair = shape.pair(labels, features, shape.crowd[:5])
    large = pair.after.features.clone()
    large[0] = 3e38 * torch.tensor([1.0, -1.0, 1.0, -1.0])
    after = pair.after.replace(features=large)
    yield from _compare(target, AdjacentGraphs(after, pair.before, pair.own), shape, "not finite", seed)


def _same_graph(target: Target, seed: int, scale: float) -> Iterator[Movement]:
    """One graph, other threads, blocks of rows and orders of nodes: exact sums differ by 0. A difference is no leak by
    itself, so it has no claim to break."""
    shape = _Shape(target, target.directions()[0], max(300, int(scale * NODES)), target.variants()[0])
    labels = cycle_labels(shape.nodes)
    features = np.random.default_rng(seed).normal(size=(shape.nodes, 3))
    pair = shape.pair(labels, features, shape.crowd)
    make = shape.maker(pair.before)
    recorder, _ = recorded_fit(make, pair.before, seed, target.make_ledger)
    if not recorder.entries:
        return
    runs = []
    for threads, rows in ((1, 1000), (2, 4096), (2, shape.nodes)):
        with _other_blocks(threads, rows):
            runs.append(("other blocks", replayed_fit(make, pair.before, recorder, None).given))
    # A node's place draws its first row of a trained table.
    if protects_attributes(shape.level) and not recorder.plan.with_role("embedding"):
        order = np.random.default_rng(seed).permutation(shape.nodes)
        replay = partial(_Reordered, order=torch.from_numpy(order))
        moved = _reordered(pair.before, order)
        runs.append(("other order", replayed_fit(make, moved, recorder, None, replay).given))
    for family, again in runs:
        for entry, theirs in zip(recorder.entries, again, strict=True):
            apart = float((entry.given.double() - theirs.double()).abs().max())
            yield Movement(entry.name, family, None, apart, shape.nodes, int(pair.before.to_scipy().nnz))


class _Reordered(Replay):
    """Plays a run back on the same graph with its nodes in another order: `order` lists them by their new place."""

    def __init__(self, recorded: Recorder, own: int | None, order: torch.Tensor) -> None:
        super().__init__(recorded, own)
        self._order = order

    def _next(self, name: str, given: torch.Tensor) -> torch.Tensor:
        by_node = not isinstance(self.plan[name], ClippedTraining) and len(given) == len(self._order)
        if not by_node:
            return super()._next(name, given)
        first = torch.empty_like(given)
        first[self._order] = given
        return super()._next(name, first)[self._order]


def _reordered(graph: Graph, order: np.ndarray) -> Graph:
    place = np.argsort(order)
    links = place[np.stack(graph.to_scipy().tocoo().coords)]
    features = graph.features[torch.from_numpy(order)].numpy()
    classes = graph.num_classes
    return _graph_of(links, graph.labels.numpy()[order], features, directed=graph.directed, classes=classes)


@contextmanager
def _other_blocks(threads: int, rows: int) -> Iterator[None]:
    before = torch.get_num_threads(), training.ROWS_AT_ONCE
    torch.set_num_threads(threads)
    training.ROWS_AT_ONCE = rows
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        training.ROWS_AT_ONCE = before[1]


def _flipped_bits(target: Target, seed: int) -> list[Movement]:
    """Randomised edges with the same flips on both graphs: the answers differ in the bits that the change flips."""
    level = with_unit(target.level, target.directions()[0])
    shape = _Shape(target, target.directions()[0], 500, {})
    pair = shape.pair(cycle_labels(shape.nodes), np.ones((shape.nodes, 1)), shape.crowd)
    plan = shape.maker(pair.before)().plan(pair.before)
    (mechanism,) = plan.with_role("edges")
    paired = level == Edge("undirected")
    answers = []
    for graph in (pair.before, pair.after):
        ledger = target.make_ledger(plan, NoiseSource(seed))
        answers.append(randomized_edges(graph.reads(target.cls.direction), ledger, mechanism.name, paired=paired))
    moved = abs(answers[0] - answers[1]).sum() / (2 if paired else 1)
    entries = int(pair.before.to_scipy().nnz)
    return [Movement(mechanism.name, "one bit", mechanism.sensitivity.worst, float(moved), shape.nodes, entries)]


def _decided(outcome: bool, make_ledger: MakeLedger, plan: Plan, source: NoiseSource) -> LedgerLike:
    """A ledger whose noise happens to make the choice come out like this."""
    return _Decided(make_ledger(plan, source), outcome)


class _Decided(DelegatingLedger):
    """Releases a choice with a fixed outcome."""

    def __init__(self, inner: LedgerLike, outcome: bool) -> None:
        super().__init__(inner)
        self._outcome = outcome

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        got = super().release(name, value)
        if self.plan[name].role != "statistics":
            return got
        sums = torch.full_like(got, 1e6 * self.plan.facts.train_nodes if self._outcome else 0.0)
        if not self.plan.facts.directed:
            sums /= torch.tensor(neighbor_margin_units(self.plan.level), dtype=got.dtype)
        return sums


def _quick(cls: type[NodeClassifier]) -> type[NodeClassifier]:
    """The same method without votes of feature neighbours. They are public where they are used and reach no sum of a
    training node's row, and comparing all nodes with all others takes longer than everything else."""
    if not issubclass(cls, DPDGC):
        return cls

    def alone(self: DPDGC, data: Any, committee: Committee, opinions: torch.Tensor) -> tuple[Any, torch.Tensor]:
        del self, data
        return committee, opinions

    found: type[NodeClassifier] = type(cls.__name__, (cls,), {"_join_feature_neighbors": alone})
    return found
