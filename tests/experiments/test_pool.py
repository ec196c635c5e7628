"""The pool with work that needs no PyTorch: what is tested is who runs it and what becomes of it."""

import os
from types import SimpleNamespace

import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import pool


def described(seed):
    return SimpleNamespace(key=f"run {seed}", seed=seed, to_dict=dict)


def test_a_process_that_dies_costs_only_the_run_that_killed_it(monkeypatch):
    def work(run, root, threads):
        if run.seed == 2:
            os._exit(1)
        return {"key": run.key, "status": "done", "process": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"]}

    monkeypatch.setattr(pool, "_in_worker", work)
    runs = [described(seed) for seed in range(6)]
    found = {record["key"]: record for record in pool.outcomes(runs, None, jobs=2, threads=1)}
    assert set(found) == {run.key for run in runs}
    assert found["run 2"]["status"] == "failed"
    assert found["run 2"]["error"]["kind"] == "ProcessDied"
    others = [record for key, record in found.items() if key != "run 2"]
    assert all(record["status"] == "done" for record in others)
    assert os.getpid() not in {record["process"] for record in others}
    assert {record["threads"] for record in others} == {"1"}


def test_threads_share_the_cores(monkeypatch):
    monkeypatch.setattr(pool, "cores", lambda: 8)
    assert [pool.threads_for(jobs, None) for jobs in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
    assert pool.threads_for(2, 3) == 3


def test_unknown_backends():
    with pytest.raises(InvalidInput, match="backend = 'mail'"):
        list(pool.outcomes([described(0)], None, jobs=2, threads=1, backend="mail"))
