"""Executes runs: their graphs, a single run, and many runs in this process, in several processes, or on a cluster."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.experiments.spec import GraphRef, Run, Spec
from graphveil.graph import Graph, load_dataset, read_graph
from graphveil.graph.datasets import SOURCES, MissingData, canonical_name, find_raw_files, keeps_split
from graphveil.graph.io import is_path
from graphveil.methods import method_class
from graphveil.privacy.certificate import library_versions
from graphveil.privacy.facts import paper_delta
from graphveil.privacy.levels import Edge
from graphveil.process import code_digest, forget_peak, peak_memory_mb


def chosen_graphs(spec: Spec, names: list[str], root: str | None) -> Spec:
    """The experiment on the graphs that a user names.

    Args:
        spec: The experiment.
        names: Graphs of the experiment, datasets, or files.
        root: The folder of raw datasets.

    Returns:
        The experiment with these graphs.

    Raises:
        InvalidInput: If there is no such graph.
        MissingData: If the raw files of a dataset are missing.
    """
    own = {graph.name: graph for graph in spec.graphs}
    graphs = [own[name] if name in own else named_graph(name) for name in names]
    for graph in graphs:
        require_files(graph, root)
    return replace(spec, graphs=tuple(dict.fromkeys(graphs)))


def named_graph(word: str, folder: Path = Path()) -> GraphRef:
    """A file or folder, relative to `folder`, or a dataset."""
    if is_path(word, folder):
        return file_graph(folder / word)
    return GraphRef(canonical_name(word))


def file_graph(path: Path, name: str | None = None, directed: bool | None = None) -> GraphRef:
    """A user's own graph, named after its file unless it has another name."""
    if not path.exists():
        raise InvalidInput("graph", str(path), "there is no such file or folder")
    return GraphRef(name or path.stem, str(path.resolve()), directed, content_digest(path))


def graphs_at_hand(spec: Spec, root: str | None) -> tuple[Spec, list[str]]:
    """The experiment on those of its graphs whose files are there.

    Args:
        spec: The experiment.
        root: The folder of raw datasets.

    Returns:
        The experiment with the graphs that are there, stand-ins included, and a sentence about each other graph.
    """
    kept, notes = list[GraphRef](), list[str]()
    for graph in spec.graphs:
        try:
            require_files(graph, root)
            kept.append(graph)
        except MissingData as error:
            notes.append(f"left out, {error}")
            substitute = spec.stand_ins.get(graph.name)
            if substitute is None:
                continue
            try:
                require_files(GraphRef(substitute), root)
            except MissingData:
                continue
            notes[-1] = f"{graph.name} is not at hand: {substitute} stands in under its own name"
            kept.append(GraphRef(substitute))
    return replace(spec, graphs=tuple(dict.fromkeys(kept))), notes


def require_files(graph: GraphRef, root: str | None) -> None:
    """Raise `MissingData` if a dataset's raw files are not there."""
    name = graph.name
    if graph.path is None and not name.startswith("csbm"):
        find_raw_files(name, SOURCES[name], root, False)


def load_graph(graph: GraphRef, seed: int, root: str | None) -> Graph:
    """The graph with the random split of this seed; a file or a dataset that has its own split keeps it."""
    loaded = _loaded(graph, root)
    kept = loaded.has_split if graph.path is not None else keeps_split(graph.name)
    return loaded if kept else loaded.with_split(seed)


# Runs are ordered by seed and graph, so two graphs at a time are enough.
@lru_cache(maxsize=2)
def _loaded(graph: GraphRef, root: str | None) -> Graph:
    if graph.path is not None:
        return read_graph(graph.path, directed=graph.directed, seed=None, name=graph.name)
    return load_dataset(graph.name, root)


def content_digest(path: Path) -> str:
    """A digest of a file, or of the names and bytes of all files in a folder."""
    digest = hashlib.blake2b(digest_size=16)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            while block := opened.read(2**20):
                digest.update(block)
    return digest.hexdigest()


BACKENDS = ("loky", "ray")
# Jobs, or threads of one job; more than any machine has cores.
MOST_AT_ONCE = 4096
Records = Generator[dict[str, Any], None, None]


