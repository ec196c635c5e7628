"""SIGKILL during `graphveil bench`: finished runs stay as they are, and none is made twice."""

import multiprocessing
import os
import random
import signal

import pytest

from graphveil.experiments import read_spec, run_spec
from graphveil.storage import read_journal

FORK = multiprocessing.get_context("fork")


@pytest.mark.slow
def test_killed_again_and_again(spec_path):
    run_spec(read_spec(spec_path), spec_path.parent / "first", jobs=1, threads=1)  # calibrates, for all that follow
    spec_path.write_text(spec_path.read_text().replace("seeds = 2", "seeds = 6"))
    out, spec, draw = spec_path.parent / "out", read_spec(spec_path), random.Random(0)
    kept, kills, finished = [], 0, False
    while not finished:
        process = FORK.Process(target=run_spec, args=(spec, out), kwargs={"jobs": 1, "threads": 1})
        process.start()
        enough = len(kept) + draw.randint(1, 3)
        while process.is_alive() and len(read_journal(out / "runs.jsonl")) < enough:
            process.join(0.005)
        process.join(draw.uniform(0.0, 0.05))  # somewhere in the next run
        finished = process.exitcode == 0
        if process.is_alive():
            kills += 1
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        records = read_journal(out / "runs.jsonl")
        assert records[: len(kept)] == kept
        kept = records
    assert kills > 3
    assert all(record["status"] == "done" for record in kept)
    assert [record["key"] for record in kept] == [run.key for run in spec.runs()]
