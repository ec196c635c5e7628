"""Composition against closed forms, quadrature, dp-accounting and the lemma's claim itself; the paper's accountant."""

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from graphveil.accounting import (
    AnyOf,
    Gaussian,
    RandomizedResponse,
    SampledGaussian,
    compose,
    gaussian_epsilon,
    gaussian_mu,
)
from graphveil.accounting.composition import RENYI_ORDERS, _renyi
from graphveil.accounting.losses import discretised, pure_epsilon
from graphveil.errors import InvalidInput

CHECK_VALUES = [
    (2.16, 2, 0.0129, 7735, 1e-5, 10.636),
    (5.34, 6, 0.0129, 7735, 1e-5, 13.518),
    (42.0, 26, 0.0315, 3173, 1e-4, 9.999),
    (1.5, 1, 0.0113, 8829, 1e-4, 5.870),
    (10.0, 26, 0.0063, 1000, 1e-5, 4.556),
    (30.0, 201, 0.01, 100, 1e-5, 6.158),
]


@pytest.mark.parametrize(("sigma", "group", "rate", "steps", "delta", "expected"), CHECK_VALUES)
def test_check_values_of_the_theory(sigma, group, rate, steps, delta, expected):
    assert compose([SampledGaussian(sigma, group, rate, steps)]).epsilon(delta) == pytest.approx(expected, rel=5e-4)


def test_check_value_of_one_step():
    one = compose([SampledGaussian(2.0, 3, 0.3, 1)])
    for epsilon, delta in [(0.0, 0.321291), (0.5, 0.171817), (1.0, 0.075463), (2.0, 0.008610)]:
        assert one.delta(epsilon) == pytest.approx(delta, abs=1.5e-6)


def test_check_values_with_responses():
    parts = [RandomizedResponse(4.0, 7), Gaussian(1.2), Gaussian(1.5)]
    assert compose(parts).epsilon(1e-4) == pytest.approx(12.384, abs=2e-3)
    assert compose(parts).epsilon(1e-5) == pytest.approx(13.468, abs=2e-3)


def test_check_values_of_a_single_gaussian():
    for epsilon, delta, mu in [(16, 1e-4, 3.147), (16, 1e-5, 2.905), (1, 1e-5, 0.268)]:
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, abs=6e-4)
        assert gaussian_epsilon(gaussian_mu(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-6)


def delta_by_quadrature(sigma, group, rate, epsilon):
    """The hockey-stick divergence of the lemma's pair by direct integration (trapezoid, one kink)."""
    x = np.linspace(-group - 12 * sigma, group + 12 * sigma, 400_001)
    above = np.zeros_like(x)
    for count, weight in enumerate(binom.pmf(np.arange(group + 1), group, rate)):
        above += weight * norm.pdf(x, count, sigma)
    return np.maximum(above - math.exp(epsilon) * above[::-1], 0).sum() * (x[1] - x[0])


@pytest.mark.parametrize(
    ("sigma", "group", "rate"), [(2.0, 3, 0.3), (1.0, 1, 0.05), (6.0, 26, 0.1), (0.7, 2, 0.5), (3.0, 8, 0.9)]
)
def test_one_step_agrees_with_quadrature(sigma, group, rate):
    one = compose([SampledGaussian(sigma, group, rate, 1)])
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        exact = delta_by_quadrature(sigma, group, rate, epsilon)
        ours = one.delta(epsilon)
        assert ours >= exact - 1e-9, "the accountant must not be below the truth"
        assert ours <= exact * (1 + 1e-3) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"), [(1.5, 0.0113, 8829, 1e-4), (0.8, 0.01, 500, 1e-5), (4.0, 0.2, 200, 1e-6)]
)
def test_a_group_of_one_is_dp_accountings_replacement(sigma, rate, steps, delta):
    theirs = pld.from_gaussian_mechanism(
        sigma, sampling_prob=rate, neighboring_relation=NeighboringRelation.REPLACE_ONE
    ).self_compose(steps)
    ours = compose([SampledGaussian(sigma, 1, rate, steps)]).epsilon(delta)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), abs=1e-3)


