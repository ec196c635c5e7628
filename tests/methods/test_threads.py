"""A fit gives the same predictions on any number of threads, to the last bit, whatever is private."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.execution import sums
from graphveil.graph import Graph, csbm
from graphveil.methods import method_class
from support.method_levels import SUPPORTED
from support.threads import on_threads

K1 = gv.KNeighbor(1)
FREE = gv.KNeighbor(1, attributes=False)
CASES = {f"{method}, {level}": (method, level, {}) for method, levels in SUPPORTED.items() for level in levels} | {
    "dpdgc, trained, public": ("dpdgc", gv.Public(), {"table": "trained"}),
    "dpdgc, trained, edge": ("dpdgc", gv.Edge(), {"table": "trained"}),
    "dpdgc, trained": ("dpdgc", K1, {"table": "trained"}),
    "dpdgc, trained in batches": ("dpdgc", K1, {"table": "trained", "batch_size": 200}),
    "dpdgc, all tables": ("dpdgc", K1, {"table": "readers+neighbors+degrees+posteriors"}),
    "dpdgc, all tables, public attributes": ("dpdgc", FREE, {"table": "labels+degrees+posteriors"}),
}


@cache
def graph(sparse: bool) -> Graph:
    """Large enough that torch uses all threads, with sizes that leave remainders."""
    plain = csbm(0.6, n=1502, f=45, d=5, seed=1)
    if not sparse:
        return plain
    features = np.where(np.abs(plain.features.numpy()) > 0.2, plain.features.numpy(), 0)
    return Graph.from_scipy(plain.to_scipy(), sp.csr_array(features), plain.labels).with_split(0)


def fitted(case, sparse, threads):
    method, level, options = CASES[case]
    epsilon = None if isinstance(level, gv.Public) else 4.0
    given = {"level": level, "epsilon": epsilon, "seed": 7, "steps": 3, "epochs": 3, "hidden": 27, "max_degree": 40}
    with on_threads(threads):
        return method_class(method)(**{**given, **options}).fit(graph(sparse)).logits_


def of_every_day(case, sparse):
    """One level with one form of features; all cases together are slow."""
    return CASES[case][1] == gv.KNeighbor(2) and not sparse


@pytest.mark.parametrize(
    ("case", "sparse"),
    [
        pytest.param(case, sparse, marks=[] if of_every_day(case, sparse) else pytest.mark.slow)
        for case in CASES
        for sparse in (False, True)
    ],
)
def test_threads_do_not_change_a_fit(case, sparse, monkeypatch):
    monkeypatch.setattr(sums, "_WORTH_A_THREAD", 1000)
    one = fitted(case, sparse, 1)
    assert one.isfinite().all()
    for threads in (2, 3):
        assert torch.equal(fitted(case, sparse, threads), one), threads
