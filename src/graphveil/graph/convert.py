"""From and to other libraries: PyTorch Geometric (objects and `.pt` files), scipy, NetworkX."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.graph.links import edge_list
from graphveil.graph.splits import MASKS, SPLITS, column_of_mask, split_names
from graphveil.graph.summary import FeatureColumn, FileContent
from graphveil.validate import decoding, inside

if TYPE_CHECKING:
    from graphveil.graph.graph import Graph

# What of a PyG `Data` becomes a `Graph`.
_READ = ("edge_index", "x", "y", "num_nodes", *MASKS)
# Where PyG has weights of edges.
_WEIGHTS = ("edge_weight", "edge_attr")
_OF_EDGES = (*_WEIGHTS, "edge_type")


class Conversions:
    """The ways from other libraries, as methods of `Graph`."""

    from_edge_index: ClassVar[Callable[..., Graph]]

    @classmethod
    def from_pyg(cls, data: Any, split: int = 0, *, directed: bool = False, **options: Any) -> Graph:
        """A graph from PyTorch Geometric.

        Args:
            data: A PyG `Data` with `edge_index`, and optionally `x`, `y` and masks, or a `HeteroData` with one type of
                node, whose edge types are relations. With `max_weight`, `edge_weight` or an `edge_attr` of one column
                is read; with `relations`, the names of what `edge_type` counts.
            split: Which column of masks that have several.
            directed: The declaration of direction.
            options: As in `from_edge_index`.

        Returns:
            The graph, checked; fields that `data` does not have are left out.

        Raises:
            InvalidInput: `data` has no edges, or a field is not as `Graph` describes it.
        """
        weights, relations = options.get("max_weight") is not None, options.get("relations")
        fields = fields_from_pyg(data, split, weights=weights, relations=relations)
        _warn_of_unread([each for each in _not_read(data, fields) if any(name in each for name in _OF_EDGES)])
        return cls.from_edge_index(**(fields | {"directed": directed} | options))

    @classmethod
    def from_scipy(cls, A: Any, x: Any = None, y: Any = None, *, directed: bool = False, **options: Any) -> Graph:
        """A graph from an adjacency matrix.

        Args:
            A: A square scipy matrix with ones at [source, target], or with weights if there is a `max_weight`.
            x: Features, a row for each node.
            y: Class numbers, -1 for a node without a label.
            directed: The declaration of direction. An undirected matrix must be symmetric.
            options: As in `from_edge_index`.

        Returns:
            A graph on as many nodes as `A` has rows.

        Raises:
            InvalidInput: `A` is not square, or the graph is not as `Graph` describes it.
        """
        fields = edges_from_scipy(A, weights=options.get("max_weight") is not None)
        return cls.from_edge_index(**fields, x=x, y=y, num_nodes=A.shape[0], directed=directed, **options)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        features: str = "x",
        label: str = "y",
        split: str = "split",
        weight: str = "weight",
        relation: str = "relation",
        **options: Any,
    ) -> Graph:
        """A graph from NetworkX, whose class (`Graph` or `DiGraph`) is the declaration of direction.

        Args:
            graph: The NetworkX graph.
            features: The node attribute that holds a sequence of numbers.
            label: The node attribute that holds a class number.
            split: The node attribute that holds "train", "val" or "test".
            weight: With `max_weight`, the edge attribute that holds a weight.
            relation: With `relations`, the edge attribute that holds the name of a relation.
            options: As in `from_edge_index`.

        Returns:
            The checked graph. Attributes that no node has are left out.

        Raises:
            InvalidInput: The data is not a graph as `Graph` describes it.
        """
        chosen = weight if options.get("max_weight") else None, relation if options.get("relations") else None
        fields = fields_from_networkx(graph, features, label, split, *chosen)
        there = {name for *_, data in graph.edges(data=True) for name in data}
        _warn_of_unread([f"attribute {name!r} of edges" for name in {weight, relation}.difference(chosen) & there])
        return cls.from_edge_index(**(fields | options))


def fields_from_pyg(data: Any, split: int, *, weights: bool = False, relations: Any = None) -> dict[str, Any]:
    """Arguments of `Graph.from_edge_index` from a PyG `Data`, or from a `HeteroData` with one type of node.

    Args:
        data: The data.
        split: Which column of masks that have several.
        weights: Whether to read `edge_weight`, or an `edge_attr` of one column.
        relations: Names of relations. Of a `Data` those of `edge_type`, in order. Of a `HeteroData` the edge types to
            read; None: all of them.

    Raises:
        InvalidInput: `data` has no edges, or several types of nodes, or no such edge type.
    """
    if hasattr(data, "edge_types"):
        return _fields_from_hetero(data, split, weights, relations)
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise InvalidInput("data", type(data).__name__, "has no edge_index; a homogeneous PyG Data is needed")
    fields = {"edge_index": edge_index, **_node_fields(data, data, split)}
    if weights:
        fields["edge_weight"] = _edge_weight(data)
    if relations is not None:
        fields |= {"edge_relation": getattr(data, "edge_type", None), "relations": relations}
    return fields


def _node_fields(data: Any, store: Any, split: int) -> dict[str, Any]:
    masks = {field: column_of_mask(field, getattr(store, field, None), split) for field in MASKS}
    x, y = getattr(store, "x", None), getattr(store, "y", None)
    return {"x": x, "y": y, "num_nodes": int(data.num_nodes), **masks}


def _edge_weight(store: Any) -> Any:
    """`edge_weight`, or an `edge_attr` of one column; None if there is neither."""
    for name in _WEIGHTS:
        values = getattr(store, name, None)
        if values is not None:
            if values.ndim > 1 and values.shape[1] != 1:
                raise InvalidInput(name, tuple(values.shape), "must have one column to be a weight")
            return values.reshape(-1)
    return None


def _fields_from_hetero(data: Any, split: int, weights: bool, relations: Any) -> dict[str, Any]:
    """Every edge type of the one type of node is a relation; types are part of how the data was made, so declared."""
    if len(data.node_types) != 1:
        raise InvalidInput("data", data.node_types, "must have one type of node")
    names = [relation for _, relation, _ in data.edge_types]
    if len(set(names)) < len(names):
        raise InvalidInput("data", names, "has two edge types of one name")
    chosen = names if relations is None else list(relations)
    for name in chosen:
        if name not in names:
            raise InvalidInput("relations", name, f"must be one of the edge types {', '.join(names)}")
    stores = [data[data.edge_types[names.index(name)]] for name in chosen]
    if not stores or any(getattr(store, "edge_index", None) is None for store in stores):
        raise InvalidInput("data", chosen, "needs an edge_index for each edge type")
    numbers = [torch.full((int(store.edge_index.shape[1]),), t) for t, store in enumerate(stores)]
    fields = {
        "edge_index": torch.cat([store.edge_index for store in stores], dim=1),
        "edge_relation": torch.cat(numbers),
        "relations": chosen,
        **_node_fields(data, data[data.node_types[0]], split),
    }
    if weights:
        found = [_edge_weight(store) for store in stores]
        for name, weight in zip(chosen, found, strict=True):
            if weight is None:
                raise InvalidInput(f"edge type {name!r}", None, "has no edge_weight, and max_weight is declared")
        fields["edge_weight"] = torch.cat(found)
    return fields


def read_pt(
    path: Path, split: int, max_weight: float | None = None, relations: Sequence[str] | None = None
) -> FileContent:
    """Read what `torch.save` wrote, without running any code from the file.

    Args:
        path: A PyG `Data`, the dictionary of `data.to_dict()`, or the processed file of an `InMemoryDataset` with a
            single graph.
        split: Which column of masks that have several.
        max_weight: The declared weight from which on a link counts fully; None: weights are not read.
        relations: The declared names of the relations that `edge_type` counts, or the edge types of a `HeteroData`.

    Returns:
        The fields of the graph.

    Raises:
        InvalidInput: The file is damaged, or holds something else.
    """
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    # Only what PyG has not registered itself: on leaving, torch forgets every class that is listed here.
    known = torch.serialization.get_safe_globals()
    storages = (BaseStorage, GlobalStorage, NodeStorage, EdgeStorage)
    needed = [kind for kind in (Data, HeteroData, DataEdgeAttr, DataTensorAttr, *storages) if kind not in known]
    with decoding(path, "a PyG file"), inside(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about unusual pickles; those that matter are errors
        try:
            with torch.serialization.safe_globals(needed):
                content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            raise InvalidInput(
                "content",
                path.suffix,
                "is damaged, or holds other objects than tensors and a PyG Data; loading those could run code. "
                "Save it again with torch.save(data.to_dict(), path)",
            ) from None
        data = content if isinstance(content, HeteroData) else _single_graph(content, Data)
        fields = fields_from_pyg(data, split, weights=max_weight is not None, relations=relations)
        fields["max_weight"] = max_weight
        x = fields["x"]
        return FileContent(
            fields=fields,
            edges_listed=int(fields["edge_index"].shape[1]),
            columns=() if x is None else (FeatureColumn("x", "matrix", int(x.shape[1])),),
            split=None if fields["train_mask"] is None else f"masks in the file, split {split}",
            unused=_not_read(data, fields),
        )


def _not_read(data: Any, fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Attributes that are there and were not read."""
    weights = fields.get("edge_weight") is not None
    used = {*_READ, *(["edge_type"] if "edge_relation" in fields else [])}
    if weights:
        used.add("edge_weight" if getattr(data, "edge_weight", None) is not None else "edge_attr")
    if not hasattr(data, "edge_types"):
        return tuple(f"attribute {name!r}" for name in data.to_dict() if name not in used)
    used |= set(_WEIGHTS) if weights else set()
    left = [f"edge type {'/'.join(kind)}" for kind in data.edge_types if kind[1] not in fields["relations"]]
    names = [(kind, list(data[kind].keys())) for kind in (*data.node_types, *data.edge_types)]
    return (*left, *(f"attribute {name!r} of {kind}" for kind, each in names for name in each if name not in used))


