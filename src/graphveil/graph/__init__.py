"""Graphs: reading and writing, benchmark datasets, splits, the degree cap, statistics.

`GraphView` is what the rest of the library reads of a graph.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.graph.adjacency import cap_degree, column_sums
from graphveil.graph.datasets import csbm, dataset_names, load_dataset
from graphveil.graph.graph import Direction, Graph
from graphveil.graph.io import read_graph, write_graph
from graphveil.graph.links import Relations
from graphveil.graph.splits import random_split
from graphveil.graph.statistics import statistics
from graphveil.graph.summary import ReadReport, Undeclared

__all__ = [
    "Direction",
    "Graph",
    "GraphView",
    "ReadReport",
    "cap_degree",
    "column_sums",
    "csbm",
    "dataset_names",
    "load_dataset",
    "random_split",
    "read_graph",
    "statistics",
    "write_graph",
]


class GraphView(Protocol):
    """What a fit reads of a graph besides its edges: a `Graph` has it, and so has one process's part of a graph.

    Links are there to tell one graph from another. Numbers of nodes and classes are those of the whole graph; features,
    labels and masks may be those of a part.
    """

    @property
    def indptr(self) -> np.ndarray: ...

    @property
    def indices(self) -> np.ndarray: ...

    @property
    def weights(self) -> np.ndarray | None: ...

    @property
    def relations(self) -> Relations | None: ...

    @property
    def features(self) -> torch.Tensor | sp.csr_array: ...

    @property
    def labels(self) -> torch.Tensor: ...

    @property
    def train_mask(self) -> torch.Tensor: ...

    @property
    def val_mask(self) -> torch.Tensor: ...

    @property
    def num_nodes(self) -> int: ...

    @property
    def num_features(self) -> int: ...

    @property
    def num_classes(self) -> int: ...

    @property
    def node_ids(self) -> np.ndarray | None: ...

    @property
    def class_names(self) -> tuple[str, ...] | None: ...

    @property
    def undeclared(self) -> Undeclared: ...

    @property
    def counts(self) -> ReadReport | None: ...

    @property
    def numeric_columns(self) -> tuple[tuple[int, int], ...]: ...
