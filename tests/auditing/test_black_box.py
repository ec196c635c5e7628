import pytest

import graphveil as gv
from graphveil.auditing.black_box import infer_membership, steal_links
from support.audits import GRAPH, maker


def test_links_are_stolen_where_nothing_protects_them():
    public = steal_links(maker("sage", gv.Public(), None), GRAPH, gv.Public(), seed=1)
    by_name = {leak.statistic: leak.scores.auc for leak in public}
    assert by_name["influence"] > 0.95
    level = gv.Edge("undirected")
    (private,) = steal_links(maker("dpdgc", level, 1.0), GRAPH, level, seed=1)
    assert private.scores.auc < 0.62


@pytest.mark.slow
def test_members_are_found_where_nothing_protects_them():
    options = {"epochs": 150, "hidden": 32, "dropout": 0.0}
    public = infer_membership(maker("mlp", gv.Public(), None, **options), GRAPH, gv.Public(), seed=1, fits=8)
    private = infer_membership(maker("mlp", gv.KNeighbor(1), 1.0), GRAPH, gv.KNeighbor(1), seed=1, fits=8)
    assert public.scores.auc > private.scores.auc + 0.05
    assert private.scores.auc < 0.56