@given(
    sigma=st.floats(1.0, 300.0),
    group=st.integers(1, 401),
    steps=st.integers(1, 20_000),
    delta=st.sampled_from([1e-4, 1e-6, 1e-9]),
)
def test_rate_one_is_the_exact_gaussian(sigma, group, steps, delta):
    ours = compose([SampledGaussian(sigma, group, 1.0, steps)]).epsilon(delta)
    assert ours == pytest.approx(gaussian_epsilon(2 * group * math.sqrt(steps) / sigma, delta), rel=1e-9)


def test_rates_close_to_one_approach_the_gaussian_from_below():
    almost = compose([SampledGaussian(40.0, 3, 0.9999, 50)]).epsilon(1e-5)
    exact = compose([SampledGaussian(40.0, 3, 1.0, 50)]).epsilon(1e-5)
    assert exact * 0.999 < almost < exact * 1.0005


def test_many_responses_agree_with_dp_accounting():
    epsilon, classes, uses = 0.4, 5, 30
    noise = classes / (math.exp(epsilon) + classes - 1)
    theirs = pld.from_randomized_response(noise, classes).self_compose(uses).get_epsilon_for_delta(1e-5)
    ours = compose([RandomizedResponse(epsilon, classes, uses)]).epsilon(1e-5)
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.slow
@given(epsilon=st.floats(0.01, 10), classes=st.integers(2, 40), delta=st.sampled_from([1e-4, 1e-8]))
def test_responses_alone_never_cost_more_than_their_epsilon(epsilon, classes, delta):
    assert compose([RandomizedResponse(epsilon, classes)]).epsilon(delta) <= epsilon


def test_our_search_for_epsilon_is_dp_accountings():
    for parts in (
        [SampledGaussian(2.16, 2, 0.0129, 7735)],
        [RandomizedResponse(2.0, 3), Gaussian(0.4)],
        [SampledGaussian(0.05, 1, 0.01, 10)],
    ):
        composed = compose(parts)
        for delta in (1e-3, 1e-5, 1e-7):
            theirs = composed._pmfs[0].get_epsilon_for_delta(delta)
            assert composed.epsilon(delta) == pytest.approx(theirs, rel=1e-6, abs=1e-9)


def test_epsilon_and_delta_are_inverse_to_each_other():
    composed = compose([SampledGaussian(5.0, 6, 0.02, 1000), RandomizedResponse(1.0, 4), Gaussian(0.7)])
    for delta in (1e-3, 1e-5, 1e-7):
        assert composed.delta(composed.epsilon(delta)) == pytest.approx(delta, rel=1e-4)


def test_nothing_costs_nothing():
    assert compose([]).epsilon(1e-5) == 0.0
    assert compose([Gaussian(0.0)]).epsilon(1e-5) == 0.0


def test_a_delta_below_the_rounding_of_the_transform_is_not_certified():
    assert compose([SampledGaussian(5.0, 2, 0.01, 20_000)]).epsilon(1e-14) == math.inf


