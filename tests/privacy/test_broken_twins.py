"""Each sound path has a broken twin that the same check must catch: a check that cannot fail proves nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphveil import execution
from graphveil.accounting import Gaussian, RandomizedResponse, SampledGaussian, compose, gaussian_mu
from graphveil.auditing.mistakes import noise_of_one_sum
from graphveil.errors import BudgetExceeded
from graphveil.execution import Ledger
from graphveil.execution.draws import add_gaussian, add_gaussian_, randomized_response
from graphveil.methods.spending import make_plan
from graphveil.noise import NoiseSource
from graphveil.privacy import sensitivity
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import KNeighbor, Node
from support.adjacent import random_pairs
from support.checks import answers_truthfully, draws_are_planned, has_noise, moved_after, stays_within

NODES = 14
FACTS = PublicFacts(nodes=NODES, train_nodes=10, features=3, classes=3)


def unit_rows(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def turning_gradients(pair):
    """The clipped gradients of all rows that change turn from one direction to its opposite."""
    changed = (pair.before != pair.after).any(1) | (pair.labels != pair.labels_after)
    before = np.zeros((NODES, 2))
    before[changed, 0] = 1.0
    return before.sum(0), -before.sum(0)


def planned_sensitivity(level):
    """What the plan of DPDGC states for a step of its embedding."""
    plan = make_plan("dpdgc", level, replace(FACTS, train_nodes=NODES), epsilon=4.0, delta=1e-4)
    return plan["embedding"].sensitivity.worst / plan["embedding"].clip


@pytest.mark.parametrize("level", [KNeighbor(3), KNeighbor(8), Node(3)], ids=str)
def test_square_root_of_the_group(level):
    bound = planned_sensitivity(level)
    pairs = list(random_pairs(level, NODES, 300, seed=0))
    assert stays_within(bound, pairs, turning_gradients)
    assert not stays_within(math.sqrt(2 * bound), pairs, turning_gradients)


def test_one_neighbourhood_instead_of_two():
    pairs = list(random_pairs(Node(3), NODES, 300, seed=0))
    assert stays_within(planned_sensitivity(Node(3)), pairs, turning_gradients)
    assert not stays_within(planned_sensitivity(KNeighbor(3)), pairs, turning_gradients), "D + 1 rows, not 2D + 1"


def test_table_not_normalised():
    level = KNeighbor(3)
    bound = sensitivity.product_rows(level, 1.0, NODES)
    raw = np.random.default_rng(0).normal(size=(NODES, 4))
    pairs = list(random_pairs(level, NODES, 200, seed=0))

    def release_of(W):
        return lambda pair: ((pair.before @ W)[pair.others], (pair.after @ W)[pair.others])

    assert stays_within(bound, pairs, release_of(unit_rows(raw)))
    assert not stays_within(bound, pairs, release_of(raw))
    # The published implementation scales its noise for rows of 1e-8 that were never made so short.
    assert not stays_within(1e-8 * bound, pairs, release_of(unit_rows(raw)))


def test_each_stage_with_the_noise_of_a_single_one():
    plan = make_plan("progap", Node(3, unit="zero-out"), FACTS, epsilon=4.0, delta=1e-4)
    assert plan["hops"].uses == 2
    assert plan.epsilon <= 4.0
    assert noise_of_one_sum(plan).epsilon > 4.5


def test_noise_halved():
    plan = make_plan("dpdgc", KNeighbor(2), FACTS, epsilon=4.0, delta=1e-4)
    std = plan["release"].std
    value = torch.zeros(300, 100).double()
    assert has_noise(Ledger(plan, NoiseSource(seed=1)).release("release", value), std)
    assert not has_noise(add_gaussian(value, std / 2, NoiseSource(seed=1)), std)
    assert not has_noise(add_gaussian(value, std, NoiseSource(seed=1)).clamp(-2 * std, 2 * std), std)
    repeated = add_gaussian(value[:, :50], std, NoiseSource(seed=1)).repeat_interleave(2)
    assert not has_noise(repeated, std)


def test_response_with_its_epsilon_taken_for_the_noise_parameter():
    epsilon, classes = 1.5, 4
    truth = torch.full((200_000,), 2)
    sound = randomized_response(truth, RandomizedResponse(epsilon, classes), NoiseSource(seed=3))
    assert answers_truthfully(sound, 2, epsilon, classes)
    source = NoiseSource(seed=3)
    keep = source.uniform(len(truth)) < 1 - math.exp(-epsilon)  # "keep with 1 - e^-eps, otherwise any symbol"
    broken = torch.where(keep, truth, source.integers(classes, len(truth)))
    assert not answers_truthfully(broken, 2, epsilon, classes)


class Spy:
    """Records what is really drawn, beneath the ledger."""

    def __init__(self, monkeypatch):
        self.drawn = []
        for draw in (add_gaussian, add_gaussian_):
            monkeypatch.setattr(execution, draw.__name__, self._recorded(draw))

    def _recorded(self, draw):
        def recorded(value, std, source):
            self.drawn.append(std)
            return draw(value, std, source)

        return recorded


def small_fit(book, plan):
    """Draw everything that a DPDGC fit draws."""
    for _ in range(plan["embedding"].steps):
        book.noisy_sum("embedding", [torch.zeros(3, 2).double(), torch.zeros(2).double()])
    Z = book.release("release", torch.zeros(NODES, 2).double())
    for _ in range(plan["head"].steps):
        book.noisy_sum("head", [torch.zeros(2, 3).double()])
    return Z


def full_batch_plan():
    return make_plan("dpdgc", KNeighbor(2), FACTS, epsilon=4.0, delta=1e-4)


def test_a_fit_draws_what_was_planned(monkeypatch):
    spy, plan = Spy(monkeypatch), full_batch_plan()
    small_fit(Ledger(plan, NoiseSource(seed=0)), plan)
    assert draws_are_planned(as_training_nodes(spy.drawn, plan), plan)


def as_training_nodes(drawn, plan):
    """What each draw costs a training node: (sensitivity, std)."""
    by_std = {plan[name].noise: plan[name].sensitivity.training for name in ("embedding", "release", "head")}
    return [(by_std[std], std) for std in drawn]


def test_one_mechanism_left_out_of_the_composition(monkeypatch):
    """The twin calibrates without the release but still draws it."""
    spy, plan = Spy(monkeypatch), full_batch_plan()
    small_fit(Ledger(plan, NoiseSource(seed=0)), plan)
    forgetful = plan.__class__(
        plan.method, plan.level, plan.facts, plan.delta, tuple(m for m in plan.mechanisms if m.name != "release")
    )
    assert not draws_are_planned(as_training_nodes(spy.drawn, plan), forgetful)


def test_a_mechanism_used_twice(monkeypatch):
    plan = full_batch_plan()
    book = Ledger(plan, NoiseSource(seed=0))
    small_fit(book, plan)
    for draw in (
        lambda: book.release("release", torch.zeros(1).double()),
        lambda: book.noisy_sum("head", [torch.zeros(1).double()]),
    ):
        with pytest.raises(BudgetExceeded):
            draw()

    class Careless(Ledger):
        def _book(self, name, expected):
            return self.plan[name]

    spy = Spy(monkeypatch)
    careless = Careless(plan, NoiseSource(seed=0))
    small_fit(careless, plan)
    careless.release("release", torch.zeros(NODES, 2).double())
    assert not draws_are_planned(as_training_nodes(spy.drawn, plan), plan)


def test_noise_drawn_again_on_a_second_query():
    """Averaging m fresh answers divides the noise by sqrt(m): eps = 8 becomes 12.3 for two and 59 for twenty."""
    mu = gaussian_mu(8.0, 1e-5)
    assert compose([Gaussian(mu)] * 2).epsilon(1e-5) == pytest.approx(12.3, abs=0.1)
    assert compose([Gaussian(mu)] * 20).epsilon(1e-5) == pytest.approx(59, abs=1)

    plan = full_batch_plan()
    std = plan["release"].std
    kept = Ledger(plan, NoiseSource(seed=0)).release("release", torch.zeros(NODES, 2000).double())

    def averaged(query):
        return torch.stack([query() for _ in range(20)]).mean(0)

    assert has_noise(averaged(lambda: kept), std)
    fresh = NoiseSource(seed=0)
    assert not has_noise(averaged(lambda: add_gaussian(torch.zeros(NODES, 2000), std, fresh)), std)


def test_rows_centred_across_nodes():
    """Centring couples rows: the others then reveal row r, which the release of rows != r did not protect."""
    level, W = KNeighbor(3), unit_rows(np.ones((NODES, 2)))
    bound = sensitivity.product_rows(level, 1.0, NODES)
    before, after = np.zeros((NODES, NODES)), np.zeros((NODES, NODES))
    after[0, 1:4] = after[1:4, 0] = 1
    change = (after - before) @ W
    others = np.arange(1, NODES)
    own_rows_only = np.diag(np.linspace(0.5, 2, NODES))  # scaling each row by itself is free
    centred = np.eye(NODES) - 1 / NODES
    assert moved_after(np.eye(NODES), others, change) <= bound * (1 + 1e-9)
    assert moved_after(own_rows_only, others, change) <= bound * (1 + 1e-9)
    assert moved_after(centred, others, change) > 1.3 * bound


def test_the_cost_of_centring_is_what_the_theory_says():
    mu = gaussian_mu(8.0, 1e-5)
    for k, expected in [(1, 12.3), (25, 71)]:
        assert compose([Gaussian(mu * math.sqrt(k + 1))]).epsilon(1e-5) == pytest.approx(expected, rel=0.03)


def test_the_directed_unit_on_a_symmetric_graph():
    """Asked eps = 1, true 1.47: the mirrored entry doubles the group."""
    mu = gaussian_mu(1.0, 1e-5)
    assert compose([Gaussian(mu * math.sqrt(2))]).epsilon(1e-5) == pytest.approx(1.47, abs=0.02)


def test_sampling_is_not_assumed_where_there_is_none():
    """A full-batch fit accounted as if it were sampled would claim far less."""
    honest = compose([SampledGaussian(60.0, 2, 1.0, 100)]).epsilon(1e-5)
    claimed = compose([SampledGaussian(60.0, 2, 0.01, 100)]).epsilon(1e-5)
    assert claimed < 0.1 * honest
