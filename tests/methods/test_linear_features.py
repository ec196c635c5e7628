"""The default's classifier of features, and what a training node may add to its own logits."""

import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional

import graphveil as gv
from graphveil.execution.gradients import ClippedSums
from graphveil.execution.sparse_rows import CsrRows
from graphveil.graph import csbm
from graphveil.methods import defaults, dpdgc
from graphveil.methods.linear_features import (
    LinearClassifier,
    Trained,
    WideNetwork,
    added_up,
    mu_of,
    train_linear,
    with_products,
    without_own_influence,
)

# Of (x, 1), for rows of features that are scaled to norm 5.
LENGTHS = torch.full((30,), 26**0.5)


def logits_and_labels(rows=30, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, classes, generator=generator), torch.randint(classes, (rows,), generator=generator)


def test_own_influence_is_taken_off_towards_the_label():
    logits, labels = logits_and_labels()
    less = without_own_influence(logits, labels, LENGTHS, 100, 0.5)
    own = torch.arange(len(labels)), labels
    assert (less[own] < logits[own]).all()
    assert ((less - logits).sum(1)).abs().max() < 1e-5
    length = defaults.OWN_INFLUENCE * 0.25 * defaults.LINEAR_RATE * (defaults.LINEAR_STEPS * 26) ** 0.5
    assert (less - logits).norm(dim=1) == pytest.approx(torch.full((30,), length), rel=1e-4)
    assert torch.equal(without_own_influence(logits, labels, LENGTHS, 100, 0.0), logits)


def test_own_influence_depends_on_the_own_row_alone():
    logits, labels = logits_and_labels()
    before = without_own_influence(logits, labels, LENGTHS, 100, 1.0)
    logits[3], labels[3] = 1e30, (labels[3] + 1) % 4
    after = without_own_influence(logits, labels, LENGTHS, 100, 1.0)
    kept = torch.arange(30) != 3
    assert torch.equal(before[kept], after[kept])


def test_a_node_that_is_sure_of_its_label_stays_finite():
    sure = torch.tensor([[1e4, 0.0, 0.0]])
    assert torch.equal(without_own_influence(sure, torch.tensor([0]), LENGTHS[:1], 100, 1.0), sure)


