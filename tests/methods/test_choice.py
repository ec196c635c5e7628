"""The rule by which a directed graph pays, and the released sums."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.methods.choice import co_readers_pay, exact_sums
from graphveil.methods.spending import make_plan
from graphveil.privacy.facts import PublicFacts

FACTS = PublicFacts(nodes=8000, train_nodes=6000, features=100, classes=4, directed=True)
PLAN = make_plan("auto", gv.KNeighbor(1), FACTS, epsilon=8.0)


def pays(*, wrong=0.4, margin=0.5, grouped=1.0):
    """The rule's answer to sums without noise; `margin` is what the votes of a group come to."""
    n = FACTS.train_nodes
    sums = torch.tensor([wrong, margin * wrong * grouped, wrong * grouped], dtype=torch.float64) * n
    return co_readers_pay(sums, PLAN)


def test_co_readers_that_know_better_pay():
    assert pays()
    assert pays(margin=-0.5), "those who always differ tell as much"


@pytest.mark.parametrize("but", [{"margin": 0.0}, {"wrong": 0.02}, {"grouped": 0.0}, {"margin": 0.02}], ids=str)
def test_they_do_not_if_they_say_little_or_features_are_right(but):
    assert not pays(**but)


def test_released_sums_keep_the_digits_of_float64():
    """Rounded to float32 they would move by more than the sensitivity allows for: 2^-50 for each training node."""
    nodes = 1_000_001
    (total,) = exact_sums([np.full(nodes, 0.3)], nodes).tolist()
    assert abs(Fraction(total) - nodes * Fraction(0.3)) < nodes * Fraction(2) ** -40
