"""Pairs of small graphs that move the sums of `methods.choice` nearly as far as they are said to move.

The sums are those of the real code. The bounds of docs/theory.md, sections 5.5 and 5.6, add up what each term can do by
itself, and no pair of graphs does all of it at once: these come to 60 to 90 % of the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.graph import Graph
from graphveil.methods.choice import co_reader_margins, neighbor_margins
from graphveil.methods.inputs import Inputs
from graphveil.privacy.levels import KNeighbor, Level, Node
from graphveil.privacy.plan import Plan

# Nodes that share a group with those who join it: with many of them, those who join hardly count for each other.
_COMPANY = 8


@dataclass
class _Nodes:
    """A graph as it grows: each node's label, what features say about it, and its links."""

    labels: list[int] = field(default_factory=list)
    guesses: list[int] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)

    def add(self, label: int, guess: int) -> int:
        self.labels.append(label)
        self.guesses.append(guess)
        return len(self.labels) - 1

    def inputs(self, directed: bool, classes: int) -> tuple[Inputs, torch.Tensor]:
        """What the method reads, and what a classifier of features says; everybody trains."""
        count = len(self.labels)
        ends = np.array(self.links, dtype=np.int64).reshape(-1, 2)
        if not directed:
            ends = np.concatenate([ends, ends[:, ::-1]])
        links = sp.csr_array((np.ones(len(ends), np.float32), (ends[:, 0], ends[:, 1])), shape=(count, count))
        everybody, nobody = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
        masks = {"train_mask": everybody, "val_mask": nobody, "test_mask": nobody}
        labels = np.array(self.labels)
        graph = Graph.from_scipy(links, np.zeros((count, 1)), labels, directed=directed, num_classes=classes, **masks)
        return Inputs(graph, graph.to_scipy(), "cpu"), torch.eye(classes)[torch.tensor(self.guesses)]


def choice_sums(plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums that the choice of this plan releases, before and after a training node was replaced."""
    level, facts = plan.level, plan.facts
    found = []
    for after in (False, True):
        if facts.directed:
            assert isinstance(level, KNeighbor)
            data, opinions = _co_readers(level.k, after).inputs(True, facts.classes)
            found.append(co_reader_margins(data, opinions))
        else:
            data, opinions = _neighbors(level, after).inputs(False, facts.classes)
            found.append(neighbor_margins(data, opinions, [opinions], level))
    return found[0], found[1]


def _neighbors(level: Level, after: bool) -> _Nodes:
    """A star of wrongly guessed leaves. Its centre is wrong first and right then, and the leaves' votes turn with it.

    N_k: each of k further nodes is linked with one other node, and then with the centre too, which halves the weight of
    its first link. Node level: the centre loses all of its links.
    """
    nodes = _Nodes()
    centre = nodes.add(1, 1) if after else nodes.add(0, 1)
    if isinstance(level, Node):
        leaves = [nodes.add(0, 1) for _ in range(level.max_degree)]
        nodes.links += [] if after else [(leaf, centre) for leaf in leaves]
        return nodes
    assert isinstance(level, KNeighbor)
    nodes.links += [(nodes.add(0, 1), centre) for _ in range(_COMPANY * (level.k + 1))]
    for _ in range(level.k):
        changing, other = nodes.add(0, 1), nodes.add(0, 1)
        nodes.links += [(changing, other), *([(changing, centre)] if after else [])]
    return nodes


def _co_readers(k: int, after: bool) -> _Nodes:
    """k nodes and the replaced one each leave a companion that agreed with them for a group that does not.

    Groups follow the lots that `co_reader_margins` draws: the replaced node has the smallest, then comes the node whose
    group it joins.
    """
    company = _COMPANY * (k + 1)
    count = 2 + 2 * (k + 1) + 2 * company + k + 1
    order = np.argsort(np.random.default_rng(0).permutation(count)).tolist()
    own, joined = order[:2]
    rest = iter(order[2:])
    labels, guesses, links = [0] * count, [0] * count, []

    def wrong(label: int) -> int:
        node = next(rest)
        labels[node], guesses[node] = label, 1 - label
        return node

    anchors = [next(rest) for _ in range(k + 1)]
    labels[own], guesses[own] = 1, 0
    movers = [own, *(wrong(1) for _ in range(k))]
    for mover, anchor in zip(movers, anchors, strict=True):
        links += [(mover, anchor), (wrong(1), anchor)]
    for place in (own, joined):
        links += [(wrong(0), place) for _ in range(company)]
    if after and k:
        links += [(own, joined), *((mover, own) for mover in movers[1:])]
    if after and not k:
        labels[own], guesses[own] = 0, 1
    return _Nodes(labels, guesses, links)
