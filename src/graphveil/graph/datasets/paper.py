"""The paper's graphs: the contextual stochastic block model of its appendix, and the columns of its Table 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.graph.graph import Graph


def csbm(
    phi: float = 0.5,
    *,
    n: int = 10_000,
    f: int = 200,
    d: float = 5.0,
    epsilon: float = 3.25,
    seed: int = 0,
    split_seed: int | None = None,
) -> Graph:
    """A random graph of two communities of equal size with Gaussian features.

    Args:
        phi: Where the information is, in [-1, 1]: near 1 or -1 in the graph (homophilous or heterophilous), near 0 in
            the features.
        n: The number of nodes, even.
        f: The number of features.
        d: The average degree.
        epsilon: The strength of the signal.
        seed: Draws the graph.
        split_seed: Draws the 75/10/15 split; by default the same as `seed`.

    Returns:
        An undirected graph with a split. Isolated nodes stay in.

    Raises:
        InvalidInput: The parameters give no probabilities.

    Nodes 0 to n/2 - 1 have v_i = +1 (class 1), the others v_i = -1 (class 0). With xi = n / f,

        lambda = sqrt(1 + epsilon) sin(phi pi / 2),   mu = sqrt(xi (1 + epsilon)) cos(phi pi / 2)
        Pr[A_ij = 1] = (d + lambda sqrt(d)) / n  if v_i v_j > 0,  (d - lambda sqrt(d)) / n otherwise
        b_i = sqrt(mu / n) v_i u + Z_i / sqrt(f),   u ~ N(0, I / f),  Z_i ~ N(0, I)

    so that lambda^2 + mu^2 / xi = 1 + epsilon. The paper's appendix does not print d; 5 is the average degree in
    GPR-GNN (https://arxiv.org/abs/2006.07988), whose model it follows.

    ====== ====== ======== ======= ================
    nodes  edges  features classes expected degree
    ====== ====== ======== ======= ================
    10,000 50,000 200      2       d (edges: n d)
    ====== ====== ======== ======= ================

    Example:
        >>> csbm(phi=-0.5, n=1000, f=20).num_nodes
        1000
    """
    strength, mu = _signal(phi, n, f, epsilon)
    if not d >= 0:
        raise InvalidInput("d", d, "an average degree is not negative")
    inside, across = d + strength * math.sqrt(d), d - strength * math.sqrt(d)
    if not (min(inside, across) >= 0 and max(inside, across) <= n):
        raise InvalidInput("d", d, f"gives edge probabilities {inside / n:.4g} and {across / n:.4g}, outside [0, 1]")
    rng = np.random.default_rng(validate.seed("seed", seed))
    half = n // 2
    blocks = [
        _pairs_within(half, inside / n, rng),
        _pairs_within(half, inside / n, rng) + half,
        _pairs_between(half, across / n, rng) + np.array([[0], [half]]),
    ]
    pairs = np.concatenate(blocks, axis=1)
    v = np.repeat(np.array([1.0, -1.0], dtype=np.float32), half)
    u = rng.normal(0.0, 1.0 / math.sqrt(f), size=f).astype(np.float32)
    x = rng.standard_normal((n, f), dtype=np.float32) / np.float32(math.sqrt(f))
    x += np.float32(math.sqrt(mu / n)) * np.outer(v, u)
    graph = Graph.from_edge_index(
        np.concatenate([pairs, pairs[::-1]], axis=1),
        x,
        (v > 0).astype(np.int64),
        num_classes=2,
        directed=False,
        name=f"csbm:{phi:g}",
    )
    return graph.with_split(seed if split_seed is None else split_seed)


def _signal(phi: float, n: int, f: int, epsilon: float) -> tuple[float, float]:
    """(lambda, mu): the point at angle phi pi / 2 of the ellipse lambda^2 + mu^2 / xi = 1 + epsilon."""
    if not -1 <= phi <= 1:
        raise InvalidInput("phi", phi, "must lie in [-1, 1]")
    if n < 4 or n % 2:
        raise InvalidInput("n", n, "must be even and at least 4: there are two communities of equal size")
    if f < 1:
        raise InvalidInput("f", f, "needs at least one feature")
    if not epsilon > -1 or not math.isfinite(epsilon):
        raise InvalidInput("epsilon", epsilon, "must be a finite number above -1")
    angle = phi * math.pi / 2
    radius = math.sqrt(1 + epsilon)
    # cos(pi / 2) is a rounding error that may be negative; mu stands under a square root.
    return radius * math.sin(angle), max(0.0, math.sqrt(n / f) * radius * math.cos(angle))


def _pairs_within(m: int, p: float, rng: np.random.Generator) -> np.ndarray:
    """Each of the pairs i < j of m nodes, independently with probability p."""
    k = _chosen(m * (m - 1) // 2, p, rng)
    # Pairs in the order (0,1), (0,2), (1,2), (0,3), ...: pair k has j (j - 1) / 2 <= k. The root may be off by one.
    j = ((1 + np.sqrt(1 + 8 * k.astype(np.float64))) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > k
    j += j * (j + 1) // 2 <= k
    return np.stack([k - j * (j - 1) // 2, j])


def _pairs_between(m: int, p: float, rng: np.random.Generator) -> np.ndarray:
    """Each of the m x m pairs of two communities, independently with probability p."""
    k = _chosen(m * m, p, rng)
    return np.stack([k // m, k % m])


def _chosen(count: int, p: float, rng: np.random.Generator) -> np.ndarray:
    """A Bernoulli(p) subset of range(count) without visiting all of it: its size first, then a uniform subset."""
    return rng.choice(count, size=rng.binomial(count, p), replace=False, shuffle=False)


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
