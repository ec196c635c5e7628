"""Canaries attain the sensitivities that plans charge for, and are adjacent."""

from dataclasses import replace

import numpy as np
import pytest

import graphveil as gv
from graphveil.auditing.canaries import canary_of, copies
from graphveil.auditing.mechanisms import KIND, held_at
from graphveil.methods.spending import make_plan
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.mechanisms import GaussianRelease
from support.audits import CASES, FACTS, subject_of


@pytest.mark.parametrize(("method", "level", "options"), CASES, ids=str)
def test_canaries_move_releases_by_their_whole_sensitivity(method, level, options):
    """A canary that moved less would hide a leak; one that moved more would not be adjacent."""
    subject = subject_of(method, level, options)
    for mechanism in subject.charged():
        if not isinstance(mechanism, GaussianRelease):
            continue
        canary, query = canary_of(subject.claimed, mechanism, held_at)
        values = [query(copies(canary, np.array([heads]))) for heads in (False, True)]
        moved = float((values[1] - values[0])[canary.seen].norm())
        assert moved == pytest.approx(mechanism.sensitivity.of(KIND), rel=2e-3)
        assert moved <= mechanism.sensitivity.of(KIND) * (1 + 1e-6)


def test_the_replaced_nodes_own_row_is_not_looked_at():
    for method, level, options in CASES:
        subject = subject_of(method, level, options)
        for mechanism in subject.charged():
            if isinstance(mechanism, GaussianRelease):
                canary, _ = canary_of(subject.claimed, mechanism, held_at)
                assert canary.own not in canary.seen
                read_by_others = mechanism.name in ("posteriors", "readers", "neighbors")
                hidden = not isinstance(level, gv.Edge) and not read_by_others
                full = level == gv.KNeighbor(1, attributes=False)
                assert (canary.own is not None) == (hidden and not full)


@pytest.mark.parametrize(
    ("level", "directed"),
    [  # on a directed graph at node level there are no statistics
        (gv.KNeighbor(1), False),
        (gv.KNeighbor(1), True),
        (gv.KNeighbor(5), False),
        (gv.KNeighbor(5), True),
        (gv.Node(8), False),
        (gv.KNeighbor(0), True),
        (gv.KNeighbor(25), True),
        (gv.KNeighbor(5, unit="zero-out"), False),
        (gv.KNeighbor(5, unit="zero-out"), True),
        (gv.Node(8, unit="zero-out"), False),
    ],
    ids=str,
)
def test_the_canary_of_statistics_is_a_pair_of_graphs(level, directed):
    """By the method's own sums; no pair attains the sum of the bounds of all terms, these come near."""
    facts = PublicFacts(1000, 750, 20, 3, directed=directed)
    plan = make_plan("auto", level, facts, epsilon=16.0, delta=1e-5)
    (mechanism,) = (m for m in plan.shared if m.role == "statistics")
    moved = moved_by(plan, mechanism)
    assert 0.6 * mechanism.sensitivity.of(KIND) < moved <= mechanism.sensitivity.of(KIND) * (1 + 1e-6)


def moved_by(plan, mechanism):
    canary, query = canary_of(plan, mechanism, held_at)
    values = [query(copies(canary, np.array([heads]))) for heads in (False, True)]
    return float((values[1] - values[0]).norm())


def test_the_canary_of_statistics_runs_the_methods_own_sums(monkeypatch):
    """With a mistake in them it moves farther than is claimed: links counted without weights."""
    plan = make_plan("auto", gv.KNeighbor(5), FACTS, epsilon=16.0, delta=1e-5)
    monkeypatch.setattr("graphveil.methods.link_statistics.np.maximum", lambda a, b: np.ones_like(a))
    assert moved_by(plan, plan["statistics"]) > 1.5 * plan["statistics"].sensitivity.of(KIND)


@pytest.mark.parametrize(
    ("level", "directed", "ways"),
    [
        (gv.KNeighbor(0), False, 8),
        (gv.KNeighbor(5), False, 8),
        (gv.Node(8), False, 8),
        (gv.Node(8, unit="zero-out"), False, 8),
        (gv.KNeighbor(5), True, 7),
        (gv.Node(8), True, 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("features", [0, 20, 500])
def test_the_canary_of_the_expectation_moves_all_counts(level, directed, ways, features):
    plan = make_plan("auto", level, replace(FACTS, directed=directed, features=features), epsilon=16.0, delta=1e-5)
    assert moved_by(plan, plan["expectation"]) == pytest.approx(plan["expectation"].sensitivity.of(KIND))
    assert moved_by(plan, plan["expectation"]) == pytest.approx(ways**0.5)
