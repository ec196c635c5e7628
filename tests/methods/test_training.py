"""Free training that ends by validation: which epoch is kept, and when it is enough."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import graphveil as gv
from graphveil.execution import Stages
from graphveil.execution.exact import Linear
from graphveil.graph import csbm
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


@pytest.mark.parametrize("own", [True, False])
def test_features_that_are_too_large_to_learn_from_are_an_error_or_no_answer(own):
    """Before, weights and with them all predictions were NaN, and a run folder could not be loaded."""
    graph = csbm(0.5, n=100, f=4, d=4, seed=0)
    features = graph.features.clone()
    node = int((graph.train_mask if own else graph.test_mask).nonzero()[0])
    features[node] = 3e38
    model = gv.MLP(gv.Edge(), 4.0, seed=0, epochs=3)
    if own:
        with pytest.raises(gv.InvalidInput, match="weights are no longer finite"):
            model.fit(graph.replace(features=features))
        return
    model.fit(graph.replace(features=features))
    assert model.logits_.isfinite().all()
    assert model.predict_proba([node]).tolist() == [[0.5, 0.5]]
    assert (model.predict_new(["a"], np.full((1, 4), 3e38), [[]]) == 0.5).all()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_very_few_training_nodes(directed, count):
    """All of them may be in one fold, and without it nobody is left to learn from."""
    graph = csbm(0.5, n=40, f=4, d=4, seed=0)
    mask = torch.zeros(40, dtype=torch.bool)
    mask[:count] = True
    few = graph.replace(train_mask=mask, val_mask=graph.val_mask & ~mask, test_mask=graph.test_mask & ~mask)
    for seed in range(1 if count == 1 else 6):
        fitted = gv.Auto(gv.Edge("directed" if directed else "undirected"), 4.0, 1e-3, seed=seed, epochs=2).fit(few)
        assert fitted.logits_.isfinite().all()
