"""Graphs: reading and writing, benchmark datasets, splits, the degree cap, statistics.

`GraphView` is what the rest of the library reads of a graph. `Fingerprint` is a salted digest of that: whether two
graphs are the same. It is made of sums over links and nodes, so that several processes with a part of the graph each
make the same one.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.graph.adjacency import cap_degree, column_sums
from graphveil.graph.datasets import csbm, dataset_names, load_dataset
from graphveil.graph.datasets.paper import statistics
from graphveil.graph.graph import Direction, Graph
from graphveil.graph.io import read_graph, write_graph
from graphveil.graph.links import Relations
from graphveil.graph.splits import random_split
from graphveil.graph.summary import ReadReport, Undeclared

__all__ = [
    "Direction",
    "Fingerprint",
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

# Links, or numbers of features, that are hashed at a time.
_AT_ONCE = 2**20


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


@dataclass(frozen=True)
class Fingerprint:
    """A salted digest of links, features, labels, training and validation set.

    It can confirm a guess about private data, so it is for the owner. Because of the salt, two fingerprints do not show
    that they are of the same graph.
    """

    salt: str
    digest: str

    @classmethod
    def of(cls, graph: GraphView, salt: str | None = None) -> Self:
        """The fingerprint of a graph; without a salt, with a new one."""
        salt = salt or secrets.token_hex(16)
        return cls.of_sums(graph_sums(graph, salt), graph, salt)

    @classmethod
    def of_sums(cls, sums: np.ndarray, graph: GraphView, salt: str) -> Self:
        """The fingerprint of a graph whose `graph_sums`, those of all its parts together, are these."""
        digest = hashlib.blake2b(sums.tobytes(), key=salt.encode(), digest_size=16)
        form = "dense" if isinstance(graph.features, torch.Tensor) else "sparse"
        digest.update(f"{form} {graph.num_nodes} {graph.num_features}\0".encode())
        for name, array in _undivided(graph):
            digest.update(f"{name} {array.dtype} {array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return cls(salt, digest.hexdigest())

    def is_of(self, graph: GraphView) -> bool:
        """Whether links, features, labels, training and validation set are the same."""
        return type(self).of(graph, self.salt) == self

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What `to_dict` wrote; strict about its form."""
        if not isinstance(data, dict) or set(data) != {"salt", "digest"}:
            raise InvalidInput("content", type(data).__name__, "must have the keys salt and digest")
        if not all(isinstance(value, str) and 0 < len(value) <= 64 for value in data.values()):
            raise InvalidInput("content", sorted(data), "must be short texts")
        return cls(**data)


def graph_sums(graph: GraphView, salt: str, first: int = 0, *, reversed_links: bool = False) -> np.ndarray:
    """Two sums of keyed hashes of all links and nodes, modulo 2^64: those of a graph are the sums of its parts'.

    Args:
        graph: A graph, or the part of one that has the nodes from `first` on, and the links in their columns.
        salt: The key.
        first: The number of the first node.
        reversed_links: Whether row and column of a link are its target and its source.
    """
    keys = np.frombuffer(hashlib.blake2b(salt.encode(), digest_size=64).digest(), np.uint64)
    totals = [
        _links(graph, key, first, reversed_links) + _rows(graph, others, first) for key, *others in (keys[:4], keys[4:])
    ]
    return np.array([total % 2**64 for total in totals], np.uint64)


def _links(graph: GraphView, key: np.uint64, first: int, reversed_links: bool) -> int:
    total = 0
    for low in range(0, len(graph.indices), _AT_ONCE):
        places = np.arange(low, min(low + _AT_ONCE, len(graph.indices)))
        row = (np.searchsorted(graph.indptr, places, side="right") - 1).astype(np.uint64)
        column = graph.indices[low : low + _AT_ONCE].astype(np.uint64) + np.uint64(first)
        source, target = (column, row) if reversed_links else (row, column)
        total += int(mixed(mixed(source ^ key) + target).sum(dtype=np.uint64))
    return total


def _rows(graph: GraphView, keys: Sequence[np.uint64], first: int) -> int:
    """Features, labels and sets of nodes."""
    total, columns = 0, mixed(np.arange(graph.num_features, dtype=np.uint64) ^ keys[0]) | np.uint64(1)
    at_once = max(1, _AT_ONCE // max(1, graph.num_features))
    for low in range(0, len(graph.labels), at_once):
        some = slice(low, low + at_once)
        node = np.arange(first + low, first + min(low + at_once, len(graph.labels)), dtype=np.uint64)
        x = graph.features[some]
        if isinstance(x, torch.Tensor):
            hashed = np.ascontiguousarray(x.numpy()).view(np.uint32).astype(np.uint64) @ columns
        else:
            entries = x.data.view(np.uint32).astype(np.uint64) * columns[x.indices]
            ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
            hashed = ends[x.indptr[1:]] - ends[x.indptr[:-1]]
        sets = [graph.labels[some].numpy() + 1, graph.train_mask[some].numpy(), graph.val_mask[some].numpy()]
        known = sum(each.astype(np.uint64) << np.uint64(shift) for each, shift in zip(sets, (2, 1, 0), strict=True))
        total += int(mixed(mixed(mixed(node ^ keys[1]) + hashed) + (known ^ keys[2])).sum(dtype=np.uint64))
    return total


def _undivided(graph: GraphView) -> Iterator[tuple[str, np.ndarray]]:
    """What graphs in parts do not have."""
    if graph.weights is not None:
        yield "weights", graph.weights
    if graph.relations is not None:
        for part in ("data", "indices", "indptr"):
            yield f"relations.{part}", getattr(graph.relations.stacked, part)


def mixed(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
