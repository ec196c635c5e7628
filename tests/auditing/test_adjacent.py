import numpy as np
import pytest

import graphveil as gv
from graphveil.auditing.adjacent import adjacent_graphs, small_part
from graphveil.errors import InvalidInput
from support.audits import GRAPH


@pytest.mark.parametrize(
    "level",
    [
        gv.Edge("undirected"),
        gv.KNeighbor(1),
        gv.KNeighbor(3),
        gv.Node(8),
        gv.KNeighbor(2, False),
        gv.Node(8, unit="zero-out"),
    ],
    ids=str,
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


@pytest.mark.parametrize("level", [gv.KNeighbor(2, unit="zero-out"), gv.Node(8, unit="zero-out")], ids=str)
def test_an_emptied_node_has_nothing(level):
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), level, seed=3)
    empty, full = pair.before, pair.after
    assert not empty.features[pair.own].any()
    assert not empty.to_scipy().toarray()[pair.own].any()
    assert not empty.to_scipy().toarray()[:, pair.own].any()
    assert int(empty.labels[pair.own]) == -1
    assert bool(empty.train_mask[pair.own])
    assert full.to_scipy().toarray()[:, pair.own].sum() == (2 if isinstance(level, gv.KNeighbor) else 8)


def test_the_replaced_node_has_long_features_that_change_their_sign():
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), gv.KNeighbor(2), seed=3)
    before, after = (graph.features[pair.own] for graph in (pair.before, pair.after))
    assert bool(pair.before.train_mask[pair.own])
    assert (before == -after).all()
    assert float(before.norm()) > 10 * float(pair.before.features[pair.others].norm(dim=1).mean())


def test_a_validation_node_changes_its_label_and_nothing_else():
    pair = adjacent_graphs(small_part(GRAPH, 40, 0, most_links=7), gv.KNeighbor(2), seed=3, validation=True)
    assert pair.before.val_mask.nonzero().tolist() == pair.after.val_mask.nonzero().tolist() == [[pair.own]]
    assert (pair.before.labels != pair.after.labels).nonzero().tolist() == [[pair.own]]
    assert (pair.before.features == pair.after.features).all()
    assert abs(pair.before.to_scipy() - pair.after.to_scipy()).nnz == 0


def test_a_part_has_few_nodes_and_few_links():
    part = small_part(GRAPH, 40, 0, most_links=3)
    assert part.num_nodes == 40
    degrees = part.to_scipy().sum(0)
    assert degrees.max() == 3
    assert degrees.mean() > 1.5, "it is grown along links"
    assert int(part.train_mask.sum()) > 5
    assert small_part(part, 60, 0, most_links=3).num_nodes == 40


def test_where_nothing_is_protected_no_graphs_are_adjacent():
    with pytest.raises(InvalidInput, match="level"):
        adjacent_graphs(GRAPH, gv.Public(), seed=0)