def trained(value, mu, like):
    """A training after which all weights have this value."""
    model = LinearClassifier(like, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return Trained(model, defaults.LINEAR_STEPS, mu)


def test_a_training_and_its_first_half_cost_what_the_plan_says(monkeypatch):
    seen = []
    monkeypatch.setattr(dpdgc, "train_linear", lambda *given: seen.append(train_linear(*given)) or seen[-1])
    model = gv.Auto(gv.KNeighbor(1), 8.0, seed=0, steps=7).fit(csbm(0.5, n=400, f=40, seed=0))
    (half, whole), *_ = seen
    planned = model.certificate_.plan()["first features"]
    assert whole.mu == pytest.approx(2 / planned.noise_multiplier * 7**0.5)
    assert (half.steps, whole.steps) == (3, 7)
    assert half.mu == pytest.approx(whole.mu * (3 / 7) ** 0.5)
    # Adam's steps are about as long as the rate, wherever noise is large.
    sizes = [float(part.model.out.weight.detach().norm()) for part in (half, whole)]
    assert 0 < sizes[0] < sizes[1]


def test_trainings_are_added_by_their_mu():
    like = torch.zeros(1, 4)
    parts = [trained(value, mu, like) for value, mu in ((1.0, 2.0), (2.0, 3.0), (3.0, 6.0))]
    assert mu_of(parts) == 7
    total = added_up(parts, like, 3)
    expected = (2 + 2 * 3 + 3 * 6) / 7
    noise = defaults.LINEAR_RATE * defaults.LINEAR_STEPS**0.5
    shrunk = expected - defaults.LINEAR_SHRINKAGE * noise
    assert torch.allclose(total.out.weight, torch.full_like(total.out.weight, shrunk))
    assert torch.allclose(total.out.bias, torch.full_like(total.out.bias, expected))


def test_weights_that_noise_could_have_made_are_zero():
    like, noise = torch.zeros(1, 4), defaults.LINEAR_RATE * defaults.LINEAR_STEPS**0.5
    part = trained(-0.9 * defaults.LINEAR_SHRINKAGE * noise, 1.0, like)
    alone = added_up([part], like, 3)
    assert not alone.out.weight.any()
    assert torch.equal(alone.out.bias, part.model.out.bias)


@pytest.mark.parametrize("sparse", [True, False])
def test_few_features_get_products_of_the_same_norm(sparse):
    x = torch.nn.functional.normalize(torch.randn(20, 6)) * defaults.FEATURE_NORM
    x[3] = 0
    rows = with_products(CsrRows(sp.csr_array(x.numpy()), "cpu") if sparse else x)
    assert rows.shape == (20, 6 + 21)
    norms = torch.full((20,), defaults.FEATURE_NORM)
    norms[3] = 0
    assert rows.norm(dim=1) == pytest.approx(norms, rel=1e-5)
    assert torch.equal(with_products(x[5:6]), with_products(x)[5:6])


def test_many_features_and_none_stay_as_they_are():
    for width in (0, defaults.NARROW_FEATURES + 1):
        x = torch.randn(5, width)
        assert with_products(x) is x


def test_products_that_are_not_kept_are_the_same(monkeypatch):
    graph = csbm(0.5, n=400, f=6, seed=0)
    kept, again = (gv.Auto(gv.KNeighbor(1), 8.0, seed=0, steps=3) for _ in range(2))
    kept.fit(graph)
    monkeypatch.setattr("graphveil.methods.linear_features._MOST_BYTES", 1000)
    again.fit(graph)
    assert torch.equal(kept.logits_, again.logits_)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_row_of_logits_does_not_depend_on_the_other_rows(sparse):
    x = torch.randn(40_000, 5, generator=torch.Generator().manual_seed(0))
    model = LinearClassifier(x, 3)
    with torch.no_grad():
        model.out.weight.normal_(generator=torch.Generator().manual_seed(1))
        rows = CsrRows(sp.csr_array(x.numpy())) if sparse else x
        some = torch.arange(16_380, 33_001)
        assert torch.equal(model(rows)[some], model(rows[some]))


def test_a_network_starts_beside_a_part_of_the_first_classifier():
    like = torch.randn(6, 40)
    first = LinearClassifier(like, 3)
    with torch.no_grad():
        first.out.weight.normal_()
    torch.manual_seed(0)
    beside = WideNetwork(like, 8, 3, first)
    torch.manual_seed(0)
    alone = WideNetwork(like, 8, 3)
    expected = alone(like) + defaults.FIRST_FEATURES_WEIGHT * first(like)
    torch.testing.assert_close(beside(like), expected)
    torch.testing.assert_close(alone(like), alone.network(like))


def test_wider_features_count_more_one_by_one():
    def moved(width):
        like = torch.randn(4, width)
        model = WideNetwork(like, 8, 3)
        before = model(like).detach()
        with torch.no_grad():
            model.wide.out.bias += 1
        return float((model(like) - before).detach().mean())

    assert 0 < moved(40) < moved(400) < moved(4000) < defaults.MOST_LINEAR_PART
    assert WideNetwork(torch.zeros(4, 0), 8, 3)(torch.zeros(4, 0)).shape == (4, 3)


CLIP = 1e-3


def moved(features, other, width, labels, together):
    """By how much a sum of clipped gradients of a `WideNetwork` moves where one row is replaced, in units of the clip.

    `together`: both parts are clipped as one, as they are trained; otherwise each on its own.
    """

    def sums_of(rows, labels):
        torch.manual_seed(0)
        given = CsrRows(sp.csr_array(rows.numpy())) if width == "sparse" else rows
        model = WideNetwork(given, 8, 3)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        parts = [model] if together else [model.network, model.wide]
        found = []
        for part in parts:
            for parameter in model.parameters():
                parameter.requires_grad_(any(parameter is own for own in part.parameters()))
            sums = ClippedSums(part, CLIP, len(labels))
            found += sums.of(lambda: functional.cross_entropy(model(given), labels, reduction="none"))
        return torch.cat([each.reshape(-1) for each in found])

    changed, turned = features.clone(), labels.clone()
    changed[0], turned[0] = other, (labels[0] + 1) % 3
    return float((sums_of(features, labels) - sums_of(changed, turned)).norm()) / CLIP


@pytest.mark.parametrize("width", [1, 3, 32, 33, "sparse"])
def test_one_row_moves_both_parts_of_a_network_within_one_clip(width):
    """Layers that read different rows, features and products of them, share a clip. The twin clips each alone."""
    count = 40 if width == "sparse" else width
    generator = torch.Generator().manual_seed(1)
    features, labels = torch.randn(20, count, generator=generator), torch.randint(3, (20,), generator=generator)
    largest = 0.0
    for size in (0.0, 1e-38, 1.0, 100.0, 1e19, 3e38):
        for sign in (-1.0, 1.0):
            features[0] = 10 * torch.randn(count, generator=generator)
            # With the same features and another label, gradients of both parts nearly turn round.
            other = sign * size * torch.ones(count) if size else features[0]
            assert moved(features, other, width, labels, together=True) <= 2
            largest = max(largest, moved(features, other, width, labels, together=False))
    assert largest > 2
