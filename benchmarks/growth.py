"""(c) Growth at fixed degree: time of a step, time and peak memory of a fit, at n, 2n, 4n, 8n."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from statistics import mean, median

import graphveil as gv
from benchmarks.fresh_process import Wait, take_turns
from benchmarks.graphs import regular_graph
from benchmarks.memory import MIB, resident
from benchmarks.result import Result, Section
from benchmarks.step_watch import Event, StepTimes, watched_by

_DEGREE, _FEATURES, _HIDDEN = 20, 16, 64
# A fifth of what a fit takes by default: far fewer would measure how a process gets its memory, not how a fit grows.
_STEPS = 20
_MOST = 2.2
_LIMIT_GIB = 12.0


@dataclass(frozen=True)
class Measured:
    """Seconds and bytes at one size; the memory of a process before it has a graph is taken off."""

    nodes: int
    embedding_step: float
    head_step: float
    fit: float
    memory: int
    whole_process: int


def run(quick: bool) -> Section:
    top = 125_000 if quick else 1_000_000
    sizes = [top // part for part in (8, 4, 2, 1)]
    rounds = 3
    measured = [take_turns(measure, [(nodes, top // nodes) for nodes in sizes]) for _ in range(rounds)]
    by_size = [_together(same_size) for same_size in zip(*measured, strict=True)]
    section = Section(
        "(c) Growth per doubling",
        [result for small, large in pairwise(by_size) for result in _compare(small, large)],
        [
            f"A random graph in which every node has {_DEGREE} neighbours, {_FEATURES} features, hidden size "
            f"{_HIDDEN}, `DPDGC` at KNeighbor(1), epsilon 16, {_STEPS} + {_STEPS} full-batch steps. In these rows "
            "`ours` is the larger size, `peer` the smaller, and the ratio the growth.",
            f"{rounds} times, with a process for each size. The machine's speed changes from minute to minute, so the "
            "sizes take turns of a step of the largest, two of the next, and so on; smaller ones have as many more "
            "fits. Times are means, without the waiting.",
            "A step is the median of its fit's complete ones. The fit is all that `fit` does: calibration, preparation "
            "of the graph, all steps, the release, the predictions. Memory is the highest resident set, less what the "
            "process held before it made the graph; the graph itself and its making are counted.",
            "The time of a sparse product for each node depends on whether the rows of W that it reads lie in the "
            "processor's cache: a step's growth is above 2 where W outgrows it and 2 before and after.",
        ],
    )
    largest = by_size[-1]
    name = f"DPDGC fit, {largest.nodes:,} nodes, {_DEGREE * largest.nodes:,} stored edges: whole process, limit 12 GiB"
    section.results.append(Result(name, largest.whole_process / 2**30, _LIMIT_GIB, "GiB", target=1.0))
    section.notes.extend(
        f"{m.nodes:,} nodes: embedding step {m.embedding_step:.3f} s, head step {m.head_step:.3f} s, "
        f"fit {m.fit:.2f} s, memory {m.memory / MIB:,.0f} MiB."
        for m in by_size
    )
    return section


def _together(measured: Sequence[Measured]) -> Measured:
    """The mean of each time, and the most memory."""
    return Measured(
        nodes=measured[0].nodes,
        embedding_step=mean(m.embedding_step for m in measured),
        head_step=mean(m.head_step for m in measured),
        fit=mean(m.fit for m in measured),
        memory=max(m.memory for m in measured),
        whole_process=max(m.whole_process for m in measured),
    )


def _compare(small: Measured, large: Measured) -> list[Result]:
    label = f"growth, {small.nodes:,} to {large.nodes:,} nodes"
    return [
        Result(f"{label}: embedding step", large.embedding_step, small.embedding_step, "s", "growth"),
        Result(f"{label}: head step", large.head_step, small.head_step, "s", "growth"),
        Result(f"{label}: fit", large.fit, small.fit, "s", "growth", _MOST),
        Result(f"{label}: peak memory", large.memory / MIB, small.memory / MIB, "MiB", "growth", _MOST),
    ]


def measure(wait: Wait, nodes: int, times: int) -> Measured:
    """As many fits of one size, a turn of as many steps at a time, in a process that has done nothing else."""
    _model().fit(regular_graph(2_000, _DEGREE, _FEATURES))  # loads what is loaded once
    before = resident()
    graph = regular_graph(nodes, _DEGREE, _FEATURES)
    steps = count(1)

    def rest() -> None:
        if next(steps) % times == 0:
            wait()

    return _together([_fit(graph, rest, before) for _ in range(times)])


def _fit(graph: gv.Graph, rest: Callable[[], None], before: int) -> Measured:
    rested = 0.0

    def off_the_clock() -> None:
        nonlocal rested
        start = time.perf_counter()
        rest()
        rested += time.perf_counter() - start

    embedding, head = StepTimes("embedding", off_the_clock), StepTimes("head", off_the_clock)

    def both(training: str, event: Event) -> None:
        embedding(training, event)
        head(training, event)

    start = time.perf_counter()
    _model().execute(graph, make_ledger=watched_by(both))
    fit = time.perf_counter() - start - rested
    highest = resident("VmHWM")
    return Measured(graph.num_nodes, median(embedding.whole), median(head.whole), fit, highest - before, highest)


def _model() -> gv.DPDGC:
    return gv.DPDGC(
        level=gv.KNeighbor(1), epsilon=16.0, table="trained", steps=_STEPS, hidden=_HIDDEN, show_progress=False
    )
