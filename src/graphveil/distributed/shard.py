"""A process's part of a graph: its nodes with their features and labels, and the entries of A in their columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.distributed.group import Group
from graphveil.distributed.layout import Layout, Span
from graphveil.errors import InvalidInput
from graphveil.graph import Graph
from graphveil.graph.fingerprint import Fingerprint
from graphveil.graph.graph import Direction
from graphveil.graph.report import ReadReport, Undeclared
from graphveil.methods.estimator import check_declared_edges, declared_edges
from graphveil.privacy.facts import PublicFacts


@dataclass(frozen=True, eq=False)
class Shard:
    """`indptr` and `indices` are rows of all readers over own columns, which count from 0; everything else is about
    own nodes. Names and numbers of nodes, features and classes are those of the whole graph.
    """

    layout: Layout
    rank: int
    indptr: np.ndarray
    indices: np.ndarray
    features: torch.Tensor | sp.csr_array
    labels: torch.Tensor
    train_mask: torch.Tensor
    val_mask: torch.Tensor
    test_mask: torch.Tensor
    directed: bool
    num_classes: int
    name: str
    class_names: tuple[str, ...] | None = None
    node_ids: np.ndarray | None = None
    counts: ReadReport | None = None
    undeclared: Undeclared = field(default_factory=Undeclared)
    fingerprint: Fingerprint | None = None
    """Of the whole graph, where a process has seen it."""

    @property
    def span(self) -> Span:
        return self.layout.span(self.rank)

    @property
    def num_nodes(self) -> int:
        return self.layout.starts[-1]

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @classmethod
    def of(cls, graph: Graph, group: Group, direction: Direction = "out") -> Shard:
        """A part of a graph that is in memory; for graphs that fit into one."""
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
            node_ids=graph.node_ids,
            counts=graph.counts,
            undeclared=graph.undeclared,
            fingerprint=Fingerprint.of(graph) if group.rank == 0 else None,
        )

    def facts(self, group: Group, *, edges: int | None) -> PublicFacts:
        """What the plan is made from, of the whole graph; `edges` is the declared bound, which it has to keep."""
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
            found=self.undeclared.facts(),
        )
        check_declared_edges(facts, stored)
        return facts
