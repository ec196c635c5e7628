"""(e) Predictions per second of `graphveil serve`, and the time of an answer at half the rate that is asked of it,
beside the same server with a route that returns a constant: the floor, which nothing on this server can go below."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import graphveil as gv
from benchmarks.fresh_process import in_fresh_process
from benchmarks.load import Load, drive
from benchmarks.refusals import BOUND, largest_difference
from benchmarks.result import Result, Section
from graphveil.graph import csbm
from graphveil.serve import tokens_of

_ASKED_RATE, _ASKED_P99 = 2000, 0.020
_CONNECTIONS = 32
_FLOOR = """
import socket, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def constant(request):
    await request.body()
    return Response(b'{"prediction":"0"}', media_type="application/json")

bound = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
app = Starlette(routes=[Route("/v1/prediction", constant, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[bound])
"""


def run(quick: bool) -> Section:
    seconds, rounds = (2.0, 1) if quick else (5.0, 3)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        gv.DPDGC(level=gv.KNeighbor(1), epsilon=8.0, steps=2).fit(csbm(0.5, n=10_000, f=16, seed=0)).save(folder)
        requests = _requests(folder)
        serve = [sys.executable, "-m", "graphveil", "serve", str(folder), "--port", "0"]
        with _server(serve) as ours, _server([sys.executable, "-c", _FLOOR]) as floor:
            both = (ours, floor)
            began = [_processor_seconds(server) for server in both]
            full = [[_load(server, requests, seconds) for server in both] for _ in range(rounds)]
            used = [_processor_seconds(server) - before for server, before in zip(both, began, strict=True)]
            half = [[_load(server, requests, seconds, _ASKED_RATE / 2) for server in both] for _ in range(rounds)]
            apart = largest_difference(ours.port, tokens_of(folder), known="117", unknown="11700")
    work = [1e6 * used[side] / sum(len(pair[side].seconds) for pair in full) for side in (0, 1)]
    rates = [median(pair[side].rate for pair in full) for side in (0, 1)]
    middle, p99 = ([median(pair[side].quantile(q) for pair in half) for side in (0, 1)] for q in (0.5, 0.99))
    return Section(
        "(e) Serving",
        [
            Result("predictions per second", rates[0], rates[1], "1/s", "rate"),
            Result("processor time per prediction", work[0], work[1], "us"),
            Result(f"median time of an answer at {_ASKED_RATE // 2:,}/s", 1000 * middle[0], 1000 * middle[1], "ms"),
            Result(f"p99 time of an answer at {_ASKED_RATE // 2:,}/s", 1000 * p99[0], 1000 * p99[1], "ms"),
            Result("refusals told apart by their time", max(apart, 1e-3), BOUND, "of pairs", target=1.0),
        ],
        [
            f"One server process; the load comes from another over {_CONNECTIONS} connections, each request with its "
            "own node and token. The peer is the floor: the same server with a route that returns a constant.",
            "Refusals: how far the share of pairs in which one kind of refusal is slower than another is from 1/2; the "
            "peer is the bound.",
            f"Asked for: {_ASKED_RATE:,}/s ({_met(rates[0] >= _ASKED_RATE)}), p99 under {1000 * _ASKED_P99:g} ms at "
            f"half of it ({_met(p99[0] < _ASKED_P99)}). Times count from when a request was due.",
        ],
    )


def _met(reached: bool) -> str:
    return "met" if reached else "MISSED"


@dataclass(frozen=True)
class _Server:
    pid: int
    port: int


def _load(server: _Server, requests: list[bytes], seconds: float, rate: float | None = None) -> Load:
    words: dict[str, Any] = {"connections": _CONNECTIONS, "seconds": seconds, "rate": rate}
    return in_fresh_process(drive, server.port, requests, **words)


def _processor_seconds(server: _Server) -> float:
    """Spent by a process so far, in user and system mode (Linux): what other processes do hardly changes it."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _requests(folder: Path) -> list[bytes]:
    tokens = tokens_of(folder)
    requests = []
    for node in map(str, range(0, 10_000, 5)):
        body = json.dumps({"node": node}).encode()
        head = (
            "POST /v1/prediction HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {tokens.of_node(node)}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    return requests


@contextmanager
def _server(command: list[str]) -> Iterator[_Server]:
    """A process that prints the address that it serves."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        if address is None:
            raise RuntimeError(f"{command[:4]} did not start")
        yield _Server(process.pid, int(address[1]))
    finally:
        process.terminate()
        process.wait(timeout=20)
