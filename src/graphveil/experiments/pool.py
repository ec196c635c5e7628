"""Runs in this process or in several, with as many threads in total as there are cores."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import cache
from importlib import import_module
from typing import Any

import torch
from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.experiments.execution import cores, execute, failure
from graphveil.experiments.spec import Run

BACKENDS = ("loky", "ray")
# Jobs, or threads of one: more than any machine has cores.
MOST_AT_ONCE = 4096
Records = Generator[dict[str, Any], None, None]


def outcomes(runs: Sequence[Run], root: str | None, *, jobs: int, threads: int, backend: str = "loky") -> Records:
    """The record of every run, in the order in which they finish.

    With "loky", one job stays in this process and more go to processes of their own; a process that dies (for lack of
    memory, say) costs only the run that killed it. With "ray" they go to the cluster that RAY_ADDRESS names, or to a
    local one; files and datasets must be found under the same paths there.
    """
    if backend not in BACKENDS:
        raise InvalidInput("backend", backend, f"must be one of {', '.join(BACKENDS)}")
    if backend == "ray":
        return _on_cluster(runs, root, jobs, threads)
    return _here(runs, root, threads) if jobs == 1 else _in_processes(runs, root, jobs, threads)


def threads_for(jobs: int, threads: int | None) -> int:
    """Threads of each job: the given number, or an equal part of the cores."""
    if threads is not None:
        return validate.count("threads", threads, most=MOST_AT_ONCE)
    return max(1, cores() // validate.count("jobs", jobs, most=MOST_AT_ONCE))


def _here(runs: Sequence[Run], root: str | None, threads: int) -> Records:
    before = torch.get_num_threads()
    try:
        for run in runs:
            yield execute(run, root, threads)
    finally:
        torch.set_num_threads(before)


def _in_processes(runs: Sequence[Run], root: str | None, jobs: int, threads: int) -> Records:
    waiting = {run.key: run for run in runs}
    while waiting:
        started: dict[str, Run] = {}
        try:
            for record in _parallel(list(waiting.values()), started, root, jobs, threads):
                del waiting[record["key"]], started[record["key"]]
                yield record
        except BrokenProcessPool:
            # One of the runs in flight took its process down, and nobody says which: each of them is tried alone.
            for key, run in list(started.items()):
                yield _alone(run, root, threads)
                del waiting[key]


def _parallel(runs: Sequence[Run], started: dict[str, Run], root: str | None, jobs: int, threads: int) -> Records:
    def calls() -> Iterator[Any]:
        for run in runs:
            started[run.key] = run
            yield delayed(_in_worker)(run, root, threads)

    with parallel_config(backend="loky", inner_max_num_threads=threads):
        # No run is handed out before a process is free for it: what is in flight is all that a kill can lose.
        parallel = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch=jobs, return_as="generator_unordered")
    with warnings.catch_warnings():
        # A worker that has grown is replaced by a fresh one, which is no news to the user.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        with closing(parallel(calls())) as records:
            yield from records


def _alone(run: Run, root: str | None, threads: int) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        # With one job joblib would stay in this process, which is what must not happen here.
        return next(_parallel([run], {}, root, 2, threads))
    except BrokenProcessPool:
        why = "the process of this run was ended from outside, most often for lack of memory"
        return _lost(run, threads, start, failure("ProcessDied", why))


def _on_cluster(runs: Sequence[Run], root: str | None, jobs: int, threads: int) -> Records:
    """As many runs at a time as there are jobs: joblib's Ray backend hands back whole batches only."""
    try:
        import_module("ray.util.joblib").register_ray()
    except ImportError:
        raise InvalidInput("backend", "ray", "needs the package ray") from None
    with parallel_config(backend="ray"), Parallel(n_jobs=jobs, batch_size=1) as parallel:
        for batch in (runs[first : first + jobs] for first in range(0, len(runs), jobs)):
            start = time.perf_counter()
            try:
                yield from parallel(delayed(_in_worker)(run, root, threads) for run in batch)
            except Exception as error:
                # A machine or process of the cluster was lost; the runs themselves record their errors.
                for run in batch:
                    yield _lost(run, threads, start, failure(type(error).__name__, str(error)))


def _lost(run: Run, threads: int, start: float, found: dict[str, Any]) -> dict[str, Any]:
    seconds = round(time.perf_counter() - start, 3)
    return {"key": run.key, "run": run.to_dict(), **found, "total_seconds": seconds, "threads": threads}


def _in_worker(run: Run, root: str | None, threads: int) -> dict[str, Any]:
    _settle()
    return execute(run, root, threads)


@cache
def _settle() -> None:
    """Once per process: Ctrl-C is the parent's business, and without a parent there is nothing to do here."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
