"""The attacks on mechanisms attain what the plans charge for, through the real ledger, and never more."""

import pytest

import graphveil as gv
from graphveil.auditing import audit_mechanisms
from graphveil.auditing.bounds import Branches, lower_bound
from graphveil.auditing.mechanisms import Subject, attack_mechanisms
from graphveil.execution import Ledger
from graphveil.methods.spending import make_plan
from support.alarms import expected_false_alarms
from support.audits import CASES, DIRECTED, FACTS, subject_of


@pytest.mark.parametrize(("method", "level", "options"), CASES, ids=str)
def test_all_mechanisms_together_reach_four_fifths_of_the_claim(method, level, options):
    subject = subject_of(method, level, options)
    scores = attack_mechanisms(subject, subject.charged(), 40_000, seed=1)
    bound = lower_bound(scores, 1e-5, 0.95, subject.claim()).epsilon
    assert 3.2 <= bound <= 4.0


def test_the_release_of_z_with_the_whole_budget():
    """DPDGC with public labels as its table at edge level: one release and nothing else."""
    subject = subject_of("dpdgc", gv.Edge("undirected"), {"table": "labels"})
    assert [mechanism.name for mechanism in subject.charged()] == ["release"]
    (finding,) = audit_mechanisms(subject, 100_000, 0.95, seed=1)
    assert 3.2 <= finding.bound.epsilon <= 4.0


def test_training_with_the_whole_budget():
    subject = subject_of("mlp", gv.KNeighbor(1), {"steps": 100})
    (finding,) = audit_mechanisms(subject, 60_000, 0.95, seed=1)
    assert finding.attack == "gradient"
    assert 2.5 <= finding.bound.epsilon <= 4.0


@pytest.mark.slow
def test_sampled_training():
    subject = subject_of("mlp", gv.KNeighbor(1), {"steps": 10, "batch_size": 250})
    (finding,) = audit_mechanisms(subject, 10_000, 0.95, seed=1)
    assert 2.5 <= finding.bound.epsilon <= 4.0


@pytest.mark.slow
def test_sound_pipelines_pass():
    """100 seeded audits at 99 %: about one false alarm would be no surprise, more than five would."""
    cases = [subject_of(*case, facts=DIRECTED if case[1] == gv.Edge("directed") else FACTS) for case in CASES[:7]]
    alarms = 0
    for seed in range(100):
        findings = audit_mechanisms(cases[seed % len(cases)], 2000, 0.99, seed)
        alarms += any(finding.verdict == "violated" for finding in findings)
    assert alarms <= expected_false_alarms(100, 0.99)


def test_attacks_draw_through_the_ledger_as_often_as_planned():
    ledgers = []

    def make(plan, source):
        ledgers.append(Ledger(plan, source))
        return ledgers[-1]

    plan = subject_of("gap", gv.KNeighbor(1), {"max_degree": 5}).claimed
    subject = Subject(plan, plan, make)
    for mechanism in subject.charged():
        attack_mechanisms(subject, [mechanism], 200, seed=0)
        assert ledgers[-1].used[mechanism.name] == mechanism.uses


def test_the_claim_of_a_branching_plan_is_the_larger_one_at_its_part_of_delta():
    plan = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=4.0, delta=1e-5)
    claim = Subject.sound(plan).whole_claim()
    assert isinstance(claim, Branches)
    assert claim.epsilon(1e-5) == pytest.approx(max(plan.epsilon_by_kind().values()))
    assert claim.delta(claim.epsilon(1e-5)) <= 1e-5 * (1 + 1e-9)
    assert claim.delta(0.0) <= 1
