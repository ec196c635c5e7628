"""The paper's filtering: small classes, self-loops and isolated nodes are removed, in this order.

All three steps look at the data. They define the public set of nodes and come before anything is private (theory,
section 9.4), so a certificate speaks about the filtered graph.
"""

from __future__ import annotations

import numpy as np

from graphveil.graph.graph import Graph


def drop_small_classes(graph: Graph, min_class: int) -> Graph:
    """Without the nodes that have no label or whose class has fewer than `min_class` nodes; classes are renumbered."""
    y = graph.labels.numpy()
    sizes = np.bincount(y[y >= 0], minlength=graph.num_classes)
    large = np.flatnonzero(sizes >= min_class)
    number = np.full(graph.num_classes + 1, -1)
    number[large] = np.arange(len(large))
    renumbered = number[y]  # y = -1 picks the last place, which is -1
    if len(large) == graph.num_classes and (renumbered >= 0).all():
        return graph
    names = None if graph.class_names is None else tuple(graph.class_names[c] for c in large)
    kept = graph.subgraph(renumbered >= 0)
    return kept.replace(labels=renumbered[renumbered >= 0], num_classes=len(large), class_names=names)


def drop_isolated_nodes(graph: Graph) -> Graph:
    """Without the nodes that neither have an edge nor are the target of one."""
    touched = np.diff(graph.indptr) > 0
    touched[graph.indices] = True
    return graph if touched.all() else graph.subgraph(touched)
