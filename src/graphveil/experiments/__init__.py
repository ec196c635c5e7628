"""Experiments: the paper's table and figures as data, a runner that can be stopped and resumed, and results as text.

>>> from graphveil.experiments import SPECS
>>> len(SPECS["table2"].narrowed(levels=["N_1"], methods=["gap", "mlp"], seeds=2).runs())
28
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich import box, progress
from rich.console import Console
from rich.table import Column
from rich.table import Table as RichTable

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.experiments.execution import MOST_AT_ONCE, cores, outcomes, threads_for
from graphveil.experiments.paper import SPECS, builtin_spec
from graphveil.experiments.results import CALLS, RUNS, Cell, Results, Row, Table, make_tables, read_results
from graphveil.experiments.spec import GraphRef, Run, Setting, Spec
from graphveil.experiments.spec_file import read_spec
from graphveil.process import code_digest
from graphveil.storage import Journal, replace_file, unwritable

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
        with (
            Display(len(runs), len(runs) - len(waiting)) as display,
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


class Display:
    """Shows progress on stderr: a bar with the time left on a terminal, a line for each finished run in a pipe."""

    def __init__(self, total: int, done: int) -> None:
        self._done, self._total, self._failed = done, total, 0
        console = Console(stderr=True)
        self._bar: progress.Progress | None = None
        if console.is_terminal:
            self._bar = progress.Progress(
                progress.SpinnerColumn(),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeElapsedColumn(),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.fields[failed]} failed"),
                progress.TextColumn("{task.description}", style="dim", table_column=Column(ratio=1, no_wrap=True)),
                console=console,
                transient=True,
                expand=True,
                speed_estimate_period=86_400.0,  # a day: runs may be long
            )
            self._task = self._bar.add_task("", total=total, completed=done, failed=0)

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
        line = f"{run}: {_result(record)}"
        if self._bar is None:
            print(f"[{self._done}/{self._total}] {line}", file=sys.stderr, flush=True)
            return
        if record["status"] == "failed":
            self._bar.console.print(line, style="red", highlight=False, markup=False)
        self._bar.update(self._task, completed=self._done, description=line, failed=self._failed)


def _result(record: Mapping[str, Any]) -> str:
    if record["status"] == "failed":
        return f"failed, {record['error']['kind']}: {record['error']['message']}"
    accuracy = record["test_accuracy"]
    score = "no test nodes" if accuracy is None else f"{100 * accuracy:.2f} %"
    return f"{score} in {record['seconds']:.1f} s"


_NOTES = (
    "Mean {score} on test nodes in percent ± half the 95 % interval over seeds (splits), by the bootstrap, and up to 4 "
    "seeds by Student's t, because few seeds say little; with their number. Bold: the best of its level; underlined: "
    "within the best one's interval; small: the paper's own figure.",
    "Edge: unless a unit is named, one connection on undirected graphs (both stored entries) and one link on directed "
    "graphs. The paper's edge rows count one stored entry on every graph.",
    'delta, unless given as a number: "paper" is 10 to the minus number of digits of the training nodes, at edge level '
    'of the stored edges; "auto" is the largest power of ten up to 0.1 / nodes, at edge level up to 0.1 / (n (n - 1)).',
)
# Half of all percentages: an interval as wide as this says nothing.
_ANYTHING = 50


def summary(folder: str | Path) -> str:
    """Write the tables of all experiments of a folder to its `table.md`.

    Args:
        folder: A folder that `graphveil bench` wrote.

    Returns:
        The text of the file.

    Raises:
        InvalidInput: If the folder holds no results, or cannot be written to.
    """
    text = "\n\n".join(markdown_table(results) for results in read_results(folder)) + "\n"
    try:
        replace_file(Path(folder) / "table.md", text.encode())
    except OSError as error:
        raise unwritable(Path(folder) / "table.md", error, "out") from None
    return text


def as_text(results: Results) -> str:
    """One experiment for a terminal; the paper's figures stand in brackets below ours."""
    console = Console(file=StringIO(), width=200, highlight=False)
    console.print(results.title, markup=False)
    for table in results.tables:
        console.print(_rich(table))
    for line in run_counts(results):
        console.print(line, markup=False, soft_wrap=True)
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def markdown_table(results: Results) -> str:
    """One experiment as Markdown: tables, how to read them, and how to repeat the runs."""
    parts = [f"## {escaped(results.title)}"]
    for table in results.tables:
        if table.title:
            parts.append(f"### {escaped(table.title)}")
        parts.append(_markdown_table(table))
    lines = (*notes(results), *run_counts(results), *settings_text(results.records))
    parts.append("\n".join(f"- {escaped(line)}" for line in lines))
    commands = dict.fromkeys(call["command"] for call in results.calls if call["command"])
    if commands:
        parts.append("\n".join(["Commands:", "", *(f"    {' '.join(command.splitlines())}" for command in commands)]))
    return "\n\n".join(parts)


