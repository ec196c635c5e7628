"""How well each class explains a node's noisy counts of neighbours by class, in closed form."""

from __future__ import annotations

import math

import torch

from graphveil.methods import defaults

# Degrees as multiples of the usual one, evenly on a logarithmic scale.
_MULTIPLES = 11
_WIDEST = 2.4


@torch.no_grad()
def log_likelihoods(counts: torch.Tensor, expected: torch.Tensor, noise: float) -> torch.Tensor:
    """log p(counts | class) for each row and class, less the mean over classes.

    Counts are centred: each row has lost its mean. A node of class c with m times the usual number of links has
    Gaussian counts of mean m expected[c] and variance m expected[c] + noise^2, and the logarithm of m is normal with
    standard deviation `defaults.LIKELIHOOD_SPREAD`.

    Args:
        counts: Centred noisy counts, a row for each node and a column for each class of neighbours.
        expected: Row c: how many neighbours of each class a node of class c has.
        noise: The standard deviation of the noise on each count.
    """
    places = torch.linspace(-_WIDEST, _WIDEST, _MULTIPLES, dtype=torch.float64)
    chances = torch.log_softmax(-0.5 * (places / defaults.LIKELIHOOD_SPREAD).square(), dim=0)
    columns = []
    for row in expected.double().clamp_min(0).cpu():
        terms = []
        for place, chance in zip(places.tolist(), chances.tolist(), strict=True):
            mean = math.exp(place) * row
            variance = (mean + noise**2).clamp_min(1e-9)
            centred = (mean - mean.mean()).to(counts)
            squares = ((counts - centred).square() * (1 / variance).to(counts)).sum(1)
            terms.append(chance - 0.5 * (squares + float(variance.log().sum())))
        columns.append(torch.stack(terms).logsumexp(0))
    scores = torch.stack(columns, dim=1)
    return scores - scores.mean(1, keepdim=True)
