"""The fields of a `Graph` from PyG, scipy and NetworkX, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput

if TYPE_CHECKING:
    from graphveil.graph.graph import Graph

SPLITS = ("train", "val", "test")
MASKS = ("train_mask", "val_mask", "test_mask")


def count_nodes(num_nodes: int | None, *tables: Any) -> int:
    """The declared number of nodes, or else the number of rows of the first table that is given."""
    rows = (_rows(table) for table in tables if table is not None)
    n = num_nodes if num_nodes is not None else next(rows, None)
    if n is None:
        raise InvalidInput("num_nodes", None, "is needed when there are neither features nor labels")
    if not isinstance(n, (int, np.integer)) or n < 1:
        raise InvalidInput("num_nodes", n, "a graph needs at least one node")
    return int(n)


def _rows(table: Any) -> int:
    if hasattr(table, "shape"):
        return int(table.shape[0]) if len(table.shape) else 0
    return len(table)


def fields_from_pyg(data: Any, split: int) -> dict[str, Any]:
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise InvalidInput("data", type(data).__name__, "has no edge_index; a homogeneous PyG Data is needed")
    masks = {field: column_of_mask(field, getattr(data, field, None), split) for field in MASKS}
    x, y = getattr(data, "x", None), getattr(data, "y", None)
    return {"edge_index": edge_index, "x": x, "y": y, "num_nodes": int(data.num_nodes), **masks}


def column_of_mask(field: str, mask: Any, split: int) -> Any:
    """Column `split` of a mask that holds several splits."""
    if mask is None or mask.ndim != 2:
        return mask
    if not 0 <= split < mask.shape[1]:
        raise InvalidInput("split", split, f"{field} holds the splits 0 to {mask.shape[1] - 1}")
    return mask[:, split]


def edges_from_scipy(A: Any) -> np.ndarray:
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
    ids = list(graph.nodes)
    position = {node: i for i, node in enumerate(ids)}
    pairs = [(position[u], position[v]) for u, v in graph.edges()]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    directed = bool(graph.is_directed())
    if not directed:
        # NetworkX holds an undirected edge once. A loop is its own way back; it is left single, to be named as a loop.
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


def to_pyg(graph: Graph) -> Any:
    from torch_geometric.data import Data

    coo = graph.reads("out").tocoo()
    edge_index = torch.from_numpy(np.stack(coo.coords).astype(np.int64))
    masks = {field: getattr(graph, field) for field in MASKS} if graph.has_split else {}
    return Data(x=graph.features_torch(), edge_index=edge_index, y=graph.labels, num_nodes=graph.num_nodes, **masks)


def to_networkx(graph: Graph) -> Any:
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


def split_names(graph: Graph) -> list[str | None]:
    """For each node "train", "val", "test" or None."""
    names: list[str | None] = [None] * graph.num_nodes
    for part in SPLITS:
        for i in getattr(graph, f"{part}_mask").nonzero()[:, 0].tolist():
            names[i] = part
    return names
