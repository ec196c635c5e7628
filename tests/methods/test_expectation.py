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
from graphveil.methods.auto_plan import counted
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
from graphveil.privacy.mechanisms import GaussianRelease
from graphveil.privacy.sensitivity import own_row_counts

FACTS = PublicFacts(nodes=4000, train_nodes=3000, features=20, classes=3)
PLAN = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=8.0)
PRIORS = np.full(3, 1 / 3)
# What is counted where two branches read the graph, and how far one row moves it.
WAYS = counted(("balanced", "graph"))
BOUND = own_row_counts(len(WAYS))


def links(homophily=0.8, degree=15.0, classes=3):
    shares = np.full((classes, classes), (1 - homophily) / classes) + homophily * np.eye(classes)
    return LinkStatistics(np.full(classes, 1 / classes), degree, shares, homophily, 0.9)


def graph_branches(noise=1.0, **options):
    about = links(**options)
    branch = GraphBranch(about.degree * about.compatibility, noise, about.spread)
    return dict.fromkeys(("balanced", "graph"), branch)


def rows(count, seed):
    """Labels, the logits after half of a training and after the whole, and scores by class sums."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=count)
    logits = [torch.from_numpy(rng.normal(size=(count, 3)) + np.eye(3)[labels]) for _ in range(5)]
    return labels, logits[:2], logits[2:]


def some(scores, first, last):
    return [each[first:last] for each in scores]


LOGITS = st.lists(st.floats(), min_size=3, max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    label=st.integers(-1, 2),
    logits=st.tuples(*[LOGITS] * 5),
    noise=st.sampled_from([0.0, 1.0, 30.0]),
    priors=st.sampled_from([PRIORS, np.array([0.9, 0.09, 0.01])]),
    reading=st.sampled_from([(), ("balanced",), ("balanced", "graph")]),
)
def test_one_replaced_row_moves_the_counts_by_its_own_votes(seed, label, logits, noise, priors, reading):
    labels, trained, sums = rows(60, seed)
    branches = {name: branch for name, branch in graph_branches(noise).items() if name in reading}
    before = right_counts(labels, trained, sums, branches, priors)
    changed = labels.copy()
    changed[seed % 60] = label
    for each, row in zip([*trained, *sums], logits, strict=True):
        each[seed % 60] = torch.tensor(row, dtype=torch.float64)
    after = right_counts(changed, trained, sums, branches, priors)
    assert len(after) == len(counted(reading))
    assert ((after - before).abs() <= 1).all()
    assert (after - before).norm() <= own_row_counts(len(counted(reading)))


@pytest.mark.parametrize("reading", [(), ("balanced",), ("balanced", "graph")], ids=str)
def test_all_votes_of_one_row_can_turn(reading):
    branches = {name: graph_branches(noise=1000.0)[name] for name in reading}
    sure = torch.tensor([[50.0, 0.0, 0.0]])
    counts = [right_counts(np.array([label]), [sure] * 2, [sure] * 3, branches, PRIORS) for label in (0, 1)]
    assert (counts[0] - counts[1]).norm() == own_row_counts(len(counted(reading)))


def drawn_by_label(labels, branch, rng):
    """The broken twin of `simulated_counts`: how many random numbers a node takes depends on its label."""
    counts = np.stack([rng.poisson(rng.gamma(2.0, branch.expected[label])) for label in labels])
    noisy = counts + branch.noise * rng.standard_normal(counts.shape)
    return torch.from_numpy(noisy - noisy.mean(1, keepdims=True))


def test_a_sampler_that_depends_on_labels_is_caught():
    moved = {simulated_counts: 0.0, drawn_by_label: 0.0}
    for simulate in moved:
        count_all = partial(right_counts, simulate=simulate)
        for seed in range(10):
            labels, trained, sums = rows(400, seed)
            changed = labels.copy()
            changed[0] = (labels[0] + 1) % 3
            before, after = (
                count_all(each, trained, sums, graph_branches(homophily=0.3), PRIORS) for each in (labels, changed)
            )
            moved[simulate] = max(moved[simulate], float((after - before).norm()))
    assert moved[simulated_counts] <= BOUND < moved[drawn_by_label]


def with_all_rows(sums):
    """A broken twin: scores are centred by the mean of all rows, so one row enters the votes of the others."""
    return [each - each.mean(0) for each in sums]


def test_scores_that_read_other_rows_are_caught():
    moved = dict.fromkeys(("own", "all"), 0.0)
    for seed in range(5):
        labels, trained, sums = rows(60, seed)
        changed = [each.clone() for each in sums]
        for each in changed:
            each[0] = torch.tensor([300.0, 0.0, -300.0])
        for name, made in (("own", list), ("all", with_all_rows)):
            before, after = (
                right_counts(labels, trained, made(each), graph_branches(), PRIORS) for each in (sums, changed)
            )
            moved[name] = max(moved[name], float((after - before).norm()))
    assert moved["own"] <= BOUND < moved["all"]


def test_counts_are_in_the_order_that_is_said():
    """Each way is right for a number of nodes of its own."""
    labels, ways = np.zeros(40, dtype=np.int64), WAYS[:4]
    right = dict(zip(ways, (10, 15, 20, 30), strict=True))
    scores = {}
    for way, number in right.items():
        scores[way] = torch.zeros(40, 3)
        scores[way][:number, 0] = scores[way][number:, 1] = 5.0
    nothing = GraphBranch(np.zeros((3, 3)), 1.0, 0.9)
    sure_of_all = GraphBranch(np.array([[40.0, 0, 0], [0, 40.0, 0], [0, 0, 40.0]]), 0.1, 0.1)
    counts = right_counts(
        labels,
        [scores["half"], scores["whole"]],
        [scores["half of sums"]] * 3 + [scores["sums"]],
        {"balanced": nothing, "graph": sure_of_all},
        PRIORS,
    )
    found = dict(zip(WAYS, counts.tolist(), strict=True))
    assert found == {**right, "balanced": 30, "graph": 40, "sums alike": 30, "balanced alike": 30}


def test_draws_of_less_budget_count_their_mean():
    labels, (wrong, _), _ = rows(1, 0)
    known = 5 * torch.eye(3)[torch.from_numpy(labels)]
    wrong = -known
    counts = right_counts(labels, [wrong] * 2, [known, wrong, wrong, wrong, wrong], {}, PRIORS)
    assert counts.tolist() == [0, 0, 0.25, 0]


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
@given(
    half=RATES,
    whole=RATES,
    chance=st.floats(0.01, 0.9),
    budgets=st.tuples(*[st.floats(1.0, 100.0)] * 2),
    growth=st.floats(1.0, 1.9),
)
def test_more_budget_is_never_expected_to_harm(half, whole, chance, budgets, growth):
    less, more = (accuracy_at(half, whole, budget, chance, growth) for budget in sorted(budgets))
    assert whole - 1e-9 <= less <= more + 1e-9
    assert more <= 1
    assert accuracy_at(half, whole, 1.0, chance, growth) == pytest.approx(whole)
    if whole > chance:
        assert accuracy_at(half, whole, 2.0, chance, growth) <= chance + growth * (whole - chance) + 1e-9


def test_the_curve_goes_through_both_points():
    chance, top, half_at = 0.2, 0.6, 3.0

    def curve(squared_mu):
        return chance + top * squared_mu / (squared_mu + half_at)

    for budget in (1, 3, 20):
        assert accuracy_at(curve(1), curve(2), budget, chance, 1.9) == pytest.approx(curve(2 * budget), abs=1e-6)


def test_growth_is_bounded_where_noise_says_that_it_has_no_end():
    for growth in (1.1, 1.5, 1.8):
        steep, without_end = (accuracy_at(half, 0.5, 2, 0.2, growth) for half in (0.2 + 0.3 / growth, -0.1))
        assert steep == pytest.approx(without_end)
        assert 0.5 < without_end < 0.2 + 0.3 * growth
    assert accuracy_at(0.3, 0.5, 50, 0.2, 1.1) < accuracy_at(0.3, 0.5, 50, 0.2, 1.5)


def test_training_and_class_sums_have_bounds_of_their_own():
    """The same counts, and more budget for both: class sums are expected to grow more, or less, by their own bound."""
    chance, half, whole = 1 / 3, 0.40, 0.5
    steep = torch.tensor([half, whole, half, whole, 0.3, 0.3, 0.3, 0.3]).double() * FACTS.train_nodes
    _, expected = chosen_branch(steep, PRIORS, PLAN)
    found = {}
    for branch, role, growth in (
        ("features", "features", defaults.TRAINING_GROWTH),
        ("sums", "class sums", defaults.SUMS_GROWTH),
    ):
        first, later = (
            sum(m.loss("training").mu ** 2 for m in mechanisms if m.role == role)
            for mechanisms in (PLAN.shared, PLAN.branch(branch).mechanisms)
        )
        found[branch] = 100 * accuracy_at(half, whole, (first + later) / first, chance, growth)
        assert expected.joined[branch] == expected.features[branch] == pytest.approx(found[branch])
    assert found["features"] != pytest.approx(found["sums"], abs=0.1)


def test_training_is_not_expected_to_lose_what_class_sums_know():
    released = torch.tensor([0.3, 0.3, 0.7, 0.7, 0.3, 0.3, 0.3, 0.3]).double() * FACTS.train_nodes
    followed, expected = chosen_branch(released, PRIORS, PLAN)
    assert expected.joined["features"] == expected.joined["sums"] == pytest.approx(70)
    assert followed == "sums", "where both are expected to reach the same, nothing is trained but a head"


def test_noise_that_leaves_no_curve_changes_nothing():
    assert accuracy_at(0.6, 0.5, 10, 0.3, 1.5) == 0.5
    assert accuracy_at(0.1, 0.2, 10, 0.3, 1.5) == 0.2


# The branch; half and whole of the first training, of class sums; what the two branches that read the graph get right.
CHOICES = [
    ("features", (0.80, 0.84), (0.5, 0.5), (0.5, 0.5)),
    ("sums", (0.40, 0.42), (0.45, 0.55), (0.55, 0.42)),
    ("graph", (0.34, 0.34), (0.34, 0.34), (0.34, 0.90)),
    ("balanced", (0.5, 0.5), (0.595, 0.60), (0.75, 0.74)),
    ("sums", (0.34, 0.34), (0.34, 0.34), (0.34, 0.34)),
    ("sums", (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
    ("features", (-0.1, 2.0), (0.3, 0.3), (0.3, 0.3)),
]


def released(trained, sums, reading=(), alike=(0.5, 0.5)):
    """Counts of right answers, from shares."""
    counts = (*trained, *sums, *reading, *(alike if reading else ()))
    return torch.tensor(counts).double() * FACTS.train_nodes


@pytest.mark.parametrize(("branch", "trained", "sums", "reading"), CHOICES, ids=str)
def test_the_obvious_branch_is_chosen(branch, trained, sums, reading):
    followed, expected = chosen_branch(released(trained, sums, reading), PRIORS, PLAN)
    assert followed == branch
    assert set(expected.joined) == set(expected.features) == {"features", "sums", "balanced", "graph"}
    assert expected.alone == ("features" if branch == "features" else "sums")
    assert expected.with_graph in ("balanced", "graph")


DIRECTED = make_plan("auto", gv.KNeighbor(1), replace(FACTS, directed=True), epsilon=8.0)
UNREAD = make_plan("auto", gv.Node(20), replace(FACTS, directed=True), epsilon=8.0)


@pytest.mark.parametrize(
    ("branch", "trained", "sums", "balanced"),
    [
        ("features", (0.80, 0.84), (0.5, 0.5), 0.5),
        ("sums", (0.5, 0.5), (0.6, 0.7), 0.7),
        ("balanced", (0.5, 0.5), (0.595, 0.60), 0.75),
        ("features", (0.5, 0.6), (0.4, 0.4), -3.0),
    ],
    ids=str,
)
def test_directed_graphs_have_no_branch_of_neighbors_alone(branch, trained, sums, balanced):
    followed, expected = chosen_branch(released(trained, sums, (balanced,)), PRIORS, DIRECTED)
    assert followed == branch
    assert set(expected.joined) == {"features", "sums", "balanced"}
    assert expected.with_graph == "balanced"


@pytest.mark.parametrize(
    ("branch", "trained", "sums"), [("features", (0.80, 0.84), (0.5, 0.5)), ("sums", (0.5, 0.5), (0.6, 0.7))], ids=str
)
def test_where_the_graph_is_not_read_features_decide(branch, trained, sums):
    followed, expected = chosen_branch(released(trained, sums), PRIORS, UNREAD)
    assert followed == branch == expected.alone
    assert set(expected.joined) == {"features", "sums"}
    assert expected.with_graph is None
    assert expected.alike is None
    about = expected.joined[branch]
    assert expectation_in_words(followed, expected) == f"About {about:.0f} % right were expected with features."


def test_the_best_branches_with_and_without_the_graph():
    joined = {"features": 50.0, "sums": 60.0, "balanced": 55.0, "graph": 58.0}
    expected = Expected(joined, joined, (50.0, 50.0))
    assert (expected.alone, expected.with_graph) == ("sums", "graph")
    other = Expected({**joined, "features": 61.0, "balanced": 59.0}, joined, (50.0, 50.0))
    assert (other.alone, other.with_graph) == ("features", "balanced")
    alone = Expected({"features": 50.0, "sums": 49.0}, {}, None)
    assert (alone.alone, alone.with_graph) == ("features", None)


WIDE = make_plan("auto", gv.KNeighbor(1), replace(FACTS, features=500), epsilon=8.0)


@pytest.mark.parametrize(
    ("branch", "trained", "sums"),
    [("joint", (0.75, 0.80), (0.5, 0.5)), ("balanced", (0.4, 0.4), (0.55, 0.6))],
    ids=str,
)
def test_with_many_features_a_head_may_learn_from_them_beside_neighbors(branch, trained, sums):
    """Where training finds more than class sums do, it does so beside neighbours too. Nothing more is counted."""
    counts = released(trained, sums, (sums[1] + 0.2, 0.4))
    assert len(counts) == len(WAYS)
    followed, expected = chosen_branch(counts, PRIORS, WIDE)
    assert followed == expected.with_graph == branch
    assert set(expected.joined) == {"features", "sums", "balanced", "joint", "graph"}
    assert expected.features["joint"] <= expected.features["features"]
    release = WIDE["joint release"]
    assert GraphBranch.of(WIDE.branch("joint"), links()).noise == pytest.approx(
        release.noise * np.sqrt(2 / 3) / release.row_norm
    )


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
            counts = released((0.4, 0.4), (0.5, 0.5), (0.4, 0.5 + points / 100))
            if chosen_branch(counts, PRIORS, plan)[0] == "graph":
                break
        needed[epsilon] = points
        noise = 100 * plan["expectation"].noise / FACTS.train_nodes
        # Two counts are noisy, and that of features at more budget has more noise than they have.
        assert points > defaults.WORTH_IT_POINTS + defaults.DOUBT * 2**0.5 * noise * 0.8
    assert needed[8.0] < needed[2.0] < 50


def test_reasons_are_told():
    expected = Expected({"features": 70.4, "sums": 69.0, "balanced": 74.0, "graph": 60.0}, {}, (50.0, 50.0))
    left, read = (expectation_in_words(branch, expected) for branch in ("features", "balanced"))
    assert left.startswith("The graph was not used, because it was not expected to help clearly: about 70 % right")
    assert "about 74 % with the graph" in left
    assert read == "The graph was used: about 74 % right were expected with it, 70 % with features alone."
    close = Expected({"features": 90.1, "sums": 60.0, "balanced": 90.0, "graph": 60.0}, {}, (51.0, 57.0))
    tie = expectation_in_words("features", close)
    assert "about 90 % right either way, and a balanced accuracy of about 51 % with features alone and 57 %" in tie
    assert "a balanced accuracy of about 57 % was expected with it, 51 % with features" in expectation_in_words(
        "balanced", close
    )


def test_balanced_accuracies_decide_where_accuracies_are_close():
    doubt = 100 * defaults.DOUBT * PLAN["expectation"].noise / FACTS.train_nodes * 2**0.5
    # The doubt is estimated from a number of repeats.
    for part, followed in ((0.7, "sums"), (1.4, "balanced")):
        alike = (0.5, 0.5 + (defaults.ALIKE_POINTS + part * doubt) / 100)
        close = released((0.5, 0.5), (0.8, 0.8), (0.8, 0.8), alike)
        assert chosen_branch(close, PRIORS, PLAN)[0] == followed
        worse = released((0.5, 0.5), (0.8, 0.8), (0.7, 0.7), alike)  # balanced accuracies are not asked
        assert chosen_branch(worse, PRIORS, PLAN)[0] == "sums"


def test_what_features_gain_from_the_rest_of_the_budget_counts_in_balanced_accuracies_too():
    """The balanced branch has less of it for class sums: its lead now may be gone then."""
    flat, steep = (
        chosen_branch(released((0.4, 0.4), (half, 0.6), (0.6, 0.6), (0.5, 0.5)), PRIORS, PLAN)[1]
        for half in (0.6, 0.55)
    )
    assert flat.alike == pytest.approx((50, 50))
    growth = steep.joined["sums"] - steep.features["balanced"]
    assert growth > 1
    assert steep.alike == pytest.approx((50 + growth, 50))


def test_rare_classes_count_as_much_as_frequent_ones():
    labels, priors = np.repeat([0, 1], [900, 100]), np.array([0.9, 0.1])
    nothing = {"balanced": GraphBranch(np.zeros((2, 2)), 1.0, 0.9)}

    def found(scores):
        counts = right_counts(labels, [scores] * 2, [scores] * 2, nothing, priors)
        return dict(zip(counted(nothing), counts.tolist(), strict=True))

    scores = torch.zeros(1000, 2)
    scores[:, 0] = 1.0
    assert found(scores)["sums"] == 900, "everybody is taken for the frequent class"
    assert found(scores)["sums alike"] == 100, "without the shares of classes everybody is taken for the rare one"
    scores[900:, 0] = -10.0
    assert found(scores)["sums alike"] == found(scores)["balanced alike"] == 100
    scores[:900, 0] = 10.0
    assert found(scores)["sums alike"] == pytest.approx(200, rel=1e-5)


def test_a_branch_is_simulated_with_the_noise_of_its_own_release():
    """The branch "balanced" has another Gaussian release, of class sums, before that of A W."""
    for name in ("balanced", "graph"):
        release = PLAN[f"{name} release"]
        others = [m for m in PLAN.branch(name).mechanisms if isinstance(m, GaussianRelease) and m != release]
        assert [m.role for m in others] == (["class sums"] if name == "balanced" else [])
        made = GraphBranch.of(PLAN.branch(name), links())
        assert made.noise == pytest.approx(release.noise * np.sqrt(2 / 3) / release.row_norm)
        for other in others:
            assert made.noise != pytest.approx(other.noise * np.sqrt(2 / 3) / other.row_norm, rel=0.01)
            louder = PLAN.changed(lambda m, other=other: m.scaled(7.0) if m.name == other.name else m)
            assert GraphBranch.of(louder.branch(name), links()).noise == made.noise


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
    labels, trained, sums = rows(20_000, 3)
    branches = graph_branches(noise=2.0)
    together = right_counts(labels, trained, sums, branches, PRIORS)

    def part(a, b, first):
        return right_counts(labels[a:b], some(trained, a, b), some(sums, a, b), branches, PRIORS, first=first)

    for cuts in ([0, 7, 9_000, 20_000], [0, 8_193, 20_000]):
        parts = [part(a, b, a) for a, b in pairwise(cuts)]
        assert torch.equal(torch.stack(parts).sum(0), together)
    # Without its place, the second part would draw the numbers of the first one again.
    first, second = (part(a, b, 0) for a, b in pairwise(cuts))
    assert not torch.equal(first + second, together)


def test_likelihoods_of_a_row_do_not_depend_on_the_other_rows():
    counts = torch.randn(20_001, 3, generator=torch.Generator().manual_seed(0)) * 5
    expected = torch.rand(3, 3, generator=torch.Generator().manual_seed(1)).double() * 6
    whole = log_likelihoods(counts, expected, 2.0, 0.8)
    for first, last in ((0, 17), (5, 10_000), (16_380, 16_390), (20_000, 20_001)):
        assert torch.equal(log_likelihoods(counts[first:last].clone(), expected, 2.0, 0.8), whole[first:last])


@pytest.mark.parametrize(("ahead", "said"), [(16.0, True), (1.1, True), (0.9, False), (-1.1, False), (-9.0, False)])
def test_a_difference_that_was_not_believed_is_said_to_be_noise(ahead, said):
    best = 65.0 + ahead * defaults.WORTH_IT_POINTS
    joined = {"features": 65.0, "sums": 64.0, "balanced": best, "graph": best}
    words = expectation_in_words("features", Expected(joined, joined, (50.0, 50.0)))
    assert words.endswith("a difference that noise may have made.") == said