def divergence_of_gradients(before, after, rate, sigma, epsilon):
    """Hockey-stick divergence of one step for given 2-D gradients of the group, on a grid."""
    grid = np.linspace(-len(before) - 6 * sigma, len(before) + 6 * sigma, 401)
    x, y = np.meshgrid(grid, grid)
    densities = []
    for gradients in (before, after):
        density = np.zeros_like(x)
        for drawn in np.ndindex(*[2] * len(gradients)):
            weight = math.prod(rate if d else 1 - rate for d in drawn)
            mean = np.asarray(drawn) @ gradients
            density += weight * np.exp(-((x - mean[0]) ** 2 + (y - mean[1]) ** 2) / (2 * sigma**2))
        densities.append(density / (2 * math.pi * sigma**2))
    return np.maximum(densities[0] - math.exp(epsilon) * densities[1], 0).sum() * (grid[1] - grid[0]) ** 2


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data(), group=st.integers(1, 3), rate=st.floats(0.05, 0.95), sigma=st.floats(0.6, 3.0))
def test_the_lemma_against_random_gradients(data, group, rate, sigma):
    """No replacement of clipped gradients diverges more than the pair of the lemma."""
    angles = st.lists(st.floats(0, 2 * math.pi), min_size=group, max_size=group)
    norms = st.lists(st.sampled_from([1.0, 1.0, 0.6, 0.0]), min_size=group, max_size=group)
    pair = []
    for _ in range(2):
        angle, length = np.array(data.draw(angles)), np.array(data.draw(norms))
        pair.append(length[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1))
    bound = compose([SampledGaussian(sigma, group, rate, 1)])
    for epsilon in (0.0, 0.4, 1.5):
        assert divergence_of_gradients(*pair, rate, sigma, epsilon) <= bound.delta(epsilon) + 1e-5


def test_the_lemma_is_attained_and_the_one_sided_pair_does_not_dominate():
    sigma, rate = 1.2, 0.4
    east = np.array([[1.0, 0], [1.0, 0]])
    opposite = divergence_of_gradients(east, -east, rate, sigma, 0.3)
    assert opposite == pytest.approx(compose([SampledGaussian(sigma, 2, rate, 1)]).delta(0.3), rel=1e-3)
    # "2 j C against 0": both gradients doubled against none.
    one_sided = divergence_of_gradients(2 * east, 0 * east, rate, sigma, 0.0)
    assert one_sided < compose([SampledGaussian(sigma, 2, rate, 1)]).delta(0.0)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data(), group=st.integers(1, 3), rate=st.floats(0.05, 0.95), sigma=st.floats(0.6, 3.0))
def test_removed_rows_against_random_gradients(data, group, rate, sigma):
    """Lemma 3: some rows add nothing in one of the graphs. Neither order diverges more than the pair of the lemma."""
    removed = data.draw(st.integers(1, group))
    angles = st.lists(st.floats(0, 2 * math.pi), min_size=group, max_size=group)
    pair = []
    for _ in range(2):
        angle = np.array(data.draw(angles))
        pair.append(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    pair[1][:removed] = 0
    bound = compose([SampledGaussian(sigma, group, rate, 1, removed)])
    for epsilon in (0.0, 0.4, 1.5):
        for one, other in (pair, pair[::-1]):
            assert divergence_of_gradients(one, other, rate, sigma, epsilon) <= bound.delta(epsilon) + 1e-4


@pytest.mark.parametrize(("group", "removed"), [(1, 1), (2, 1), (3, 3)])
def test_the_lemma_for_removed_rows_is_attained(group, removed):
    sigma, rate = 1.2, 0.4
    east = np.tile([[1.0, 0]], (group, 1))
    after = -east
    after[:removed] = 0
    for epsilon in (0.0, 0.3):
        worst = max(divergence_of_gradients(*pair, rate, sigma, epsilon) for pair in ((east, after), (after, east)))
        assert worst == pytest.approx(
            compose([SampledGaussian(sigma, group, rate, 1, removed)]).delta(epsilon), rel=2e-3
        )


def test_one_order_alone_is_not_enough():
    """A removed row: the loss of "without against with" is bounded, that of "with against without" is not."""
    sampled = SampledGaussian(1.0, 1, 0.3, 1, removed=1)
    forth, back = (discretised(sampled, reverse) for reverse in (False, True))
    assert forth.losses[-1] > 2 * back.losses[-1]


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"), [(1.5, 0.0113, 2000, 1e-4), (0.8, 0.01, 500, 1e-5), (4.0, 0.2, 200, 1e-6)]
)
def test_one_removed_row_is_dp_accountings_removal(sigma, rate, steps, delta):
    theirs = pld.from_gaussian_mechanism(sigma, sampling_prob=rate).self_compose(steps)
    ours = compose([SampledGaussian(sigma, 1, rate, steps, removed=1)]).epsilon(delta)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), abs=1e-3)


