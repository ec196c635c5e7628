"""Bounds hold as often as they say, and are sharp where they can be."""

import math

import numpy as np
import pytest

from graphveil.accounting import Gaussian, RandomizedResponse, compose, gaussian_epsilon, gaussian_mu
from graphveil.auditing import Scores, gaussian_bound, lower_bound, one_run_bound, threshold_bound
from graphveil.auditing.bounds import Branches, claim_bound, toss
from graphveil.errors import InvalidInput
from support.alarms import expected_false_alarms

DELTA = 1e-3


def gaussian_scores(mu, trials, seed):
    rng = np.random.default_rng(seed)
    coins = toss(trials, rng)
    return Scores(coins, mu * (rng.normal(size=trials) + mu * (coins - 0.5)))


def response_scores(epsilon, trials, seed):
    rng = np.random.default_rng(seed)
    coins = toss(trials, rng)
    truth = rng.random(trials) < 1 / (1 + math.exp(-epsilon))
    return Scores(coins, epsilon * np.where(coins == truth, 1.0, -1.0))


@pytest.mark.slow
@pytest.mark.parametrize("bound", [threshold_bound, gaussian_bound, one_run_bound])
def test_a_sound_mechanism_is_flagged_no_more_often_than_stated(bound):
    mu = gaussian_mu(1.0, DELTA)
    audits = 100 if bound is one_run_bound else 400
    alarms = sum(bound(gaussian_scores(mu, 1000, seed), DELTA, 0.95).epsilon > 1.0 for seed in range(audits))
    assert alarms <= expected_false_alarms(audits, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [threshold_bound, gaussian_bound, one_run_bound])
def test_scores_that_mean_nothing_are_not_taken_for_a_leak(bound):
    """Hundreds of thresholds are tried on pure noise; none of them may be believed too often."""
    alarms = sum(bound(gaussian_scores(1e-9, 1000, seed), 1e-6, 0.95).epsilon > 0 for seed in range(400))
    assert alarms <= expected_false_alarms(400, 0.95)


def test_pure_randomised_response_sits_on_the_bound():
    """The worst case of every (epsilon, 0) bound: its rates attain the limit exactly."""
    alarms = sum(threshold_bound(response_scores(1.0, 600, seed), 0.0001, 0.9).epsilon > 1.0 for seed in range(400))
    assert alarms <= expected_false_alarms(400, 0.9)
    assert 3.8 < threshold_bound(response_scores(4.0, 200_000, 0), 1e-6, 0.95).epsilon <= 4.0


def test_gaussian_bound_is_sharp():
    mu = gaussian_mu(4.0, 1e-5)
    assert 3.7 < gaussian_bound(gaussian_scores(mu, 100_000, 1), 1e-5, 0.95).epsilon <= 4.0


def test_clopper_pearson_reaches_the_tail_with_enough_trials():
    mu = gaussian_mu(4.0, DELTA)
    assert 2.6 < threshold_bound(gaussian_scores(mu, 1_000_000, 1), DELTA, 0.95).epsilon <= 4.0


def test_claim_bound_agrees_with_the_gaussian_one_and_is_sharp_for_mixed_claims():
    scores = gaussian_scores(1.0, 50_000, 2)
    one = gaussian_bound(scores, 1e-5, 0.95).epsilon
    same = claim_bound(scores, 1e-5, 0.95, compose([Gaussian(0.8)])).epsilon
    assert same == pytest.approx(one, rel=0.02)

    mixed = compose([Gaussian(0.7), RandomizedResponse(1.0, 2)])
    coins = toss(50_000, np.random.default_rng(3))
    values = gaussian_scores(0.7, 50_000, 4), response_scores(1.0, 50_000, 5)
    signs = [np.where(part.coins == coins, 1, -1) for part in values]
    both = Scores(coins, sum(sign * part.values for sign, part in zip(signs, values, strict=True)))
    claimed = mixed.epsilon(1e-5)
    assert 0.85 * claimed < lower_bound(both, 1e-5, 0.95, mixed).epsilon <= claimed


def test_perfect_separation_is_limited_by_the_number_of_trials_alone():
    coins = toss(2000, np.random.default_rng(0))
    bound = threshold_bound(Scores(coins, coins.astype(float)), DELTA, 0.95)
    held_out = 0.7 * 2000 / 2
    assert bound.epsilon == pytest.approx(math.log(held_out / -math.log(0.025)), abs=0.15)
    assert gaussian_bound(Scores(coins, coins.astype(float)), DELTA, 0.95).epsilon > 15


def test_roc_and_area():
    scores = Scores([False, True, False, True], [0.0, 1.0, 2.0, 3.0])
    assert scores.auc == 0.75
    assert scores.true_positives_at(0.0) == 0.5
    assert scores.true_positives_at(0.5) == 1.0
    assert Scores([True, False], [1.0, 1.0]).auc == 0.5


def test_scores_are_checked():
    with pytest.raises(InvalidInput, match="NaN"):
        Scores([True], [math.nan])
    with pytest.raises(InvalidInput, match="one coin"):
        Scores([True, False], [1.0])
    with pytest.raises(InvalidInput, match="trials"):
        threshold_bound(Scores([True], [1.0]), DELTA, 0.95)


def test_a_bound_above_the_claim_means_more_noise_was_promised():
    mu = gaussian_mu(4.0, 1e-5)
    bound = gaussian_bound(gaussian_scores(2 * mu, 20_000, 0), 1e-5, 0.99).epsilon
    assert 4.0 < bound <= gaussian_epsilon(2 * mu, 1e-5)


def test_a_branch_with_too_little_noise_is_seen_by_the_whole_claim():
    """Coins that are told apart better than either branch allows."""
    rng = np.random.default_rng(0)
    coins = toss(4000, rng)
    claim = Branches((compose([Gaussian(1.0)]), compose([Gaussian(0.8)])))
    for mu, most in ((1.0, True), (3.5, False)):
        scores = Scores(coins, mu * (rng.normal(size=4000) + mu * (coins - 0.5)))
        assert (lower_bound(scores, 1e-5, 0.99, claim).epsilon <= claim.epsilon(1e-5)) == most
