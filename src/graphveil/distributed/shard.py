"""Which nodes belong to which process, and the part of a graph that a process has."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.distributed.group import Group
from graphveil.errors import InvalidInput
from graphveil.graph import Graph
from graphveil.graph.fingerprint import Fingerprint, graph_sums
from graphveil.graph.graph import Direction
from graphveil.graph.summary import ReadReport, Undeclared
from graphveil.privacy.facts import PublicFacts, check_declared_edges, declared_edges


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


def return_free_memory() -> None:
    """Return memory that is free to the system, where the C library can; glibc otherwise keeps much of it."""
    _malloc_trim()(0)


@cache
def _malloc_trim() -> Callable[[int], object]:
    trim: Callable[[int], object] = getattr(ctypes.CDLL(None), "malloc_trim", lambda kept: kept)
    return trim
