import numpy as np
import pytest

import graphveil as gv
from graphveil.auditing.adjacent import adjacent_graphs, small_part
from support.audits import GRAPH


@pytest.mark.parametrize(
    "level", [gv.Edge("undirected"), gv.KNeighbor(1), gv.KNeighbor(3), gv.Node(8), gv.KNeighbor(2, False)], ids=str
)
def test_pairs_are_adjacent(level):
    part = small_part(GRAPH, 40, 0, most_links=7)
    pair = adjacent_graphs(part, level, seed=3)
    A, B = (graph.to_scipy().toarray() for graph in (pair.before, pair.after))
    rows, columns = np.nonzero(A != B)
    assert len(rows)
    if pair.own is None:
        assert len(rows) == 2
        assert (pair.before.features == pair.after.features).all()
        return
    assert ((rows == pair.own) | (columns == pair.own)).all()
    others = np.arange(part.num_nodes) != pair.own
    same = [
        (pair.before.features == pair.after.features).all(1).numpy(),
        (pair.before.labels == pair.after.labels).numpy(),
    ]
    assert all(each[others].all() for each in same)
    assert same[1][pair.own] == (not level.attributes)
    if isinstance(level, gv.KNeighbor):
        assert (rows == pair.own).sum() <= level.k
        assert (columns == pair.own).sum() <= level.k
    else:
        assert max(A.sum(0).max(), B.sum(0).max()) <= level.max_degree
