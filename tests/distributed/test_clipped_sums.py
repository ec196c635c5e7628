"""The clipped sums of a divided engine are those of the ordinary one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional

from graphveil.distributed.inputs import ShardedRows, ShardedTarget
from graphveil.distributed.ledger import RowShard
from graphveil.distributed.shard import Layout
from graphveil.execution.clipping import ClippedSums
from graphveil.execution.exact import EXACT
from graphveil.execution.sparse_rows import CsrRows
from graphveil.methods.networks import Embedding
from support.jobs import together

NODES, CLIP = 301, 0.4
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


def work(group):
    layout = Layout.even(NODES, group.size)
    span = layout.span(group.rank)
    own = slice(span.first, span.first + span.count)
    rows = ShardedRows(sp.csr_array(A[:, own]), layout, group, "cpu")
    mine = torch.isin(TRAIN, torch.arange(own.start, own.stop))
    train = TRAIN[mine] - span.first
    target = ShardedTarget(LABELS[own], train, train[:0], group)
    size = 20
    blocks = [train[low : low + size] for low in range(0, max(target.of), size)]
    found = []
    for weight, bias in sums(rows, target.labels, train, blocks):
        assert isinstance(weight, RowShard)
        whole = group.gathered(weight.as_subclass(torch.Tensor), layout.counts)
        found.append((whole.numpy(), group.total(bias).numpy()))
    return found


@pytest.mark.slow
def test_as_on_one_process():
    expected = sums(CsrRows(A), LABELS, TRAIN, TRAIN.split(30))
    for found in together(3, work):
        for ours, theirs in zip(found, expected, strict=True):
            for mine, other in zip(ours, theirs, strict=True):
                assert torch.equal(torch.from_numpy(mine), other)
