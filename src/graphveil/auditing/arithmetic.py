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
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from graphveil.auditing.adjacent_fits import AdjacentGraphs
from graphveil.auditing.arithmetic_graphs import (
    CLASSES,
    NODES,
    Shape,
    chosen_readers,
    cycle_labels,
    long_rows,
    many_readers,
    many_rows,
    not_finite,
    shared_readers,
)
from graphveil.auditing.canaries import canary_of, hides_own_row
from graphveil.auditing.mechanisms import held_at
from graphveil.auditing.recording import (
    MakeModel,
    Recorder,
    ledger_on_branch,
    recorded_fit,
    replayed_fit,
)
from graphveil.auditing.report import Movement
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, MakeLedger
from graphveil.execution.draws import randomized_edges
from graphveil.graph import Graph
from graphveil.methods.baselines import RandEdge
from graphveil.methods.dpdgc import DPDGC, Auto
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.networks import Committee
from graphveil.noise import NoiseSource
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, protects_attributes, with_unit
from graphveil.privacy.mechanisms import GaussianRelease, Kind, Responses
from graphveil.privacy.plan import Plan

# Nodes where sums have many terms of the same sign, and features of long rows.
_MANY = 100_000
# Few steps are enough: every step is compared by itself.
_CHEAP: dict[str, Any] = {"steps": 1, "epochs": 1, "hidden": 4, "seed": 0, "show_progress": False}
_SIZES = (200, 1000, 5000, 20_000, 50_000, 100_000)


@dataclass(frozen=True, eq=False)
class Target:
    """What is attacked.

    Args:
        cls: The method.
        level: The level.
        epsilon: The budget.
        options: Further parameters of the method.
        make_ledger: Makes the ledger that it draws through.
    """

    cls: type[NodeClassifier]
    level: Level
    epsilon: float | None
    options: dict[str, Any]
    make_ledger: MakeLedger = Ledger

    def maker(self, graph: Graph, shape: Shape) -> MakeModel:
        """Makes models for graphs of this shape with the public facts of this graph."""
        words = {**_CHEAP, **self.options} | ({"max_degree": shape.degree_bound} if shape.bounds_degrees else {})
        known = {field.name for field in fields(self.cls)}
        words = {name: value for name, value in words.items() if name in known}
        level = with_unit(self.level, graph.directed)
        return partial(_without_feature_neighbors(self.cls), level=level, epsilon=self.epsilon, delta=1e-5, **words)

    def variants(self) -> list[Target]:
        """Targets with different sums: DPDGC with all tables that the level has, unless one was asked for."""
        if not self.cls.chooses_table or "table" in self.options:
            return [self]
        tables = ["labels", "neighbors+degrees", "posteriors", "degrees", "trained"]
        if not isinstance(self.level, Node):
            tables.insert(1, "readers")
        return [replace(self, options={**self.options, "table": table}) for table in tables]

    def ledgers(self, plan: Plan) -> list[MakeLedger]:
        """Where a plan has branches, one ledger for each of them: all are possible on every graph."""
        if not plan.branches:
            return [self.make_ledger]
        return [partial(ledger_on_branch, branch.name, self.make_ledger) for branch in plan.branches]

    def directions(self) -> tuple[bool, ...]:
        """Whether graphs are directed: as the edge unit says; directed where degrees are bounded, which is a bound on
        columns alone; both for `Auto`, whose plan depends on it."""
        if isinstance(self.level, Edge):
            return (self.level.unit == "directed",)
        if issubclass(self.cls, Auto):
            return (False, True)
        return (isinstance(self.level, Node) or self.cls.sums_attributes,)

    def shape(self, directed: bool, size: int, **more: Any) -> Shape:
        """Graphs on which this target is attacked."""
        return Shape(
            with_unit(self.level, directed),
            directed,
            size,
            self.cls.direction,
            keeps_readers=self.cls.sums_attributes and not isinstance(self.level, Edge),
            bounds_degrees=self.cls.sums_attributes and isinstance(self.level, KNeighbor),
            **more,
        )


def attack(target: Target, seed: int, *, pairs: int = 0, scale: float = 1.0) -> list[Movement]:
    """Search for pairs of adjacent graphs on which a released sum moves by more than its sensitivity.

    Args:
        target: The method.
        seed: The seed of features and of random pairs.
        pairs: The number of random pairs, beside those that are built.
        scale: The size of the graphs: 1 takes up to a minute, 0.1 a few seconds.

    Returns:
        For every released sum and each family of pairs the largest movement; none where nothing is released.
    """
    if isinstance(target.level, Public):
        return []
    if issubclass(target.cls, RandEdge):
        return _flipped_bits(target, seed)
    return largest([*_built(target, seed, scale), *search(target, pairs, seed, scale=scale)])


