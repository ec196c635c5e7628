"""Free training that ends by validation: which epoch is kept, and when it is enough."""

import pytest
import torch
from torch.nn import functional

from graphveil.execution.exact import Linear
from graphveil.execution.ledger import Stages
from graphveil.methods.training import Target, train_freely


def target_of(validation=40):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (120,), generator=generator)
    return Target(labels, torch.arange(80), torch.arange(80, 80 + validation))


def logits_of(target):
    return 3 * torch.randn(len(target.validation), 2, generator=torch.Generator().manual_seed(1))


def test_the_likelihood_is_a_mean_that_does_not_depend_on_the_order():
    target, order = target_of(), torch.randperm(40, generator=torch.Generator().manual_seed(2))
    logits = logits_of(target)
    expected = -functional.cross_entropy(logits.double(), target.labels[target.validation])
    assert target.likelihood(logits) == pytest.approx(float(expected), abs=2.0**-19)
    turned = Target(target.labels, target.train, target.validation[order])
    assert turned.likelihood(logits[order]) == target.likelihood(logits)
    assert target.score(logits) == target.accuracy(logits) + target.likelihood(logits)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1e30])
def test_a_broken_epoch_never_looks_good(wrong):
    target = target_of()
    logits = logits_of(target)
    logits[3, target.labels[target.validation[3]]] = wrong
    assert -100 / 40 - 10 < target.likelihood(logits) < target.likelihood(logits_of(target)) - 1


def trained(patience, steps, rate=0.5):
    """A linear model that soon overfits: labels have nothing to do with features."""
    torch.manual_seed(0)
    target, features, model = target_of(), torch.randn(120, 20), Linear(20, 2)
    made, scores = [], []

    def logits(rows):
        return model(features[rows])

    def after_step():
        made.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        with torch.no_grad():
            scores.append(target.score(logits(target.validation)))

    train_freely(
        model,
        logits,
        target,
        Stages(),
        "features",
        steps=steps,
        learning_rate=rate,
        show=False,
        after_step=after_step,
        patience=patience,
    )
    return model, made, scores


@pytest.mark.parametrize("patience", [1, 4])
def test_it_ends_after_so_many_epochs_without_a_better_one(patience):
    model, made, scores = trained(patience, 60)
    best = max(range(len(scores)), key=scores.__getitem__)
    assert len(made) == best + 1 + patience < 60
    assert torch.equal(model.state_dict()["weight"], made[best]["weight"])


def test_without_patience_all_epochs_are_made():
    assert len(trained(None, 60)[1]) == 60
    assert len(trained(60, 60)[1]) == 60
