"""Runs in processes and on a cluster: the work is made up where only its distribution is tested."""

import os
from types import SimpleNamespace

import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import SPECS, execution, read_spec, run_spec
from graphveil.experiments.execution import graphs_at_hand
from graphveil.storage import read_journal


def test_a_stand_in_keeps_its_own_name(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHVEIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHVEIL_DATA", raising=False)
    raw = tmp_path / "Berkeley13" / "raw"
    raw.mkdir(parents=True)
    (raw / "Berkeley13.mat").touch()
    spec, notes = graphs_at_hand(SPECS["figure-a"], str(tmp_path))
    assert [graph.name for graph in spec.graphs] == ["berkeley13"]
    assert notes == ["facebook is not at hand: berkeley13 stands in under its own name"]


def described(seed):
    return SimpleNamespace(key=f"run {seed}", seed=seed, to_dict=dict)


def test_a_process_that_dies_costs_only_the_run_that_killed_it(monkeypatch):
    def work(run, root, threads):
        if run.seed == 2:
            os._exit(1)
        return {"key": run.key, "status": "done", "process": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"]}

    monkeypatch.setattr(execution, "_in_worker", work)
    runs = [described(seed) for seed in range(6)]
    records = {record["key"]: record for record in execution.outcomes(runs, None, jobs=2, threads=1)}
    assert set(records) == {run.key for run in runs}
    assert records["run 2"]["status"] == "failed"
    assert records["run 2"]["error"]["kind"] == "ProcessDied"
    others = [record for key, record in records.items() if key != "run 2"]
    assert all(record["status"] == "done" for record in others)
    assert os.getpid() not in {record["process"] for record in others}
    assert {record["threads"] for record in others} == {"1"}


def test_threads_share_the_cores(monkeypatch):
    monkeypatch.setattr(execution, "cores", lambda: 8)
    assert [execution.threads_for(jobs, None) for jobs in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
    assert execution.threads_for(2, 3) == 3


def test_unknown_backends():
    with pytest.raises(InvalidInput, match="backend = 'mail'"):
        list(execution.outcomes([described(0)], None, jobs=2, threads=1, backend="mail"))


def test_a_local_cluster_gives_the_same_numbers(spec_path, tmp_path, monkeypatch):
    """Ray is an optional extra: this test is skipped without it."""
    ray = pytest.importorskip("ray")
    # Ray keeps a token in the home folder.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    spec = read_spec(spec_path)
    try:
        assert run_spec(spec, tmp_path / "there", jobs=2, threads=1, backend="ray").done == 6
    finally:
        ray.shutdown()
    run_spec(spec, tmp_path / "here", jobs=1, threads=1)
    here, there = (
        {line["key"]: line["probabilities"] for line in read_journal(tmp_path / name / "runs.jsonl")}
        for name in ("here", "there")
    )
    assert here == there