def search(target: Target, pairs: int, seed: int, *, scale: float = 1.0) -> list[Movement]:
    """The largest movements over random pairs with up to 100,000 nodes, hubs, and features of any size."""
    rng = np.random.default_rng(seed)
    movements: list[Movement] = []
    for _ in range(pairs):
        directed = bool(rng.choice(target.directions()))
        variants = target.variants()
        variant = variants[rng.choice(len(variants))]
        length = 10.0 ** rng.uniform(-3, 6)
        size = max(30, int(scale * rng.choice(_SIZES)))
        shape = variant.shape(directed, size, in_training=bool(rng.random() < 0.9))
        labels = rng.integers(CLASSES, size=shape.nodes)
        if rng.random() < 0.5:
            labels.sort()
        features = length * rng.normal(size=(shape.nodes, 3))
        read = shape.ordinary[rng.random(len(shape.ordinary)) < rng.choice([0.1, 0.5, 0.9, 1.0])]
        pair = shape.pair(labels, features, read)
        movements = largest([*movements, *_compare(variant, pair, shape, "random", int(rng.integers(2**31)))])
    return movements


def largest(movements: Sequence[Movement]) -> list[Movement]:
    """For every sum and family the movement that is largest beside its claim."""
    best: dict[tuple[str, str], Movement] = {}
    for movement in movements:
        key = (movement.family, movement.mechanism)
        if key not in best or movement.ratio > best[key].ratio:
            best[key] = movement
    return list(best.values())


def _built(target: Target, seed: int, scale: float) -> Iterator[Movement]:
    """Movements on pairs that were built for this target."""
    private = protects_attributes(target.level)
    for directed in target.directions():
        for variant in target.variants():
            shape = variant.shape(directed, max(300, int(scale * NODES)))
            yield from hub_movements(variant, shape, seed)
            many = replace(shape, size=max(300, int(scale * _MANY)))
            yield from _compare(variant, many_readers(many), many, "many readers", seed)
            if target.level == Edge("directed"):
                yield from hub_movements(variant, replace(shape, outgoing=True), seed)
            if private:
                yield from hub_movements(variant, replace(shape, in_training=False), seed, families=("cancelling",))
                two = replace(many, classes=2)
                yield from _compare(variant, many_rows(two, seed), two, "many rows", seed)
            if "neighbors" in variant.options.get("table", "") and isinstance(target.level, KNeighbor):
                yield from _shared_readers(variant, seed, scale)
        if private:
            first = target.variants()[0]
            small = first.shape(directed, 60, classes=2)
            for pair in long_rows(small, max(200, int(scale * _MANY)), seed):
                yield from _compare(first, pair, small, "long rows", seed)
            yield from _compare(first, not_finite(small), small, "not finite", seed)


def hub_movements(
    target: Target, shape: Shape, seed: int, families: Sequence[str] = ("cancelling", "powers of two")
) -> Iterator[Movement]:
    """Movements with hubs that read all nodes, class by class, so that large partial sums cancel, and with hubs whose
    partial sums stay near a power of two (`chosen_readers`)."""
    labels = cycle_labels(shape.nodes)
    # A few kinds of features, and their opposites: rows that are computed from them cancel too.
    kinds = 5 * np.random.default_rng(seed).normal(size=(2, 3))
    features = np.concatenate([kinds, -kinds])[np.arange(shape.nodes) % 4]
    features[0] *= 1e3
    if "cancelling" in families:
        yield from _compare(target, shape.pair(np.sort(labels), features, shape.ordinary), shape, "cancelling", seed)
    if "powers of two" not in families:
        return
    matching = shape.matching(labels, features)
    make = target.maker(matching.before, shape)
    plan = make().plan(matching.before)
    for make_ledger in target.ledgers(plan):
        recorder, _ = recorded_fit(make, matching.before, seed, make_ledger, plan)
        for read in _readers_near_powers(recorder, make, matching, shape):
            pair = shape.pair(labels, features, shape.ordinary[read])
            before, after = (replayed_fit(make, graph, recorder, pair.own).given for graph in (pair.before, pair.after))
            yield from _moved(recorder, before, after, pair, "powers of two")


