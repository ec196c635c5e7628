"""Ray is an optional extra: this test is skipped without it."""

import pytest

from graphveil.experiments import read_spec, run_spec
from graphveil.storage.journal import read_journal

ray = pytest.importorskip("ray")


def test_a_local_cluster_gives_the_same_numbers(spec_path, tmp_path, monkeypatch):
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
