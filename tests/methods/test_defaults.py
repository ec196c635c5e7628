"""Tuned numbers at the places where they change."""

import pytest

import graphveil as gv
from graphveil.methods import auto_plan, defaults
from graphveil.methods.spending import Settings
from graphveil.privacy.facts import PublicFacts


def test_shares_divide_the_whole_budget():
    for name, shares in vars(defaults).items():
        if name.endswith("_SHARES") and name != "DIRECTED_SHARES":
            assert sum(shares.values()) == pytest.approx(1), name


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("train_nodes", [10, 450, 3000])
@pytest.mark.parametrize("features", [0, 8, 800])
def test_the_first_branch_divides_the_whole_budget(directed, train_nodes, features):
    """What is asked first is calibrated together with it; all other branches get what is left of it."""
    facts = PublicFacts(2 * train_nodes, train_nodes, features, 3, directed=directed)
    for level in (gv.KNeighbor(1), gv.Node(20)):
        spending = auto_plan.spend(level, facts, Settings(), 8.0)
        shares = [spending.shares[m.name] for m in (*spending.shared, *spending.branches[0].mechanisms)]
        assert sum(shares) == pytest.approx(1)
        assert sum(shares[:-1]) < 0.35, "most of it is left"
        assert min(shares) > 0


@pytest.mark.parametrize("features", [8, 800])
def test_both_branches_without_the_graph_divide_the_same_rest(features):
    spending = auto_plan.spend(gv.KNeighbor(1), PublicFacts(2000, 1500, features, 3), Settings(), 8.0)
    more = spending.shares["more features"]
    assert spending.shares["more class sums"] + spending.shares["sums head"] == pytest.approx(more)


@pytest.mark.parametrize(("epsilon", "steps"), [(None, 100), (0.1, 400), (1, 400), (4, 200), (16, 100), (1000, 100)])
def test_steps(epsilon, steps):
    assert defaults.steps_for(epsilon) == steps


@pytest.mark.parametrize(("nodes", "rate"), [(10, 0.003), (2500, 0.003), (10_000, 0.006), (10**6, 0.01)])
def test_rate(nodes, rate):
    assert defaults.private_rate(nodes) == pytest.approx(rate)


def test_many_training_nodes_answer_more_and_learn_features_from_less():
    few, many = defaults.MANY_TRAIN_NODES - 1, defaults.MANY_TRAIN_NODES
    assert defaults.response_epsilon(few, 8.0) == pytest.approx(2.4)
    assert defaults.response_epsilon(many, 8.0) == pytest.approx(3.6)
    assert defaults.response_epsilon(many, 100.0) == 4.8
    assert defaults.features_and_release(["labels"], few)[0] > defaults.features_and_release(["labels"], many)[0]


def test_responses_get_a_part_of_the_whole_up_to_where_nearly_all_are_true():
    assert defaults.part_for_responses(0.3, 8.0) == pytest.approx(2.4)
    assert defaults.part_for_responses(0.5, 100.0) == defaults.MOST_RESPONSE_EPSILON
    assert defaults.part_for_responses(0.5, None) == pytest.approx(0.5 * defaults.EPSILON_WITHOUT_BUDGET)


def test_few_training_nodes_pay_more_to_be_judged():
    least, most = defaults.EXPECTATION_PARTS
    shares = [defaults.expectation_share(nodes) for nodes in (10, 450, 1000, 1500, 10**6)]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (most, least)
    assert least < shares[1] < most
