"""Canaries: for each mechanism the worst pair of adjacent graphs, as a small graph, and many copies of it in one graph.

Each pair attains the sensitivity that `graphveil.privacy.sensitivity` states (docs/theory.md has the proofs of
tightness; for statistics see `statistics_sums`), so an attack on it is as strong as an attack can be. Copies share no
node: in one release each has noise of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.execution.exact import EXACT
from graphveil.execution.sparse_rows import CsrRows, SparseRows
from graphveil.graph import Graph
from graphveil.methods.expectation import GraphBranch, right_counts
from graphveil.methods.inputs import Inputs
from graphveil.methods.link_statistics import co_link_sums, link_sums
from graphveil.methods.tables import neighbor_label_counts
from graphveil.methods.training import NO_LABEL, label_rows
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, is_zero_out, protects_attributes
from graphveil.privacy.mechanisms import GaussianRelease
from graphveil.privacy.plan import Plan

WIDTH = 2
# Links of the rows that start or stop to read a node in one canary.
_MOST_LINKS = 4096
# How many readers a node has already for each one that joins: with many, joining readers hardly change their weights.
_OTHER_READERS = 8


@dataclass(frozen=True, eq=False)
class Canary:
    """Two adjacent graphs on a few nodes.

    Args:
        before: Who reads whom, as a matrix, before the change.
        after: The same after the change.
        labels: Labels before the change.
        labels_after: Labels after the change.
        table: The table that is multiplied, before the change.
        table_after: The same after the change.
        own: The replaced node, whose row the adversary never sees; None where all rows must be private.
    """

    before: np.ndarray
    after: np.ndarray
    labels: np.ndarray
    labels_after: np.ndarray
    table: np.ndarray
    table_after: np.ndarray
    own: int | None

    @property
    def size(self) -> int:
        return len(self.before)

    @property
    def seen(self) -> np.ndarray:
        """Rows that the adversary sees."""
        return np.array([row for row in range(self.size) if row != self.own])


@dataclass(frozen=True, eq=False)
class Copies:
    """One graph of many copies of a canary, each before or after its change."""

    adjacency: SparseRows
    labels: torch.Tensor
    table: torch.Tensor


Query = Callable[[Copies], torch.Tensor]


def with_unlinked_nodes(canary: Canary, count: int) -> Canary:
    """The same pair with `count` more nodes that neither read nor are read."""

    def longer(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows, np.zeros((count, *rows.shape[1:]), dtype=rows.dtype)])

    def wider(adjacency: np.ndarray) -> np.ndarray:
        return np.pad(adjacency, ((0, count), (0, count)))

    return Canary(
        before=wider(canary.before),
        after=wider(canary.after),
        labels=longer(canary.labels),
        labels_after=longer(canary.labels_after),
        table=longer(canary.table),
        table_after=longer(canary.table_after),
        own=canary.own,
    )


def copies(canary: Canary, coins: np.ndarray) -> Copies:
    """A copy for each coin, changed where the coin is heads."""
    shape = (len(coins) * canary.size,) * 2
    sources, targets = [], []
    for adjacency, places in ((canary.before, np.flatnonzero(~coins)), (canary.after, np.flatnonzero(coins))):
        row, column = np.nonzero(adjacency)
        sources.append((places[:, None] * canary.size + row).ravel())
        targets.append((places[:, None] * canary.size + column).ravel())
    ends = (np.concatenate(sources), np.concatenate(targets))
    matrix = sp.coo_array((np.ones(len(ends[0]), dtype=np.float32), ends), shape=shape).tocsr()
    labels = np.where(coins[:, None], canary.labels_after, canary.labels).ravel()
    table = np.where(coins[:, None, None], canary.table_after, canary.table).reshape(-1, canary.table.shape[1])
    return Copies(CsrRows(matrix), torch.from_numpy(labels), torch.from_numpy(table).float())


def multiply(graph: Copies) -> torch.Tensor:
    """A W, as the methods compute it."""
    return EXACT.product(graph.adjacency, graph.table)


def multiply_transposed(graph: Copies) -> torch.Tensor:
    """A^T W: for each node the sum of its readers' rows."""
    return EXACT.transposed_product(graph.adjacency, graph.table)


