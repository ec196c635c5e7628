"""The noise and the ledger of a job: each process draws its own rows of what one process would draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from graphveil.distributed.group import Group
from graphveil.distributed.shard import Span
from graphveil.execution import Ledger
from graphveil.noise import Draw, NoiseSource
from graphveil.noise.keystream import CHUNK
from graphveil.noise.normals import Rounding
from graphveil.privacy.mechanisms import Responses
from graphveil.privacy.plan import Plan

# Roles of releases without rows of nodes: the processes have added up their parts already.
_SAME_EVERYWHERE = ("scales", "classes", "statistics", "expectation")


class RowShard(torch.Tensor):
    """This process's rows of a tensor with a row for each node. Any other tensor is the same in all processes."""


class SharedSource(NoiseSource):
    """One keystream for all processes, in which every entry of every value has its place.

    Formal guarantee: that of `NoiseSource`. The noise of a row of a sharded value is drawn by the row's owner alone,
    from a part of the keystream that belongs to this row and this draw; of values that all processes have, all draw
    the same noise. Without a seed the first process's key is sent to the others: whoever reads that message, or the
    memory of any process, can subtract the noise.
    """

    def __init__(self, seed: int | None, group: Group, nodes: Span) -> None:
        super().__init__(seed)
        key = torch.frombuffer(bytearray(self._key), dtype=torch.uint8)
        self._key = bytes(group.from_first(key).numpy())
        self._nodes = nodes
        self._span: Span | None = None

    @property
    def drawing(self) -> Span | None:
        """The rows that are drawn for; None: what is drawn is the same in all processes."""
        return self._span

    @contextmanager
    def only(self, span: Span) -> Iterator[None]:
        """Within this block, what is drawn is for these rows alone."""
        self._span = span
        try:
            yield
        finally:
            self._span = None

    def uniform(self, *shape: int) -> torch.Tensor:
        if self._span is None:
            return super().uniform(*shape)
        out = torch.empty(*shape, dtype=torch.float64)
        self._draw_part(out.view(-1), self._span, out[:1].numel() or 1, self._draw_uniform)
        return out

    def add_normals(self, flat: torch.Tensor, rounding: Rounding) -> None:
        span, plain = self._span_of(flat), flat.as_subclass(torch.Tensor)
        if span is None:
            super().add_normals(plain, rounding)
        else:
            self._draw_part(plain, span, len(plain) // span.count, self._adding(rounding))

    def _span_of(self, part: torch.Tensor) -> Span | None:
        return self._nodes if isinstance(part, RowShard) else self._span

    def _draw_part(self, flat: torch.Tensor, span: Span, width: int, draw: Draw) -> None:
        """Draw into the rows of a span, `width` entries each, as if they were drawn with all others.

        A chunk of the keystream that has rows of two processes is drawn by both, and each keeps its own part.
        """
        first, last, total = span.first * width, span.first * width + len(flat), span.total * width
        chunks, shared = [], []
        places = range(first // CHUNK, -(-last // CHUNK)) if len(flat) else range(0)
        for place in places:
            start, end = place * CHUNK, min((place + 1) * CHUNK, total)
            low, high = max(start, first), min(end, last)
            mine = flat[low - first : high - first]
            if (low, high) == (start, end):
                chunks.append(mine)
                continue
            whole = flat.new_zeros(end - start)
            part = whole[low - start : high - start]
            part.copy_(mine)
            chunks.append(whole)
            shared.append((mine, part))
        self._each(chunks, draw, places.start, max(1, -(-total // CHUNK)))
        for mine, part in shared:
            mine.copy_(part)


class ShardedLedger(Ledger):
    """A ledger whose released values have a row for each node of this process, except for sums over all nodes, which
    all processes have, and whose responses and samples are about the training nodes of this process.

    Formal guarantee: what all processes are given together is what one `Ledger` would give, from the same noise.
    """

    def __init__(self, plan: Plan, source: SharedSource, group: Group, nodes: Span, train: Span) -> None:
        super().__init__(plan, source)
        self._shared, self._group, self.nodes, self.train = source, group, nodes, train

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if self.plan[name].role in _SAME_EVERYWHERE:
            return super().release(name, value)
        with self._shared.only(self.nodes):
            return super().release(name, value)

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor:
        mechanism = self.plan[name]
        everybody = isinstance(mechanism, Responses) and mechanism.changed.unlabelled > 0
        with self._shared.only(self.nodes if everybody else self.train):
            return super().respond(name, symbols)

    def sample(self, name: str, rows: int) -> torch.Tensor | None:
        with self._shared.only(self.train):
            return super().sample(name, rows)

    def noisy_sum(self, name: str, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Add noise to sums over the training nodes of all processes.

        Rows of W are complete already; of everything else each process gives its own part.
        """
        whole = [part if isinstance(part, RowShard) else self._group.total(part) for part in sums]
        return [part.as_subclass(torch.Tensor) for part in super().noisy_sum(name, whole)]
