"""What the branches of the default are expected to reach: votes on own rows, the curve, the choice."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import pdtrik

import graphveil as gv
from graphveil.methods import defaults
from graphveil.methods.auto_plan import EXPECTATIONS
from graphveil.methods.expectation import (
    Expected,
    GraphBranch,
    _poisson,
    accuracy_at,
    chosen_branch,
    expectation_in_words,
    right_counts,
    simulated_counts,
)
from graphveil.methods.link_statistics import LinkStatistics
from graphveil.methods.spending import make_plan
from graphveil.methods.tables import log_likelihoods
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.sensitivity import own_row_counts

FACTS = PublicFacts(nodes=4000, train_nodes=3000, features=20, classes=3)
PLAN = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=8.0)
PRIORS = np.full(3, 1 / 3)


def links(homophily=0.8, degree=15.0, classes=3):
    shares = np.full((classes, classes), (1 - homophily) / classes) + homophily * np.eye(classes)
    return LinkStatistics(np.full(classes, 1 / classes), degree, shares, homophily, 0.9)


def graph_branches(noise=1.0, **options):
    about = links(**options)
    branch = GraphBranch(about.degree * about.compatibility, noise, about.spread)
    return dict.fromkeys(("balanced", "graph"), branch)


def rows(count, seed):
    """Labels, and the logits after half of a training and after the whole."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=count)
    logits = [torch.from_numpy(rng.normal(size=(count, 3)) + np.eye(3)[labels]) for _ in range(2)]
    return labels, *logits


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    label=st.integers(0, 2),
    logits=st.lists(st.floats(), min_size=3, max_size=3),
    noise=st.sampled_from([0.0, 1.0, 30.0]),
)
def test_one_replaced_row_moves_the_counts_by_its_own_votes(seed, label, logits, noise):
    labels, half, whole = rows(60, seed)
    branches = graph_branches(noise)
    before = right_counts(labels, half, whole, branches, PRIORS, sums=[whole, half])
    changed = labels.copy()
    changed[seed % 60] = label
    for each in (half, whole):
        each[seed % 60] = torch.tensor(logits, dtype=torch.float64)
    after = right_counts(changed, half, whole, branches, PRIORS, sums=[whole, half])
    assert len(after) == EXPECTATIONS
    assert ((after - before).abs() <= 1).all()
    assert (after - before).norm() <= own_row_counts(EXPECTATIONS)


def test_all_votes_of_one_row_can_turn():
    branches = graph_branches(noise=1000.0)
    sure = torch.tensor([[50.0, 0.0, 0.0]])
    counts = [right_counts(np.array([label]), sure, sure, branches, PRIORS, sums=[sure] * 3) for label in (0, 1)]
    assert (counts[0] - counts[1]).norm() == own_row_counts(EXPECTATIONS)


def drawn_by_label(labels, branch, rng):
    """The broken twin of `simulated_counts`: how many random numbers a node takes depends on its label."""
    counts = np.stack([rng.poisson(rng.gamma(2.0, branch.expected[label])) for label in labels])
    noisy = counts + branch.noise * rng.standard_normal(counts.shape)
    return torch.from_numpy(noisy - noisy.mean(1, keepdims=True))


def test_a_sampler_that_depends_on_labels_is_caught():
    moved = {simulated_counts: 0.0, drawn_by_label: 0.0}
    for simulate in moved:
        counted = partial(right_counts, simulate=simulate)
        for seed in range(10):
            labels, half, whole = rows(400, seed)
            changed = labels.copy()
            changed[0] = (labels[0] + 1) % 3
            before, after = (
                counted(each, half, whole, graph_branches(homophily=0.3), PRIORS) for each in (labels, changed)
            )
            moved[simulate] = max(moved[simulate], float((after - before).norm()))
    assert moved[simulated_counts] <= own_row_counts(EXPECTATIONS) < moved[drawn_by_label]


