"""How a head reads Z."""

import torch

from graphveil.methods import defaults
from graphveil.methods.networks import Fusion
from graphveil.methods.tables import in_noises


def test_z_in_units_of_its_noise_is_bounded_row_by_row():
    rows = torch.tensor([[0.0, 0.0], [2.0, -4.0], [300.0, 400.0]])
    found = in_noises(rows, 2.0)
    torch.testing.assert_close(found[:2], rows[:2] / 2)
    torch.testing.assert_close(found[2], defaults.LONGEST_ROW * torch.tensor([0.6, 0.8]))
    assert torch.equal(in_noises(rows[1:2], 2.0), found[1:2])


def test_where_nothing_is_drawn_its_unit_is_one():
    rows = torch.tensor([[1.0, -3.0]])
    assert torch.equal(in_noises(rows, 0.0), rows)


def test_a_head_starts_without_what_is_beside_the_directions():
    opinions, directions, beside = torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 3)
    found = Fusion(3, 6, beside=3)(opinions, torch.cat([directions, beside], dim=1))
    torch.testing.assert_close(found, opinions + directions)
