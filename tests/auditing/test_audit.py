"""`gv.audit`: what it accepts, and that it attacks every branch of a plan."""

from inspect import isfunction

import pytest

import graphveil as gv
from graphveil.auditing import AuditReport, audit
from graphveil.errors import InvalidInput
from support.audits import GRAPH


def test_audit_is_a_function_whatever_was_imported():
    assert isfunction(gv.audit)
    assert gv.audit is audit


def test_audit_of_an_estimator():
    model = gv.MLP(level=gv.KNeighbor(1), epsilon=2.0, steps=5)
    report = audit(model, graph=GRAPH, attacks=["gradient"], trials=500, seed=1)
    assert isinstance(report, AuditReport)
    assert report.method == "mlp"
    assert report.claimed_epsilon == 2.0


def test_auto_is_audited_in_all_branches():
    report = audit("auto", gv.KNeighbor(1), 4.0, graph=GRAPH, attacks=["gradient", "release", "response", "joint"],
                   trials=20_000, steps=20, seed=1)  # fmt: skip
    assert report.verdict == "consistent"
    assert 2.5 <= report.lower_bound <= 4.0
    together = [finding.target for finding in report.findings if finding.attack == "joint"]
    first = "statistics + class sums + first features + expectation + "
    assert together == [
        first + "more features",
        first + "more class sums + sums head",
        first + "balanced sums + balanced responses + balanced release + balanced head",
        first + "graph responses + graph release + graph head",
    ]
    single = {finding.target for finding in report.findings if finding.attack != "joint"}
    assert single == {name for names in together for name in names.split(" + ")}
    assert all(finding.claimed_epsilon <= report.certified_epsilon for finding in report.findings)


def test_wrong_names_are_refused():
    with pytest.raises(InvalidInput, match="twin"):
        audit("dpdgc", twin="no-such-twin")
    with pytest.raises(InvalidInput, match="attack"):
        audit("dpdgc", attacks=["no-such-attack"])
    with pytest.raises(InvalidInput, match="method"):
        audit("gap", twin="published")
    with pytest.raises(InvalidInput, match="does not apply"):
        audit("mlp", gv.KNeighbor(1), 4.0, graph=GRAPH, attacks=["release"])


def test_where_nothing_is_spent_the_claim_is_zero():
    report = audit("mlp", gv.Edge("undirected"), 4.0, graph=GRAPH, attacks=["links"], steps=3, seed=1)
    assert (report.claimed_epsilon, report.certified_epsilon, report.lower_bound) == (0.0, 0.0, 0.0)


def test_attacks_that_were_asked_for_and_do_not_apply_are_named():
    asked = audit(
        "mlp", gv.KNeighbor(1), 4.0, graph=GRAPH, attacks=["gradient", "response"], trials=200, steps=3, seed=1
    )
    assert asked.skipped == ("response: mlp has no such mechanism here",)
    assert "not run: response" in str(asked)
