"""The processes of one job, and what they exchange: sums, largest values, rows for their owners."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from graphveil.errors import GraphveilError, InvalidInput
from graphveil.process import place_in_job

# Longer than any process works between two exchanges; a process that hangs ends the job after this.
_PATIENCE = timedelta(minutes=30)
# Seconds; a thread of gloo needs some microseconds.
_LET_GO = 0.1
# An error that all processes have at the same time is known to the first one before this is over.
_FIRST_SPEAKS = timedelta(seconds=1)
Result = TypeVar("Result")


class JobEnded(GraphveilError):
    """Another process of the job has ended or does not answer."""


class Group:
    """All processes of a job. Every method is called by all of them, in the same order.

    A group of one process exchanges nothing.

    Args:
        rank: The number of this process, from 0.
        size: How many processes there are.
        store: Words that processes leave for others, if there are others.
    """

    def __init__(self, rank: int, size: int, store: Any = None) -> None:
        self.rank, self.size, self._store = rank, size, store

    @classmethod
    @contextmanager
    def joined(cls, device: str = "cpu", meeting: str = "env://", patience: timedelta = _PATIENCE) -> Iterator[Self]:
        """Join the group that `torchrun` describes in the environment.

        Args:
            device: "cpu" or "cuda".
            meeting: The address at which the processes meet; by default that of the environment.
            patience: How long a process waits for the others.

        Raises:
            InvalidInput: The environment describes no job.
            JobEnded: The processes do not meet.
        """
        backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
        rank, size = place_in_job()
        with _one_line():
            store, rank, size = next(rendezvous(meeting, rank, size, timeout=patience))
            own = dist.PrefixStore("exchange", store)
            dist.init_process_group(backend, timeout=patience, rank=rank, world_size=size, store=own)
        before = signal.signal(signal.SIGTERM, _end)
        try:
            yield cls(rank, size, dist.PrefixStore("words", store))
            # Threads of gloo need the interpreter to drop the tensors of the last exchange. One that still waits for
            # it when Python ends aborts the process, and then torchrun ends the others. A sleep lets them have it.
            time.sleep(_LET_GO)
        finally:
            signal.signal(signal.SIGTERM, before)
            dist.destroy_process_group()

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """The sum of the values of all processes, the same to the last bit in each of them."""
        return self._reduced(value, dist.ReduceOp.SUM)

    def largest(self, value: torch.Tensor) -> torch.Tensor:
        """The largest value of all processes, entry by entry."""
        return self._reduced(value, dist.ReduceOp.MAX)

    def any(self, flag: bool) -> bool:
        """Whether the flag of any process is set."""
        return bool(self.largest(torch.tensor([int(flag)])))

    def each(self, number: int) -> list[int]:
        """The numbers of all processes, by rank."""
        mine = torch.zeros(self.size, dtype=torch.int64)
        mine[self.rank] = number
        return [int(each) for each in self.total(mine)]

    def from_first(self, value: torch.Tensor) -> torch.Tensor:
        """The value of the first process."""
        value = value.clone()
        if self.size > 1:
            with _one_line():
                dist.broadcast(value, 0)
        return value

    def object_from_first(self, value: Any) -> Any:
        """The object of the first process, a small one; the `value` of other processes is not looked at."""
        sent = [value]
        if self.size > 1:
            with _one_line():
                dist.broadcast_object_list(sent, 0)
        return sent[0]

    def by_first(self, work: Callable[[], Result]) -> Result:
        """Let the first process do something; its result, or the `InvalidInput` that it raises, is that of all."""
        outcome, failed = _attempted(work) if self.rank == 0 else (None, None)
        outcome, failed = self.object_from_first((outcome, failed))
        if failed is not None:
            raise _everywhere(failed)
        result: Result = outcome
        return result

    def by_all(self, work: Callable[[], Result]) -> Result:
        """Let every process do something without the others; an `InvalidInput` of one of them is raised by all."""
        outcome, failed = _attempted(work)
        failures: list[InvalidInput | None] = [failed]
        if self.size > 1:
            failures = [None] * self.size
            with _one_line():
                dist.all_gather_object(failures, failed)
        for error in failures:
            if error is not None:
                raise _everywhere(error)
        result: Result = outcome
        return result

    def has_to_say(self, words: str) -> bool:
        """Whether this process has to print an error with which it ends; it is called by those that end.

        The first process prints its own. Another one does not, if the first one ends with the same.
        """
        if self._store is None:
            return True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this process ends by itself
        with suppress(RuntimeError, dist.DistError):  # the store is gone, or the first process has no error
            if self.rank == 0:
                self._store.set("error", words)
                return True
            self._store.wait(["error"], _FIRST_SPEAKS)
            return bool(self._store.get("error") != words.encode())
        return True

    def wait(self) -> None:
        """Wait until all processes have called this."""
        if self.size > 1:
            with _one_line():
                dist.barrier()

    def add_for_owners(self, partial: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """Sum rows over processes: each process gives terms of all rows, and gets the sums of its own.

        Terms are added in the order of ranks, so that the same job gives the same sums.

        Args:
            partial: Terms of the rows of all processes, one process's below the other's.
            counts: How many rows each process has.

        Returns:
            The sums of own rows.
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
        """The rows of all processes, one process's below the other's; `counts` says how many each has."""
        if self.size == 1:
            return rows
        received = rows.new_empty(sum(counts), *rows.shape[1:])
        copies = rows.repeat(self.size, *[1] * (rows.ndim - 1))
        with _one_line():
            dist.all_to_all_single(received, copies, list(counts), [len(rows)] * self.size)
        return received

    def dealt(self, rows: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """Send the first `counts[0]` rows to the first process, the next to the next, and so on; returns those that
        this process is sent, by sender."""
        if self.size == 1:
            return rows
        with _one_line():
            incoming = torch.zeros(self.size, dtype=torch.int64)
            dist.all_to_all_single(incoming, torch.tensor(counts, dtype=torch.int64))
            received = rows.new_empty(int(incoming.sum()), *rows.shape[1:])
            dist.all_to_all_single(received, rows.contiguous(), incoming.tolist(), list(counts))
        return received

    def _reduced(self, value: torch.Tensor, how: Any) -> torch.Tensor:
        reduced = value.detach().clone().contiguous()
        if self.size > 1:
            with _one_line():
                dist.all_reduce(reduced, how)
        return reduced


def _attempted(work: Callable[[], Any]) -> tuple[Any, InvalidInput | None]:
    try:
        return work(), None
    except InvalidInput as error:
        return None, error


def _everywhere(error: InvalidInput) -> InvalidInput:
    error.everywhere = True
    return error


def _end(number: int, frame: FrameType | None) -> None:
    """Say why this process ends: `torchrun` ends all processes when one has ended."""
    signal.signal(number, signal.SIG_IGN)  # a second signal adds nothing
    raise JobEnded("another process of this job has ended, or torchrun was told to end it")


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn errors of the transport, which come when another process is gone, into one line."""
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun is about to end this process: let it say why
        said = re.sub(r"^\[[^]]*\] *", "", " ".join(str(error).split()))
        why = said.split(". ")[0][:120]  # what follows is advice to programmers
        raise JobEnded(f"another process of this job has ended or does not answer: {why}") from None
