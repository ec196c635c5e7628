"""How well each class explains a node's noisy counts of neighbours by class, in closed form."""

from __future__ import annotations

import math

import torch

# Degrees as multiples of the usual one, evenly on a logarithmic scale, up to so many standard deviations.
_MULTIPLES = 11
_WIDEST = 2.2
# Rows that are worked on at a time, so that what one operation makes is in the cache for the next.
_ROWS_AT_ONCE = 2**14


@torch.no_grad()
def log_likelihoods(counts: torch.Tensor, expected: torch.Tensor, noise: float, spread: float) -> torch.Tensor:
    """log p(counts | class) for each row and class, less the mean over classes.

    Counts are centred: each row has lost its mean. A node of class c with m times the usual number of links has
    Gaussian counts of mean m expected[c] and variance m expected[c] + noise^2; the logarithm of m is normal with
    standard deviation `spread`, and the mean of m is 1.

    Args:
        counts: Centred noisy counts, a row for each node and a column for each class of neighbours.
        expected: Row c: how many neighbours of each class a node of class c has.
        noise: The standard deviation of the noise on each count.
        spread: How degrees vary (`LinkStatistics.spread`).
    """
    if len(counts) > _ROWS_AT_ONCE:
        return torch.cat([log_likelihoods(some, expected, noise, spread) for some in counts.split(_ROWS_AT_ONCE)])
    deviations = torch.linspace(-_WIDEST, _WIDEST, _MULTIPLES, dtype=torch.float64)
    places = spread * deviations - spread**2 / 2
    chances = torch.log_softmax(-0.5 * deviations.square(), dim=0)
    columns = []
    for row in expected.double().clamp_min(0).cpu():
        terms = []
        for place, chance in zip(places.tolist(), chances.tolist(), strict=True):
            mean = math.exp(place) * row
            variance = (mean + noise**2).clamp_min(1e-9)
            centred = (mean - mean.mean()).to(counts)
            squares = ((counts - centred).square() * (1 / variance).to(counts)).sum(1)
            terms.append(chance - 0.5 * (squares + float(variance.log().sum())))
        # Over the last dimension: over the first one, the last bits of a row would depend on its place among the rows.
        columns.append(torch.stack(terms, dim=1).logsumexp(1))
    scores = torch.stack(columns, dim=1)
    return scores - scores.mean(1, keepdim=True)
