"""Certificates of all methods are in order, and one that hides something is not."""

from dataclasses import replace
from functools import partial

import pytest

import graphveil as gv
from graphveil.auditing.recording import ledger_on_branch
from graphveil.auditing.verify import check_certificate, verify
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from graphveil.graph import csbm
from graphveil.methods import method_class
from graphveil.methods.spending import make_plan
from graphveil.privacy.certificate import Certificate

pytestmark = pytest.mark.slow

GRAPH = csbm(0.5, n=200, f=6, d=4, seed=2)


@pytest.mark.parametrize(
    ("method", "level", "options"),
    [
        ("dpdgc", gv.Edge("undirected"), {"table": "labels+neighbors"}),
        ("dpdgc", gv.KNeighbor(3), {"table": "labels+neighbors", "tau": 1.5}),
        ("dpdgc", gv.KNeighbor(0), {}),
        ("dpdgc", gv.KNeighbor(1, attributes=False), {}),
        ("dpdgc", gv.Node(9), {"row_norm": 0.5}),
        ("dpdgc", gv.KNeighbor(2), {"table": "readers+posteriors"}),
        ("dpdgc", gv.KNeighbor(2), {"table": "neighbors+degrees"}),
        ("dpdgc", gv.Node(9), {"table": "degrees"}),
        ("dpdgc", gv.Edge("undirected"), {"table": "degrees"}),
        ("auto", gv.Edge("undirected"), {}),
        ("auto", gv.KNeighbor(25), {}),
        ("auto", gv.Node(9), {}),
        ("gap", gv.KNeighbor(2), {"max_degree": 9, "hops": 3}),
        ("gap", gv.Node(9), {}),
        ("gap", gv.Edge("directed"), {}),
        ("dp-sage", gv.Node(9), {}),
        ("mlp", gv.KNeighbor(1), {"batch_size": 30}),
        ("mlp", gv.Edge("undirected"), {}),
        ("randedge", gv.Edge("undirected"), {}),
    ],
    ids=str,
)
def test_every_methods_own_certificate_is_in_order(method, level, options):
    plan = method_class(method)(level=level, epsilon=3.0, **options).plan(GRAPH)
    certificate = Certificate.of(plan, "test", False)
    assert check_certificate(certificate) == []


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 8.0])
def test_so_is_each_branch_of_auto(directed, epsilon):
    facts = replace(gv.Auto(level=gv.KNeighbor(1), epsilon=epsilon).plan(GRAPH).facts, directed=directed)
    plan = make_plan("auto", gv.KNeighbor(1), facts, epsilon=epsilon)
    assert [branch.name for branch in plan.branches] == (
        ["features", "sums", "balanced"] if directed else ["features", "sums", "balanced", "graph"]
    )
    for outcome in plan.outcomes():
        assert check_certificate(Certificate.of(outcome, "test", False)) == []


@pytest.mark.parametrize("followed", ["features", "sums", "balanced", "graph"])
def test_auto_cannot_hide_the_branch_that_it_did_not_take(followed):
    plan = gv.Auto(level=gv.KNeighbor(1), epsilon=8.0).plan(GRAPH).follow(followed)
    alone = replace(plan, branches=(plan.branch(followed),))
    hidden = check_certificate(Certificate.of(alone, "test", False))
    assert ["then by branch" in problem for problem in hidden] == [True]
    one, other, *rest = plan.branches
    exchanged = replace(plan, branches=(replace(one, name=other.name), replace(other, name=one.name), *rest))
    mislabelled = check_certificate(Certificate.of(exchanged, "test", False))
    assert ["then by branch" in problem for problem in mislabelled] == [True]


def test_the_branch_that_was_not_taken_cannot_be_made_cheap():
    plan = gv.Auto(level=gv.KNeighbor(1), epsilon=8.0).plan(GRAPH).follow("features")
    own = {m.name for m in plan.branch("graph").mechanisms}
    quiet = plan.changed(lambda m: m.scaled(50.0) if m.name in own else m)
    assert "budgets of their own" in check_certificate(Certificate.of(quiet, "test", False))[0]


def test_auto_cannot_hide_that_it_looked_at_the_graph():
    plan = gv.Auto(level=gv.KNeighbor(1), epsilon=8.0).plan(GRAPH)
    hidden = replace(plan, shared=plan.shared[:1], branches=())
    assert "lists the mechanisms statistics;" in check_certificate(Certificate.of(hidden, "test", False))[0]


@pytest.mark.parametrize("branch", ["features", "sums", "balanced", "graph"])
def test_a_saved_run_of_each_branch_is_verified(branch, tmp_path):
    model = gv.Auto(level=gv.KNeighbor(1), epsilon=8.0, steps=5, seed=0, show_progress=False)
    model.execute(GRAPH, make_ledger=partial(ledger_on_branch, branch, Ledger)).save(tmp_path / "run")
    result = verify(tmp_path / "run")
    assert result.problems == ()
    targets = {finding.target for finding in result.findings}
    assert {"statistics", "expectation", "more features", "sums head", "balanced sums", "graph release"} <= targets
    again = gv.load(tmp_path / "run")
    assert (again.certificate_.followed, again.graph_used_) == (branch, branch in ("balanced", "graph"))
    assert again.certificate_.learnt == model.certificate_.learnt
    assert len(again.certificate_.learnt) == 2


def test_what_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match="not a folder"):
        verify(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidInput, match="cannot be read"):
        verify(empty)
    (empty / "certificate.json").write_text("{")
    with pytest.raises(InvalidInput, match="not JSON"):
        verify(empty)
