"""(i) What a user waits for before a fit starts: the start of the command line, and calibration."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from benchmarks.result import Result, Section
from graphveil.accounting import Gaussian, Loss, SampledGaussian, calibrate

_PLAN = ["plan", "--method", "dpdgc", "--level", "k-neighbor", "--k", "5", "--epsilon", "16", "--delta", "1e-5"]
_FACTS = ["--nodes", "7535", "--train-nodes", "5651", "--features", "745", "--classes", "8"]
# Seconds of processor time that are asked for.
_COMMANDS = {("--help",): 0.5, (*_PLAN, *_FACTS): 1.5}
_CALIBRATION = 3.0


def run(quick: bool) -> Section:
    rounds = 2 if quick else 5
    results = [
        Result(f"start of graphveil {words[0]}", _least(partial(_command, words), rounds), most, "s", target=1.0)
        for words, most in _COMMANDS.items()
    ]
    for group in (2, 26, 401):
        seconds = _least(partial(_calibration, group), rounds)
        results.append(Result(f"calibration of three parts, group {group}", seconds, _CALIBRATION, "s", target=1.0))
    return Section(
        "(i) Start-up",
        results,
        [f"Processor time, the least of {rounds} rounds. The peer is what is asked for, not a measurement."],
    )


def _least(seconds: Callable[[], float], rounds: int) -> float:
    return min(seconds() for _ in range(rounds))


def _command(words: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "graphveil", *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _calibration(group: int) -> float:
    embedding, head = (SampledGaussian(1.0, size, 0.0129, 20_000) for size in (group, 1))
    parts: list[Loss] = [embedding, Gaussian(1.0), head]
    start = time.process_time()
    calibrate(parts, 16.0, 1e-5, shares=[0.5, 0.2, 0.3])
    return time.process_time() - start
