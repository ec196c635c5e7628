"""How far an experiment is: a bar with the time left on a terminal, one line for each finished run in a pipe."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from graphveil.experiments.spec import Run


class Estimate:
    """The time left, from how long runs of the same kind took, earlier calls included."""

    def __init__(self, waiting: Sequence[Run], jobs: int, known: Sequence[Mapping[str, Any]]) -> None:
        self._waiting = {run.key: run for run in waiting}
        self._jobs = jobs
        self._taken: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for record in known:
            self._learn(record)

    def finished(self, record: Mapping[str, Any]) -> None:
        self._waiting.pop(record["key"], None)
        self._learn(record)

    def seconds_left(self) -> float | None:
        """None as long as nothing is known."""
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
    """From the closest kind of run to all of them."""
    return (graph, method), (graph,), ()


class Display:
    """Shows an experiment while it runs, on stderr."""

    def __init__(self, total: int, done: int, estimate: Estimate) -> None:
        self._done, self._total, self._failed = done, total, 0
        self._estimate = estimate
        console = Console(stderr=True)
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
            last = TextColumn("{task.description}", style="dim")
            self._bar = Progress(*columns, TimeElapsedColumn(), last, console=console, transient=True)
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


def duration(seconds: float) -> str:
    """A rounded time for people.

    >>> duration(42.3), duration(150), duration(7300)
    ('42 s', '3 min', '2 h 2 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = -(-int(seconds) // 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _result(record: Mapping[str, Any]) -> str:
    if record["status"] == "failed":
        return f"failed, {record['error']['kind']}: {record['error']['message']}"
    accuracy = record["test_accuracy"]
    found = "no test nodes" if accuracy is None else f"{100 * accuracy:.2f} %"
    return f"{found} in {record['seconds']:.1f} s"
