"""(a) One step of DP-Emb: clipped gradient of the n x 64 table, noise, Adam, row projection."""

from __future__ import annotations

import time
from itertools import count
from statistics import median

import torch

import graphveil as gv
from benchmarks.dense_peer import HIDDEN, DenseTraining, embedding_training
from benchmarks.fresh_process import in_fresh_process
from benchmarks.graphs import benchmark_graph
from benchmarks.memory import MIB, PeakMemory
from benchmarks.result import Result, Section
from benchmarks.step_watch import Event, StepTimes, watched_by

# Steps of a block; its first one finds the caches full of the other side's data and is left out.
_OURS, _PEERS = 5, 2


def run(quick: bool) -> Section:
    section = Section(
        "(a) One DP-Emb step",
        [],
        [
            "Ours is a step inside a real `DPDGC.fit` at KNeighbor(1), epsilon 16, with Poisson batches: drawing the "
            "batch, sparse products, clipping, AES noise, Adam, row projection. The peer is the same step on Opacus' "
            "`GradSampleModule` and `DPOptimizer` with dense rows that are prepared off the clock, and with torch's "
            "ordinary noise, which is its default. Blocks of steps alternate; times are medians.",
            "Peak memory is the growth of the resident set (kernel high-water mark, freed blocks returned at once) "
            "over the first three steps. The first memory row counts all that training holds (W, Adam's moments, "
            "gradients, temporaries), the second leaves out W and the moments, which are the same on both sides. "
            "The graph is left out on both sides, the sparse and the dense one.",
        ],
    )
    for name, batch, blocks, speed, memory in (
        ("photo", 64, 20 if quick else 60, 25.0, 20.0),
        ("pubmed", 256, 4 if quick else 8, 25.0, 20.0),
    ):
        _measure(section, name, batch, blocks, speed, memory)
    return section


def _measure(section: Section, name: str, batch: int, blocks: int, speed: float, memory: float) -> None:
    graph, title = benchmark_graph(name)
    label = f"DP-Emb step, {title}, batch {batch}"
    ours, peer = step_times(graph, batch, blocks)
    section.results.append(Result(f"{label}: time", 1e3 * median(ours.whole), 1e3 * median(peer), "ms", target=speed))
    section.notes.append(
        f"Our step on {title}: rows, products and clipping {_ms(ours.gradient)}, noise {_ms(ours.noise)}, "
        f"Adam and projection {_ms(ours.update)}."
    )
    mine, theirs = in_fresh_process(step_memory, name, batch)
    state = 3 * 4 * HIDDEN * graph.num_nodes
    for what, less in (("peak memory", 0), ("peak memory beside W and Adam's moments", state)):
        pair = (mine - less) / MIB, (theirs - less) / MIB
        section.results.append(Result(f"{label}: {what}", *pair, "MiB", target=memory))


def step_times(graph: gv.Graph, batch: int, blocks: int) -> tuple[StepTimes, list[float]]:
    """Seconds of steps, in alternating blocks of ours and of the peer's; the first block is a warm-up."""
    dense = embedding_training(graph, batch)
    peer: list[float] = []
    steps = count()

    everyone = torch.get_num_threads()

    def between() -> None:
        if next(steps) % _OURS == 0:
            ours_alone = torch.get_num_threads()
            torch.set_num_threads(everyone)  # our small steps keep to one thread; the peer has all of them
            peer.extend([timed_step(dense) for _ in range(_PEERS)])
            torch.set_num_threads(ours_alone)

    ours = StepTimes("embedding", between)
    _model(batch, _OURS * (blocks + 1) + 1).execute(graph, make_ledger=watched_by(ours))
    for parts in (ours.gradient, ours.noise, ours.update):
        parts[:] = [seconds for i, seconds in enumerate(parts[: _OURS * (blocks + 1)]) if i >= _OURS and i % _OURS]
    return ours, [seconds for i, seconds in enumerate(peer) if i >= _PEERS and i % _PEERS]


def timed_step(training: DenseTraining) -> float:
    batch = training.draw()
    start = time.perf_counter()
    training.step(*batch)
    return time.perf_counter() - start


def step_memory(name: str, batch: int, steps: int = 3) -> tuple[int, int]:
    """Bytes that training takes at its peak, ours and the peer's; the table W exists before the first step."""
    graph, _ = benchmark_graph(name)
    peak = PeakMemory()
    seen: list[int] = []

    def watcher(training: str, event: Event) -> None:
        if training == "embedding" and event == "step begins":
            if seen:
                seen.append(peak.growth())
            else:
                peak.start()
                seen.append(0)

    _model(batch, 2).fit(graph)  # threads and buffers that stay
    _model(batch, steps + 1).execute(graph, make_ledger=watched_by(watcher))
    for _ in range(2):  # the first time for the same reason
        dense = embedding_training(graph, batch)
        peak.start()
        for _ in range(steps):
            dense.step(*dense.draw())
        theirs = peak.growth()
        del dense
    table = 4 * HIDDEN * graph.num_nodes
    return seen[-1] + table, theirs + table


def _model(batch: int, steps: int) -> gv.DPDGC:
    return gv.DPDGC(
        level=gv.KNeighbor(1),
        epsilon=16.0,
        table="trained",
        batch_size=batch,
        steps=steps,
        hidden=HIDDEN,
        show_progress=False,
    )


def _ms(seconds: list[float]) -> str:
    return f"{1e3 * median(seconds):.2f} ms"
