import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphveil.errors import InvalidInput
from graphveil.mechanisms import NoiseSource
from graphveil.mechanisms.gaussian import LATTICE, add_gaussian, lattice_step
from privacy.checks import has_noise

pytestmark = pytest.mark.usefixtures("arithmetic")


@given(std=st.floats(1e-8, 1e8))
def test_the_step_is_a_power_of_two_and_small(std):
    step = lattice_step(std)
    assert math.frexp(step)[0] == 0.5
    assert LATTICE * std / 2 < step <= LATTICE * std


@pytest.mark.parametrize("std", [1e-6, 0.3, 17.0])
def test_noise_has_the_planned_scale_around_the_value(std):
    value = 1000 * std * torch.randn(300, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noisy = add_gaussian(value, std, std, NoiseSource(seed=1))
    assert has_noise(noisy - value, std)


def test_results_lie_on_the_public_lattice_whatever_the_value():
    for value in (torch.full((1000,), 1 / 3), torch.full((1000,), math.pi * 1e-12), torch.zeros(1000)):
        noisy = add_gaussian(value.double(), 1.0, 0.7, NoiseSource(seed=2))
        steps = noisy / lattice_step(0.7)
        assert torch.equal(steps, steps.round())


def test_rounding_is_paid_for_with_noise():
    """Rounding may move m entries by a step each: the noise is larger by sqrt(m) steps over the sensitivity."""
    source = NoiseSource(seed=0)
    drawn = []
    source.add_normals = lambda flat, std, step: drawn.append(std)
    entries, sensitivity, std = 10_000, 1e-3, 1.0
    add_gaussian(torch.zeros(entries), sensitivity, std, source)
    (seen,) = drawn
    assert seen >= std * (1 + math.sqrt(entries) * LATTICE / sensitivity * 0.999)
    assert seen < std * 1.001


def test_nothing_to_protect_needs_no_noise():
    value = torch.randn(10)
    assert torch.equal(add_gaussian(value, 0.0, 0.0, NoiseSource(seed=0)), value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_shorter_types_are_rounded_after_the_noise(dtype):
    """Post-processing of the same release in float64, whose lattice the noise lies on."""
    value = torch.randn(400, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    noisy, exact = (add_gaussian(v, 1.0, 0.7, NoiseSource(seed=1)) for v in (value, value.double()))
    assert noisy.dtype == dtype
    assert torch.equal(noisy, exact.to(dtype))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_values_that_would_escape_the_lattice_are_refused(bad):
    with pytest.raises(InvalidInput, match="value"):
        add_gaussian(torch.tensor([0.0, bad]), 1.0, 1.0, NoiseSource(seed=0))


def test_noise_that_dwarfs_the_sensitivity_is_refused():
    with pytest.raises(InvalidInput, match="noise std"):
        add_gaussian(torch.zeros(10_000), 1e-9, 1.0, NoiseSource(seed=0))
