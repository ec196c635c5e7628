"""Graphs in a single `.npz` file.

=================================================== ==========================================================
key                                                 content
=================================================== ==========================================================
`adj_indptr`, `adj_indices`                         CSR pattern of the entries source -> target; required
`adj_data`                                          optional, all ones
`features`                                          dense, nodes x features; or, sparse, the four keys
`features_data`, `_indices`, `_indptr`, `_shape`    CSR; neither of the two: no features
`labels`                                            integers, -1 for a node without a label; optional
`train_mask`, `val_mask`, `test_mask`               booleans, nodes or nodes x splits; optional
`directed`                                          a single boolean: the declaration that travels with the data
`num_classes`, `class_names`, `node_ids`, `name`    optional
=================================================== ==========================================================

An undirected graph lists every edge in both directions. The bare names `indptr`, `indices` and `data` of
`scipy.sparse.save_npz` and the `attr_` keys of shchur/gnn-benchmark are understood as well. Nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphveil.errors import InvalidInput
from graphveil.graph import adjacency
from graphveil.graph.convert import MASKS, column_of_mask
from graphveil.graph.decoding import decoding, inside
from graphveil.graph.graph import Graph
from graphveil.graph.report import FeatureColumn, Reading


def read_npz(path: Path, split: int) -> Reading:
    with decoding(path, "an .npz file of arrays"), inside(path):
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InvalidInput("content", type(file).__name__, "is a single array, not an .npz archive")
            arrays = {key: file[key] for key in file.files}
        return _reading(arrays, split)


def _reading(arrays: Mapping[str, np.ndarray], split: int) -> Reading:
    prefix = "adj_" if "adj_indptr" in arrays else ""
    for key in (f"{prefix}indptr", f"{prefix}indices"):
        if key not in arrays:
            raise InvalidInput("keys", sorted(arrays), "adj_indptr and adj_indices are needed")
    weights = arrays.get(f"{prefix}data")
    if weights is not None and np.any(weights != 1):
        at = int(np.argmax(weights != 1))
        raise InvalidInput(f"{prefix}data[{at}]", weights[at].item(), "must be 1: weights are not supported")
    edges = adjacency.edges_from_csr(arrays[f"{prefix}indptr"], arrays[f"{prefix}indices"])
    x = _features(arrays)
    fields: dict[str, Any] = {
        "edge_index": edges,
        "x": x,
        "y": arrays.get("labels"),
        "num_nodes": len(arrays[f"{prefix}indptr"]) - 1,
        "node_ids": arrays.get("node_ids"),
        **{field: column_of_mask(field, arrays.get(field), split) for field in MASKS},
    }
    if "num_classes" in arrays:
        fields["num_classes"] = int(arrays["num_classes"])
    if "class_names" in arrays:
        fields["class_names"] = arrays["class_names"].tolist()
    if "name" in arrays:
        fields["name"] = str(arrays["name"])
    return Reading(
        fields=fields,
        edges_listed=edges.shape[1],
        columns=() if x is None else (FeatureColumn("features", "numeric", x.shape[1]),),
        split="masks in the file" if "train_mask" in arrays else None,
        declared_directed=bool(arrays["directed"]) if "directed" in arrays else None,
    )


def _features(arrays: Mapping[str, np.ndarray]) -> Any:
    if "features" in arrays:
        if arrays["features"].ndim != 2:
            raise InvalidInput("features", arrays["features"].shape, "must have two dimensions")
        return arrays["features"]
    for prefix in ("features_", "attr_"):
        if f"{prefix}indptr" in arrays:
            data, indices, indptr, shape = (arrays[prefix + key] for key in ("data", "indices", "indptr", "shape"))
            return sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
    return None


def write_npz(graph: Graph, path: Path, *, compress: bool) -> None:
    arrays: dict[str, Any] = {
        "adj_indptr": graph.indptr,
        "adj_indices": graph.indices,
        "labels": graph.labels.numpy(),
        "directed": np.array(graph.directed),
        "name": np.array(graph.name),
    }
    if sp.issparse(graph.features):
        for key in ("data", "indices", "indptr", "shape"):
            arrays[f"features_{key}"] = np.asarray(getattr(graph.features, key))
    else:
        arrays["features"] = graph.features.numpy()
    if graph.has_split:
        arrays |= {field: getattr(graph, field).numpy() for field in MASKS}
    if graph.num_classes:
        arrays["num_classes"] = np.array(graph.num_classes)
    if graph.class_names is not None:
        arrays["class_names"] = np.array(graph.class_names)
    if graph.node_ids is not None:
        plain = graph.node_ids.dtype.kind in "iufUS"
        arrays["node_ids"] = graph.node_ids if plain else graph.node_ids.astype(str)
    with path.open("wb") as file:
        (np.savez_compressed if compress else np.savez)(file, **arrays)
