"""What belongs to one process: its nodes, its part of a graph, and its part of the noise."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.distributed.group import Group
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from graphveil.graph import Fingerprint, Graph, graph_sums, mixed
from graphveil.graph.graph import Direction
from graphveil.graph.summary import ReadReport, Undeclared
from graphveil.noise import Draw, NoiseSource
from graphveil.noise.normals import CHUNK, Rounding
from graphveil.privacy.facts import PublicFacts, check_declared_edges, declared_edges
from graphveil.privacy.mechanisms import Responses
from graphveil.privacy.plan import Plan

_EDGES_AT_ONCE = 2**20


@dataclass(frozen=True)
class Span:
    """A range of rows, `first` .. `first + count - 1` of `total`."""

    first: int
    count: int
    total: int

    @classmethod
    def of(cls, counts: Sequence[int], rank: int) -> Span:
        """The rows of process `rank`, where process r has `counts[r]` rows, one process's after the other's."""
        return cls(sum(counts[:rank]), counts[rank], sum(counts))


@dataclass(frozen=True)
class Layout:
    """Contiguous blocks of nodes, one for each process: rows of W, columns of A, and readers."""

    starts: tuple[int, ...]

    @classmethod
    def even(cls, nodes: int, parts: int) -> Layout:
        """Blocks of equal size; some have one node more."""
        if nodes < parts:
            raise InvalidInput("processes", parts, f"are more than there are nodes, {nodes}")
        return cls(tuple(nodes * part // parts for part in range(parts + 1)))

    @property
    def counts(self) -> list[int]:
        """How many nodes each process has."""
        return [b - a for a, b in pairwise(self.starts)]

    def span(self, rank: int) -> Span:
        """The nodes of one process."""
        return Span.of(self.counts, rank)


@dataclass(frozen=True, eq=False, kw_only=True)
class Shard:
    """The part of a graph that belongs to one process: its nodes, and the edges that lead to them.

    Args:
        layout: Which nodes belong to which process.
        rank: The number of this process.
        name, directed, num_classes, class_names, undeclared, numeric_columns: As in `Graph`, of the whole graph.
        counts: What was read from files, for the whole graph.
        direction: Which end of an edge is the reader, as in `Graph.reads`.
        indptr, indices: A row for each node of the graph, over the columns of own nodes, which count from 0.
        train_mask, val_mask, test_mask, features, labels, node_ids: As in `Graph`, of own nodes.
        weights, relations: None: such graphs are not divided yet.
    """

    layout: Layout
    rank: int
    name: str
    directed: bool
    num_classes: int
    class_names: tuple[str, ...] | None = None
    undeclared: Undeclared = field(default_factory=Undeclared)
    numeric_columns: tuple[tuple[int, int], ...] = ()
    counts: ReadReport | None = None
    direction: Direction = "out"
    indptr: np.ndarray
    indices: np.ndarray
    train_mask: torch.Tensor
    val_mask: torch.Tensor
    test_mask: torch.Tensor
    features: torch.Tensor | sp.csr_array
    labels: torch.Tensor
    node_ids: np.ndarray | None = None
    weights: None = None
    relations: None = None

    @property
    def span(self) -> Span:
        """The nodes of this process."""
        return self.layout.span(self.rank)

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the whole graph."""
        return self.layout.starts[-1]

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @classmethod
    def of(cls, graph: Graph, group: Group, direction: Direction = "out") -> Shard:
        """This process's part of a graph that each process has in memory."""
        check_divisible(graph)
        layout = Layout.even(graph.num_nodes, group.size)
        span = layout.span(group.rank)
        own = slice(span.first, span.first + span.count)
        columns = sp.csr_array(graph.reads(direction)[:, own])
        features = graph.features[own]
        return cls(
            layout=layout,
            rank=group.rank,
            indptr=columns.indptr,
            indices=columns.indices,
            features=features.clone() if isinstance(features, torch.Tensor) else sp.csr_array(features),
            labels=graph.labels[own].clone(),
            train_mask=graph.train_mask[own].clone(),
            val_mask=graph.val_mask[own].clone(),
            test_mask=graph.test_mask[own].clone(),
            directed=graph.directed,
            num_classes=graph.num_classes,
            name=graph.name,
            class_names=graph.class_names,
            node_ids=None if graph.node_ids is None else graph.node_ids[own],
            counts=graph.counts,
            undeclared=graph.undeclared,
            numeric_columns=graph.numeric_columns,
            direction=direction,
        )

    def fingerprint(self, group: Group, salt: str | None = None) -> Fingerprint:
        """The fingerprint of the whole graph; without a salt, with a new one. All processes call this together."""
        salt = group.object_from_first(salt or secrets.token_hex(16))
        sums = graph_sums(self, salt, self.span.first, reversed_links=self.direction == "in")
        together = group.total(torch.from_numpy(sums.view(np.int64))).numpy().view(np.uint64)
        return Fingerprint.of_sums(together, self, salt)

    def facts(self, group: Group, *, edges: int | None) -> PublicFacts:
        """Public facts about the whole graph, from which the plan is made.

        Args:
            group: All processes, which call this together.
            edges: The declared bound on the number of stored edges; None: there is none.

        Raises:
            InvalidInput: There is no training set, or there are more edges than declared.
        """
        train, stored = group.total(torch.tensor([int(self.train_mask.sum()), len(self.indices)])).tolist()
        if not train:
            raise InvalidInput("train_mask", None, "the graph has no training set")
        facts = PublicFacts(
            nodes=self.num_nodes,
            train_nodes=train,
            features=self.num_features,
            classes=self.num_classes,
            directed=self.directed,
            edges=declared_edges(edges),
            undeclared=self.undeclared.facts(),
            numeric_columns=len(self.numeric_columns),
        )
        check_declared_edges(facts, stored)
        return facts


def check_divisible(graph: Graph) -> None:
    """Refuse a graph with links that parts cannot hold."""
    if graph.max_weight is not None or graph.relations is not None:
        raise InvalidInput("graph", graph.name, "weights and relations cannot be divided yet; use one process")


def is_symmetric(source: np.ndarray, target: np.ndarray, group: Group) -> bool:
    """Whether each edge of all processes is there in both directions.

    The two directions of an edge may be in the parts of two processes. So each process adds keyed hashes of its edges,
    with a sign for the direction, and the total of all processes must be zero. A graph that is not symmetric passes
    with a probability of about 2^-64.
    """
    key = group.object_from_first(int(np.random.default_rng().integers(2**63)))
    total = 0
    for first in range(0, len(source), _EDGES_AT_ONCE):
        a, b = (ends[first : first + _EDGES_AT_ONCE].astype(np.uint64) for ends in (source, target))
        hashed = mixed(mixed(np.minimum(a, b) ^ np.uint64(key)) + np.maximum(a, b))
        up = a < b
        total += int(hashed[up].sum(dtype=np.uint64)) - int(hashed[~up].sum(dtype=np.uint64))
    # Sums of int64 wrap, so a residue modulo 2^64 may be written as a signed number.
    residue = (total + 2**63) % 2**64 - 2**63
    return not int(group.total(torch.tensor([residue])))


def return_free_memory() -> None:
    """Return memory that is free to the system, where the C library can; glibc otherwise keeps much of it."""
    _malloc_trim()(0)


@cache
def _malloc_trim() -> Callable[[int], object]:
    trim: Callable[[int], object] = getattr(ctypes.CDLL(None), "malloc_trim", lambda kept: kept)
    return trim


# Roles of releases without rows of nodes: the processes have added up their parts already.
_SAME_EVERYWHERE = ("scales", "classes", "class sums", "statistics", "expectation")


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