def execute(run: Run, root: str | None, threads: int) -> dict[str, Any]:
    """Fit and score. An error is recorded too, so that one run never stops the others.

    Args:
        run: The run.
        root: The folder of raw datasets.
        threads: Threads for PyTorch.

    Returns:
        Its record: a line of runs.jsonl.
    """
    torch.set_num_threads(threads)
    forget_peak()
    start = time.perf_counter()
    try:
        outcome = _measure(run, root)
    except Exception as error:
        outcome = failure(type(error).__name__, str(error))
    return {
        "key": run.key,
        "run": run.to_dict(),
        **outcome,
        "total_seconds": round(time.perf_counter() - start, 3),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "threads": threads,
        "versions": library_versions(),
        "code": code_digest(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def failure(kind: str, message: str) -> dict[str, Any]:
    """What is recorded of a run that failed."""
    return {"status": "failed", "error": {"kind": kind, "message": " ".join(message.split())[:500]}}


def method_seed(split_seed: int) -> int:
    """The seed of initial weights and noise, derived from the split's; the same for every method and budget.

    With common random numbers two rows of a table differ by what the methods do and not by what they drew.
    """
    digest = hashlib.sha256(f"graphveil experiment {split_seed}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _measure(run: Run, root: str | None) -> dict[str, Any]:
    graph = load_graph(run.graph, run.seed, root)
    delta, edges = _delta(run, graph)
    model = method_class(run.method)(
        level=run.level,
        epsilon=run.epsilon,
        delta=delta,
        seed=method_seed(run.seed),
        public_edges=edges,
        show_progress=False,
        **run.options,
    )
    start = time.perf_counter()
    model.fit(graph)
    seconds = time.perf_counter() - start
    test, val = (model.evaluate(mask) for mask in (graph.test_mask, graph.val_mask))
    scores = dict[str, float | None]() if test is None else test.scores()
    return {
        "status": "done",
        "test_accuracy": scores.pop("accuracy", None),
        "val_accuracy": None if val is None else val.accuracy,
        **scores,
        "class_f1": None if test is None else [None if each is None else each.f1 for each in test.by_class],
        # Equal digests mean that all probabilities are equal to the last bit.
        "probabilities": hashlib.sha256(model.predict_proba().tobytes()).hexdigest()[:16],
        "seconds": round(seconds, 3),
        "delta": model.certificate_.delta,
        "certificate": model.certificate_.to_dict(),
    }


def _delta(run: Run, graph: Graph) -> tuple[float | str, int | None]:
    """The run's delta, and the number of edges if delta depends on it.

    The paper's delta is for public graphs: at edge level it depends on the number of edges.
    """
    if run.delta != "paper":
        return run.delta, None
    delta = paper_delta(run.level, int(graph.train_mask.sum()), graph.num_edges)
    return delta, graph.num_edges if isinstance(run.level, Edge) else None


def outcomes(runs: Sequence[Run], root: str | None, *, jobs: int, threads: int, backend: str = "loky") -> Records:
    """The record of every run, in the order in which they finish.

    Args:
        runs: The runs.
        root: The folder of raw datasets.
        jobs: How many run at a time.
        threads: Threads of each.
        backend: "loky" for this machine: one job stays in this process, more get processes of their own, and a process
            that dies (most often for lack of memory) costs only its own run. "ray" for the cluster that RAY_ADDRESS
            names, or a local one; files and datasets must have the same paths there.

    Returns:
        A generator of records.

    Raises:
        InvalidInput: If the backend is unknown or not installed.
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
            # One of the started runs killed its process, and it is not known which: each of them is tried alone.
            for key, run in list(started.items()):
                yield _alone(run, root, threads)
                del waiting[key]


def _parallel(runs: Sequence[Run], started: dict[str, Run], root: str | None, jobs: int, threads: int) -> Records:
    def calls() -> Iterator[Any]:
        for run in runs:
            started[run.key] = run
            yield delayed(_in_worker)(run, root, threads)

    with parallel_config(backend="loky", inner_max_num_threads=threads):
        # A run is started only when a process is free for it, so a kill loses at most one run for each job.
        parallel = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch=jobs, return_as="generator_unordered")
    with warnings.catch_warnings():
        # joblib replaces a worker whose memory has grown, and warns; the user need not know.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        with closing(parallel(calls())) as records:
            yield from records


def _alone(run: Run, root: str | None, threads: int) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        # With one job joblib would stay in this process, which the run might kill.
        return next(_parallel([run], {}, root, 2, threads))
    except BrokenProcessPool:
        why = "the process of this run was ended from outside, most often for lack of memory"
        return _lost(run, threads, start, failure("ProcessDied", why))


def _on_cluster(runs: Sequence[Run], root: str | None, jobs: int, threads: int) -> Records:
    """Runs in batches of as many as there are jobs, because joblib's Ray backend returns whole batches only."""
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


def _lost(run: Run, threads: int, start: float, outcome: dict[str, Any]) -> dict[str, Any]:
    seconds = round(time.perf_counter() - start, 3)
    return {"key": run.key, "run": run.to_dict(), **outcome, "total_seconds": seconds, "threads": threads}


def _in_worker(run: Run, root: str | None, threads: int) -> dict[str, Any]:
    _settle()
    return execute(run, root, threads)


@cache
def _settle() -> None:
    """Once in each process: leave Ctrl-C to the parent, and end when the parent ends."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