def canary_of(plan: Plan, mechanism: GaussianRelease, make_table: Callable[..., torch.Tensor]) -> tuple[Canary, Query]:
    """The worst pair for a release of a plan, and the query that it releases.

    Args:
        plan: The plan.
        mechanism: One of its releases.
        make_table: Makes rows of W from a table and the promised norm, as the method does.

    Returns:
        The pair, and a function from a graph of copies to the sum that is released.
    """
    level, nodes = plan.level, plan.facts.nodes
    if mechanism.tau is not None:
        tau, classes = mechanism.tau, plan.facts.classes
        return _neighbor_labels(level, tau, nodes, classes), lambda graph: neighbor_label_counts(
            graph.adjacency, graph.labels, torch.arange(len(graph.labels)), classes, tau
        )
    if mechanism.role == "statistics":
        return _moved_sums(*statistics_sums(plan)), lambda graph: graph.table
    if mechanism.role == "classes":
        return _moved_sums(*class_sums(plan)), lambda graph: graph.table
    if mechanism.role == "class sums":
        return _moved_sums(*feature_sums(plan, mechanism)), lambda graph: graph.table
    if mechanism.role == "expectation":
        return _moved_sums(*expectation_sums(plan)), lambda graph: graph.table
    if mechanism.role == "table" and mechanism.table == "posteriors":
        return _changed_opinion(), lambda graph: torch.softmax(graph.table, dim=1)
    if mechanism.role != "aggregation" or isinstance(level, Edge):
        canary = _new_readers(level, nodes)
        held = make_table(torch.from_numpy(canary.table).float(), mechanism.row_norm).double().numpy()
        own = canary.own if hides_own_row(plan, mechanism.name) else None
        query = multiply_transposed if mechanism.role == "table" else multiply
        return replace(canary, table=held, table_after=held, own=own), query
    if isinstance(level, Node) and is_zero_out(level):
        return _new_readers(level, nodes), multiply
    assert mechanism.degree_bound is not None
    return _negated_row(min(mechanism.degree_bound, nodes - 1)), multiply


def hides_own_row(plan: Plan, name: str) -> bool:
    """Whether the replaced node's own row of this release is kept from the adversary.

    Not at edge level, where no node is replaced, and not where the sensitivity covers that row.
    """
    mechanism = plan[name]
    return not isinstance(plan.level, Edge) and not (isinstance(mechanism, GaussianRelease) and mechanism.own_rows)


def _new_readers(level: Level, nodes: int) -> Canary:
    """Nodes start to read a node, which starts to read others; at node level as many nodes stop to read it.

    All rows of the table point the same way, so that the node's own row moves as far as it can.
    """
    if isinstance(level, Edge):
        before, after = np.zeros((2, 2), dtype=int), np.zeros((2, 2), dtype=int)
        after[0, 1] = 1
        if level.unit == "undirected":
            after[1, 0] = 1
        return _plain(before, after, own=None)
    appear, vanish = _changed_readers(level, nodes)
    size = 1 + appear + vanish
    before, after = np.zeros((size, size), dtype=int), np.zeros((size, size), dtype=int)
    after[1 : 1 + appear, 0] = after[0, 1 : 1 + appear] = 1
    before[1 + appear :, 0] = 1
    return _plain(before, after, own=0)


def _changed_readers(level: Level, nodes: int) -> tuple[int, int]:
    """How many nodes may start and how many may stop to read the replaced one."""
    if isinstance(level, KNeighbor):
        return min(level.k, nodes - 1), 0
    assert isinstance(level, Node)
    appear = min(level.max_degree, nodes - 1)
    return appear, 0 if is_zero_out(level) else min(level.max_degree, nodes - 1 - appear)


def _plain(before: np.ndarray, after: np.ndarray, own: int | None) -> Canary:
    table = np.zeros((len(before), WIDTH))
    table[:, 0] = 1.0
    labels = np.zeros(len(before), dtype=np.int64)
    return Canary(before, after, labels, labels, table, table, own)


def _moved_sums(before: torch.Tensor, after: torch.Tensor) -> Canary:
    """Sums over all nodes of a graph: one row, of what the method releases before and after a change."""
    alone = np.zeros((1, 1), dtype=int)
    canary = _plain(alone, alone, own=None)
    return replace(canary, table=before[None].numpy(), table_after=after[None].numpy())


