"""Graphs in a single `.npz` file.

=================================================== ==========================================================
key                                                 content
=================================================== ==========================================================
`adj_indptr`, `adj_indices`                         CSR pattern of the entries source -> target; required
`adj_data`                                          optional: ones, or weights if `max_weight` is declared
`max_weight`                                        the declared weight from which on a link counts fully; optional
`relations`                                         names of relations; `adj_` then has a matrix for each, one below
                                                    the other, in this order; optional
`features`                                          dense, nodes x features; or, sparse, the four keys
`features_data`, `_indices`, `_indptr`, `_shape`    CSR; neither of the two: no features
`labels`                                            integers, -1 for a node without a label; optional
`train_mask`, `val_mask`, `test_mask`               booleans, nodes or nodes x splits; optional
`directed`                                          a single boolean: the declaration that travels with the data
`num_classes`, `class_names`, `node_ids`, `name`    optional
`found`                                             JSON, from `write_graph`: what nobody declared (`Undeclared`)
=================================================== ==========================================================

An undirected graph lists every edge in both directions. The bare names `indptr`, `indices` and `data` of
`scipy.sparse.save_npz` and the `attr_` keys of shchur/gnn-benchmark are understood as well. Nothing is unpickled, and
arrays under other keys are not read; `graph.counts` names them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphveil.errors import InvalidInput
from graphveil.graph import adjacency
from graphveil.graph.graph import Graph
from graphveil.graph.splits import MASKS, column_of_mask
from graphveil.graph.summary import FeatureColumn, FileContent, Undeclared
from graphveil.graph.validation import class_list
from graphveil.validate import decoding, inside

# Keys of single values, with the kinds of array that may hold them.
_SINGLE = {
    "directed": ("b", "a single boolean: True or False"),
    "num_classes": ("iu", "a single whole number"),
    "max_weight": ("iuf", "a single number"),
    "name": ("U", "a single text"),
    "found": ("U", "a single text of JSON"),
}
_CSR = ("data", "indices", "indptr", "shape")


def read_npz(
    path: Path, split: int, max_weight: float | None = None, relations: Sequence[str] | None = None
) -> FileContent:
    """Read an `.npz` file; `split` is the column of masks that have several.

    `max_weight` and `relations` are declared instead of, or before, what the file declares.
    """
    with decoding(path, "an .npz file of arrays"), inside(path):
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InvalidInput("content", type(archive).__name__, "is a single array, not an .npz archive")
        with archive as file:
            read = [key for key in file.files if key in _known(file.files)]
            arrays = {key: file[key] for key in read}
            unused = tuple(f"array {key!r}" for key in file.files if key not in arrays)
        if max_weight is not None:
            arrays["max_weight"] = np.array(max_weight)
        if relations is not None:
            arrays["relations"] = np.array(relations)
        return _content(arrays, split, unused)


def _known(keys: list[str]) -> set[str]:
    """The keys that are read, of those that a file has: of two that mean the same, the first that is there."""
    adjacency = "adj_" if "adj_indptr" in keys else ""
    sparse = next((prefix for prefix in ("features_", "attr_") if f"{prefix}indptr" in keys), None)
    features = {"features"} if "features" in keys else {f"{sparse}{part}" for part in _CSR} if sparse else set()
    names = ("relations", "labels", "node_ids", "class_names")
    return {*_SINGLE, *MASKS, *names, *features, *(adjacency + part for part in _CSR)}


def _content(arrays: Mapping[str, np.ndarray], split: int, unused: tuple[str, ...]) -> FileContent:
    prefix = "adj_" if "adj_indptr" in arrays else ""
    for key in (f"{prefix}indptr", f"{prefix}indices"):
        if key not in arrays:
            raise InvalidInput("keys", [*sorted(arrays), *unused], "adj_indptr and adj_indices are needed")
    links = _links(arrays, prefix)
    edges = links["edge_index"]
    x = _features(arrays)
    fields: dict[str, Any] = {
        **links,
        "x": x,
        "y": arrays.get("labels"),
        "node_ids": arrays.get("node_ids"),
        **{field: column_of_mask(field, arrays.get(field), split) for field in MASKS},
    }
    single = {key: _single(key, arrays[key]) for key in _SINGLE if key in arrays}
    fields |= {key: value for key, value in single.items() if key in ("num_classes", "name")}
    if "found" in single:
        fields["undeclared"] = Undeclared.from_dict(json.loads(single["found"]))
    if "class_names" in arrays:
        fields["class_names"] = list(class_list(arrays["class_names"].reshape(-1).tolist()))
    return FileContent(
        fields=fields,
        edges_listed=edges.shape[1],
        columns=() if x is None else (FeatureColumn("features", "matrix", x.shape[1]),),
        split="masks in the file" if "train_mask" in arrays else None,
        declared_directed=single.get("directed"),
        unused=unused,
    )


def _links(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, Any]:
    """Edges, weights and relations, as arguments of `Graph.from_edge_index`."""
    source, target = adjacency.edges_from_csr(arrays[f"{prefix}indptr"], arrays[f"{prefix}indices"])
    rows, weights = len(arrays[f"{prefix}indptr"]) - 1, arrays.get(f"{prefix}data")
    most = _single("max_weight", arrays["max_weight"]) if "max_weight" in arrays else None
    if most is None and weights is not None and np.any(weights != 1):
        at = int(np.argmax(weights != 1))
        why = "must be 1; if this is a weight, declare max_weight, from which on a link counts fully"
        raise InvalidInput(f"{prefix}data[{at}]", weights[at].item(), why)
    names = [str(name) for name in arrays["relations"].reshape(-1)] if "relations" in arrays else None
    if names is not None and rows % len(names):
        raise InvalidInput(f"{prefix}indptr", rows, f"must have equally many rows for each of {len(names)} relations")
    n = rows if names is None else rows // len(names)
    links: dict[str, Any] = {"edge_index": np.stack([source % max(n, 1), target]), "num_nodes": n}
    if most is not None:
        links |= {"edge_weight": weights, "max_weight": float(most)}
    return links if names is None else links | {"edge_relation": source // max(n, 1), "relations": names}


def _single(key: str, array: np.ndarray) -> Any:
    kinds, what = _SINGLE[key]
    if array.size != 1 or array.dtype.kind not in kinds:
        raise InvalidInput(key, array.tolist() if array.size < 10 else array.shape, f"must be {what}")
    return array.item()


def _features(arrays: Mapping[str, np.ndarray]) -> Any:
    if "features" in arrays:
        if arrays["features"].ndim != 2:
            raise InvalidInput("features", arrays["features"].shape, "must have two dimensions")
        return arrays["features"]
    for prefix in ("features_", "attr_"):
        if f"{prefix}indptr" in arrays:
            data, indices, indptr, shape = (arrays[prefix + key] for key in _CSR)
            return sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
    return None


def write_npz(graph: Graph, path: Path, *, compress: bool) -> None:
    """Write all fields of a graph but the report of how it was read."""
    matrix = graph.reads("out", by_relation=True)
    arrays: dict[str, Any] = {
        "adj_indptr": matrix.indptr,
        "adj_indices": matrix.indices,
        "labels": graph.labels.numpy(),
        "directed": np.array(graph.directed),
        "name": np.array(graph.name),
    }
    if sp.issparse(graph.features):
        for key in _CSR:
            arrays[f"features_{key}"] = np.asarray(getattr(graph.features, key))
    else:
        arrays["features"] = graph.features.numpy()
    if graph.max_weight is not None:
        arrays |= {"adj_data": matrix.data * graph.max_weight, "max_weight": np.array(graph.max_weight)}
    if graph.relations is not None:
        arrays["relations"] = np.array(graph.relations.names)
    if graph.has_split:
        arrays |= {field: getattr(graph, field).numpy() for field in MASKS}
    if graph.num_classes:
        arrays["num_classes"] = np.array(graph.num_classes)
    if graph.class_names is not None:
        arrays["class_names"] = np.array(graph.class_names)
    if graph.undeclared != Undeclared():
        arrays["found"] = np.array(json.dumps(graph.undeclared.to_dict()))
    if graph.node_ids is not None:
        plain = graph.node_ids.dtype.kind in "iufUS"
        arrays["node_ids"] = graph.node_ids if plain else graph.node_ids.astype(str)
    with path.open("wb") as file:
        (np.savez_compressed if compress else np.savez)(file, **arrays)
