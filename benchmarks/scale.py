"""(f) Large graphs on one machine: from Parquet tables to a certificate, with the adjacency in mapped files."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import graphveil as gv
from benchmarks.floor import Floor
from benchmarks.fresh_process import in_fresh_process
from benchmarks.memory import AnonymousPeak, resident
from benchmarks.planted import CLASSES, FEATURES, NEAR, write_ring, write_web
from benchmarks.result import Result, Section

_DEGREE = 40
_LIMIT_GIB = 12.0
_GIB = 2**30
# The paper's table takes a product with all of A in every step; few steps tell what one costs.
_TRAINED_STEPS = 4


@dataclass(frozen=True)
class Reading:
    """Reading alone; `anonymous` is the growth of the memory that is no file's."""

    seconds: float
    anonymous: int


@dataclass(frozen=True)
class Run:
    """From tables to a certificate, in seconds and bytes."""

    read: float
    plan: float
    fit: float
    products: float
    noise: float
    transposing: float
    whole_process: int
    anonymous: int
    epsilon: float
    accuracy: float
    nodes: int
    edges: int
    stored: int

    @property
    def seconds(self) -> float:
        return self.read + self.fit

    @property
    def floor(self) -> float:
        return self.products + self.noise


def run(quick: bool) -> Section:
    nodes = 50_000 if quick else 1_000_000
    section = Section("(f) Large graphs on one machine", [], _notes())
    with tempfile.TemporaryDirectory(prefix="graphveil-scale-") as scratch:
        ring = Path(scratch) / "ring"
        ring.mkdir()
        in_fresh_process(write_ring, ring, nodes, _DEGREE)
        _add(section, "ring", ring)
        if quick:
            section.notes.append("web-Google was left out of the quick run.")
            return section
        web = Path(scratch) / "web"
        web.mkdir()
        if in_fresh_process(write_web, web):
            _add(section, "web-Google", web)
        else:
            section.notes.append("web-Google was left out: its arrays are not at hand.")
    return section


def _add(section: Section, name: str, folder: Path) -> None:
    mapped = in_fresh_process(measure_reading, folder, mmap=True)
    usual = in_fresh_process(measure_reading, folder, mmap=False)
    for table, steps in (("auto", 100), ("trained", _TRAINED_STEPS)):
        run = in_fresh_process(measure, folder, table, steps)
        label = f"{name}, {run.nodes:,} nodes, {run.edges:,} edges"
        if table == "auto":
            bytes_per_edge = mapped.anonymous / run.edges, usual.anonymous / run.edges
            section.results.extend(
                [
                    Result(f"{label}: reading, time (peer: in memory)", mapped.seconds, usual.seconds, "s"),
                    Result(f"{label}: reading, memory (peer: in memory)", *bytes_per_edge, "B per edge"),
                ]
            )
        _add_run(section, f"{label}, table {table}, {steps} + {steps} steps", run)


def _add_run(section: Section, label: str, run: Run) -> None:
    total, floor = (1e6 * seconds / run.edges for seconds in (run.seconds, run.floor))
    section.results.extend(
        [
            Result(f"{label}: fit (peer: its sparse products and noise)", run.fit, run.floor, "s"),
            Result(f"{label}: Parquet to certificate (peer: the same floor)", total, floor, "s per million edges"),
            Result(f"{label}: whole process, limit 12 GiB", run.whole_process / _GIB, _LIMIT_GIB, "GiB", target=1.0),
            Result(f"{label}: memory that is no file's", run.anonymous / _GIB, _LIMIT_GIB, "GiB", target=1.0),
        ]
    )
    section.notes.append(
        f"{label} ({run.stored:,} stored entries): read {run.read:.1f} s, plan {run.plan:.2f} s, fit {run.fit:.1f} s; "
        f"in the fit, products {run.products:.2f} s and noise {run.noise:.2f} s, together {run.floor / run.fit:.1%}, "
        f"and transposing {run.transposing:.2f} s. {run.whole_process / run.edges:.0f} bytes per edge at the peak, "
        f"{run.anonymous / run.edges:.0f} of them no file's. Test accuracy {100 * run.accuracy:.1f} % at epsilon "
        f"{run.epsilon:.2f}."
    )


def _notes() -> list[str]:
    return [
        f"`DPDGC` at KNeighbor(1), epsilon 16, on `read_graph(folder, mmap=...)`; {FEATURES} Gaussian features, "
        f"N(0, 1) around class means of 0.3 N(0, 1), {CLASSES} classes, a random 75/10/15 split. Every measurement "
        "has a process of its own; one round each.",
        f"ring: an undirected graph, every edge listed once and stored twice, everybody with {_DEGREE} neighbours. "
        f"Nodes stand on a ring in random order, and classes are equal arcs of it; {NEAR:.0%} of the distances at "
        "which neighbours are joined are under a tenth of an arc, the others over a whole one (benchmarks/planted.py).",
        "web-Google: the directed links of SNAP's web-Google. Planted labels: they start at random, and three times "
        "everybody takes the most frequent one among itself and those it is linked with.",
        "The floor is what a fit of this kind cannot do without: sums of table rows over edges, and AES noise. The "
        "rest of a fit with the default table is dense arithmetic, the classifier of features and the head clipped row "
        "by row, which grows with nodes and not with edges.",
        "The whole process is the highest resident set, in which pages of mapped files count although the kernel may "
        "drop them; memory that is no file's is looked at every 20 ms. Both contain what a process holds before it "
        "reads anything. For bytes per edge of reading, memory that is no file's counts, and that is taken off.",
    ]


def measure_reading(folder: Path, mmap: bool) -> Reading:
    import graphveil.graph.io.tables  # noqa: F401 (loads Arrow before the clock starts)

    before = resident("RssAnon")
    with tempfile.TemporaryDirectory(dir=folder) as files, AnonymousPeak() as peak:
        start = time.perf_counter()
        gv.read_graph(folder, mmap=files if mmap else None)
        return Reading(time.perf_counter() - start, peak.highest - before)


def measure(folder: Path, table: str, steps: int) -> Run:
    model = gv.DPDGC(level=gv.KNeighbor(1), epsilon=16.0, table=table, steps=steps, show_progress=False)
    floor = Floor()
    with tempfile.TemporaryDirectory(dir=folder) as files, AnonymousPeak() as peak:
        start = time.perf_counter()
        graph = gv.read_graph(folder, mmap=files)
        read = time.perf_counter()
        model.plan(graph)
        planned = time.perf_counter()
        with floor.watching():
            model.fit(graph)
        fitted = time.perf_counter()
    assert graph.counts is not None
    return Run(
        read=read - start,
        plan=planned - read,
        fit=fitted - planned,
        products=floor.seconds["products"],
        noise=floor.seconds["noise"],
        transposing=floor.seconds["transposing"],
        whole_process=resident("VmHWM"),
        anonymous=peak.highest,
        epsilon=model.certificate_.epsilon,
        accuracy=model.score(graph.test_mask),
        nodes=graph.num_nodes,
        edges=graph.counts.edges_listed,
        stored=graph.num_edges,
    )
