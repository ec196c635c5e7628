"""Which nodes belong to which process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphveil.errors import InvalidInput


@dataclass(frozen=True)
class Span:
    """Rows `first` .. `first + count - 1` of `total`."""

    first: int
    count: int
    total: int

    @classmethod
    def of(cls, counts: Sequence[int], rank: int) -> Span:
        """The rows of a rank, where each has so many, one rank's after the other's."""
        return cls(sum(counts[:rank]), counts[rank], sum(counts))


@dataclass(frozen=True)
class Layout:
    """Contiguous blocks of nodes, one for each process: rows of W, columns of A, and readers."""

    starts: tuple[int, ...]

    @classmethod
    def even(cls, nodes: int, parts: int) -> Layout:
        """Blocks of equal size, but for one node."""
        if nodes < parts:
            raise InvalidInput("processes", parts, f"are more than there are nodes, {nodes}")
        return cls(tuple(nodes * part // parts for part in range(parts + 1)))

    @property
    def counts(self) -> list[int]:
        return [b - a for a, b in pairwise(self.starts)]

    def span(self, rank: int) -> Span:
        return Span.of(self.counts, rank)