def _warn_of_unread(names: Sequence[str]) -> None:
    """What says more about links than that they are there is not left out silently."""
    if names:
        warnings.warn(f"not read: {', '.join(names)}; max_weight reads weights, relations reads types", stacklevel=3)


def _single_graph(content: Any, data_class: Any) -> Any:
    if isinstance(content, tuple) and len(content) in (2, 3):
        content, slices = content[0], content[1]
        if slices and any(len(bounds) != 2 for bounds in slices.values()):
            raise InvalidInput("content", "InMemoryDataset", "holds more than one graph")
    if isinstance(content, dict) and isinstance(content.get("edge_index"), torch.Tensor):
        content = data_class.from_dict(content)
    if not isinstance(content, data_class):
        raise InvalidInput("content", type(content).__name__, "is not a PyG Data with an edge_index")
    return content


def to_pyg(graph: Graph) -> Any:
    """A PyG `Data` with the edges, features, labels and, if there is a split, masks of a graph."""
    from torch_geometric.data import Data

    links = edge_list(graph)
    made = {"edge_index": torch.from_numpy(links["edge_index"])}
    if "edge_weight" in links:
        made["edge_weight"] = torch.from_numpy(links["edge_weight"]).float()
    if "edge_relation" in links:
        made["edge_type"] = torch.from_numpy(links["edge_relation"])
    masks = {field: getattr(graph, field) for field in MASKS} if graph.has_split else {}
    return Data(x=graph.features_torch(), y=graph.labels, num_nodes=graph.num_nodes, **made, **masks)


