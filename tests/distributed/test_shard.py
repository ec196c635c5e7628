"""Noise belongs to rows and draws, not to processes."""

from __future__ import annotations

import pytest
import torch

from graphveil.distributed.group import Group
from graphveil.distributed.shard import Layout, RowShard, SharedSource, Span
from graphveil.execution.draws import add_gaussian_
from graphveil.noise import NoiseSource
from graphveil.privacy.mechanisms import noise_step

NODES, WIDTH = 4001, 17  # rows end within chunks


class Alone(Group):
    """A process that is not told anything; with a seed there is nothing to be told."""

    def from_first(self, value):
        return value.clone()


def sources(parts, seed=7):
    layout = Layout.even(NODES, parts)
    return [(SharedSource(seed, Alone(rank, parts), layout.span(rank)), layout.span(rank)) for rank in range(parts)]


def gradient_noise(source, rows):
    """Of two steps: rows of W that are divided, and a bias that all have."""
    steps = []
    for _ in range(2):
        W, bias = torch.zeros(rows, WIDTH).double(), torch.zeros(5).double()
        parts = [W.as_subclass(RowShard), bias] if isinstance(source, SharedSource) else [W, bias]
        add_gaussian_(parts, 2.0, source)
        steps.append((parts[0].as_subclass(torch.Tensor), bias))
    return steps


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_is_that_of_one_process(parts):
    whole = gradient_noise(NoiseSource(7), NODES)
    pieces = [gradient_noise(source, span.count) for source, span in sources(parts)]
    for step in range(2):
        assert torch.equal(torch.cat([piece[step][0] for piece in pieces]), whole[step][0])
        assert all(torch.equal(piece[step][1], whole[step][1]) for piece in pieces)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_uniform_draws_are_those_of_one_process(parts):
    one = NoiseSource(7)
    whole, after = one.uniform(40_000), one.uniform(3)
    counts = [40_000 // parts] * (parts - 1)
    counts = [0, *counts, 40_000 - sum(counts)]  # a process without training nodes draws nothing, and keeps in step
    drawn = []
    for rank in range(len(counts)):
        source = SharedSource(7, Alone(rank, len(counts)), Span(0, 1, 1))
        with source.only(Span.of(counts, rank)):
            drawn.append(source.uniform(counts[rank]))
        assert torch.equal(source.uniform(3), after)
    assert torch.equal(torch.cat(drawn), whole)


def repeated(noise):
    """How many rows of noise occur more than once; of independent rows, none do."""
    return len(noise) - len(noise.unique(dim=0))


class SameEverywhere(SharedSource):
    """A broken twin: every process draws its rows as if they were the first ones."""

    def _draw_part(self, flat, span, width, draw):
        super()._draw_part(flat, Span(0, span.count, span.total), width, draw)


def test_no_row_is_drawn_twice():
    rows = [W for source, span in sources(3) for W, _ in gradient_noise(source, span.count)]
    assert repeated(torch.cat(rows)) == 0
    layout = Layout.even(NODES, 2)
    twins = [SameEverywhere(7, Alone(rank, 2), layout.span(rank)) for rank in range(2)]
    broken = [gradient_noise(twin, layout.span(rank).count)[0][0] for rank, twin in enumerate(twins)]
    assert repeated(torch.cat(broken)) >= NODES // 2 - 1


def test_without_a_seed_all_draw_with_the_key_of_the_first():
    keys = []

    class Told(Group):
        def from_first(self, value):
            keys.append(value.clone())
            return keys[0].clone()

    layout = Layout.even(NODES, 2)
    one, two = (SharedSource(None, Told(rank, 2), layout.span(rank)) for rank in range(2))
    assert not torch.equal(keys[0], keys[1])
    assert one.secure
    assert two.secure
    assert torch.equal(one.uniform(5), two.uniform(5))


def test_the_lattice_is_that_of_the_whole_value():
    source, span = sources(3)[1]
    W = torch.zeros(span.count, WIDTH).double().as_subclass(RowShard)
    add_gaussian_([W], 2.0, source)
    multiples = W.as_subclass(torch.Tensor) / noise_step(2.0)
    assert torch.equal(multiples, multiples.round())
