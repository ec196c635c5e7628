"""The processes of one job, and what they say to each other: sums, largest values, rows for their owners."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any, Self

import torch
import torch.distributed as dist

from graphveil.errors import GraphveilError
from graphveil.job import place_in_job

# Longer than any process works between two exchanges; a process that hangs ends the job after this.
_PATIENCE = timedelta(minutes=30)


class JobEnded(GraphveilError):
    """Another process of the job does not answer any more."""


class Group:
    """All processes of a job; every method is called by all of them, in the same order. A group of one is silent."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @classmethod
    @contextmanager
    def joined(cls, device: str = "cpu", meeting: str = "env://", patience: timedelta = _PATIENCE) -> Iterator[Self]:
        """The group that `torchrun` describes in the environment, or that meets at another address."""
        backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
        rank, size = place_in_job()
        with _one_line():
            dist.init_process_group(backend, meeting, timeout=patience, rank=rank, world_size=size)
        before = signal.signal(signal.SIGTERM, _end)
        try:
            yield cls(rank, size)
        finally:
            signal.signal(signal.SIGTERM, before)
            dist.destroy_process_group()

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """The sum of what all processes give, the same to the last bit for each of them."""
        return self._reduced(value, dist.ReduceOp.SUM)

    def largest(self, value: torch.Tensor) -> torch.Tensor:
        """The largest, entry by entry, of what all processes give."""
        return self._reduced(value, dist.ReduceOp.MAX)

    def any(self, flag: bool) -> bool:
        """Whether one of them says so."""
        return bool(self.largest(torch.tensor([int(flag)])))

    def each(self, number: int) -> list[int]:
        """The number that each process gives, by rank."""
        mine = torch.zeros(self.size, dtype=torch.int64)
        mine[self.rank] = number
        return [int(found) for found in self.total(mine)]

    def from_first(self, value: torch.Tensor) -> torch.Tensor:
        """What the first process gives."""
        value = value.clone()
        if self.size > 1:
            with _one_line():
                dist.broadcast(value, 0)
        return value

    def object_from_first(self, value: Any) -> Any:
        """The same for a small object; the others' `value` is not looked at."""
        found = [value]
        if self.size > 1:
            with _one_line():
                dist.broadcast_object_list(found, 0)
        return found[0]

    def wait(self) -> None:
        """Until all have come here."""
        if self.size > 1:
            with _one_line():
                dist.barrier()

    def add_for_owners(self, partial: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """Each gives a part of everybody's rows, `counts` of them by rank; each gets the sums of its own.

        The parts are added by rank, so that the same job gives the same sums.
        """
        if self.size == 1:
            return partial
        mine = counts[self.rank]
        received = partial.new_empty(self.size * mine, *partial.shape[1:])
        with _one_line():
            dist.all_to_all_single(received, partial, [mine] * self.size, list(counts))
        parts = received.view(self.size, mine, *partial.shape[1:])
        return parts.sum(0)

    def gathered(self, rows: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """The rows of all, `counts` of them by rank, one rank's below the other's."""
        if self.size == 1:
            return rows
        found = rows.new_empty(sum(counts), *rows.shape[1:])
        copies = rows.repeat(self.size, *[1] * (rows.ndim - 1))
        with _one_line():
            dist.all_to_all_single(found, copies, list(counts), [len(rows)] * self.size)
        return found

    def to_first(self, rows: torch.Tensor, at_once: int) -> Iterator[torch.Tensor]:
        """For the first process, all rows of all processes in order, so many at a time; for the others, nothing."""
        for rank, count in enumerate(self.each(len(rows))):
            for first in range(0, count, at_once):
                size = min(at_once, count - first)
                if rank == self.rank == 0:
                    yield rows[first : first + size]
                elif rank == self.rank:
                    with _one_line():
                        dist.send(rows[first : first + size].contiguous(), 0)
                elif self.rank == 0:
                    block = rows.new_empty(size, *rows.shape[1:])
                    with _one_line():
                        dist.recv(block, rank)
                    yield block

    def _reduced(self, value: torch.Tensor, how: Any) -> torch.Tensor:
        found = value.detach().clone().contiguous()
        if self.size > 1:
            with _one_line():
                dist.all_reduce(found, how)
        return found


def _end(number: int, frame: FrameType | None) -> None:
    """`torchrun` ends everybody when one process has ended; that is worth the same line."""
    signal.signal(number, signal.SIG_IGN)  # said once
    raise JobEnded("another process of this job has ended, or torchrun was told to end it")


@contextmanager
def _one_line() -> Iterator[None]:
    """What the transport says when a peer is gone, as one line that a user can act on."""
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun is about to end this process: let it say why
        why = re.sub(r"^\[[^]]*\] *", "", " ".join(str(error).split()))[:120]
        raise JobEnded(f"another process of this job has ended or does not answer: {why}") from None
