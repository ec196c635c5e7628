"""The likelihood of noisy counts of neighbours, against a formula that is written out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphveil.methods.tables import log_likelihoods


def written_out(counts, expected, noise, spread):
    """One node, one class and one degree after another."""
    deviations = np.linspace(-2.2, 2.2, 11)
    places = spread * deviations - spread**2 / 2
    weights = np.exp(-0.5 * deviations**2)
    weights /= weights.sum()
    scores = np.zeros((len(counts), len(expected)))
    for i, row in enumerate(counts):
        for c, usual in enumerate(expected):
            logs = []
            for place, weight in zip(places, weights, strict=True):
                mean = np.exp(place) * usual
                variance = np.maximum(mean + noise**2, 1e-9)
                centred = mean - mean.mean()
                logs.append(np.log(weight) - 0.5 * np.sum((row - centred) ** 2 / variance + np.log(variance)))
            scores[i, c] = np.logaddexp.reduce(logs)
    return scores - scores.mean(1, keepdims=True)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    classes=st.integers(2, 5),
    noise=st.sampled_from([0.0, 0.3, 4.0, 100.0]),
    degree=st.sampled_from([0.0, 0.5, 20.0]),
    spread=st.sampled_from([0.0, 0.7, 1.5]),
)
def test_they_are_those_of_the_formula(seed, classes, noise, degree, spread):
    rng = np.random.default_rng(seed)
    expected = degree * rng.dirichlet(np.ones(classes), size=classes)
    counts = rng.normal(size=(7, classes)) * 5
    counts -= counts.mean(1, keepdims=True)
    scores = log_likelihoods(torch.from_numpy(counts), torch.from_numpy(expected), noise, spread)
    rounding = 1e-13 * (counts**2).sum() / max(noise**2, 1e-9)
    assert scores.numpy() == pytest.approx(written_out(counts, expected, noise, spread), rel=1e-9, abs=1e-9 + rounding)


def test_a_row_depends_on_itself_alone():
    counts, expected = torch.randn(50, 3, dtype=torch.float64), torch.rand(3, 3, dtype=torch.float64)
    other = torch.cat([counts[:1], torch.randn(49, 3, dtype=torch.float64)])
    first, second = (log_likelihoods(each, expected, 0.5, 0.9)[0] for each in (counts, other))
    assert torch.equal(first, second)


@pytest.mark.parametrize("homophily", [0.8, 0.05])
def test_true_classes_come_out_above_the_noise(homophily):
    """Neighbours of the own class, and neighbours of all others."""
    rng, classes, degree = np.random.default_rng(0), 3, 20
    shares = np.full((classes, classes), (1 - homophily) / 2)
    np.fill_diagonal(shares, homophily)
    labels = rng.integers(classes, size=400)
    counts = rng.poisson(degree * shares[labels]) + rng.normal(size=(400, classes))
    counts = torch.from_numpy(counts - counts.mean(1, keepdims=True))
    right = log_likelihoods(counts, torch.from_numpy(degree * shares), 1.0, 0.5).argmax(1).numpy() == labels
    assert right.mean() > 0.9


def test_without_links_all_classes_are_alike():
    scores = log_likelihoods(torch.randn(20, 4), torch.zeros(4, 4), 2.0, 0.9)
    assert scores.abs().max() < 1e-5