def test_a_removed_row_costs_half_at_rate_one():
    assert compose([SampledGaussian(5.0, 1, 1.0, 9, removed=1)]).mu == pytest.approx(3 / 5)
    assert compose([SampledGaussian(5.0, 4, 1.0, 9, removed=1)]).mu == pytest.approx(7 * 3 / 5)


@pytest.mark.parametrize("classes", [2, 3, 17])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_responses_against_a_uniform_answer(epsilon, classes):
    """Both orders by hand; the largest loss is max(log(C p), log(1 / (C q)))."""
    loss = RandomizedResponse(epsilon, classes, uniform=True)
    truth = loss.truth_probability
    told = np.array([truth, *[(1 - truth) / (classes - 1)] * (classes - 1)])
    blind = np.full(classes, 1 / classes)
    for level in (0.0, 0.01, 0.5 * epsilon):
        exact = max(np.maximum(p - math.exp(level) * q, 0).sum() for p, q in ((told, blind), (blind, told)))
        ours = compose([loss]).delta(level)
        assert exact - 1e-12 <= ours <= exact * (1 + 1e-3) + 1e-6
    largest = max(math.log(classes * truth), -math.log(classes * (1 - truth) / (classes - 1)))
    assert pure_epsilon(loss) == pytest.approx(largest, abs=1e-9)
    assert compose([loss]).epsilon(1e-9) <= pure_epsilon(loss)
    assert pure_epsilon(loss) <= pure_epsilon(RandomizedResponse(epsilon, classes))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: SampledGaussian(0.0, 1, 0.1, 1), "noise_multiplier"),
        (lambda: SampledGaussian(1.0, 0, 0.1, 1), "group_size"),
        (lambda: SampledGaussian(1.0, 1, 1.1, 1), "sampling_rate"),
        (lambda: SampledGaussian(1.0, 1, 0.1, 0), "steps"),
        (lambda: SampledGaussian(math.nan, 1, 0.1, 1), "noise_multiplier"),
        (lambda: SampledGaussian(1.0, 2, 0.1, 1, removed=3), "removed"),
        (lambda: Gaussian(-1.0), "mu"),
        (lambda: Gaussian.from_noise(1.0, 0.0), "noise std"),
        (lambda: RandomizedResponse(0.0, 3), "epsilon"),
        (lambda: RandomizedResponse(1.0, 1), "classes"),
        (lambda: compose([1.0]), "losses"),
        (lambda: compose([Gaussian(1.0)]).epsilon(0.0), "delta"),
        (lambda: compose([Gaussian(1.0)]).epsilon(1.0), "delta"),
        (lambda: compose([Gaussian(1.0)]).delta(-0.1), "epsilon"),
    ],
)
def test_bad_values_are_named(make, field):
    with pytest.raises(InvalidInput, match=field):
        make()


def test_the_conversion_is_the_papers_lemma():
    gaussian = Gaussian(1.3)
    theirs, _ = compute_epsilon(RENYI_ORDERS, RENYI_ORDERS * gaussian.mu**2 / 2, 1e-5)
    assert compose([gaussian]).rdp_epsilon(1e-5) == pytest.approx(theirs, rel=1e-9)


def test_the_mixture_at_high_rate_approaches_the_gaussian():
    near = _renyi(SampledGaussian(30.0, 2, 0.999999, 10), False)
    exact = _renyi(SampledGaussian(30.0, 2, 1.0, 10), False)
    known = np.isfinite(near)
    assert known[RENYI_ORDERS < 64].all()
    assert near[known] == pytest.approx(exact[known], rel=1e-4)


