"""(g) Several processes: memory of each and the same predictions, and the constants that docs/scale.md counts with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from benchmarks.fresh_process import in_fresh_process
from benchmarks.graphs import regular_graph
from benchmarks.result import Result, Section
from graphveil.distributed.group import Group
from graphveil.distributed.inputs import ROWS_AT_ONCE, Batch, ShardedLinear
from graphveil.distributed.parts import write_parts
from graphveil.distributed.shard import Layout
from graphveil.execution.draws import rounding_of
from graphveil.execution.sparse_rows import CsrRows
from graphveil.graph import write_graph
from graphveil.noise import NoiseSource

_DEGREE, _FEATURES, _HIDDEN = 8, 4, 64
_WORDS = ["--method", "dpdgc", "--table", "trained", "--steps", "3", "--seed", "0", "--epsilon", "16", "--json"]


def run(quick: bool) -> Section:
    nodes = 1_000_000 if quick else 2_000_000
    with tempfile.TemporaryDirectory() as folder:
        parts, plain = Path(folder) / "parts", Path(folder) / "plain.npz"
        in_fresh_process(_write, nodes, parts, plain)
        one = _train(None, plain, Path(folder) / "one")
        two = _train(2, parts, Path(folder) / "two")
    same = float((one["predictions"] == two["predictions"]).mean())
    name = f"DPDGC, trained W, {nodes:,} nodes of degree {_DEGREE}, 2 processes against 1"
    measured = in_fresh_process(constants, 500_000 if quick else 4_000_000)
    rates = _module(2, "benchmarks.exchange")
    return Section(
        "(g) Several processes",
        [
            Result(f"{name}: peak memory a process", two["memory"], one["memory"], "MB", target=1 / 0.6),
            Result(f"{name}: same predictions", same, 1.0, "of the nodes", "rate", 0.999),
        ],
        [
            "`graphveil train` on a file, and `torchrun --nproc-per-node 2 -m graphveil train` on the same graph "
            f"in parts: {_FEATURES} features, hidden size {_HIDDEN}, 3 + 3 full-batch steps. Memory is the highest "
            "resident set of a whole process, of the larger one of two; its imports (about 340 MB) count in both.",
            *(f"{what}: {value:.3g} {unit}." for what, (value, unit) in measured.items()),
            *(f"exchange, {what}: {rate / 1e9:.2f} GB/s, each way, of a process." for what, rate in rates.items()),
        ],
    )


def _write(nodes: int, parts: Path, plain: Path) -> None:
    graph = regular_graph(nodes, _DEGREE, _FEATURES)
    write_parts(graph, parts, 2)
    write_graph(graph, plain)


def _train(processes: int | None, graph: Path, out: Path) -> dict[str, Any]:
    done = _module(processes, "graphveil", "train", str(graph), *_WORDS, "--out", str(out))
    rows = np.loadtxt(out / "predictions.csv", delimiter=",", skiprows=1, dtype=np.float32)
    return {"memory": done["peak_memory_mb"], "predictions": rows[:, 2:].argmax(1)}


def _module(processes: int | None, *words: str) -> dict[str, float]:
    """What a module prints as JSON, alone or as torchrun starts it."""
    launcher = [sys.executable]
    if processes is not None:
        launcher += ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [*launcher, "-m", *words]
    rates: dict[str, float] = json.loads(
        subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    )
    return rates


def constants(nodes: int) -> dict[str, tuple[float, str]]:
    """Times of one thread, of a table that no cache holds, and with so few edges in an exchange that hardly any two of
    them read the same row: so it is where there are many processes."""
    torch.set_num_threads(1)
    degree, rng = 6, np.random.default_rng(0)
    W = torch.randn(nodes, _HIDDEN)
    noisy = torch.zeros(W.numel(), dtype=torch.float64)
    columns = rng.integers(nodes, size=(ROWS_AT_ONCE, degree)).astype(np.int32)
    starts = np.arange(0, ROWS_AT_ONCE * degree + 1, degree)
    ones = np.ones(columns.size, np.float32)
    rows = CsrRows(sp.csr_array((ones, columns.reshape(-1), starts), shape=(ROWS_AT_ONCE, nodes)))
    batch = Batch(rows, [ROWS_AT_ONCE], torch.zeros(ROWS_AT_ONCE), Group(0, 1))
    value, gradient = torch.randn(ROWS_AT_ONCE, _HIDDEN), torch.zeros_like(W, dtype=torch.float64)
    weight = torch.nn.Parameter(W.clone())
    optimizer = torch.optim.Adam([weight], fused=True)
    weight.grad = torch.randn_like(W)
    source = NoiseSource(0)
    layout = Layout.even(nodes, 10)

    def hold_norms() -> None:
        W.mul_(1 / W.norm(dim=1, keepdim=True).clamp_min_(1e-12))

    edges, entries = columns.size, W.numel()
    return {
        "A W": (_best(lambda: batch.times(W)) / edges * 1e9, f"ns an edge, {_HIDDEN} columns"),
        "A^T D": (_best(lambda: batch.add_transposed(value, gradient)) / edges * 1e9, f"ns an edge, {_HIDDEN} columns"),
        "noise": (_best(lambda: source.add_normals(noisy, rounding_of(1.0))) / entries * 1e9, "ns a normal, added"),
        "Adam": (_best(optimizer.step) / entries * 1e9, "ns a weight"),
        "row norms": (_best(hold_norms) / entries * 1e9, "ns a weight"),
        "initial weights": (
            _best(lambda: ShardedLinear(layout, 0, _HIDDEN), 1) / entries * 1e9,
            "ns a weight of all processes, once",
        ),
    }


def _best(work: Callable[[], object], times: int = 4) -> float:
    """Of a few times; the first one lays things out."""
    seconds = []
    for _ in range(times + 1):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