def _readers_near_powers(
    recorder: Recorder, make: MakeModel, matching: AdjacentGraphs, shape: Shape
) -> Iterator[np.ndarray]:
    """For each release of a table, the ordinary nodes that a hub should read; and a fixed part of all of them.

    In a matching each node reads one other, so the released table shows the rows that are multiplied, one by one.
    """
    changed = replayed_fit(make, matching.after, recorder, matching.own)
    partner = np.minimum(np.arange(shape.nodes) ^ 1, shape.nodes - 1)
    tried: set[bytes] = set()
    for entry, after in zip(recorder.entries, changed.given, strict=True):
        if not isinstance(recorder.plan[entry.name], GaussianRelease) or len(entry.given) != shape.nodes:
            continue
        rows, rows_after = (given.double().numpy()[partner] for given in (entry.given, after))
        start = rows[0] if shape.keeps_readers else np.zeros_like(rows[0])
        other = rows_after[0] if shape.keeps_readers else rows[0]
        for read in (chosen_readers(rows[shape.ordinary], start, other), np.arange(shape.nodes * 22_051 // NODES)):
            if read.tobytes() not in tried:
                tried.add(read.tobytes())
                yield read


def _shared_readers(target: Target, seed: int, scale: float) -> Iterator[Movement]:
    readers = max(200, int(scale * _MANY))
    facts = PublicFacts(readers, readers, 3, CLASSES, directed=True)
    plan = target.cls(level=target.level, epsilon=target.epsilon, **target.options).plan_for(facts)
    mechanism = next(m for m in plan.all_mechanisms if isinstance(m, GaussianRelease) and m.tau is not None)
    canary, _ = canary_of(plan, mechanism, held_at)
    shape = target.shape(True, canary.size + readers)
    for pair in shared_readers(canary, target.level, readers):
        yield from _compare(target, pair, shape, "shared readers", seed)


def _compare(target: Target, pair: AdjacentGraphs, shape: Shape, family: str, seed: int) -> Iterator[Movement]:
    """Movements between a recorded fit on one graph and a replayed one on the other, for each branch of the plan."""
    make = target.maker(pair.before, shape)
    plan = make().plan(pair.before)
    for make_ledger in target.ledgers(plan):
        try:
            recorder, _ = recorded_fit(make, pair.before, seed, make_ledger, plan)
            replayed = replayed_fit(make, pair.after, recorder, pair.own)
        except InvalidInput as error:
            if error.field != "value":  # a ledger refuses to release a value
                raise
            yield Movement("the fit", family, 0.0, math.inf, pair.before.num_nodes, int(pair.before.to_scipy().nnz))
            continue
        yield from _moved(recorder, [entry.given for entry in recorder.entries], replayed.given, pair, family)


def _moved(
    recorder: Recorder, before: Sequence[torch.Tensor], after: Sequence[torch.Tensor], pair: AdjacentGraphs, family: str
) -> Iterator[Movement]:
    """How far the two runs are apart in every draw, in the rows that an adversary may see, beside the plan's claim."""
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


def _flipped_bits(target: Target, seed: int) -> list[Movement]:
    """Randomised edges with the same flips on both graphs: the answers differ in the bits that the change flips."""
    shape = target.shape(target.directions()[0], 500)
    pair = shape.pair(cycle_labels(shape.nodes), np.ones((shape.nodes, 1)), shape.ordinary)
    plan = target.maker(pair.before, shape)().plan(pair.before)
    (mechanism,) = plan.with_role("edges")
    paired = shape.level == Edge("undirected")
    answers = []
    for graph in (pair.before, pair.after):
        ledger = target.make_ledger(plan, NoiseSource(seed))
        answers.append(randomized_edges(graph.reads(target.cls.direction), ledger, mechanism.name, paired=paired))
    moved = abs(answers[0] - answers[1]).sum() / (2 if paired else 1)
    entries = int(pair.before.to_scipy().nnz)
    return [Movement(mechanism.name, "one bit", mechanism.sensitivity.worst, float(moved), shape.nodes, entries)]


def _without_feature_neighbors(cls: type[NodeClassifier]) -> type[NodeClassifier]:
    """The same method without votes of feature neighbours, which compare all nodes with all others and take most of the
    time. They are used where they are public, and change no sum of a training node's row."""
    if not issubclass(cls, DPDGC):
        return cls

    def unchanged(self: DPDGC, data: Any, committee: Committee, opinions: torch.Tensor) -> tuple[Any, torch.Tensor]:
        del self, data
        return committee, opinions

    without: type[NodeClassifier] = type(cls.__name__, (cls,), {"_join_feature_neighbors": unchanged})
    return without
