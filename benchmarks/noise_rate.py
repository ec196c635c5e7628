"""(d) Normals per second from the cryptographic source against torch's generator, one thread each."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.result import Result, Section
from graphveil.noise import NoiseSource

_COUNT = 2**21


def run(quick: bool) -> Section:
    source = NoiseSource()
    draws: dict[str, Callable[[], object]] = {
        "ours": lambda: source.normal(_COUNT),
        "float64": lambda: torch.randn(_COUNT, dtype=torch.float64),
        "float32": lambda: torch.randn(_COUNT),
    }
    seconds: dict[str, list[float]] = {name: [] for name in draws}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(7 if quick else 25):
            for name, draw in draws.items():
                start = time.perf_counter()
                draw()
                seconds[name].append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    rates = {name: _COUNT / median(values) / 1e6 for name, values in seconds.items()}
    return Section(
        "(d) Secure noise",
        [
            Result(f"normals, AES in float64 against torch.randn in {kind}", rates["ours"], rates[kind], "M/s", "rate")
            for kind in ("float64", "float32")
        ],
        ["One thread each. Ours is keyed AES-256 in float64; torch's generator is not cryptographic on either line."],
    )
