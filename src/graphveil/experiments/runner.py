"""Work through a spec, keep every finished run, and never do one twice."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.experiments.display import Display, Estimate
from graphveil.experiments.execution import cores
from graphveil.experiments.pool import MOST_AT_ONCE, outcomes, threads_for
from graphveil.experiments.spec import Run, Spec
from graphveil.provenance import code_digest
from graphveil.storage.journal import Journal

RUNS, CALLS = "runs.jsonl", "calls.jsonl"


@dataclass(frozen=True)
class Progress:
    """Where an experiment stands: all of its runs, those that are done, those that failed, those of this call."""

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
    """Run what `out` does not hold yet.

    `out/runs.jsonl` gets one line for each finished run, `out/calls.jsonl` one for this call. A folder may hold several
    experiments; runs that they share are made once. Results are a function of the run alone, on one machine with one
    number of `threads` (by default the cores divided by `jobs`, which is by default the number of cores).
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
    found = [status[run.key] for run in runs]
    return Progress(len(runs), found.count("done"), found.count("failed"), len(waiting))


def _is_settled(status: str | None, retry_failed: bool) -> bool:
    return status == "done" or (status == "failed" and not retry_failed)


def _warn_of_other_code(records: Sequence[Mapping[str, Any]], kept: Set[str]) -> None:
    """Finished work is never repeated, not even by newer code: say so, because the two may differ."""
    code = {record["key"]: record.get("code") for record in records}
    others = sum(code[key] != code_digest() for key in kept)
    if others:
        print(f"note: {others} finished runs were made by other code; another --out makes them anew", file=sys.stderr)


def _note_call(spec: Spec, runs: Sequence[Run], out: Path, command: str, jobs: int, threads: int) -> None:
    """What was asked for: a summary shows these runs, in this order, and this command."""
    with Journal(out / CALLS) as calls:
        calls.append(
            {
                "spec": spec.name,
                "title": spec.title,
                "axis": spec.axis,
                "command": command,
                "jobs": jobs,
                "threads": threads,
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "keys": [run.key for run in runs],
            }
        )
