"""`Graph`: adjacency, features, labels and masks, checked once and not changed afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.graph import adjacency, convert, links, validation
from graphveil.graph.adjacency import Repairs
from graphveil.graph.links import Relations
from graphveil.graph.splits import MASKS, PAPER_FRACTIONS, random_split
from graphveil.graph.summary import ReadReport, Undeclared

Direction = Literal["out", "in"]


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Graph(convert.Conversions):
    """A graph with features, labels and a split.

    Construction checks everything once: entries are 0 or 1 with an empty diagonal and no duplicates, features are
    finite, labels are in range, masks are disjoint and labelled. Nothing is repaired silently. Isolated nodes and
    graphs without edges are legal. Dense float32 features are shared with the caller, not copied.

    Args:
        indptr, indices: The CSR form of the stored entries source -> target; an undirected graph stores each edge
            twice.
        features: A dense or sparse row of numbers for each node.
        labels: The class of each node, -1 where there is none.
        train_mask, val_mask, test_mask: Without a training mask the graph can be predicted on but not trained on: see
            `with_split` and `check_trainable`.
        directed: Declared by whoever knows the data and never measured: noise that follows from the symmetry of a
            private graph would give that symmetry away. A graph declared undirected must be symmetric.
        num_classes: Declared as well, or by `class_names`; else it is read from the labels and treated as a public
            fact, which `undeclared` says.
        name: What the graph is called in messages and on certificates.
        node_ids: What nodes are called; by default their numbers.
        class_names: Names that are given here count as declared. A reader that took them from private data says so in
            `undeclared`, and they stay with the owner.
        undeclared: What was read from the data although it could have been declared.
        counts: What was read from files.
        numeric_columns: Columns of features that hold raw numbers, each with the column that is 1 where its value is
            missing (-1: none is). A fit brings them to one scale, by statistics that it pays for where attributes are
            private (docs/data.md).
        weights, max_weight: Entries as parts of a declared largest weight.
        relations: Several relations between the nodes; the other fields then describe their sum, cut at 1
            (docs/data.md).

    Raises:
        InvalidInput: A field is not as described; the message names the field, the place and the value.

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
    numeric_columns: tuple[tuple[int, int], ...]
    weights: np.ndarray | None
    max_weight: float | None
    relations: Relations | None

    def __init__(
        self,
        indptr: Any = None,
        indices: Any = None,
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
        numeric_columns: Sequence[tuple[int, int]] = (),
        weights: Any = None,
        max_weight: float | None = None,
        relations: Relations | None = None,
    ) -> None:
        if not isinstance(directed, (bool, np.bool_)):
            raise InvalidInput("directed", directed, "must be declared as True or False")
        linked = links.checked(indptr, indices, weights, max_weight, relations, bool(directed))
        n = len(linked["indptr"]) - 1
        if num_classes is None and class_names is not None:
            num_classes = len(class_names)
        declared = num_classes is not None if undeclared is None else undeclared.classes is None
        y, num_classes = validation.labels(labels, n, num_classes)
        train, val, test = validation.masks(train_mask, val_mask, test_mask, y)
        found = dataclasses.replace(undeclared or Undeclared(), classes=None if declared else num_classes or None)
        x = validation.features(features, n)
        checked = {
            **linked,
            "features": x,
            "labels": y,
            "train_mask": train,
            "val_mask": val,
            "test_mask": test,
            "directed": bool(directed),
            "num_classes": num_classes,
            "name": str(name),
            "node_ids": validation.node_ids(node_ids, n),
            "class_names": validation.class_names(class_names, num_classes),
            "undeclared": found,
            "counts": counts,
            "numeric_columns": validation.numeric_columns(numeric_columns, int(x.shape[1])),
        }
        for field, value in checked.items():
            object.__setattr__(self, field, value)

    @property
    def num_nodes(self) -> int:
        """The number of nodes, isolated ones included."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Stored entries of all relations: an undirected edge counts twice, as in the paper's Table 1 and in PyG."""
        return len(self.indices) if self.relations is None else int(self.relations.stacked.nnz)

    @property
    def num_features(self) -> int:
        """The number of columns of the features."""
        return int(self.features.shape[1])

    @property
    def has_split(self) -> bool:
        """Whether there is a training set."""
        return bool(self.train_mask.numpy().any())

    def reads(self, direction: Direction, *, by_relation: bool = False) -> sp.csr_array:
        """The matrix A in which row i lists the nodes that node i reads. Only here is a direction converted.

        Args:
            direction: "out": node i reads the targets of its edges; "in": the sources of the edges that point at it.
            by_relation: Whether to have the matrices of all relations one below the other, in place of their sum.

        Returns:
            Ones or weights in float32, with sorted rows. It is kept: do not modify it.
        """
        if direction not in ("out", "in"):
            raise InvalidInput("direction", direction, "must be 'out' or 'in'")
        transposed = self.directed and direction == "in"
        if by_relation and self.relations is not None:
            return self.relations.transposed().stacked if transposed else self.relations.stacked
        return self._reads_in if transposed else self._reads_out

    def features_torch(self) -> torch.Tensor:
        """The features as a tensor: strided if they are dense, `torch.sparse_csr` if they are sparse."""
        return self.features if isinstance(self.features, torch.Tensor) else adjacency.as_torch(self.features)

    def check_trainable(self) -> None:
        """Raise unless there is a training set; `fit` calls this before anything else."""
        if self.has_split:
            return
        if self.counts is not None and self.counts.classes == 0 and self.counts.columns:
            columns = ", ".join(repr(column.name) for column in self.counts.columns)
            why = f"no column is named label, so nothing can be learnt; the label may be one of {columns}"
            raise InvalidInput("label_column", None, why)
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
            weights=None if self.weights is None else A.data,
            relations=None if self.relations is None else self.relations.among(keep),
            features=self.features[chosen if dense else keep],
            labels=self.labels[chosen],
            node_ids=None if self.node_ids is None else self.node_ids[keep],
            counts=None,
            **(split if bool(split["train_mask"].any()) else dict.fromkeys(split)),
        )

    def emptied(self, node: int, *, keep_links: bool = False) -> Graph:
        """The graph with one node emptied: no links (or its own ones), features of zero and no label.

        The zero-out unit compares a graph with this one (docs/theory.md, section 2.6). The node stays in the training,
        validation or test set that it is in.
        """
        others = np.arange(self.num_nodes) != node
        kept = sp.csr_array(
            (np.ones(others.sum(), np.float32), (others.nonzero()[0],) * 2), shape=(self.num_nodes,) * 2
        )
        A, relations = self.reads("out"), self.relations
        if not keep_links:
            A = sp.csr_array(kept @ A @ kept)
            relations = None if relations is None else relations.between(kept)
        dense = isinstance(self.features, torch.Tensor)
        features = self.features * torch.from_numpy(others)[:, None] if dense else kept @ self.features
        labels = torch.where(torch.from_numpy(others), self.labels, -1)
        weights = None if self.weights is None else A.data
        links = {"indptr": A.indptr, "indices": A.indices, "weights": weights, "relations": relations}
        cleared = self.replace(**links, features=features, counts=None)
        return cleared._altered(labels=labels)  # unchecked: sets of nodes that are read must have labels

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
        merge_duplicates: bool = False,
        symmetrize: bool = False,
        edge_weight: Any = None,
        max_weight: float | None = None,
        edge_relation: Any = None,
        relations: Sequence[str] | None = None,
        **fields: Any,
    ) -> Graph:
        """A graph from a list of edges.

        Args:
            edge_index: Sources and targets, as an array of shape (2, edges).
            x: Features, a row for each node: dense or scipy sparse. None: no features.
            y: Class numbers, -1 for a node without a label. None: no labels.
            num_nodes: The number of nodes, if neither `x` nor `y` says it.
            drop_self_loops: Remove edges from a node to itself; without it they are an error.
            merge_duplicates: Make one of equal edges; without it they are an error. Weights are added; without weights,
                a `max_weight` makes the number of equal edges the weight.
            symmetrize: Add the reverse of every edge.
            edge_weight: A number for each edge, 0 or more.
            max_weight: The weight from which on a link counts fully. Declared, never measured: it is public.
            edge_relation: Which relation each edge belongs to, by name or number.
            relations: The names of all relations. Declared: they are public.
            fields: Further fields of `Graph`: masks, `directed`, `num_classes`, `name`, `node_ids`, `class_names`.

        Returns:
            The checked graph.

        Raises:
            InvalidInput: The data is not a graph as `Graph` describes it.
        """
        n = validation.count_nodes(num_nodes, x, y)
        asked = {"drop_self_loops": drop_self_loops, "merge_duplicates": merge_duplicates, "symmetrize": symmetrize}
        repairs = Repairs(**{name: validate.flag(name, value) for name, value in asked.items()})
        linked = links.from_edges(edge_index, n, repairs, edge_weight, max_weight, edge_relation, relations)
        return cls(features=x, labels=y, **linked, **fields)

    @classmethod
    def from_tables(
        cls,
        nodes: Any,
        edges: Any,
        *,
        directed: bool = False,
        seed: int | None = 0,
        name: str = "graph",
        **options: Any,
    ) -> Graph:
        """A graph from tables in memory: pandas, polars, Arrow, dictionaries of arrays, and what speaks Arrow.

        Args:
            nodes: A row for each node: an id, features, and optionally a label and a set (`split`).
            edges: A row for each edge: the ids of its source and its target.
            directed: The declaration of direction.
            seed: Draws a 75/10/15 split where there is none; None: leave it without one.
            name: The name of the graph.
            options: What `read_graph` takes about tables: `label_column`, `id_column`, `drop_columns`, `ranges` ...

        Returns:
            The checked graph; `counts` says what became of each column.

        Raises:
            InvalidInput: A table cannot be read, or is not as docs/data.md describes it.

        Example:
            >>> nodes = {"id": ["ann", "bob", "cyd"], "income": [31.5, None, 44.0], "fraud": ["no", "no", "yes"]}
            >>> edges = {"source": ["ann", "bob"], "target": ["bob", "cyd"]}
            >>> graph = Graph.from_tables(nodes, edges, label_column="fraud", classes=["no", "yes"])
            >>> graph.class_names, graph.features.tolist()
            (('no', 'yes'), [[31.5, 0.0], [0.0, 1.0], [44.0, 0.0]])
        """
        from graphveil.graph.io import graph_of_tables

        return graph_of_tables(nodes, edges, options, directed=directed, seed=seed, name=name)

    def to_scipy(self) -> sp.csr_array:
        """The stored entries, ones at [source, target]; a copy."""
        return self._reads_out.copy()

    def to_pyg(self) -> Any:
        """A PyG `Data`; masks are there if the graph has a split."""
        return convert.to_pyg(self)

    def to_networkx(self) -> Any:
        """A NetworkX `Graph` or `DiGraph` with the attributes `x`, `y` and `split`; nodes are named by `node_ids`."""
        return convert.to_networkx(self)

    def __repr__(self) -> str:
        split = "/".join(f"{int(mask.sum()):,}" for mask in (self.train_mask, self.val_mask, self.test_mask))
        said = "" if self.max_weight is None else f"weights up to {self.max_weight:g}, "
        said += "" if self.relations is None else f"relations {', '.join(self.relations.names)}, "
        return (
            f"Graph({self.name!r}: {self.num_nodes:,} nodes, {self.num_edges:,} stored edges, {said}"
            f"{'directed' if self.directed else 'undirected'}, {self.num_features:,} features, "
            f"{self.num_classes} classes, {split} in train/val/test)"
        )

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        """Refused: scikit-learn asks for it before it cuts a table of rows into folds."""
        why = (
            "is no table of rows, so it cannot be cut into folds; to choose among settings and pay for the choice, "
            "use gv.PrivateSearch"
        )
        raise InvalidInput("graph", self.name, why)

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

        The privacy analysis rests on their form. Only for edges that readers of tables have checked on the way
        (`adjacency.rows_of_pairs`, `io.edges`).
        """
        return self._altered(indptr=indptr, indices=indices)

    @cached_property
    def _reads_out(self) -> sp.csr_array:
        return adjacency.as_scipy(self.indptr, self.indices, self.weights)

    @cached_property
    def _reads_in(self) -> sp.csr_array:
        A = self._reads_out.T.tocsr()
        return adjacency.as_scipy(A.indptr, A.indices, None if self.weights is None else A.data)
