"""Experiments: the paper's table and figures as data, a runner that can be stopped and resumed, and a summary.

>>> from graphveil.experiments import SPECS
>>> len(SPECS["table2"].narrowed(levels=["N_1"], methods=["gap", "mlp"], seeds=2).runs())
28
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich import progress
from rich.console import Console

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.experiments.execution import MOST_AT_ONCE, cores, outcomes, threads_for
from graphveil.experiments.paper import SPECS, builtin_spec
from graphveil.experiments.results import CALLS, RUNS, Cell, Results, Row, Table, make_tables, read_results
from graphveil.experiments.spec import GraphRef, Run, Setting, Spec
from graphveil.experiments.spec_file import read_spec
from graphveil.experiments.summary import duration, summary
from graphveil.process import code_digest
from graphveil.storage.files import Journal

__all__ = [
    "SPECS",
    "Cell",
    "GraphRef",
    "Progress",
    "Results",
    "Row",
    "Run",
    "Setting",
    "Spec",
    "Table",
    "builtin_spec",
    "make_tables",
    "read_results",
    "read_spec",
    "run_spec",
    "summary",
]


@dataclass(frozen=True)
class Progress:
    """How far an experiment is.

    Args:
        runs: How many runs it has.
        done: How many of them are done.
        failed: How many of them failed.
        new: How many of them were made by this call.
    """

    runs: int
    done: int
    failed: int
    new: int


def run_spec(
    spec: Spec,
    out: str | Path,
    *,
    root: str | Path | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    backend: str = "loky",
    retry_failed: bool = False,
    command: str = "",
) -> Progress:
    """Run an experiment, except for runs that are finished already.

    OUT/runs.jsonl gets one line for each finished run, OUT/calls.jsonl one for this call. A folder may hold several
    experiments; runs that they share are made once. On one machine with one number of threads a result depends on
    its run alone.

    Args:
        spec: The experiment.
        out: The folder of the results.
        root: The folder of raw datasets.
        jobs: How many runs at a time; by default as many as there are cores.
        threads: Threads of each run; by default the number of cores divided by `jobs`.
        backend: "loky" for this machine, "ray" for a cluster.
        retry_failed: Whether runs that failed are tried again.
        command: The command line, for the record.

    Returns:
        How many runs there are, and how they ended.

    Raises:
        InvalidInput: If the experiment has no runs, or an argument is out of range.
    """
    runs = spec.runs()
    if not runs:
        raise InvalidInput("experiment", spec.name, "has no runs left: no graph is at hand, or too much was left out")
    jobs = cores() if jobs is None else validate.count("jobs", jobs, most=MOST_AT_ONCE)
    threads = threads_for(jobs, threads)
    place = None if root is None else str(root)
    with Journal(Path(out) / RUNS) as journal:
        if journal.dropped:
            print(f"{RUNS}: dropped a last line that was cut off when it was written", file=sys.stderr)
        status = {record["key"]: record["status"] for record in journal.records}
        waiting = [run for run in runs if not _is_settled(status.get(run.key), retry_failed)]
        _warn_of_other_code(journal.records, {run.key for run in runs} - {run.key for run in waiting})
        _note_call(spec, runs, Path(out), command, jobs, threads)
        by_key = {run.key: run for run in waiting}
        estimate = Estimate(waiting, jobs, journal.records)
        with (
            Display(len(runs), len(runs) - len(waiting), estimate) as display,
            closing(outcomes(waiting, place, jobs=jobs, threads=threads, backend=backend)) as records,
        ):
            for record in records:
                journal.append(record)
                status[record["key"]] = record["status"]
                display.finished(by_key[record["key"]], record)
    states = [status[run.key] for run in runs]
    return Progress(len(runs), states.count("done"), states.count("failed"), len(waiting))


def _is_settled(status: str | None, retry_failed: bool) -> bool:
    return status == "done" or (status == "failed" and not retry_failed)


def _warn_of_other_code(records: Sequence[Mapping[str, Any]], kept: Set[str]) -> None:
    """Runs that older code finished are not repeated: say so, because newer code may give other results."""
    code = {record["key"]: record.get("code") for record in records}
    others = sum(code[key] != code_digest() for key in kept)
    if others:
        print(f"note: {others} finished runs were made by other code; another --out makes them anew", file=sys.stderr)


def _note_call(spec: Spec, runs: Sequence[Run], out: Path, command: str, jobs: int, threads: int) -> None:
    """Record the call: a summary shows its runs in this order, and its command."""
    with Journal(out / CALLS) as calls:
        calls.append(
            {
                "spec": spec.name,
                "title": spec.title,
                "axis": spec.axis,
                "metric": spec.metric,
                "command": command,
                "jobs": jobs,
                "threads": threads,
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "keys": [run.key for run in runs],
            }
        )


class Estimate:
    """Estimates the time left from how long similar runs took, those of earlier calls included."""

    def __init__(self, waiting: Sequence[Run], jobs: int, known: Sequence[Mapping[str, Any]]) -> None:
        self._waiting = {run.key: run for run in waiting}
        self._jobs = jobs
        self._taken: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for record in known:
            self._learn(record)

    def finished(self, record: Mapping[str, Any]) -> None:
        """Take note of a run that is finished."""
        self._waiting.pop(record["key"], None)
        self._learn(record)

    def seconds_left(self) -> float | None:
        """The time left; None as long as no run is finished."""
        if not self._taken[()]:
            return None
        return sum(self._expected(run.graph.name, run.method) for run in self._waiting.values()) / self._jobs

    def _learn(self, record: Mapping[str, Any]) -> None:
        if record["status"] == "done":
            graph, method = record["run"]["graph"]["name"], record["run"]["method"]
            for kind in _kinds(graph, method):
                self._taken[kind].append(record["total_seconds"])

    def _expected(self, graph: str, method: str) -> float:
        taken = next(self._taken[kind] for kind in _kinds(graph, method) if self._taken[kind])
        return sum(taken) / len(taken)


def _kinds(graph: str, method: str) -> tuple[tuple[str, ...], ...]:
    """From the most similar runs to all runs."""
    return (graph, method), (graph,), ()


class Display:
    """Shows progress on stderr: a bar with the time left on a terminal, a line for each finished run in a pipe."""

    def __init__(self, total: int, done: int, estimate: Estimate) -> None:
        self._done, self._total, self._failed = done, total, 0
        self._estimate = estimate
        console = Console(stderr=True)
        self._bar: progress.Progress | None = None
        if console.is_terminal:
            self._bar = progress.Progress(
                progress.SpinnerColumn(),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[left]}"),
                progress.TimeElapsedColumn(),
                progress.TextColumn("{task.description}", style="dim"),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=total, completed=done, left=self._left())

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def finished(self, run: Run, record: Mapping[str, Any]) -> None:
        self._done += 1
        self._failed += record["status"] == "failed"
        self._estimate.finished(record)
        line = f"{run}: {_result(record)}"
        if self._bar is None:
            print(f"[{self._done}/{self._total}] {line}", file=sys.stderr, flush=True)
            return
        if record["status"] == "failed":
            self._bar.console.print(line, style="red", highlight=False, markup=False)
        self._bar.update(self._task, completed=self._done, description=line, left=self._left())

    def _left(self) -> str:
        seconds = self._estimate.seconds_left()
        left = "" if seconds is None else f"about {duration(seconds)} left"
        return f"{left}, {self._failed} failed" if self._failed else left


def _result(record: Mapping[str, Any]) -> str:
    if record["status"] == "failed":
        return f"failed, {record['error']['kind']}: {record['error']['message']}"
    accuracy = record["test_accuracy"]
    score = "no test nodes" if accuracy is None else f"{100 * accuracy:.2f} %"
    return f"{score} in {record['seconds']:.1f} s"
