"""SIGKILL at any moment: a folder is absent or complete, and an answer that was seen is never forgotten."""

import multiprocessing
import os
import random
import signal
import time

import numpy as np
import pytest

import graphveil as gv
from support.artifacts import NEW, fitted

FORK = multiprocessing.get_context("fork")


def killed_after(seconds, work, *arguments):
    process = FORK.Process(target=work, args=arguments)
    process.start()
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.join()


@pytest.mark.slow
def test_killed_while_saving(tmp_path):
    model = fitted("mlp")
    start = time.perf_counter()
    model.save(tmp_path / "first")
    took = time.perf_counter() - start
    draw = random.Random(0)

    def save_all(round):
        for number in range(1000):
            model.save(tmp_path / f"{round}-{number}")

    for round in range(12):
        killed_after(draw.uniform(0, 6 * took), save_all, round)
    runs = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert len(runs) > 1
    for path in runs:
        assert np.array_equal(gv.load(path).predict_proba(), model.predict_proba())


def answer_forever(folder, seen, round):
    model = gv.load(folder)
    for number in range(1000):
        answer = model.predict_new([f"{round}-{number}"], [[1.0] * 8], [[number % 120]])
        seen.write(f"{round}-{number} {number % 120} {answer[0].tobytes().hex()}\n")
        seen.flush()


@pytest.mark.slow
def test_killed_while_answering(folder, tmp_path):
    draw = random.Random(1)
    with (tmp_path / "seen").open("a") as seen:
        for round in range(12):
            killed_after(draw.uniform(0.05, 0.25), answer_forever, folder, seen, round)
    model = gv.load(folder)
    lines = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    lines = [line for line in lines if len(line) == 3 and len(line[2]) == 16]
    assert len(lines) > 12
    for name, neighbor, row in lines:
        assert model.predict_new([name], [[1.0] * 8], [[int(neighbor)]])[0].tobytes().hex() == row
    assert np.array_equal(model.predict_new(**NEW), gv.load(folder).predict_new(**NEW))
