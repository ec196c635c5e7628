"""A synthetic graph whose nodes are bags of words, on which defaults are chosen: features that much can be learnt from
with a large budget, beside neighbours that agree as often as one likes. The public development graphs have neither."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphveil.graph import Graph


def bags_of_words(
    *,
    nodes: int = 7500,
    classes: int = 8,
    words: int = 700,
    density: float = 0.35,
    strength: float = 0.5,
    degree: int = 30,
    homophily: float = 0.0,
    seed: int = 0,
) -> Graph:
    """Words appear with log-odds that `strength` shifts by class in 30 % of cases; a share of `homophily` of all links
    stays within its class, the others end anywhere. 75 % of the nodes train and 10 % validate.

    >>> bags_of_words(nodes=50, words=9, seed=1).num_nodes
    50
    """
    rng = np.random.default_rng(1000 + seed)
    labels = rng.choice(classes, nodes, p=rng.dirichlet(np.full(classes, 2.0)))
    usual = np.log(density / (1 - density)) + rng.normal(0, 1, words)
    of_class = usual + strength * rng.normal(0, 1, (classes, words)) * (rng.random((classes, words)) < 0.3)
    length = rng.normal(0, 0.5, (nodes, 1))
    features = rng.random((nodes, words)) < 1 / (1 + np.exp(-(of_class[labels] + length)))
    links = nodes * degree // 2
    here, there = rng.integers(0, nodes, links), rng.integers(0, nodes, links)
    if homophily:
        stays = rng.random(links) < homophily
        by_label = np.argsort(labels, kind="stable")
        start = np.searchsorted(labels[by_label], np.arange(classes + 1))
        first, after = start[labels[here]], start[labels[here] + 1]
        there = np.where(stays, by_label[first + (rng.random(links) * (after - first)).astype(int)], there)
    kept = here != there
    both = np.unique(np.stack([np.r_[here[kept], there[kept]], np.r_[there[kept], here[kept]]]), axis=1)
    adjacency = sp.csr_array((np.ones(both.shape[1], dtype=np.float32), tuple(both)), shape=(nodes, nodes))
    part = rng.random(nodes)
    masks = {"train_mask": part < 0.75, "val_mask": (part >= 0.75) & (part < 0.85), "test_mask": part >= 0.85}
    return Graph.from_scipy(adjacency, features.astype(np.float32), labels, directed=False, **masks)
