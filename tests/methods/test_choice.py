"""The rule by which a graph pays: neighbours above the noise, what features would gain, and the released sums."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from graphveil.methods.signal_to_noise import chance_beyond_guessing, signal_to_noise
from scipy.special import ndtr

import graphveil as gv
from graphveil.methods.choice import exact_sums, neighbors_pay, with_more_noise
from graphveil.methods.spending import make_plan
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.sensitivity import neighbor_margin_units

FACTS = PublicFacts(nodes=8000, train_nodes=6000, features=100, classes=4)
PLAN = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=8.0)


def pays(plan=PLAN, *, wrong=0.4, noisier=0.4, margin=0.5, degree=10.0):
    """The rule's answer to sums without noise; `margin` is what the votes of all neighbours come to."""
    n = plan.facts.train_nodes
    sums = torch.tensor([wrong * n, noisier * n, margin * wrong * n, wrong * n, degree / 64 * n], dtype=torch.float64)
    return neighbors_pay(sums / torch.tensor(neighbor_margin_units(plan.level), dtype=torch.float64), plan)


def test_neighbors_that_know_better_pay():
    assert pays()
    assert pays(margin=-0.5), "neighbours that always differ tell as much"


@pytest.mark.parametrize(
    "but",
    [{"margin": 0.0}, {"degree": 0.0}, {"degree": -1.0}, {"wrong": 0.02, "noisier": 0.02}, {"noisier": 0.6}],
    ids=str,
)
def test_they_do_not_if_little_is_heard_or_features_have_more_to_learn(but):
    assert not pays(**but)


def test_less_budget_asks_for_more():
    """The same measurement: what pays at 8 need not at 2, where Z has more noise and features have more to learn."""
    small = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=2.0)
    assert pays(margin=0.3)
    assert not pays(small, margin=0.3)


def test_a_release_without_noise_is_heard():
    """At k = 0 the graph's links do not change, and Z has no noise."""
    assert pays(make_plan("auto", gv.KNeighbor(0), FACTS, epsilon=8.0))


def test_chances_of_the_loudest():
    for h in (0.0, 0.3, 2.0):
        assert chance_beyond_guessing(h, 2) == pytest.approx(2 * ndtr(h / np.sqrt(2)) - 1, abs=1e-6)
    drawn = np.random.default_rng(0).normal(size=(200_000, 7))
    drawn[:, 0] += 1.5
    right = (drawn.argmax(1) == 0).mean()
    assert chance_beyond_guessing(1.5, 7) == pytest.approx((7 * right - 1) / 6, abs=0.005)
    assert chance_beyond_guessing(50.0, 7) == pytest.approx(1, abs=1e-6)


def test_what_is_heard_is_what_z_has():
    """Of a node with 30 neighbours of its class: the right column against the mean of the others, drawn many times."""
    labels, release = PLAN["labels"], PLAN["release"]
    rng, classes = np.random.default_rng(0), FACTS.classes
    truth = np.exp(labels.epsilon) / (np.exp(labels.epsilon) + classes - 1)
    odds = np.r_[truth, np.full(classes - 1, (1 - truth) / (classes - 1))]
    Z = rng.multinomial(30, odds, size=20_000) + release.noise * rng.normal(size=(20_000, classes))
    spread = np.sqrt(release.noise**2 + 30 * (1 - 1 / classes) / classes)
    raised = (Z[:, 0] - Z[:, 1:].mean(1)).mean()
    assert signal_to_noise(PLAN, 30) * spread == pytest.approx(raised, rel=0.02)
    assert Z.std(0).max() < 1.2 * spread


def test_noisier_copies_leave_the_model_as_it_was():
    torch.manual_seed(0)
    model, x = torch.nn.Linear(5, 3), torch.randn(400, 5)
    before = model(x).detach()
    copies = with_more_noise(model, x, 0.1)
    assert torch.equal(model(x), before)
    assert all(torch.equal(a, b) for a, b in zip(copies, with_more_noise(model, x, 0.1), strict=True))
    assert not torch.equal(copies[0], copies[1])
    assert all(torch.equal(each, before) for each in with_more_noise(model, x, 0.0))
    # Each logit moves by 5 weights and a bias.
    moved = torch.cat([each - before for each in copies]).pow(2).mean()
    assert moved == pytest.approx(0.01 * 6, rel=0.6)


def test_released_sums_keep_the_digits_of_float64():
    """Rounded to float32 they would move by more than the sensitivity allows for: 2^-50 for each training node."""
    nodes = 1_000_001
    (found,) = exact_sums([np.full(nodes, 0.3)], nodes).tolist()
    assert abs(Fraction(found) - nodes * Fraction(0.3)) < nodes * Fraction(2) ** -40
