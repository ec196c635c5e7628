"""Large graphs with planted labels, written as the Parquet tables that a user would have."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import scipy.sparse as sp

CLASSES, FEATURES = 10, 16
# Of the distances of `write_ring`, those that are short.
NEAR = 0.7
# Not 0: a random split with this seed would draw the very permutation that orders the ring.
_SEED = 7


def write_ring(folder: Path, nodes: int, degree: int) -> None:
    """nodes x degree / 2 undirected edges, each listed once.

    Nodes stand on a ring in random order, and classes are equal arcs of it. Everybody is joined to those at `degree`/2
    distinct distances: 70% of them are under a tenth of an arc, the others over a whole one. So nothing has to be
    compared to keep edges distinct, and they are written a distance at a time.
    """
    rng = np.random.default_rng(_SEED)
    arc = nodes // CLASSES
    at = rng.permutation(nodes)
    count = degree // 2
    near = rng.choice(np.arange(1, arc // 10), round(NEAR * count), replace=False)
    far = rng.choice(np.arange(arc, nodes // 2), count - len(near), replace=False)
    labels = np.empty(nodes, np.int64)
    labels[at] = np.minimum(np.arange(nodes) // arc, CLASSES - 1)
    _write_nodes(folder, labels, directed=False)
    schema = pa.schema({"source": pa.int64(), "target": pa.int64()})
    with pyarrow.parquet.ParquetWriter(folder / "edges.parquet", schema) as file:
        for distance in rng.permutation(np.concatenate([near, far])).tolist():
            file.write_table(pa.table({"source": at, "target": np.roll(at, distance)}, schema))


def write_web(folder: Path) -> bool:
    """The links of web-Google with labels grown along them; False where its arrays are not at hand.

    Labels start at random, and three times everybody takes the most frequent one among those it is linked with in
    either direction, itself included; of equally frequent ones the first.
    """
    path = _web_google()
    if path is None:
        return False
    with np.load(path, allow_pickle=False) as arrays:
        indptr, indices = arrays["indptr"], arrays["indices"]
    n = len(indptr) - 1
    A = sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(n, n))
    either = A + A.T + sp.eye_array(n, dtype=np.float32, format="csr")
    labels = np.random.default_rng(_SEED).integers(CLASSES, size=n)
    for _ in range(3):
        votes = either @ np.eye(CLASSES, dtype=np.float32)[labels]
        labels = votes.argmax(axis=1)
    _write_nodes(folder, labels, directed=True)
    source = np.repeat(np.arange(n), np.diff(indptr))
    pyarrow.parquet.write_table(pa.table({"source": source, "target": indices}), folder / "edges.parquet")
    return True


def _web_google() -> Path | None:
    for root in (os.environ.get("GRAPHVEIL_DATA"), "data", os.path.join("..", "shared", "data")):
        path = Path(root or ".") / "web_Google" / "web_Google_csr.npz"
        if root and path.is_file():
            return path
    return None


def _write_nodes(folder: Path, labels: np.ndarray, *, directed: bool) -> None:
    """Labels, and Gaussian features whose mean tells the classes apart, a little."""
    rng = np.random.default_rng(_SEED + 1)
    centres = 0.3 * rng.standard_normal((CLASSES, FEATURES))
    columns = {"id": np.arange(len(labels)), "label": labels}
    for feature in range(FEATURES):
        x = rng.standard_normal(len(labels), np.float32) + centres[labels, feature]
        columns[f"x{feature}"] = x.astype(np.float32)
    pyarrow.parquet.write_table(pa.table(columns), folder / "nodes.parquet")
    declared = {"directed": directed, "classes": list(range(CLASSES))}
    (folder / "graph.json").write_text(json.dumps(declared))
