"""Dropout: which numbers are left out belongs to a row and a step, however rows are divided."""

import pytest
import torch

from graphveil.methods.networks import Dropout, Perceptron, begin_step, mean_of


def dropped(rows, width, first=0, key=1, step=0, uses=1, chance=0.25):
    module = Dropout(chance)
    module.begin(key, step, first)
    return [module(torch.ones(rows, width)) for _ in range(uses)]


@pytest.mark.parametrize("width", [1, 8, 13, 64])
@pytest.mark.parametrize("first", [1, 2, 3, 4, 97])
def test_a_part_of_the_rows_loses_what_it_loses_among_all(width, first):
    whole, part = dropped(100, width, uses=2), dropped(100 - first, width, first, uses=2)
    assert all(torch.equal(mine, all_of_them[first:]) for mine, all_of_them in zip(part, whole, strict=True))


def test_steps_keys_and_uses_differ():
    masks = [*dropped(50, 20, uses=2), *dropped(50, 20, step=1), *dropped(50, 20, key=2)]
    for place, mask in enumerate(masks):
        assert not any(torch.equal(mask, other) for other in masks[:place])


@pytest.mark.parametrize("chance", [0.0, 0.25, 0.5])
def test_the_mean_is_kept(chance):
    (mask,) = dropped(1000, 64, chance=chance)
    assert float((mask == 0).float().mean()) == pytest.approx(chance, abs=0.01)
    assert float(mask.mean()) == pytest.approx(1, abs=0.02)


def test_nothing_is_dropped_after_training():
    torch.manual_seed(0)
    model, x = Perceptron(torch.zeros(1, 5), [8, 8, 2], dropout=0.5), torch.randn(30, 5)
    begin_step(model, 0, 0, 0)
    trained = model.train()(x)
    assert torch.equal(model.eval()(x), model(x))
    assert not torch.equal(model(x), trained)


def test_a_mean_is_added_in_order():
    parts = list(torch.randn(6, 1001, 3, generator=torch.Generator().manual_seed(0)))
    whole = mean_of(parts)
    torch.testing.assert_close(whole, torch.stack(parts).mean(0))
    assert torch.equal(mean_of([part[500:] for part in parts]), whole[500:])
