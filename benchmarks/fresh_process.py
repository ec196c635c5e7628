"""Functions in processes of their own, so that their memory is not mixed with what ran before."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Ends a function's turn, and returns when it has the next one.
Wait = Callable[[], None]

_CONTEXT = multiprocessing.get_context("spawn")


def in_fresh_process(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    with ProcessPoolExecutor(max_workers=1, mp_context=_CONTEXT) as pool:
        return pool.submit(function, *args, **kwargs).result()


def take_turns(function: Callable[..., R], calls: Sequence[tuple[Any, ...]]) -> list[R]:
    """`function(wait, *call)` for each call, side by side, of which only one works at a time."""
    pipes = [_CONTEXT.Pipe() for _ in calls]
    with ProcessPoolExecutor(max_workers=len(calls), mp_context=_CONTEXT) as pool:
        theirs = [end for _, end in pipes]
        futures = [pool.submit(_in_turns, end, function, call) for end, call in zip(theirs, calls, strict=True)]
        working = [(ours, future) for (ours, _), future in zip(pipes, futures, strict=True)]
        while working:
            for pipe, future in list(working):
                pipe.send(None)
                while not pipe.poll(1) and not future.done():  # a process that was killed says nothing more
                    pass
                if future.done() or pipe.recv():
                    working.remove((pipe, future))
        return [future.result() for future in futures]


def _in_turns(pipe: Connection, function: Callable[..., R], call: tuple[Any, ...]) -> R:
    def wait() -> None:
        pipe.send(False)
        pipe.recv()

    pipe.recv()
    try:
        return function(wait, *call)
    finally:
        pipe.send(True)
