"""From and to other libraries: PyTorch Geometric (objects and `.pt` files), scipy, NetworkX."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.graph.report import FeatureColumn, FileContent
from graphveil.graph.splits import MASKS, SPLITS, column_of_mask, split_names
from graphveil.storage.decoding import decoding, inside

if TYPE_CHECKING:
    from graphveil.graph.graph import Graph

# What of a PyG `Data` becomes a `Graph`.
_READ = ("edge_index", "x", "y", "num_nodes", *MASKS)


def fields_from_pyg(data: Any, split: int) -> dict[str, Any]:
    """Arguments of `Graph.from_edge_index` from a PyG `Data`."""
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise InvalidInput("data", type(data).__name__, "has no edge_index; a homogeneous PyG Data is needed")
    masks = {field: column_of_mask(field, getattr(data, field, None), split) for field in MASKS}
    x, y = getattr(data, "x", None), getattr(data, "y", None)
    return {"edge_index": edge_index, "x": x, "y": y, "num_nodes": int(data.num_nodes), **masks}


def read_pt(path: Path, split: int) -> FileContent:
    """Read what `torch.save` wrote, without running any code from the file.

    Args:
        path: A PyG `Data`, the dictionary of `data.to_dict()`, or the processed file of an `InMemoryDataset` with a
            single graph.
        split: Which column of masks that have several.

    Returns:
        The fields of the graph.

    Raises:
        InvalidInput: The file is damaged, or holds something else.
    """
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    # Only what PyG has not registered itself: on leaving, torch forgets every class that is listed here.
    known = torch.serialization.get_safe_globals()
    needed = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known]
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
        data = _single_graph(content, Data)
        fields = fields_from_pyg(data, split)
        x = fields["x"]
        return FileContent(
            fields=fields,
            edges_listed=int(data.edge_index.shape[1]),
            columns=() if x is None else (FeatureColumn("x", "numeric", int(x.shape[1])),),
            split=None if fields["train_mask"] is None else f"masks in the file, split {split}",
            unused=tuple(f"attribute {name!r}" for name in data.to_dict() if name not in _READ),
        )


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

    coo = graph.reads("out").tocoo()
    edge_index = torch.from_numpy(np.stack(coo.coords).astype(np.int64))
    masks = {field: getattr(graph, field) for field in MASKS} if graph.has_split else {}
    return Data(x=graph.features_torch(), edge_index=edge_index, y=graph.labels, num_nodes=graph.num_nodes, **masks)


def edges_from_scipy(A: Any) -> np.ndarray:
    """The (2, edges) array of a square matrix of ones."""
    if not sp.issparse(A) or A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise InvalidInput("adjacency", getattr(A, "shape", type(A).__name__), "must be a square scipy sparse matrix")
    if hasattr(A, "check_format"):
        try:
            A.check_format(full_check=True)
        except ValueError as error:
            raise InvalidInput("adjacency", A.shape, str(error)) from None
    coo = A.tocoo()
    wrong = coo.data != 1
    if wrong.any():
        at = int(np.argmax(wrong))
        i, j = int(coo.coords[0][at]), int(coo.coords[1][at])
        raise InvalidInput(f"adjacency[{i}, {j}]", coo.data[at].item(), "must be 1: weights are not supported")
    return np.stack(coo.coords)


def fields_from_networkx(graph: Any, features: str, label: str, split: str) -> dict[str, Any]:
    """Arguments of `Graph.from_edge_index` from a NetworkX graph, given the names of its node attributes."""
    ids = list(graph.nodes)
    position = {node: i for i, node in enumerate(ids)}
    pairs = [(position[u], position[v]) for u, v in graph.edges()]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    directed = bool(graph.is_directed())
    if not directed:
        # NetworkX holds an undirected edge once. Self-loops are not doubled, so that the error is about a loop.
        edges = np.concatenate([edges, edges[::-1, edges[0] != edges[1]]], axis=1)
    y = _attribute(graph, label)
    fields: dict[str, Any] = {
        "edge_index": edges,
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


def _id_array(ids: list[Any]) -> np.ndarray:
    plain = all(isinstance(node, int) for node in ids) or all(isinstance(node, str) for node in ids)
    if plain:
        return np.array(ids)
    return np.array([str(node) for node in ids])


def to_networkx(graph: Graph) -> Any:
    """A NetworkX graph with the node attributes `x`, `y` and `split`."""
    import networkx as nx

    out = nx.DiGraph(name=graph.name) if graph.directed else nx.Graph(name=graph.name)
    ids = range(graph.num_nodes) if graph.node_ids is None else graph.node_ids.tolist()
    x = graph.features if isinstance(graph.features, torch.Tensor) else graph.features.toarray()
    part = split_names(graph)
    for i, (node, row, y) in enumerate(zip(ids, x.tolist(), graph.labels.tolist(), strict=True)):
        out.add_node(node, x=row, y=y, **({"split": part[i]} if part[i] else {}))
    coo = graph.reads("out").tocoo()
    ends = ((ids[i], ids[j]) for i, j in zip(*(end.tolist() for end in coo.coords), strict=True))
    out.add_edges_from(ends)
    return out
