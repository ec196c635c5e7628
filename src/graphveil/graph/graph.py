"""`Graph`: adjacency, features, labels and masks, checked once and not changed afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.graph import adjacency, convert, validation
from graphveil.graph.adjacency import Repairs
from graphveil.graph.report import ReadReport, Undeclared
from graphveil.graph.splits import MASKS, PAPER_FRACTIONS, random_split

Direction = Literal["out", "in"]


class GraphView(Protocol):
    """What a fit reads of a graph besides its edges: a `Graph` has it, and so has one process's part of a graph.

    `indptr` and `indices` are there to tell one graph from another. Numbers of nodes and classes are those of the whole
    graph; features, labels and masks may be those of a part.
    """

    @property
    def indptr(self) -> np.ndarray: ...

    @property
    def indices(self) -> np.ndarray: ...

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


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Graph:
    """A graph with features, labels and a split.

    `indptr` and `indices` are the CSR form of the stored entries source -> target; an undirected graph stores each
    edge twice. Construction checks everything once: entries are 0/1 with an empty diagonal and no duplicates,
    features are finite, labels are in range, masks are disjoint and labelled. Nothing is repaired silently.
    Isolated nodes and graphs without edges are legal. Dense float32 features are shared with the caller, not copied.

    `directed` is declared by whoever knows the data. It is never measured, because a noise scale that follows from
    the symmetry of a private graph would give that symmetry away; a graph declared undirected must be symmetric.
    The number of classes is declared too (`num_classes` or `class_names`), or else read from the labels: then it is
    treated as a public fact, which `undeclared` says. Names of classes that are given here count as declared; a reader
    that took them from private data says so in `undeclared`, and they stay with the owner.

    Without a training mask the graph can be predicted on but not trained on: see `with_split` and `check_trainable`.

    Example:
        >>> graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], x=[[1.0], [2.0], [3.0]], y=[0, 1, 1],
        ...                               train_mask=[True, True, False], directed=True)
        >>> graph
        Graph('graph': 3 nodes, 3 stored edges, directed, 1 features, 2 classes, 2/0/0 in train/val/test)
        >>> graph.reads("in").toarray().astype(int).tolist()      # row i: the nodes whose edges point at i
        [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    """

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
    node_ids: np.ndarray | None
    class_names: tuple[str, ...] | None
    undeclared: Undeclared
    counts: ReadReport | None

    def __init__(
        self,
        indptr: Any,
        indices: Any,
        features: Any = None,
        labels: Any = None,
        train_mask: Any = None,
        val_mask: Any = None,
        test_mask: Any = None,
        *,
        directed: bool = False,
        num_classes: int | None = None,
        name: str = "graph",
        node_ids: Any = None,
        class_names: Sequence[Any] | None = None,
        undeclared: Undeclared | None = None,
        counts: ReadReport | None = None,
    ) -> None:
        if not isinstance(directed, (bool, np.bool_)):
            raise InvalidInput("directed", directed, "must be declared as True or False")
        indptr, indices = adjacency.canonical_csr(indptr, indices)
        if not directed:
            adjacency.check_symmetric(indptr, indices)
        n = len(indptr) - 1
        if num_classes is None and class_names is not None:
            num_classes = len(class_names)
        declared = num_classes is not None if undeclared is None else undeclared.classes is None
        y, num_classes = validation.labels(labels, n, num_classes)
        train, val, test = validation.masks(train_mask, val_mask, test_mask, y)
        checked = {
            "indptr": indptr,
            "indices": indices,
            "features": validation.features(features, n),
            "labels": y,
            "train_mask": train,
            "val_mask": val,
            "test_mask": test,
            "directed": bool(directed),
            "num_classes": num_classes,
            "name": str(name),
            "node_ids": validation.node_ids(node_ids, n),
            "class_names": validation.class_names(class_names, num_classes),
            "undeclared": dataclasses.replace(
                undeclared or Undeclared(), classes=None if declared else num_classes or None
            ),
            "counts": counts,
        }
        for field, value in checked.items():
            object.__setattr__(self, field, value)

    @property
    def num_nodes(self) -> int:
        """The number of nodes, isolated ones included."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Stored entries: an undirected edge counts twice, as in the paper's Table 1 and in PyG."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        """The number of columns of the features."""
        return int(self.features.shape[1])

    @property
    def has_split(self) -> bool:
        """Whether there is a training set."""
        return bool(self.train_mask.any())

    def reads(self, direction: Direction) -> sp.csr_array:
        """The matrix A in which row i lists the nodes that node i reads.

        "out": node i reads the targets of its edges; "in": it reads the sources of the edges that point at it. Which
        of the two a method uses is its own property; every conversion of direction happens here and nowhere else.
        Ones in float32, sorted rows, cached: do not modify it.
        """
        return self._reads_in if self._is_transposed(direction) else self._reads_out

    def features_torch(self) -> torch.Tensor:
        """The features as a tensor: strided if they are dense, `torch.sparse_csr` if they are sparse."""
        return self.features if isinstance(self.features, torch.Tensor) else adjacency.as_torch(self.features)

    def check_trainable(self) -> None:
        """Raise unless there is a training set; `fit` calls this before anything else."""
        if not self.has_split:
            raise InvalidInput("train_mask", None, "the graph has no training set: give masks, or use with_split(seed)")

    def with_split(self, seed: int, fractions: Sequence[float] = PAPER_FRACTIONS) -> Graph:
        """The same graph with random masks over its labelled nodes.

        Args:
            seed: The same seed gives the same masks.
            fractions: Parts of training, validation and test nodes.

        Returns:
            A new graph.
        """
        train, val, test = random_split(self.labels, seed=seed, fractions=fractions)
        return self._altered(train_mask=train, val_mask=val, test_mask=test)

    def with_counts(self, counts: ReadReport) -> Graph:
        """The same graph with a report of how it was read."""
        return self._altered(counts=counts)

    def subgraph(self, keep: Any) -> Graph:
        """The graph induced by the nodes of the boolean mask `keep`, in their order; classes and split are kept."""
        keep = np.asarray(keep)
        if keep.dtype != np.bool_ or keep.shape != (self.num_nodes,) or not keep.any():
            raise InvalidInput("keep", keep.shape, f"must be a boolean mask over {self.num_nodes} nodes, not all False")
        A = self.reads("out")[keep][:, keep]
        chosen = torch.from_numpy(keep)
        dense = isinstance(self.features, torch.Tensor)
        split = {field: getattr(self, field)[chosen] for field in MASKS}
        return self.replace(
            indptr=A.indptr,
            indices=A.indices,
            features=self.features[chosen if dense else keep],
            labels=self.labels[chosen],
            node_ids=None if self.node_ids is None else self.node_ids[keep],
            counts=None,
            **(split if bool(split["train_mask"].any()) else dict.fromkeys(split)),
        )

    def replace(self, **changes: Any) -> Graph:
        """A new graph, checked again, that differs in the given fields."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if not self.has_split:
            fields |= dict.fromkeys(MASKS)
        fields["num_classes"] = self.num_classes or None
        return Graph(**(fields | changes))

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        x: Any = None,
        y: Any = None,
        *,
        num_nodes: int | None = None,
        drop_self_loops: bool = False,
        drop_duplicates: bool = False,
        symmetrize: bool = False,
        **fields: Any,
    ) -> Graph:
        """A graph from a list of edges.

        Args:
            edge_index: Sources and targets, as an array of shape (2, edges).
            x: Features, a row for each node: dense or scipy sparse. None: no features.
            y: Class numbers, -1 for a node without a label. None: no labels.
            num_nodes: The number of nodes, if neither `x` nor `y` says it.
            drop_self_loops: Remove edges from a node to itself; without it they are an error.
            drop_duplicates: Keep one of equal edges; without it they are an error.
            symmetrize: Add the reverse of every edge.
            fields: Further fields of `Graph`: masks, `directed`, `num_classes`, `name`, `node_ids`, `class_names`.

        Returns:
            The checked graph.

        Raises:
            InvalidInput: The data is not a graph as `Graph` describes it.
        """
        n = validation.count_nodes(num_nodes, x, y)
        repairs = Repairs(drop_self_loops, drop_duplicates, symmetrize)
        indptr, indices = adjacency.csr_from_edges(edge_index, n, repairs)
        return cls(indptr, indices, x, y, **fields)

    @classmethod
    def from_pyg(cls, data: Any, split: int = 0, *, directed: bool = False, **options: Any) -> Graph:
        """A graph from PyTorch Geometric.

        Args:
            data: A PyG `Data` with `edge_index`, and optionally `x`, `y` and masks.
            split: Which column of masks that have several.
            directed: The declaration of direction.
            options: As in `from_edge_index`.

        Returns:
            The graph, checked; fields that `data` does not have are left out.

        Raises:
            InvalidInput: `data` has no edges, or a field is not as `Graph` describes it.
        """
        return cls.from_edge_index(**(convert.fields_from_pyg(data, split) | {"directed": directed} | options))

    @classmethod
    def from_scipy(cls, A: Any, x: Any = None, y: Any = None, *, directed: bool = False, **options: Any) -> Graph:
        """A graph from an adjacency matrix.

        Args:
            A: A square scipy matrix with ones at [source, target].
            x: Features, a row for each node.
            y: Class numbers, -1 for a node without a label.
            directed: The declaration of direction. An undirected matrix must be symmetric.
            options: As in `from_edge_index`.

        Returns:
            A graph on as many nodes as `A` has rows.

        Raises:
            InvalidInput: `A` is not square, or the graph is not as `Graph` describes it.
        """
        edges = convert.edges_from_scipy(A)
        return cls.from_edge_index(edges, x, y, num_nodes=A.shape[0], directed=directed, **options)

    @classmethod
    def from_networkx(
        cls, graph: Any, *, features: str = "x", label: str = "y", split: str = "split", **options: Any
    ) -> Graph:
        """A graph from NetworkX, whose class (`Graph` or `DiGraph`) is the declaration of direction.

        Args:
            graph: The NetworkX graph.
            features: The node attribute that holds a sequence of numbers.
            label: The node attribute that holds a class number.
            split: The node attribute that holds "train", "val" or "test".
            options: As in `from_edge_index`.

        Returns:
            The checked graph. Attributes that no node has are left out.

        Raises:
            InvalidInput: The data is not a graph as `Graph` describes it.
        """
        return cls.from_edge_index(**(convert.fields_from_networkx(graph, features, label, split) | options))

    def to_pyg(self) -> Any:
        """A PyG `Data`; masks are there if the graph has a split."""
        return convert.to_pyg(self)

    def to_scipy(self) -> sp.csr_array:
        """The stored entries, ones at [source, target]; a copy."""
        return self._reads_out.copy()

    def to_networkx(self) -> Any:
        """A NetworkX `Graph` or `DiGraph` with the attributes `x`, `y` and `split`; nodes are named by `node_ids`."""
        return convert.to_networkx(self)

    def __repr__(self) -> str:
        split = "/".join(f"{int(mask.sum()):,}" for mask in (self.train_mask, self.val_mask, self.test_mask))
        return (
            f"Graph({self.name!r}: {self.num_nodes:,} nodes, {self.num_edges:,} stored edges, "
            f"{'directed' if self.directed else 'undirected'}, {self.num_features:,} features, "
            f"{self.num_classes} classes, {split} in train/val/test)"
        )

    def __getstate__(self) -> dict[str, Any]:
        # The cached matrices are cheap to build again and would triple what is sent to another process.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def _altered(self, **fields: Any) -> Graph:
        """A copy with fields that are right by construction: nothing is checked again, cached matrices are shared."""
        other = object.__new__(Graph)
        other.__dict__.update(self.__dict__ | fields)
        return other

    def _with_canonical_rows(self, indptr: np.ndarray, indices: np.ndarray) -> Graph:
        """This graph, which has no edges, with edges that are not checked again.

        The privacy analysis rests on their form. Only for edges that `io.mapped` has checked on the way to a file.
        """
        return self._altered(indptr=indptr, indices=indices)

    def _is_transposed(self, direction: str) -> bool:
        if direction not in ("out", "in"):
            raise InvalidInput("direction", direction, "must be 'out' or 'in'")
        return self.directed and direction == "in"

    @cached_property
    def _reads_out(self) -> sp.csr_array:
        return adjacency.as_scipy(self.indptr, self.indices)

    @cached_property
    def _reads_in(self) -> sp.csr_array:
        transposed = self._reads_out.T.tocsr()
        return adjacency.as_scipy(transposed.indptr, transposed.indices)