def edges_from_scipy(A: Any, *, weights: bool = False) -> dict[str, Any]:
    """Arguments of `Graph.from_edge_index` from a square matrix of ones, or of weights."""
    if not sp.issparse(A) or A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise InvalidInput("adjacency", getattr(A, "shape", type(A).__name__), "must be a square scipy sparse matrix")
    if hasattr(A, "check_format"):
        try:
            A.check_format(full_check=True)
        except ValueError as error:
            raise InvalidInput("adjacency", A.shape, str(error)) from None
    coo = A.tocoo()
    wrong = coo.data != 1
    if wrong.any() and not weights:
        at = int(np.argmax(wrong))
        i, j = int(coo.coords[0][at]), int(coo.coords[1][at])
        why = "must be 1; if this is a weight, declare max_weight, from which on a link counts fully"
        raise InvalidInput(f"adjacency[{i}, {j}]", coo.data[at].item(), why)
    return {"edge_index": np.stack(coo.coords), **({"edge_weight": coo.data} if weights else {})}


def fields_from_networkx(
    graph: Any, features: str, label: str, split: str, weight: str | None = None, relation: str | None = None
) -> dict[str, Any]:
    """Arguments of `Graph.from_edge_index` from a NetworkX graph, given the names of its attributes."""
    ids = list(graph.nodes)
    position = {node: i for i, node in enumerate(ids)}
    pairs = [(position[u], position[v]) for u, v in graph.edges()]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    directed = bool(graph.is_directed())
    said = {
        field: _edge_attribute(graph, name)
        for field, name in (("edge_weight", weight), ("edge_relation", relation))
        if name is not None
    }
    if not directed:
        # NetworkX holds an undirected edge once. Self-loops are not doubled, so that the error is about a loop.
        back = edges[0] != edges[1]
        edges = np.concatenate([edges, edges[::-1, back]], axis=1)
        said = {field: np.concatenate([values, values[back]]) for field, values in said.items()}
    y = _attribute(graph, label)
    fields: dict[str, Any] = {
        "edge_index": edges,
        **said,
        "x": _attribute(graph, features),
        "y": None if y is None else np.asarray(y),
        "num_nodes": len(ids),
        "directed": directed,
    }
    if ids != list(range(len(ids))):
        fields["node_ids"] = _id_array(ids)
    parts = [data.get(split) for _, data in graph.nodes(data=True)]
    if any(part is not None for part in parts):
        unknown = next((i for i, part in enumerate(parts) if part not in (*SPLITS, None)), None)
        if unknown is not None:
            raise InvalidInput(f"node {ids[unknown]!r}, {split}", parts[unknown], f"must be one of {', '.join(SPLITS)}")
        fields |= {f"{part}_mask": np.array([p == part for p in parts]) for part in SPLITS}
    return fields


