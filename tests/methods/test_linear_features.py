"""The default's classifier of features, and what a training node may add to its own logits."""

import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.execution.sparse_rows import CsrRows
from graphveil.graph import csbm
from graphveil.methods import defaults, dpdgc
from graphveil.methods.linear_features import (
    LinearClassifier,
    Trained,
    train_linear,
    with_products,
    without_noise,
    without_own_influence,
)

# Of (x, 1), for rows of features that are scaled to norm 5.
LENGTHS = torch.full((30,), 26**0.5)


def trained(value, mu, like, steps=100):
    """A training after which all weights have this value."""
    model = LinearClassifier(like, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return Trained(model, steps, mu)


def costing(mu):
    """A training of 100 steps that costs this much."""
    return trained(0.0, mu, torch.zeros(1, 4))


def logits_and_labels(rows=30, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, classes, generator=generator), torch.randint(classes, (rows,), generator=generator)


def test_own_influence_is_taken_off_towards_the_label():
    logits, labels = logits_and_labels()
    less = without_own_influence(costing(0.5), logits, labels, LENGTHS)
    own = torch.arange(len(labels)), labels
    assert (less[own] < logits[own]).all()
    assert ((less - logits).sum(1)).abs().max() < 1e-5
    length = defaults.OWN_INFLUENCE * 0.25 * defaults.LINEAR_RATE * (100 * 26) ** 0.5
    assert (less - logits).norm(dim=1) == pytest.approx(torch.full((30,), length), rel=1e-4)
    assert torch.equal(without_own_influence(costing(0.0), logits, labels, LENGTHS), logits)


def test_own_influence_depends_on_the_own_row_alone():
    logits, labels = logits_and_labels()
    before = without_own_influence(costing(1.0), logits, labels, LENGTHS)
    logits[3], labels[3] = 1e30, (labels[3] + 1) % 4
    after = without_own_influence(costing(1.0), logits, labels, LENGTHS)
    kept = torch.arange(30) != 3
    assert torch.equal(before[kept], after[kept])


def test_a_node_that_is_sure_of_its_label_stays_finite():
    sure = torch.tensor([[1e4, 0.0, 0.0]])
    assert torch.equal(without_own_influence(costing(1.0), sure, torch.tensor([0]), LENGTHS[:1]), sure)


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


@pytest.mark.parametrize("value", [3.0, -3.0])
def test_weights_are_moved_towards_zero_by_a_part_of_their_noise(value):
    like = torch.zeros(1, 4)
    part = trained(value, 1.0, like, steps=64)
    model = without_noise(part, like, 3)
    less = abs(value) - defaults.LINEAR_SHRINKAGE * defaults.LINEAR_RATE * 8
    weight = model.out.weight.detach()
    torch.testing.assert_close(weight, torch.full_like(weight, less if value > 0 else -less))
    assert torch.equal(model.out.bias, part.model.out.bias)
    assert (part.model.out.weight == value).all(), "the training itself is kept"


def test_weights_that_noise_could_have_made_are_zero():
    like, noise = torch.zeros(1, 4), defaults.LINEAR_RATE * 10
    part = trained(-0.9 * defaults.LINEAR_SHRINKAGE * noise, 1.0, like)
    model = without_noise(part, like, 3)
    assert not model.out.weight.any()
    assert torch.equal(model.out.bias, part.model.out.bias)


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
