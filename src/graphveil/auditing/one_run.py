"""One real fit with many independent canaries in its graph, each present or not by its own coin.

Steinke, Nasr and Jagielski 2023 (arXiv:2305.08846): one run tells as much as its canaries are many. Canaries share no
node. The score of a canary is the likelihood ratio of its readers' released rows; rows of replaced nodes are not read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from graphveil.auditing.end_to_end import MakeModel, recorded_fit, replayed_fit
from graphveil.auditing.pairs import with_links
from graphveil.auditing.scores import Scores, toss
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, MakeLedger
from graphveil.graph import Graph
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, with_unit
from graphveil.privacy.mechanisms import GaussianRelease, Mechanism

MOST_CANARIES = 2000


@dataclass(frozen=True, eq=False)
class Planted:
    """Canary c links node `own[c]` with `readers[c]`, both ways where the graph is undirected."""

    own: np.ndarray
    readers: np.ndarray

    def __len__(self) -> int:
        return len(self.own)


def shows_readers(mechanism: Mechanism) -> bool:
    """Whether a canary's readers have rows of their own in what is released."""
    return isinstance(mechanism, GaussianRelease) and mechanism.role != "statistics" and mechanism.tau is None


def one_run_scores(
    make_model: MakeModel, graph: Graph, level: Level, seed: int, make_ledger: MakeLedger = Ledger
) -> Scores:
    """Scores of all canaries after one fit; positive scores speak for heads."""
    rng = np.random.default_rng(seed)
    planted = _plant(graph, with_unit(level, graph.directed), rng)
    coins = toss(len(planted), rng)
    tails, heads, mixed = (_linked(graph, planted, on) for on in (np.zeros_like(coins), ~np.zeros_like(coins), coins))
    recorder, _ = recorded_fit(make_model, mixed, int(rng.integers(2**52)), make_ledger)
    with_all = replayed_fit(make_model, heads, recorder, None).given
    with_none = replayed_fit(make_model, tails, recorder, None).given
    values = np.zeros(len(planted))
    # At edge level both ends' rows are seen; elsewhere the replaced node's own is not.
    seen = np.column_stack([planted.own, planted.readers]) if isinstance(level, Edge) else planted.readers
    counted: set[str] = set()
    for entry, ours, theirs in zip(recorder.entries, with_all, with_none, strict=True):
        mechanism = recorder.plan[entry.name]
        if not shows_readers(mechanism) or mechanism.noise == 0:
            continue
        # Beyond the first hop a reader's row is computed from the replaced node's own, which is not seen.
        if isinstance(level, Edge) or entry.name not in counted:
            counted.add(entry.name)
            step, middle = (ours - theirs).double(), (ours + theirs).double() / 2
            ratio = ((entry.got.double() - middle) / mechanism.noise * (step / mechanism.noise)).sum(1)
            values += ratio[torch.from_numpy(seen)].sum(1).numpy()
    return Scores(coins, values)


def _plant(graph: Graph, level: Level, rng: np.random.Generator) -> Planted:
    if isinstance(level, Edge):
        readers = 1
    elif isinstance(level, KNeighbor):
        readers = level.k
    elif isinstance(level, Node):
        readers = level.max_degree
    else:
        raise InvalidInput("level", level, "protects nothing")
    count = min(MOST_CANARIES, graph.num_nodes // (readers + 1))
    if readers == 0 or count < 40:
        raise InvalidInput("graph", graph.num_nodes, f"has room for {count} canaries of {readers + 1} nodes; 40 needed")
    chosen = rng.permutation(graph.num_nodes)[: count * (readers + 1)].reshape(count, readers + 1)
    return Planted(chosen[:, 0], chosen[:, 1:])


def _linked(graph: Graph, planted: Planted, on: np.ndarray) -> Graph:
    """The graph without any link at a canary's own node, and with its canary's links where the coin is heads."""
    keep = np.ones(graph.num_nodes, dtype=bool)
    keep[planted.own] = False
    entries = graph.to_scipy().tocoo()
    stays = keep[entries.coords[0]] & keep[entries.coords[1]]
    own, readers = np.repeat(planted.own[on], planted.readers.shape[1]), planted.readers[on].ravel()
    source = np.concatenate([entries.coords[0][stays], own, readers])
    target = np.concatenate([entries.coords[1][stays], readers, own])
    return with_links(graph, source, target)
