"""The graphs that are measured on: real ones where their files are at hand, otherwise random ones of the same shape."""

from __future__ import annotations

import os

import numpy as np
import torch

import graphveil as gv
from graphveil.graph.datasets import MissingData

# nodes, stored edges, features, classes after the paper's filtering (paper, Table 1).
SHAPES = {"photo": (7_535, 238_162, 745, 8), "pubmed": (19_717, 88_648, 500, 3)}


def benchmark_graph(name: str) -> tuple[gv.Graph, str]:
    """The graph and how to call it in a report."""
    for root in (os.environ.get("GRAPHVEIL_DATA"), "data", os.path.join("..", "shared", "data")):
        if root and os.path.isdir(root):
            try:
                return gv.load_dataset(name, root=root, seed=0), name.capitalize()
            except MissingData:
                continue
    return _of_shape(*SHAPES[name]), f"random graph of {name.capitalize()}'s shape"


def regular_graph(nodes: int, degree: int, features: int, classes: int = 4) -> gv.Graph:
    """Every node has exactly `degree` neighbours, scattered over memory as those of a real graph are."""
    rng = np.random.default_rng(0)
    place = rng.permutation(nodes).astype(np.int32)
    offsets = rng.choice(np.arange(1, nodes // 2), size=degree // 2, replace=False)
    indices = np.empty((nodes, degree), np.int32)
    for column, offset in enumerate([*offsets, *-offsets]):
        indices[place, column] = np.roll(place, offset)
    indices.sort(axis=1)
    indptr = np.arange(0, nodes * degree + 1, degree)
    x, y = _attributes(nodes, features, classes)
    return gv.Graph(indptr, indices.reshape(-1), x, y).with_split(0)


def _of_shape(nodes: int, stored: int, features: int, classes: int) -> gv.Graph:
    """Uniformly random undirected edges and features that are mostly zero, as bags of words are."""
    rng = np.random.default_rng(0)
    pairs = np.empty(0, np.int64)
    while len(pairs) < stored // 2:
        low, high = np.sort(rng.integers(nodes, size=(2, stored)), axis=0)
        pairs = np.unique(np.concatenate([pairs, (low * nodes + high)[low < high]]))
    chosen = rng.choice(pairs, stored // 2, replace=False)
    x, y = _attributes(nodes, features, classes)
    edges = np.stack([chosen // nodes, chosen % nodes])
    return gv.Graph.from_edge_index(edges, (x > 1.3).float(), y, symmetrize=True).with_split(0)


def _attributes(nodes: int, features: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features that tell the classes apart, a little."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (nodes,), generator=generator)
    centres = torch.randn(classes, features, generator=generator)
    return torch.randn(nodes, features, generator=generator) + 0.3 * centres[labels], labels