@pytest.mark.parametrize("power", [1, 8, -8])
def test_poisson_numbers_are_those_of_the_inverse(power):
    rng = np.random.default_rng(0)
    numbers = rng.random((20_000, 4)) ** abs(power)  # most of them near 0, or near 1
    numbers = 1 - 1e-3 * numbers if power < 0 else numbers
    for usual in (1e-9, 0.02, 1.0, 8.0, 60.0):
        means = usual * np.exp(rng.standard_normal((20_000, 4)))
        inverse = np.maximum(0, np.ceil(np.nan_to_num(pdtrik(numbers, np.maximum(means, 1e-9)))))
        assert np.array_equal(_poisson(numbers, means), inverse)


def test_simulated_counts_have_the_expected_mean_and_the_noise():
    branch = graph_branches(noise=2.0)["graph"]
    labels = np.repeat([0, 1, 2], 20_000)
    counts = simulated_counts(labels, branch, np.random.default_rng(0)).numpy()
    assert np.abs(counts.sum(1)).max() < 1e-9
    for label in range(3):
        mean = branch.expected[label] - branch.expected[label].mean()
        assert counts[labels == label].mean(0) == pytest.approx(mean, rel=0.05, abs=0.2)
    silent = simulated_counts(labels, GraphBranch(np.zeros((3, 3)), 2.0, 0.9), np.random.default_rng(0)).numpy()
    assert silent.std(0) == pytest.approx(2.0 * np.sqrt(2 / 3), rel=0.02)


RATES = st.floats(0.0, 1.0)


@settings(max_examples=300, deadline=None)
@given(half=RATES, whole=RATES, chance=st.floats(0.01, 0.9), budgets=st.tuples(*[st.floats(1.0, 100.0)] * 2))
def test_more_budget_is_never_expected_to_harm(half, whole, chance, budgets):
    less, more = (accuracy_at(half, whole, budget, chance) for budget in sorted(budgets))
    assert whole - 1e-9 <= less <= more + 1e-9
    assert more <= 1
    assert accuracy_at(half, whole, 1.0, chance) == pytest.approx(whole)


def test_the_curve_goes_through_both_points():
    chance, top, half_at = 0.2, 0.6, 3.0

    def curve(squared_mu):
        return chance + top * squared_mu / (squared_mu + half_at)

    for budget in (1, 3, 20):
        assert accuracy_at(curve(1), curve(2), budget, chance) == pytest.approx(curve(2 * budget), abs=1e-6)


def test_growth_is_bounded_where_noise_says_that_it_has_no_end():
    assert accuracy_at(0.3, 0.5, 2, 0.2) == accuracy_at(-0.1, 0.5, 2, 0.2) < 0.2 + 0.3 * defaults.MOST_GROWTH


def test_noise_that_leaves_no_curve_changes_nothing():
    assert accuracy_at(0.6, 0.5, 10, 0.3) == 0.5
    assert accuracy_at(0.1, 0.2, 10, 0.3) == 0.2


CHOICES = [
    ("features", (0.80, 0.84, 0.84, 0.84), (0.5, 0.5)),
    ("sums", (0.40, 0.42, 0.42, 0.42), (0.45, 0.55)),
    ("graph", (0.34, 0.34, 0.34, 0.90), (0.34, 0.34)),
    ("balanced", (0.595, 0.60, 0.75, 0.74), (0.5, 0.5)),
    ("features", (0.34, 0.34, 0.34, 0.34), (0.34, 0.34)),
    ("features", (0.0, 0.0, 0.0, 0.0), (0.0, 0.0)),
    ("features", (-0.1, 2.0, 0.3, 0.3), (0.3, 0.3)),
]


@pytest.mark.parametrize(("branch", "shares", "sums"), CHOICES, ids=str)
def test_the_obvious_branch_is_chosen(branch, shares, sums):
    followed, expected = chosen_branch(
        torch.tensor((*shares, 0.5, 0.5, *sums)).double() * FACTS.train_nodes, links(), PLAN
    )
    assert followed == branch
    assert set(expected.joined) == {"features", "sums", "balanced", "graph"}
    assert set(expected.features) == {"features", "balanced", "graph"}


