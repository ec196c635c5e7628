"""One run from its description to its record, in whichever process it is asked for."""

from __future__ import annotations

import hashlib
import os
import time
from datetime import UTC, datetime
from typing import Any

import torch

from graphveil.evaluation.peak_memory import forget_peak, peak_memory_mb
from graphveil.evaluation.scores import Scores, scores
from graphveil.experiments.sources import load
from graphveil.experiments.spec import Run
from graphveil.graph import Graph
from graphveil.methods import method_class
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.certificate import library_versions
from graphveil.privacy.levels import Edge
from graphveil.privacy.plan import paper_delta
from graphveil.provenance import code_digest


def execute(run: Run, root: str | None, threads: int) -> dict[str, Any]:
    """Fit, score and describe; an error becomes a record too, so that one run never stops the others."""
    torch.set_num_threads(threads)
    forget_peak()
    start = time.perf_counter()
    try:
        found = _measure(run, root)
    except Exception as error:
        found = failure(type(error).__name__, str(error))
    return {
        "key": run.key,
        "run": run.to_dict(),
        **found,
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
    """The seed of initial weights and noise: another stream than the split's, the same for every method and budget.

    Common random numbers make two rows of a table differ by what they do and not by what they drew.
    """
    digest = hashlib.sha256(f"graphveil experiment {split_seed}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _measure(run: Run, root: str | None) -> dict[str, Any]:
    graph = load(run.graph, run.seed, root)
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
    test, val = (_scores(model, graph, mask) for mask in (graph.test_mask, graph.val_mask))
    return {
        "status": "done",
        "test_accuracy": None if test is None else test.accuracy,
        "val_accuracy": None if val is None else val.accuracy,
        "macro_f1": None if test is None else test.macro_f1,
        "class_f1": None if test is None else list(test.class_f1),
        # Equal digests: the same probabilities to the last bit.
        "probabilities": hashlib.sha256(model.predict_proba().tobytes()).hexdigest()[:16],
        "seconds": round(seconds, 3),
        "delta": model.certificate_.delta,
        "certificate": model.certificate_.to_dict(),
    }


def _delta(run: Run, graph: Graph) -> tuple[float | str, int | None]:
    """The run's delta, and the number of edges if that was declared with it.

    The paper's delta is for graphs that are public: at edge level it follows from the number of edges there are.
    """
    if run.delta != "paper":
        return run.delta, None
    found = paper_delta(run.level, int(graph.train_mask.sum()), graph.num_edges)
    return found, graph.num_edges if isinstance(run.level, Edge) else None


def _scores(model: NodeClassifier, graph: Graph, mask: torch.Tensor) -> Scores | None:
    return scores(graph.labels[mask].numpy(), model.predict(mask), graph.num_classes)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
