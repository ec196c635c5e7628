"""A hub whose float32 sums drift apart: its exact sum is the same on 1, 2 and 3 processes, and moves as it may."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphveil.auditing.arithmetic import cycle_labels
from graphveil.auditing.hubs import chosen_readers
from graphveil.distributed.inputs import ShardedRows
from graphveil.distributed.shard import Layout
from graphveil.execution.exact import EXACT
from graphveil.execution.sparse_rows import CsrRows
from support.jobs import together

NODES = 44_199


def table():
    """Centred labels of three classes, as DPDGC multiplies them."""
    rows = torch.eye(3)[torch.from_numpy(cycle_labels(NODES))]
    rows = rows - rows.mean(0)
    return EXACT.table(rows / rows.norm(dim=1).max(), 1.0, NODES)


def hub(extra):
    """The last node reads those that drive its float32 sum apart, and the first node in one of two graphs."""
    read = 1 + chosen_readers(table()[1:-1].double().numpy(), np.zeros(3), table()[0].double().numpy())
    read = np.concatenate([[0], read]) if extra else read
    ones = np.ones(len(read), np.float32)
    return sp.csr_array((ones, (np.full(len(read), NODES - 1), read)), shape=(NODES, NODES))


def work(group, matrices):
    layout = Layout.even(NODES, group.size)
    span = layout.span(group.rank)
    own = slice(span.first, span.first + span.count)
    found = []
    for matrix in matrices:
        rows = ShardedRows(sp.csr_array(matrix[:, own]), layout, group, "cpu")
        forward = EXACT.product(rows, table()[own])
        back = EXACT.transposed_product(rows, table()[own])
        found.append([group.gathered(part, layout.counts).numpy() for part in (forward, back)])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_sums_of_a_hub(processes):
    matrices = [hub(False), hub(True)]
    expected = [
        [EXACT.product(CsrRows(matrix), table()), EXACT.transposed_product(CsrRows(matrix), table())]
        for matrix in matrices
    ]
    for found in together(processes, work, matrices):
        for ours, theirs in zip(found, expected, strict=True):
            assert all(torch.equal(torch.from_numpy(mine), other) for mine, other in zip(ours, theirs, strict=True))
    moved = [float((after - before).norm()) for before, after in zip(*expected, strict=True)]
    assert max(moved) <= 1
    plain = [CsrRows(matrix).times(table())[-1].double() for matrix in matrices]
    assert float((plain[1] - plain[0]).norm()) > 1.5  # what float32 makes of the same link
