import numpy as np
import pytest

import graphveil as gv
from graphveil.auditing.arithmetic import Target
from graphveil.auditing.arithmetic_graphs import NODES, chosen_readers, cycle_labels
from graphveil.methods import method_class

CASES = [
    ("dpdgc", gv.KNeighbor(1)),
    ("dpdgc", gv.KNeighbor(60, attributes=False)),
    ("dpdgc", gv.Edge("undirected")),
    ("dpdgc", gv.Edge("directed")),
    ("dpdgc", gv.Node(25)),
    ("auto", gv.KNeighbor(3)),
    ("auto", gv.Node(8)),
    ("gap", gv.KNeighbor(2)),
    ("gap", gv.Node(1)),
    ("dp-sage", gv.Node(8)),
]


@pytest.mark.parametrize(("method", "level"), CASES, ids=str)
def test_pairs_are_adjacent(method, level):
    aimed = Target(method_class(method), level, 4.0, {})
    for directed in aimed.directions():
        for outgoing in (False, True) if level == gv.Edge("directed") else (False,):
            shape = aimed.shape(directed, 400, outgoing=outgoing)
            labels = cycle_labels(shape.nodes)
            pair = shape.pair(labels, np.ones((shape.nodes, 2)), shape.ordinary)
            A, B = (graph.reads(aimed.cls.direction).toarray() for graph in (pair.before, pair.after))
            rows, columns = np.nonzero(A != B)
            assert not A.diagonal().any()
            if isinstance(level, gv.Edge):
                assert pair.own is None
                assert len(rows) == (1 if directed else 2)
                continue
            assert pair.own == 0
            assert ((rows == 0) | (columns == 0)).all()
            others = np.arange(shape.nodes) > 0
            assert (pair.before.labels == pair.after.labels).numpy()[others].all()
            assert (pair.before.features == pair.after.features).all(1).numpy()[others].all()
            assert bool(pair.before.labels[0] == pair.after.labels[0]) == (not level.attributes)
            if isinstance(level, gv.KNeighbor):
                assert max((rows == 0).sum(), (columns == 0).sum()) <= level.k
            else:
                assert max(A.sum(0).max(), B.sum(0).max()) <= level.max_degree
            if not directed:
                assert (A == A.T).all()
                assert (B == B.T).all()


def test_chosen_rows_drive_float32_sums_apart():
    """Rows of three classes that cancel: added one after the other, one row more moves the sum by several times it."""
    labels = cycle_labels(NODES)
    assert np.bincount(labels).tolist() == [14_733, 14_781, 14_685]
    # One column of the table that DPDGC makes of these labels.
    table = np.array([0.81516826, -0.40758377, -0.4075842], np.float32)[labels][:, None].astype(float)
    read = chosen_readers(table[1:], np.zeros(1), table[0])
    assert (np.diff(read) > 0).all()
    moved = {}
    for kind in (np.float32, np.float64):
        sums = [np.cumsum(np.r_[start, table[1:][read][:, 0]], dtype=kind)[-1] for start in (0.0, table[0, 0])]
        moved[kind] = float(sums[1]) - float(sums[0])
    assert moved[np.float32] > 3 * table[0, 0]
    assert moved[np.float64] == pytest.approx(table[0, 0], rel=1e-9)


def test_rows_of_one_sign_are_all_read():
    assert len(chosen_readers(np.ones((50, 1)), np.zeros(1), np.ones(1))) == 50


def test_values_that_are_all_different_are_driven_apart_too():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 1))
    rows[:5000] = np.abs(rows[:5000])
    read = chosen_readers(rows, np.zeros(1), np.ones(1))
    sums = [np.cumsum(np.r_[start, rows[read, 0]], dtype=np.float32)[-1] for start in (0.0, 1.0)]
    assert float(sums[1]) - float(sums[0]) > 1.05
