"""Products with an A that is divided among processes, and clipped sums over its rows, are those of one process."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional

from graphveil.auditing.arithmetic_graphs import chosen_readers, cycle_labels
from graphveil.distributed.inputs import ShardedRows, ShardedTarget
from graphveil.distributed.shard import Layout, RowShard
from graphveil.execution.exact import EXACT
from graphveil.execution.gradients import ClippedSums
from graphveil.execution.sparse_rows import CsrRows
from graphveil.methods.networks import Embedding
from support.jobs import together

NODES, CLIP = 301, 0.4
HUB_NODES = 44_199
A = sp.csr_array(sp.random(NODES, NODES, 0.02, random_state=0, format="csr") > 0).astype(np.float32)
LABELS = torch.arange(NODES) % 3
TRAIN = torch.arange(110, 290, 2)  # of three processes, the first has none


def sums(rows, labels, train, blocks):
    torch.manual_seed(0)
    model = Embedding(rows, 8, 3)

    def losses(chosen):
        return functional.cross_entropy(model(rows[chosen]), labels[chosen], reduction="none")

    model.layer.exact = True
    with torch.no_grad():
        model.layer.weight.copy_(EXACT.table(model.layer.weight, 1.0, NODES))
    engine = ClippedSums(model, CLIP, len(TRAIN))
    engine.over(blocks, losses)
    return engine.over(blocks, losses), engine.of(lambda: losses(train))


def clipped_sums(group):
    layout = Layout.even(NODES, group.size)
    span = layout.span(group.rank)
    own = slice(span.first, span.first + span.count)
    rows = ShardedRows(sp.csr_array(A[:, own]), layout, group, "cpu")
    mine = torch.isin(TRAIN, torch.arange(own.start, own.stop))
    train = TRAIN[mine] - span.first
    target = ShardedTarget(LABELS[own], train, train[:0], group)
    size = 20
    blocks = [train[low : low + size] for low in range(0, max(target.of), size)]
    results = []
    for weight, bias in sums(rows, target.labels, train, blocks):
        assert isinstance(weight, RowShard)
        whole = group.gathered(weight.as_subclass(torch.Tensor), layout.counts)
        results.append((whole.numpy(), group.total(bias).numpy()))
    return results


@pytest.mark.slow
def test_clipped_sums_are_those_of_one_process():
    expected = sums(CsrRows(A), LABELS, TRAIN, TRAIN.split(30))
    for results in together(3, clipped_sums):
        for ours, theirs in zip(results, expected, strict=True):
            for mine, other in zip(ours, theirs, strict=True):
                assert torch.equal(torch.from_numpy(mine), other)


def table():
    """Centred labels of three classes, as DPDGC multiplies them."""
    rows = torch.eye(3)[torch.from_numpy(cycle_labels(HUB_NODES))]
    rows = rows - rows.mean(0)
    return EXACT.table(rows / rows.norm(dim=1).max(), 1.0, HUB_NODES)


def hub(extra):
    """The last node reads those that drive its float32 sum apart, and the first node in one of two graphs."""
    read = 1 + chosen_readers(table()[1:-1].double().numpy(), np.zeros(3), table()[0].double().numpy())
    read = np.concatenate([[0], read]) if extra else read
    ones = np.ones(len(read), np.float32)
    return sp.csr_array((ones, (np.full(len(read), HUB_NODES - 1), read)), shape=(HUB_NODES, HUB_NODES))


def exact_sums(group, matrices):
    layout = Layout.even(HUB_NODES, group.size)
    span = layout.span(group.rank)
    own = slice(span.first, span.first + span.count)
    results = []
    for matrix in matrices:
        rows = ShardedRows(sp.csr_array(matrix[:, own]), layout, group, "cpu")
        forward = EXACT.product(rows, table()[own])
        back = EXACT.transposed_product(rows, table()[own])
        results.append([group.gathered(part, layout.counts).numpy() for part in (forward, back)])
    return results


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_sums_of_a_hub(processes):
    """The float32 sums of this hub drift apart. Its exact sum is that of one process, and moves by its sensitivity."""
    matrices = [hub(False), hub(True)]
    expected = [
        [EXACT.product(CsrRows(matrix), table()), EXACT.transposed_product(CsrRows(matrix), table())]
        for matrix in matrices
    ]
    for results in together(processes, exact_sums, matrices):
        for ours, theirs in zip(results, expected, strict=True):
            assert all(torch.equal(torch.from_numpy(mine), other) for mine, other in zip(ours, theirs, strict=True))
    moved = [float((after - before).norm()) for before, after in zip(*expected, strict=True)]
    assert max(moved) <= 1
    plain = [CsrRows(matrix).times(table())[-1].double() for matrix in matrices]
    assert float((plain[1] - plain[0]).norm()) > 1.5  # what float32 makes of the same link
