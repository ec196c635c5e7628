"""(j) Reading tables in CSV: the checked graph, beside pyarrow's reader of the same files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.result import Result, Section
from graphveil.graph import read_graph

_COLUMNS = 10
_DEGREE = 10


def run(quick: bool) -> Section:
    nodes = 100_000 if quick else 1_000_000
    results = []
    with tempfile.TemporaryDirectory(prefix="graphveil-reading-") as scratch:
        for kind in ("numbers", "words"):
            folder = Path(scratch) / kind
            _write(folder, nodes, kind == "words")
            ours, theirs = _side_by_side(partial(read_graph, folder), partial(_tables, folder))
            name = f"{nodes:,} nodes, {nodes * _DEGREE:,} edges in CSV, ids are {kind}: processor time"
            results.append(Result(name, ours, theirs, "s", target=1 / 1.5 if kind == "numbers" else None))
    return Section(
        "(j) Reading tables",
        results,
        [
            f"Ours is `read_graph`: nodes with an id, a label, a set and {_COLUMNS} columns of numbers, and a shuffled "
            "list of edges, to the checked graph: ids are looked up, loops, duplicates and values that are no numbers "
            "refused, and rows of the adjacency sorted, every edge in both directions. The peer is "
            "`pyarrow.csv.read_csv` of the same two files on one thread, to Arrow columns of the types that our reader "
            "takes (integers or text for ids, else what pyarrow finds); it looks nothing up and checks nothing. Both "
            "in one process, in turns; medians of processor time, so that threads save nothing. A ratio of 0.67 is "
            "1.5 times the time.",
        ],
    )


def _side_by_side(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Median processor seconds of both; the first round finds files and memory cold, and does not count."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(6):
        for side, read in enumerate((ours, theirs)):
            start = time.process_time()
            read()
            seconds[side].append(time.process_time() - start)
    return median(seconds[0][1:]), median(seconds[1][1:])


def _tables(folder: Path) -> list[pa.Table]:
    one_thread = pyarrow.csv.ReadOptions(use_threads=False)
    return [pyarrow.csv.read_csv(folder / f"{stem}.csv", read_options=one_thread) for stem in ("nodes", "edges")]


def _write(folder: Path, nodes: int, words: bool) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    ids = rng.permutation(nodes)
    names = np.char.add("n", ids.astype(str)) if words else ids
    table: dict[str, np.ndarray] = {"id": names, "label": rng.integers(5, size=nodes)}
    table["split"] = np.array(["train", "val", "test"])[rng.choice(3, nodes, p=[0.75, 0.1, 0.15])]
    table |= {f"x{j}": rng.normal(size=nodes).round(6) for j in range(_COLUMNS)}
    pyarrow.csv.write_csv(pa.table(table), folder / "nodes.csv")
    ends = np.sort(rng.integers(nodes, size=(nodes * (_DEGREE + 1), 2)), axis=1)
    pairs = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
    pairs = pairs[rng.permutation(len(pairs))[: nodes * _DEGREE]]
    edges = {"source": names[pairs[:, 0]], "target": names[pairs[:, 1]]}
    pyarrow.csv.write_csv(pa.table(edges), folder / "edges.csv")