def notes(results: Results) -> tuple[str, ...]:
    """How to read the tables, and what the majority class alone would reach."""
    said = (_NOTES[0].format(score=results.metric.replace("_", " ")), *_NOTES[1:])
    majority: dict[str, list[float]] = {}
    for record in results.records:
        if record["status"] == "done" and record.get("majority_accuracy") is not None:
            majority.setdefault(record["run"]["graph"]["name"], []).append(100 * record["majority_accuracy"])
    shares = ", ".join(f"{graph} {sum(values) / len(values):.2f}" for graph, values in majority.items())
    return (*said, f"Accuracy of the majority class alone: {shares}.") if majority else said


def _markdown_table(table: Table) -> str:
    heads = [f"{table.heading} = {column}" if table.heading else column for column in table.columns]
    lines = [cell_line(["level", "method", *map(escaped, heads)]), cell_line(["---", "---", *("--:" for _ in heads)])]
    before = None
    for row in table.rows:
        block = "" if row.block == before else row.block
        before = row.block
        names = escaped(block), escaped(row.method)
        lines.append(cell_line([*names, *(_markdown_cell(row.cells.get(c)) for c in table.columns)]))
    return "\n".join(lines)


def _markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = figure_text(cell)
    text = f"**{text}**" if cell.best else f"<u>{text}</u>" if cell.close else text
    small = f"n = {cell.interval.count}"
    if cell.paper is not None:
        small += f"; paper {cell.paper.mean:.2f} ± {cell.paper.half_width:.2f}"
    return f"{text} <sub>{small}</sub>"


def escaped(text: str) -> str:
    """A name on one line, without characters that Markdown would take for HTML."""
    return html.escape(" ".join(text.split()), quote=False)


def _rich(table: Table) -> RichTable:
    made = RichTable(box=box.SIMPLE, title=table.title or None, title_justify="left", pad_edge=False)
    made.add_column("level")
    made.add_column("method")
    for column in table.columns:
        made.add_column(f"{table.heading} = {column}" if table.heading else column, justify="right")
    before = None
    for row in table.rows:
        if before not in (None, row.block):
            made.add_section()
        block = "" if row.block == before else row.block
        before = row.block
        made.add_row(block, row.method, *(_text_cell(row.cells.get(column)) for column in table.columns))
    return made


def _text_cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    mark = "*" if cell.best else "~" if cell.close else " "
    paper = "" if cell.paper is None else f"\n({cell.paper.mean:.2f} ± {cell.paper.half_width:.2f})"
    return f"{figure_text(cell)}{mark}{paper}"


def figure_text(cell: Cell) -> str:
    """The mean, and half the interval if there are several seeds."""
    if cell.interval.count == 1:
        return f"{cell.interval.mean:.2f}"
    half = cell.interval.half_width
    return f"{cell.interval.mean:.2f} ± " + (f"{half:.2f}" if half < _ANYTHING else f"over {_ANYTHING}")


def cell_line(cells: Iterable[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def plain_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of text."""
    lines = [cell_line(map(escaped, heads)), cell_line("---" for _ in heads)]
    return "\n".join([*lines, *(cell_line(map(escaped, row)) for row in rows)])


def run_counts(results: Results) -> list[str]:
    """How many runs are done and how many failed, with their errors."""
    done = len(results.records) - len(results.failed)
    total = len(results.records) + results.missing
    taken = sum(record["total_seconds"] for record in results.records)
    lines = [f"{done} of {total} runs done in {duration(taken)} of computing."]
    kinds: dict[str, int] = {}
    for record in results.failed:
        error = record["error"]
        what = f"{record['run']['method']} on {record['run']['graph']['name']}, {error['kind']}: {error['message']}"
        kinds[what] = kinds.get(what, 0) + 1
    return lines + [f"{count} failed: {what}" for what, count in kinds.items()]


def settings_text(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The seeds, options, threads and versions of runs; if runs differ, all values are listed."""
    runs = [record["run"] for record in records]
    seeds = sorted({run["seed"] for run in runs})
    options = {method: set[str]() for method in dict.fromkeys(run["method"] for run in runs)}
    for run in runs:
        options[run["method"]] |= {f"{name} = {value}" for name, value in run["options"].items()}
    chosen = [f"{method}: {', '.join(sorted(words))}" for method, words in options.items() if words]
    lines = [f"Seeds: {', '.join(map(str, seeds))}."] if seeds else []
    lines.append(f"Options other than the methods' own: {'; '.join(chosen) or 'none'}.")
    threads = sorted({str(record["threads"]) for record in records})
    versions = sorted({_software(record) for record in records if "versions" in record})
    return [*lines, *([f"Threads for each run: {', '.join(threads)}."] if threads else []), *versions]


def _software(record: Mapping[str, Any]) -> str:
    versions = {**record["versions"], "code": record.get("code", "unknown")}
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def duration(seconds: float) -> str:
    """A rounded time for people.

    >>> duration(42.3), duration(150), duration(7300)
    ('42 s', '3 min', '2 h 2 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = -(-int(seconds) // 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
