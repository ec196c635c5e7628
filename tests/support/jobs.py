"""Jobs of several processes on this machine: as `torchrun` starts them, and as quick copies of one that has imported
everything."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from graphveil.distributed import Group


def torchrun(processes: int, *words: object) -> subprocess.Popen:
    """`words` as after `torchrun`: a script or `-m module`, and its arguments."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    pipe = subprocess.PIPE
    return subprocess.Popen([*launcher, *map(str, words)], env=env, stdout=pipe, stderr=pipe, text=True)


def together(processes: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """What `work(group, *args)` returns in each of the processes of a group."""
    with tempfile.TemporaryDirectory() as meeting:
        pipes = [_server().Pipe(duplex=False) for _ in range(processes)]
        members = [
            _server().Process(target=_member, args=(meeting, rank, processes, send, work, args))
            for rank, (_, send) in enumerate(pipes)
        ]
        for member in members:
            member.start()
        for _, send in pipes:
            send.close()
        outcomes = [receive.recv() if receive.poll(120) else ("no answer", None) for receive, _ in pipes]
        for member in members:
            member.join(20)
            member.kill()
            member.join()
    for error, _ in outcomes:
        assert error is None, error
    return [value for _, value in outcomes]


@cache
def _server() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["graphveil.distributed", "graphveil.methods.dpdgc", "support.distributed_fits"])
    # Python 3.11 does not tell the server where modules are, and then it goes without those of tests.
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.ensure_running()
    return context


def _member(meeting: str, rank: int, processes: int, send: Connection, work: Callable[..., Any], args: Any) -> None:
    import torch

    torch.set_num_threads(1)
    where = {"RANK": rank, "WORLD_SIZE": processes, "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update({name: str(value) for name, value in where.items()})
    try:
        with Group.joined(meeting=f"file://{meeting}/store") as group:
            send.send((None, work(group, *args)))
    except BaseException:
        send.send((traceback.format_exc(), None))
