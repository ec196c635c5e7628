import pytest

import graphveil as gv
from graphveil.auditing.adjacent import adjacent_graphs
from graphveil.auditing.black_box import infer_membership, steal_links
from graphveil.auditing.whole_fits import run_trials
from graphveil.methods.fitted import FittedModel
from support.audits import GRAPH, maker


def test_links_are_stolen_where_nothing_protects_them():
    public = steal_links(maker("sage", gv.Public(), None), GRAPH, gv.Public(), seed=1)
    by_name = {leak.statistic: leak.scores.auc for leak in public}
    assert by_name["influence"] > 0.95
    level = gv.Edge("undirected")
    (private,) = steal_links(maker("dpdgc", level, 1.0), GRAPH, level, seed=1)
    assert private.scores.auc < 0.62


def test_a_model_that_answers_nothing_about_a_node_without_links():
    """A method of another package need not: what its readers get is still attacked."""

    class Silent(gv.MLP):
        logits_on = FittedModel.logits_on

    def make():
        return Silent(level=gv.KNeighbor(1), epsilon=4.0, seed=0, steps=3, hidden=8, show_progress=False)

    assert steal_links(make, GRAPH, gv.KNeighbor(1), seed=1) == []
    assert len(infer_membership(make, GRAPH, gv.KNeighbor(1), seed=1, fits=4).scores) > 0
    with pytest.raises(gv.InvalidInput, match="answers nothing about a node without its links"):
        gv.audit(make(), graph=GRAPH, attacks=["links"])
    pair = adjacent_graphs(GRAPH, gv.KNeighbor(1), 1)
    assert "query" not in run_trials(make, pair, 2, 1, replay=False).views


@pytest.mark.slow
def test_members_are_found_where_nothing_protects_them():
    options = {"epochs": 150, "hidden": 32, "dropout": 0.0}
    public = infer_membership(maker("mlp", gv.Public(), None, **options), GRAPH, gv.Public(), seed=1, fits=8)
    private = infer_membership(maker("mlp", gv.KNeighbor(1), 1.0), GRAPH, gv.KNeighbor(1), seed=1, fits=8)
    assert public.scores.auc > private.scores.auc + 0.05
    assert private.scores.auc < 0.56
