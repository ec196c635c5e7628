"""From Parquet tables to a certificate on several processes of one machine, with the default method.

    python -m benchmarks.pipeline --nodes 1000000 --degree 20 --processes 2 --json large.json
    python -m benchmarks.pipeline --nodes 500000 --degree 20 --processes 1,4 --steps 5 --json memory.json

Each command runs as a user would run it, in a process of its own. Seconds are of the clock and of processors; memory is
the highest resident set of one process. With several numbers of processes, the memory of a process at P is compared
with that at 1, both less what a process takes for a tiny graph.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import in_fresh_process
from benchmarks.planted import write_ring

_WORDS = ["--epsilon", "8", "--seed", "0", "--json"]


@dataclass(frozen=True)
class Ran:
    """One command: seconds of the clock, seconds of processors, MiB of its largest process, and what it printed."""

    seconds: float
    processor_seconds: float
    memory_mb: float
    said: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--degree", type=int, default=20)
    parser.add_argument("--processes", default="2", help="one number, or several with commas between")
    parser.add_argument("--memory", default="4GiB", help="of `graphveil shard`")
    parser.add_argument("--steps", type=int, help="of each private training; fewer take as much memory and less time")
    parser.add_argument("--folder", type=Path, help="where to put the graph and the runs; by default a temporary one")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder, prefix="graphveil-pipeline-") as scratch:
        numbers = [int(each) for each in asked.processes.split(",")]
        more = [] if asked.steps is None else ["--steps", str(asked.steps)]
        figures = measure(Path(scratch), asked.nodes, asked.degree, numbers, asked.memory, more)
    text = json.dumps(figures, indent=2)
    print(text)
    if asked.json is not None:
        asked.json.write_text(text + "\n", encoding="utf-8")


def measure(folder: Path, nodes: int, degree: int, numbers: list[int], memory: str, more: list[str]) -> dict[str, Any]:
    """Write a graph, divide it, train on it with each number of processes, and ask the run for a prediction."""
    figures: dict[str, Any] = {"nodes": nodes, "edges": nodes * degree // 2, "memory": memory}
    tables, parts = folder / "tables", folder / "parts"
    tables.mkdir()
    in_fresh_process(write_ring, tables, nodes, degree)
    figures["bytes of tables"] = sum(path.stat().st_size for path in tables.iterdir())
    count = max(4, *numbers)
    words = ["shard", str(tables), str(parts), "--parts", str(count), "--memory", memory, "--json"]
    figures["shard"] = asdict(_ran(None, *words))
    shutil.rmtree(tables)
    for number in numbers:
        run = folder / f"run-{number}"
        trained = _ran(number, "train", str(parts), *_WORDS, *more, "--out", str(run))
        said = {name: trained.said[name] for name in ("seconds", "peak_memory_mb", "test_accuracy", "graph_used")}
        said["learnt"] = trained.said["certificate"]["learnt"]
        figures[f"train on {number}"] = {**asdict(trained), "said": said}
        predicted = _ran(None, "predict", str(run), "--nodes", "3", "--json")
        figures[f"predict after {number}"] = {**asdict(predicted), "said": {}}
        figures["bytes of a run"] = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        shutil.rmtree(run)
    if len(numbers) > 1:
        figures["memory of a process"] = _shares(folder, figures, numbers, more)
    return figures


def _shares(folder: Path, figures: dict[str, Any], numbers: list[int], more: list[str]) -> dict[str, float]:
    """P times the graph-dependent memory of a process at P, over that of one process: 1 is an even division."""
    small = folder / "small"
    small.mkdir()
    in_fresh_process(write_ring, small, 2_000, 10)
    _ran(None, "shard", str(small), str(folder / "small-parts"), "--parts", str(max(4, *numbers)), "--json")
    used = {}
    for number in numbers:
        base = _ran(number, "train", str(folder / "small-parts"), *_WORDS, *more).said["peak_memory_mb"]
        used[number] = figures[f"train on {number}"]["said"]["peak_memory_mb"] - base
    return {f"{number} processes": round(number * used[number] / used[1], 3) for number in numbers}


def _ran(processes: int | None, *words: str) -> Ran:
    """A command of graphveil, alone or as torchrun starts it."""
    launcher = [sys.executable]
    if processes is not None:
        launcher += ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    job = subprocess.Popen([*launcher, "-m", "graphveil", *words], env=env, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    printed = job.stdout.read()
    _, status, used = os.wait4(job.pid, 0)
    job.returncode = os.waitstatus_to_exitcode(status)
    if job.returncode:
        raise RuntimeError(f"graphveil {' '.join(words)} ended with {job.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(round(time.perf_counter() - start, 1), round(seconds, 1), used.ru_maxrss // 1024, json.loads(printed))


if __name__ == "__main__":
    main()