def test_the_mixture_at_order_two_in_closed_form():
    # One row, order 2: integral of p^2 / q by direct summation on a wide grid.
    sigma, rate = 2.0, 0.2
    x = np.linspace(-60, 60, 400_001)
    p = (1 - rate) * np.exp(-(x**2) / 8) + rate * np.exp(-((x - 1) ** 2) / 8)
    q = p[::-1]
    integral = (p**2 / q).sum() * (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
    order = int(np.argmin(abs(RENYI_ORDERS - 2)))
    interpolated = np.interp(2.0, RENYI_ORDERS, _renyi(SampledGaussian(sigma, 1, rate, 1), False))
    assert interpolated == pytest.approx(math.log(integral), rel=2e-2), RENYI_ORDERS[order]


@pytest.mark.parametrize(
    "parts",
    [
        [SampledGaussian(2.16, 2, 0.0129, 7735)],
        [SampledGaussian(42.0, 26, 0.0315, 3173)],
        [SampledGaussian(30.0, 201, 0.01, 100)],
        [RandomizedResponse(4.0, 7), Gaussian(1.2), Gaussian(1.5)],
        [SampledGaussian(1.16, 2, 0.0129, 7735, removed=1), RandomizedResponse(3.0, 7, uniform=True)],
    ],
)
def test_it_is_looser_but_not_by_much(parts):
    composed = compose(parts)
    assert 1.0 < composed.rdp_epsilon(1e-5) / composed.epsilon(1e-5) < 1.12


ALTERNATIVES = (
    (RandomizedResponse(2.0, 3), Gaussian(0.8)),
    (Gaussian(1.5),),
    (SampledGaussian(1.2, 2, 0.05, 100),),
    (),
)


@pytest.mark.parametrize("beside", [(), (Gaussian(1.0),), (RandomizedResponse(1.0, 2),)])
def test_alternatives_cost_at_least_each_of_them_and_little_more_than_the_worst(beside):
    """At every epsilon, and also where they are composed with others and with themselves."""
    joined = AnyOf(ALTERNATIVES)
    for times in (1, 3):
        whole = compose([*beside, *(joined,) * times])
        each = [compose([*beside, *losses * times]) for losses in ALTERNATIVES if losses or beside]
        for epsilon in (0.0, 0.3, 1.0, 3.0, 6.0):
            assert whole.delta(epsilon) >= max(other.delta(epsilon) for other in each) * (1 - 1e-9)
        worst = max(other.epsilon(1e-5) for other in each)
        assert worst * (1 - 1e-6) <= whole.epsilon(1e-5) <= 1.08 * worst
        assert whole.rdp_epsilon(1e-5) >= max(other.rdp_epsilon(1e-5) for other in each)


def test_a_mixed_sequence_of_alternatives_is_covered():
    """What an adversary may choose by earlier outputs: one alternative first, another one later."""
    joined = AnyOf(ALTERNATIVES[:2])
    whole = compose([joined, joined])
    mixed = compose([*ALTERNATIVES[0], *ALTERNATIVES[1]])
    for epsilon in (0.0, 1.0, 4.0):
        assert whole.delta(epsilon) >= mixed.delta(epsilon) * (1 - 1e-9)


def test_gaussian_alternatives_have_a_closed_form():
    joined = AnyOf(((Gaussian(3.0), Gaussian(4.0)), (Gaussian(2.0),), ()))
    assert compose([joined, Gaussian(12.0)]).epsilon(1e-5) == gaussian_epsilon(13.0, 1e-5)
    assert joined.scaled(2.0).mu == 2.5
    assert joined.with_mu(1.0).mu == pytest.approx(1.0)
    assert compose([AnyOf(((),))]).epsilon(1e-5) == 0
    with pytest.raises(InvalidInput, match="at least one"):
        AnyOf(())