DIRECTED = make_plan("auto", gv.KNeighbor(1), replace(FACTS, directed=True), epsilon=8.0)


@pytest.mark.parametrize(
    ("branch", "shares"), [("features", (0.80, 0.84, 0.84)), ("balanced", (0.595, 0.60, 0.75))], ids=str
)
def test_directed_graphs_have_no_branch_of_neighbors_alone(branch, shares):
    released = torch.tensor((*shares, 0.5, 0.5, 0.4, 0.4)).double() * FACTS.train_nodes
    followed, expected = chosen_branch(released, links(), DIRECTED)
    assert followed == branch
    assert set(expected.joined) == {"features", "sums", "balanced"}


def test_noise_far_below_zero_leads_to_features_on_a_directed_graph():
    released = torch.tensor([0.5, 0.5, -3.0, 0.5, 0.5, 0.4, 0.4]).double() * FACTS.train_nodes
    assert chosen_branch(released, links(), DIRECTED)[0] == "features"


@pytest.mark.parametrize("homophily", [-0.4, 0.0, 0.8])
def test_co_readers_are_expected_to_point_to_a_class(homophily):
    branch = GraphBranch.of_co_readers(DIRECTED.branch("balanced"), links(homophily=homophily), DIRECTED.facts)
    own, other = np.diag(branch.expected), branch.expected[~np.eye(3, dtype=bool)]
    assert branch.noise == pytest.approx(DIRECTED["release"].noise / np.sqrt(1 - defaults.DEGREES_PART))
    assert (branch.expected >= 0).all()
    if homophily > 0:
        assert own.min() > other.max()
    elif homophily < 0:
        assert own.max() < other.min()
    else:
        assert branch.expected == pytest.approx(branch.expected[:1].repeat(3, axis=0))


def test_the_graph_needs_to_be_ahead():
    """By the points that it must be worth, and by more than noise makes of the difference; less budget, more noise."""
    needed = {}
    for epsilon in (2.0, 8.0):
        plan = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=epsilon)
        for points in np.arange(0, 50, 0.1):
            shares = [0.5, 0.5, 0.4, 0.5 + points / 100, 0.5, 0.5, 0.4, 0.4]
            if chosen_branch(torch.tensor(shares).double() * FACTS.train_nodes, links(), plan)[0] == "graph":
                break
        needed[epsilon] = points
        noise = 100 * plan["expectation"].noise / FACTS.train_nodes
        # Two counts are noisy, and that of features at more budget has more noise than they have.
        assert points > defaults.WORTH_IT_POINTS + defaults.DOUBT * 2**0.5 * noise * 0.8
    assert needed[8.0] < needed[2.0] < 50


def test_reasons_are_told():
    expected = Expected({"features": 70.4, "sums": 69.0, "balanced": 71.0, "graph": 60.0}, {}, (50.0, 50.0))
    left, read = (expectation_in_words(branch, expected) for branch in ("features", "balanced"))
    assert left.startswith("The graph was not used, because it was not expected to help clearly: about 70 % right")
    assert "about 71 % with the graph" in left
    assert read == "The graph was used: about 71 % right were expected with it, 70 % with features alone."
    close = Expected({"features": 90.1, "sums": 60.0, "balanced": 90.0, "graph": 60.0}, {}, (51.0, 57.0))
    tie = expectation_in_words("features", close)
    assert "about 90 % right either way, and a balanced accuracy of about 51 % with features alone and 57 %" in tie
    assert "a balanced accuracy of about 57 % was expected with it, 51 % with features" in expectation_in_words(
        "balanced", close
    )


def test_balanced_accuracies_decide_where_accuracies_are_close():
    doubt = 100 * defaults.DOUBT * PLAN["expectation"].noise / FACTS.train_nodes * 2**0.5
    # The doubt is estimated from a number of repeats.
    for part, followed in ((0.7, "features"), (1.4, "balanced")):
        alike = 0.5 + (defaults.ALIKE_POINTS + part * doubt) / 100
        released = torch.tensor([0.8, 0.8, 0.8, 0.8, 0.5, alike, 0.4, 0.4]).double() * FACTS.train_nodes
        assert chosen_branch(released, links(), PLAN)[0] == followed
        released[2:4] = 0.7 * FACTS.train_nodes  # clearly worse: balanced accuracies are not asked
        assert chosen_branch(released, links(), PLAN)[0] == "features"


