"""Pairs of adjacent graphs that differ as much as the level allows, for attacks on whole fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.graph import Graph
from graphveil.graph.links import Relations, stack
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, is_zero_out, protects_attributes, with_unit

# The length of the replaced node's features, in multiples of the mean: its gradient is then always clipped.
_LENGTH = 20.0


@dataclass(frozen=True, eq=False)
class AdjacentGraphs:
    """Two adjacent graphs.

    Args:
        before: The graph without the change (tails).
        after: The graph with the change (heads).
        own: The replaced node; None at edge level.
    """

    before: Graph
    after: Graph
    own: int | None

    @property
    def others(self) -> np.ndarray:
        """Nodes whose rows and predictions the adversary sees."""
        nodes = np.arange(self.before.num_nodes)
        return nodes if self.own is None else nodes[nodes != self.own]


def adjacent_graphs(graph: Graph, level: Level, seed: int, *, validation: bool = False) -> AdjacentGraphs:
    """A pair of graphs that are adjacent at a level and differ by as much as the level allows.

    The replaced node is a training node. At k-neighbour level it has no links before and k after; at node level it has
    disjoint neighbourhoods before and after. Where attributes are private, its features change their sign, and its
    label changes. In the zero-out unit it is emptied before.

    Args:
        graph: The graph that both are made from.
        level: The level.
        seed: Chooses links.
        validation: Replace the only validation node instead, and change nothing but its label.

    Returns:
        The pair.

    Raises:
        InvalidInput: If the level protects nothing, or there is no validation node where one is needed.
    """
    rng = np.random.default_rng(seed)
    level = with_unit(level, graph.directed)
    if validation:
        graph = _only_validation_node(graph, rng)
    places = (graph.val_mask if validation else graph.train_mask).nonzero().squeeze(1).numpy()
    A = graph.to_scipy().toarray() > 0
    if isinstance(level, Edge):
        u, v = rng.choice(graph.train_mask.nonzero().squeeze(1).numpy(), 2, replace=False)
        before, after = A.copy(), A.copy()
        ends = [(u, v), (v, u)] if level.unit == "undirected" or not graph.directed else [(u, v)]
        for i, j in ends:
            before[i, j], after[i, j] = False, True
        return AdjacentGraphs(with_links(graph, *np.nonzero(before)), with_links(graph, *np.nonzero(after)), None)
    own = int(places[0])  # any would do; mistakes that shift rows show most at the first one
    if validation:
        return AdjacentGraphs(_with_label(graph, own, 0), _with_label(graph, own, 1), own)
    A[own] = A[:, own] = False
    before, after = A.copy(), A.copy()
    old, new = _neighborhoods(A, level, own, graph, rng)
    before[own, old] = before[old, own] = True
    after[own, new] = after[new, own] = True
    first, second = with_links(graph, *np.nonzero(before)), with_links(graph, *np.nonzero(after))
    if protects_attributes(level):
        first, second = _with_attributes(first, own, 1.0), _with_attributes(second, own, -1.0)
        first = first.emptied(own) if is_zero_out(level) else first
    return AdjacentGraphs(first, second, own)


def small_part(graph: Graph, nodes: int, seed: int, *, most_links: int) -> Graph:
    """A part of the graph with at most this many nodes, and at most `most_links` links at a node.

    It is grown along links, and cut before the pair of graphs is made from it.
    """
    if graph.num_nodes > nodes:
        graph = _grown_part(graph, nodes, seed)
    if int(graph.train_mask.sum()) <= 5:
        graph = graph.with_split(seed)
    entries = graph.to_scipy().tocoo()
    source, target = (np.minimum(*entries.coords), np.maximum(*entries.coords))
    links = np.random.default_rng(seed).permutation(np.unique(np.column_stack([source, target]), axis=0))
    count = np.zeros(graph.num_nodes, dtype=int)
    kept = np.zeros((graph.num_nodes,) * 2, dtype=bool)
    for u, v in links:
        if count[u] < most_links and count[v] < most_links:
            kept[u, v] = kept[v, u] = True
            count[[u, v]] += 1
    return with_links(graph, *np.nonzero(kept & (graph.to_scipy().toarray() > 0)))


def _grown_part(graph: Graph, nodes: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    A = graph.to_scipy()
    A = A + A.T
    keep = np.zeros(graph.num_nodes, dtype=bool)
    waiting: list[int] = []
    while keep.sum() < nodes:
        if not waiting:
            waiting.append(int(rng.choice(np.flatnonzero(~keep))))
        node = waiting.pop(0)
        if keep[node]:
            continue
        keep[node] = True
        near = A.indices[A.indptr[node] : A.indptr[node + 1]]
        waiting.extend(int(i) for i in rng.permutation(near)[:4])
    return graph.subgraph(keep)


def _neighborhoods(
    A: np.ndarray, level: Level, own: int, graph: Graph, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The node's neighbours before and after: training nodes first, and none beyond the promised degree."""
    others = rng.permutation(np.delete(np.arange(len(A)), own))
    others = others[np.argsort(~graph.train_mask.numpy()[others], kind="stable")]
    if isinstance(level, KNeighbor):
        return others[:0], others[: level.k]
    if not isinstance(level, Node):
        raise InvalidInput("level", level, "has no adjacent graphs to tell apart")
    room = others[A.sum(0)[others] < level.max_degree]
    if is_zero_out(level):
        return room[:0], room[: level.max_degree]
    count = min(level.max_degree, len(room) // 2)
    return room[:count], room[count : 2 * count]


def with_links(graph: Graph, source: np.ndarray, target: np.ndarray) -> Graph:
    """The same nodes with these stored entries of A.

    Entries that were there keep their weights and relations; others count fully, in the first relation.
    """
    wanted = sp.csr_array((np.ones(len(source), dtype=np.float32), (source, target)), shape=(graph.num_nodes,) * 2)
    kept = sp.csr_array(graph.to_scipy().multiply(wanted))
    fresh = sp.csr_array(wanted - kept.astype(bool).astype(np.float32))
    fresh.eliminate_zeros()
    links, relations = sp.csr_array(kept + fresh), graph.relations
    links.sort_indices()
    if relations is not None:
        first, *others = (sp.csr_array(matrix.multiply(wanted)) for matrix in relations.matrices())
        relations = Relations(relations.names, stack([first + fresh, *others]))
    weights = None if graph.weights is None else links.data
    return graph.replace(indptr=links.indptr, indices=links.indices, weights=weights, relations=relations, counts=None)


def _with_attributes(graph: Graph, own: int, sign: float) -> Graph:
    given = graph.features
    features = given.clone() if isinstance(given, torch.Tensor) else torch.from_numpy(given.toarray())
    length = _LENGTH * float(features.norm(dim=1).mean())
    direction = torch.ones(features.shape[1]) / features.shape[1] ** 0.5
    features[own] = sign * length * direction
    return _with_label(graph.replace(features=features), own, 0 if sign > 0 else 1)


def _with_label(graph: Graph, own: int, label: int) -> Graph:
    labels = graph.labels.clone()
    labels[own] = label
    return graph.replace(labels=labels)


def _only_validation_node(graph: Graph, rng: np.random.Generator) -> Graph:
    labelled = (graph.val_mask | graph.test_mask).nonzero().squeeze(1).numpy()
    if not len(labelled):
        raise InvalidInput("val_mask", 0, "this attack needs a validation node")
    chosen = int(rng.choice(labelled))
    val, test = torch.zeros_like(graph.val_mask), graph.test_mask | graph.val_mask
    val[chosen], test[chosen] = True, False
    return graph.replace(val_mask=val, test_mask=test)