def _attribute(graph: Any, name: str) -> np.ndarray | None:
    """A node attribute as an array, or None if no node has it."""
    if not isinstance(name, str):
        raise InvalidInput("attribute", type(name).__name__, "must be the name of an attribute of the nodes")
    values = [data.get(name) for _, data in graph.nodes(data=True)]
    if all(value is None for value in values):
        return None
    missing = next((node for node, value in zip(graph.nodes, values, strict=True) if value is None), None)
    if missing is not None:
        raise InvalidInput(f"node {missing!r}, {name}", None, "is missing here, but other nodes have it")
    try:
        return np.array(values)
    except ValueError:
        raise InvalidInput(name, "ragged", "must have the same length for every node") from None


def _edge_attribute(graph: Any, name: str) -> np.ndarray:
    """An attribute that every edge has."""
    values = [data.get(name) for _, _, data in graph.edges(data=True)]
    missing = next((edge for edge, value in zip(graph.edges(), values, strict=True) if value is None), None)
    if missing is not None:
        raise InvalidInput(f"edge {missing!r}, {name}", None, "is missing")
    return np.array(values) if values else np.zeros(0)


def _id_array(ids: list[Any]) -> np.ndarray:
    plain = all(isinstance(node, int) for node in ids) or all(isinstance(node, str) for node in ids)
    if plain:
        return np.array(ids)
    return np.array([str(node) for node in ids])


def to_networkx(graph: Graph) -> Any:
    """A NetworkX graph with the node attributes `x`, `y` and `split`; of several relations, a multigraph."""
    import networkx as nx

    kinds = (nx.Graph, nx.DiGraph) if graph.relations is None else (nx.MultiGraph, nx.MultiDiGraph)
    out = kinds[graph.directed](name=graph.name)
    ids = range(graph.num_nodes) if graph.node_ids is None else graph.node_ids.tolist()
    x = graph.features if isinstance(graph.features, torch.Tensor) else graph.features.toarray()
    part = split_names(graph)
    for i, (node, row, y) in enumerate(zip(ids, x.tolist(), graph.labels.tolist(), strict=True)):
        out.add_node(node, x=row, y=y, **({"split": part[i]} if part[i] else {}))
    links = edge_list(graph)
    source, target = links["edge_index"]
    weights, names = links.get("edge_weight"), links.get("relations", ())
    for at in np.flatnonzero(source < target) if not graph.directed else range(len(source)):
        said = {} if weights is None else {"weight": float(weights[at])}
        if names:
            said["relation"] = names[links["edge_relation"][at]]
        out.add_edge(ids[source[at]], ids[target[at]], **said)
    return out