def test_rare_classes_count_as_much_as_frequent_ones():
    labels = np.repeat([0, 1], [900, 100])
    priors = np.array([0.9, 0.1])
    logits = torch.zeros(1000, 2)
    logits[:, 0] = 1.0
    counts = right_counts(labels, logits, logits, {}, priors)
    assert counts[1] == 900, "everybody is taken for the frequent class"
    assert counts[2] == 100, "without the shares of classes everybody is taken for the rare one"
    logits[900:, 0] = -10.0
    assert right_counts(labels, logits, logits, {}, priors)[2] == 100
    logits[:900, 0] = 10.0
    assert right_counts(labels, logits, logits, {}, priors)[2] == pytest.approx(200, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_a_branch_sees_responses_in_place_of_labels(epsilon):
    plan = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=epsilon)
    branch = GraphBranch.of(plan.branch("graph"), links(homophily=1.0, degree=10.0))
    truth = np.exp(plan["graph responses"].epsilon)
    assert branch.expected[0] == pytest.approx(10 * np.array([truth, 1, 1]) / (truth + 2))
    assert branch.noise == pytest.approx(plan["graph release"].noise * np.sqrt(2 / 3))


def test_unlabelled_neighbors_count_by_how_often_features_are_right():
    plan = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=16.0)
    about = links(homophily=1.0, degree=9.0)
    alone, unsure, sure = (
        GraphBranch.of(plan.branch("graph"), about, unlabelled, accuracy).expected
        for unlabelled, accuracy in ((0.0, 0.0), (1 / 3, 0.0), (1 / 3, 1.0))
    )
    assert sure == pytest.approx(alone * 4 / 3)
    assert unsure == pytest.approx(alone + 9.0 / 3 / 3)


def test_processes_count_what_one_counts():
    """Draws belong to a node's place among all training nodes, however many of them are counted at a time."""
    labels, half, whole = rows(20_000, 3)
    branches = graph_branches(noise=2.0)
    together = right_counts(labels, half, whole, branches, PRIORS)
    for cuts in ([0, 7, 9_000, 20_000], [0, 8_193, 20_000]):
        parts = [right_counts(labels[a:b], half[a:b], whole[a:b], branches, PRIORS, first=a) for a, b in pairwise(cuts)]
        assert torch.equal(torch.stack(parts).sum(0), together)
    # Without its place, the second part would draw the numbers of the first one again.
    first, second = (right_counts(labels[a:b], half[a:b], whole[a:b], branches, PRIORS) for a, b in pairwise(cuts))
    assert not torch.equal(first + second, together)


def test_likelihoods_of_a_row_do_not_depend_on_the_other_rows():
    counts = torch.randn(20_001, 3, generator=torch.Generator().manual_seed(0)) * 5
    expected = torch.rand(3, 3, generator=torch.Generator().manual_seed(1)).double() * 6
    whole = log_likelihoods(counts, expected, 2.0, 0.8)
    for first, last in ((0, 17), (5, 10_000), (16_380, 16_390), (20_000, 20_001)):
        assert torch.equal(log_likelihoods(counts[first:last].clone(), expected, 2.0, 0.8), whole[first:last])


@pytest.mark.parametrize(("best", "said"), [(81.0, True), (66.0, True), (65.4, False), (60.0, False)])
def test_a_difference_that_was_not_believed_is_said_to_be_noise(best, said):
    joined = {"features": 65.0, "sums": 64.0, "balanced": best, "graph": best}
    words = expectation_in_words("features", Expected(joined, joined, (50.0, 50.0)))
    assert words.endswith("a difference that noise may have made.") == said
