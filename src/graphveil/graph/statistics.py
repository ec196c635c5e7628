"""The columns of the paper's Table 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphveil.graph.graph import Graph


@dataclass(frozen=True)
class Statistics:
    """One column of the paper's Table 1."""

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    edge_density: float
    homophily: float

    def printed(self) -> tuple[str, ...]:
        """The figures with the digits that the paper prints."""
        counts = (self.nodes, self.edges, self.features, self.classes)
        return (*(f"{count:,}" for count in counts), f"{self.edge_density:.4f}", f"{self.homophily:.4f}")


# What the paper prints in its Table 1.
PAPER_TABLE_1 = {
    row.name: row
    for row in (
        Statistics("squirrel", 5_201, 216_933, 2_089, 5, 0.0160, 0.0254),
        Statistics("chameleon", 2_277, 36_051, 2_325, 5, 0.0139, 0.0620),
        Statistics("facebook", 26_406, 2_117_924, 501, 6, 0.0061, 0.3687),
        Statistics("pubmed", 19_717, 88_648, 500, 3, 0.0005, 0.6641),
        Statistics("computers", 13_471, 491_722, 767, 10, 0.0054, 0.7002),
        Statistics("cora", 2_708, 10_556, 1_433, 7, 0.0029, 0.7657),
        Statistics("photo", 7_535, 238_162, 745, 8, 0.0084, 0.7722),
    )
}


def statistics(graph: Graph) -> Statistics:
    """Counts, edge density and class-insensitive homophily of a graph.

    Args:
        graph: A graph that may be looked at: the figures are computed without noise and are no private release.

    Returns:
        The graph's column of the paper's Table 1.
    """
    return Statistics(
        name=graph.name,
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        features=graph.num_features,
        classes=graph.num_classes,
        edge_density=edge_density(graph),
        homophily=homophily(graph),
    )


def edge_density(graph: Graph) -> float:
    """2 |E| / (n (n - 1)) with |E| the number of stored entries, as the paper prints it (theory, section 7.1)."""
    n = graph.num_nodes
    return 2 * graph.num_edges / (n * (n - 1)) if n > 1 else 0.0


def homophily(graph: Graph) -> float:
    """Class-insensitive edge homophily of LINKX (Lim et al. 2021, https://arxiv.org/abs/2110.14446).

    sum_c max(0, h_c - n_c / n) / (C - 1), where h_c is the share of the edges *leaving class c* that stay in c. The
    formula printed in the paper's appendix divides by |E| instead and would be near 0 on every graph (theory,
    section 7.1). Edges that touch a node without a label do not count. 0 for a graph without edges.
    """
    y = graph.labels.numpy()
    classes = graph.num_classes
    if classes < 2 or not (y >= 0).any():
        return 0.0
    source = np.repeat(y, np.diff(graph.indptr))
    target = y[graph.indices]
    known = (source >= 0) & (target >= 0)
    leaving = np.bincount(source[known], minlength=classes)
    staying = np.bincount(source[known & (source == target)], minlength=classes)
    share = np.bincount(y[y >= 0], minlength=classes) / (y >= 0).sum()
    h = staying / np.maximum(leaving, 1)
    return float(np.maximum(0, h - share).sum() / (classes - 1))