def class_sums(plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    """Class counts before and after a node leaves the first class, for another one where it is not emptied."""
    labels = torch.tensor([0]), torch.tensor([NO_LABEL if is_zero_out(plan.level) else 1])
    before, after = (label_rows(each, max(2, plan.facts.classes)).double().sum(0) for each in labels)
    return before, after


def feature_sums(plan: Plan, mechanism: GaussianRelease) -> tuple[torch.Tensor, torch.Tensor]:
    """Class sums before and after a node leaves the first class, with other features, for another class."""
    row = math.sqrt(mechanism.row_norm**2 - 1) * (1 - 1e-6)  # beside the 1 that counts the node
    after = torch.tensor([[0.0, 0.0, 0.0], [0.0, row, 1.0]], dtype=torch.float64)
    before = torch.zeros_like(after) if is_zero_out(plan.level) else after.flip(0)[:, [1, 0, 2]]
    return before.reshape(-1), after.reshape(-1)


def _changed_opinion() -> Canary:
    """A node about which the classifier is sure, first of one class, then of another (docs/theory.md, section 5.2)."""
    alone = np.zeros((1, 1), dtype=int)
    canary = _plain(alone, alone, own=None)
    sure = 200 * canary.table
    return replace(canary, table=sure, table_after=sure[:, ::-1].copy())


def _negated_row(degree: int) -> Canary:
    """`degree` nodes read a node whose row is negated: the worst pair of GAP's hop (docs/theory.md, section 3)."""
    adjacency = np.zeros((degree + 1, degree + 1), dtype=int)
    adjacency[1:, 0] = 1
    canary = _plain(adjacency, adjacency, own=0)
    table = canary.table * (1 - 1e-6)
    after = table.copy()
    after[0] *= -1
    return replace(canary, table=table, table_after=after)


def _neighbor_labels(level: Level, tau: float, nodes: int, classes: int) -> Canary:
    """Rows that start (or stop) reading r share their other neighbours with r, whose own label changes.

    The construction of docs/theory.md, section 5.3, at a degree that moves the table farthest. Every row of the table
    is seen: others read it.
    """
    if isinstance(level, Edge):
        return _new_readers(level, nodes)
    appear, vanish = _changed_readers(level, nodes)
    if not is_zero_out(level):
        return _shared_readers(appear, vanish, _worst_degree(appear, vanish, tau), tau, classes)
    canary = _shared_readers(appear, 0, 0, tau, classes)
    if not protects_attributes(level):
        return replace(canary, labels_after=canary.labels)
    empty = canary.labels.copy()
    empty[0] = NO_LABEL
    return replace(canary, labels=empty)


def _worst_degree(appear: int, vanish: int, tau: float) -> int:
    """The degree of changing rows that moves the table farthest, among those with at most `_MOST_LINKS` links.

    Every link of every canary takes memory. Where the limit matters, the best degree moves the table by up to 2 % more.
    """
    degrees = np.arange(min(math.ceil(tau**2) + 1, _MOST_LINKS // max(1, appear + vanish)) + 1)
    before, after = (np.minimum(1.0, tau / np.sqrt(np.maximum(d, 1))) for d in (degrees, degrees + 1))
    others = np.sqrt(degrees) * (before - after)
    moved = sum((count * after) ** 2 + (tau + count * others) ** 2 for count in (appear, vanish))
    return int(np.argmax(moved))


def _shared_readers(appear: int, vanish: int, degree: int, tau: float, classes: int) -> Canary:
    changing, shared = appear + vanish, max(degree, int(tau**2 + 1e-9), 1)
    size = 1 + changing + shared
    before = np.zeros((size, size), dtype=int)
    before[0, 1 + changing :] = 1
    before[1 : 1 + changing, 1 + changing : 1 + changing + degree] = 1
    after = before.copy()
    after[1 : 1 + appear, 0] = 1
    before[1 + appear : 1 + changing, 0] = 1
    labels = np.zeros(size, dtype=np.int64)
    labels[1 + appear : 1 + changing] = 1 % classes
    labels_after = labels.copy()
    labels_after[0] = 1
    table = np.zeros((size, 1))
    return Canary(before, after, labels, labels_after, table, table, None)


@dataclass
class _Nodes:
    """A graph under construction: each node's label, and its links."""

    labels: list[int] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)

    def add(self, label: int) -> int:
        self.labels.append(label)
        return len(self.labels) - 1

    def several(self, count: int, label: int) -> list[int]:
        return [self.add(label) for _ in range(count)]

    def inputs(self, directed: bool, classes: int) -> Inputs:
        """What the method reads; all nodes are training nodes."""
        count = len(self.labels)
        ends = np.array(self.links, dtype=np.int64).reshape(-1, 2)
        if not directed:
            ends = np.concatenate([ends, ends[:, ::-1]])
        links = sp.csr_array((np.ones(len(ends), np.float32), (ends[:, 0], ends[:, 1])), shape=(count, count))
        everybody, nobody = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
        masks = {"train_mask": everybody, "val_mask": nobody, "test_mask": nobody}
        labels = np.array(self.labels)
        given = np.maximum(labels, 0)
        graph = Graph.from_scipy(links, np.zeros((count, 1)), given, directed=directed, num_classes=classes, **masks)
        for node in np.flatnonzero(labels == NO_LABEL):
            graph = graph.emptied(int(node), keep_links=True)
        return Inputs(graph, graph.to_scipy(), "cpu")


def statistics_sums(plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums that the statistics of this plan release, before and after a training node was replaced.

    The pairs of graphs move them nearly as far as they are said to move. The bounds of docs/theory.md, sections 5.5 and
    5.7, add up what each term can do by itself, and no pair of graphs does all of it at once: these come to 60 to 95 %
    of the bound.
    """
    level, facts = plan.level, plan.facts
    make, sums = (_co_linked, co_link_sums) if facts.directed else (_linked, link_sums)
    before, after = (make(level, after).inputs(facts.directed, facts.classes) for after in (False, True))
    return sums(before, level), sums(after, level)


def expectation_sums(plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    """What `expectation.right_counts` gives for one training node that no branch gets right, and then for one that all
    of them do: links say nothing, and features are sure of the wrong class or of the right one."""
    classes = plan.facts.classes
    nothing = GraphBranch(np.zeros((classes, classes)), 1.0, 1.0)
    # What "joint" reaches is read off the counts of "balanced".
    branches = {branch.name: nothing for branch in plan.branches if branch.name in ("balanced", "graph")}
    sure, alike = 100 * torch.eye(classes)[:1], np.full(classes, 1 / classes)
    before, after = (right_counts(np.array([label]), [sure] * 2, [sure] * 2, branches, alike) for label in (1, 0))
    return before, after


def _linked(level: Level, after: bool) -> _Nodes:
    """A centre that is linked with nodes of its own class, and then belongs to another class and has other links.

    N_k: k nodes with k links of their own are linked with the centre too, which lowers the weight of those links; the
    centre had none before. Node level: all links of the centre change. Zero-out: the centre is emptied before, and all
    others are of another class.
    """
    nodes = _Nodes()
    others = 1 if is_zero_out(level) else 0
    empty = NO_LABEL if is_zero_out(level) else 1
    # In the zero-out unit the centre is emptied in the first graph, so its links are those of the second.
    there = after if is_zero_out(level) else not after
    centre = nodes.add(0 if there else empty)
    if isinstance(level, Node):
        old = nodes.several(level.max_degree, others)
        nodes.links += [(leaf, centre) for leaf in old] if there else []
        return nodes
    assert isinstance(level, KNeighbor)
    linked = nodes.several(max(1, level.k), others)
    changing = nodes.several(level.k, others)
    nodes.links += [(leaf, centre) for leaf in linked]
    for node in changing:
        nodes.links += [(node, leaf) for leaf in nodes.several(level.k, others)]
        nodes.links += [(node, centre)] if after else []
    return nodes


def _co_linked(level: Level, after: bool) -> _Nodes:
    """A replaced node whose pairs with others that read the same node all change their class.

    Many nodes of class 0 read the same nodes as the replaced one. It is of class 0 before (in the zero-out unit it is
    emptied) and of class 1 after. Then it also reads k other nodes, which have readers of class 0, and k nodes of class
    0 read it, beside readers of class 1.
    """
    assert isinstance(level, KNeighbor)
    k, nodes = level.k, _Nodes()
    own = nodes.add(1 if after else NO_LABEL if is_zero_out(level) else 0)
    shared, new = nodes.several(max(1, k), 0), nodes.several(k, 0)
    changing = nodes.several(k, 0)
    readers = _OTHER_READERS * (k + 1)
    for read, label in [(shared, 0), (new, 0), ([own], 1)]:
        nodes.links += [(reader, node) for reader in nodes.several(readers, label) for node in read]
    nodes.links += [(reader, node) for reader in [own, *changing] for node in shared]
    if after:
        nodes.links += [*((own, node) for node in new), *((reader, own) for reader in changing)]
    return nodes
