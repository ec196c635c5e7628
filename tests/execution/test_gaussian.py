import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphveil.errors import InvalidInput
from graphveil.execution.gaussian import add_gaussian, rounding_of
from graphveil.noise import NoiseSource
from graphveil.privacy.lattice import OUTWARD, noise_step
from support.checks import has_noise

pytestmark = pytest.mark.usefixtures("arithmetic")


@given(std=st.floats(1e-8, 1e8))
def test_the_step_is_a_power_of_two_and_small(std):
    step = noise_step(std)
    assert math.frexp(step)[0] == 0.5
    assert std / 2048 < step <= std / 1024
    assert rounding_of(std).std == std * OUTWARD > std


@pytest.mark.parametrize("std", [1e-6, 0.3, 17.0])
def test_noise_has_the_planned_scale_around_the_value(std):
    value = 1000 * std * torch.randn(300, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noisy = add_gaussian(value, std, NoiseSource(seed=1))
    assert has_noise(noisy - value, std)


def test_results_lie_on_the_public_lattice_whatever_the_value():
    for value in (torch.full((1000,), 1 / 3), torch.full((1000,), math.pi * 1e-12), torch.zeros(1000)):
        steps = add_gaussian(value.double(), 0.7, NoiseSource(seed=2)) / noise_step(0.7)
        assert torch.equal(steps, steps.round())


def test_a_multiple_of_the_step_is_moved_by_rounded_noise():
    """round(value + noise) = value + round(noise): the same noise whatever the value, however large it is."""
    step, value = noise_step(0.7), torch.arange(-500, 500).double()
    alone = add_gaussian(torch.zeros(1000), 0.7, NoiseSource(seed=2))
    for size in (1, 2.0**20, 2.0**40):
        together = add_gaussian(size * step * value, 0.7, NoiseSource(seed=2))
        assert torch.equal(together, size * step * value + alone)


def test_nothing_to_protect_needs_no_noise():
    value = torch.randn(10)
    assert torch.equal(add_gaussian(value, 0.0, NoiseSource(seed=0)), value.double())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(InvalidInput, match="value"):
        add_gaussian(torch.tensor([0.0, bad]), 1.0, NoiseSource(seed=0))
