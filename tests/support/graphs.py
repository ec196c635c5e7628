"""Whether two graphs are the same."""

import numpy as np
import torch

from graphveil.graph import Graph
from graphveil.graph.splits import MASKS


def assert_same_data(a: Graph, b: Graph) -> None:
    """Links, features, labels, split, direction and number of classes."""
    assert np.array_equal(a.indptr, b.indptr)
    assert np.array_equal(a.indices, b.indices)
    assert torch.equal(a.features_torch().to_dense(), b.features_torch().to_dense())
    for field in ("labels", *MASKS):
        assert torch.equal(getattr(a, field), getattr(b, field))
    assert (a.directed, a.num_classes) == (b.directed, b.num_classes)


def assert_same_graph(a: Graph, b: Graph) -> None:
    """The same data, and the same names of the graph, its classes and its nodes."""
    assert_same_data(a, b)
    assert (a.name, a.class_names) == (b.name, b.class_names)
    ids = [None if graph.node_ids is None else graph.node_ids.tolist() for graph in (a, b)]
    assert ids[0] == ids[1]
