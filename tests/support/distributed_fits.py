"""Fits that tests make on one process and on several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

import graphveil as gv
from graphveil.execution import Ledger
from graphveil.graph import Graph, csbm
from graphveil.process import code_digest

# Members of all jobs are copies of one process, which keeps this. So the fits of a test are of one version, even if
# somebody changes the package while tests run; a checkpoint of another version is refused.
code_digest()

K1 = gv.KNeighbor(k=1)


def graph() -> Graph:
    return csbm(0.5, n=502, f=6, seed=0)


def directed() -> Graph:
    plain = graph()
    upper = plain.to_scipy().tolil()
    upper[:100, 200:] = 0
    return Graph.from_scipy(upper.tocsr(), plain.features, plain.labels, directed=True).with_split(1)


def linked() -> Graph:
    """Links that say more about classes than features do."""
    return csbm(0.9, n=502, f=3, d=20, seed=0)


def sparse() -> Graph:
    """Features with few entries: only ones in the last third of the nodes, other numbers before."""
    plain = graph()
    features = np.where(np.abs(plain.features.numpy()) > 0.2, plain.features.numpy(), 0)
    features[334:] = features[334:] != 0
    return Graph.from_scipy(plain.to_scipy(), sp.csr_array(features), plain.labels).with_split(0)


def wide(stored: type = np.asarray) -> Graph:
    """More features than their products are made of and a node that has none of them."""
    plain = csbm(0.8, n=502, f=40, d=12, seed=0)
    features = np.where(np.abs(plain.features.numpy()) > 0.1, plain.features.numpy(), 0)
    features[7] = 0
    return Graph.from_scipy(plain.to_scipy(), stored(features), plain.labels).with_split(0)


def linked_one_way() -> Graph:
    plain = linked()
    return Graph.from_scipy(plain.to_scipy(), plain.features, plain.labels, directed=True).with_split(1)


# Private training of W, tables that are drawn, rows that are sampled, features alone; with degrees that are promised.
CASES = {
    "trained": lambda: (graph(), gv.DPDGC(K1, 8.0, seed=0, steps=6, hidden=16, table="trained")),
    "joined": lambda: (directed(), gv.DPDGC(K1, 8.0, seed=0, steps=6, table="labels+degrees")),
    "tables": lambda: (directed(), gv.DPDGC(K1, 8.0, seed=0, steps=6, table="readers+neighbors+degrees+posteriors")),
    "node": lambda: (graph(), gv.DPDGC(gv.Node(max_degree=40), 8.0, seed=3, steps=6, table="labels")),
    "sampled": lambda: (graph(), gv.DPDGC(K1, 8.0, 1e-3, seed=0, steps=3, hidden=16, table="trained", batch_size=90)),
    "mlp": lambda: (graph(), gv.MLP(K1, 8.0, seed=0, steps=6)),
    "weighted": lambda: (graph(), gv.MLP(K1, 8.0, seed=0, steps=6, class_weight="balanced")),
    "edge": lambda: (graph(), gv.DPDGC(gv.Edge(), 2.0, seed=0, steps=6, epochs=6, table="trained")),
    "public": lambda: (graph(), gv.DPDGC(gv.Public(), seed=0, epochs=6, hidden=16)),
    "sparse": lambda: (sparse(), gv.MLP(gv.Public(), seed=0, epochs=6, hidden=20)),
    "folds": lambda: (graph(), gv.DPDGC(gv.Edge(), 2.0, seed=0, epochs=6, folds=3)),
    "links": lambda: (sparse(), gv.DPDGC(gv.KNeighbor(2, attributes=False), 2.0, seed=0, epochs=6, folds=2)),
    "auto": lambda: (linked(), gv.Auto(K1, 8.0, seed=0, steps=6)),
    "auto, graph": lambda: (linked(), gv.Auto(gv.KNeighbor(2), 20.0, 1e-3, seed=1, steps=6)),
    "auto, zero-out": lambda: (sparse(), gv.Auto(gv.Node(60, unit="zero-out"), 8.0, seed=2, steps=6)),
    "auto, directed": lambda: (directed(), gv.Auto(K1, 8.0, seed=1, steps=6)),
    "auto at edges": lambda: (sparse(), gv.Auto(gv.Edge(), 2.0, seed=0, epochs=6)),
    "gap": lambda: (directed(), gv.GAP(K1, 8.0, seed=0, steps=6, hidden=16, max_degree=60)),
    "caribou": lambda: (directed(), gv.Caribou(K1, 8.0, seed=0, steps=6, hidden=16, max_degree=60)),
    "auto at nodes": lambda: (linked(), gv.Auto(gv.Node(max_degree=60), 8.0, seed=0, steps=6)),
    "labels at edges": lambda: (graph(), gv.DPDGC(gv.Edge(), 2.0, seed=0, epochs=6, table="labels")),
    "mlp at nodes": lambda: (graph(), gv.MLP(gv.Node(max_degree=40), 8.0, seed=0, steps=6)),
    "mlp at edges": lambda: (sparse(), gv.MLP(gv.Edge(), 2.0, seed=0, epochs=6, hidden=20)),
    "gap at nodes": lambda: (graph(), gv.GAP(gv.Node(max_degree=60), 8.0, seed=0, steps=6, hidden=16)),
    "gap at edges": lambda: (sparse(), gv.GAP(gv.Edge(), 2.0, seed=0, epochs=6, hidden=16)),
}

# Each branch of the default, whatever was expected of it.
_GRAPHS = {"narrow": linked, "wide": wide, "sparse": lambda: wide(sp.csr_array), "directed": linked_one_way}
_BRANCHES = {
    "narrow": ("features", "sums", "balanced", "graph"),
    "wide": ("features", "joint"),
    "sparse": ("features", "sums", "balanced", "joint", "graph"),
    "directed": ("features", "sums", "balanced"),
}
_FORCED = {f"{kind}, {branch}": branch for kind, branches in _BRANCHES.items() for branch in branches}


def _case(kind: str):
    return lambda: (_GRAPHS[kind](), gv.Auto(K1, 8.0, seed=0, steps=6, hidden=16))


CASES |= {name: _case(name.split(",")[0]) for name in _FORCED}


@contextmanager
def led(name: str) -> Iterator[None]:
    """Fits of this case follow its branch, if it has one."""
    follow = Ledger.follow
    with patch.object(Ledger, "follow", lambda ledger, chosen: follow(ledger, _FORCED.get(name, chosen))):
        yield
