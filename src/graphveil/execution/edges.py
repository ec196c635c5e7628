"""Randomised response on all possible edges, in memory proportional to the number of edges in the result."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.execution.ledger import LedgerLike
from graphveil.execution.response import within
from graphveil.noise.source import NoiseSource

_BLOCK = 2**20


def randomized_edges(adjacency: sp.csr_array, ledger: LedgerLike, name: str, *, paired: bool) -> sp.csr_array:
    """Answer every entry of A off the diagonal by binary randomised response.

    The graph is XORed with a random set of bits, each chosen independently with probability 1 / (e^epsilon + 1). The
    set is drawn by the gaps between its elements.

    Args:
        adjacency: The graph, with entries 0 and 1.
        ledger: Counts the draw.
        name: The planned mechanism, a `Responses`.
        paired: One answer for both directions, for undirected graphs.

    Returns:
        The randomised graph.

    Formal guarantee (docs/theory.md, section 8.5): pure epsilon-DP for each answered bit, as `name` plans it, rounding
    included.
    """
    nodes = adjacency.shape[0]
    bits = nodes * (nodes - 1) // (2 if paired else 1)

    def draw() -> torch.Tensor:
        planned, source = ledger.open_responses(name)
        flipped = chosen_bits(bits, flip_probability(planned.epsilon), source)
        present = np.sort(_bit_of(adjacency, paired))
        return torch.from_numpy(np.setxor1d(flipped, present, assume_unique=True))

    def fits(found: torch.Tensor) -> bool:
        ordered = found.ndim == 1 and found.dtype == torch.int64 and bool((found.diff() > 0).all())
        return ordered and within(found, bits)

    return _graph_of(ledger.stages.draw(name, draw, fits).numpy(), nodes, paired)


def flip_probability(epsilon: float) -> float:
    """The probability with which a bit is flipped, for an epsilon a little below the planned one.

    The difference covers the rounding of gaps: the probability of each gap has a relative error of at most 2^-47 / p,
    and one changed bit affects at most six gaps.
    """
    rounding = 64 * 2.0**-50 * (math.exp(epsilon) + 1)
    if rounding > epsilon / 2:
        raise InvalidInput("epsilon", epsilon, "is too large, or too small, for randomised edges")
    return 1 / (math.exp(epsilon - rounding) + 1)


def chosen_bits(count: int, probability: float, source: NoiseSource) -> np.ndarray:
    """A random subset of 0 .. count - 1, each element independently with this probability, in ascending order.

    The number of elements before the next chosen one is at least g with probability (1 - p)^g. A draw of `longest` or
    more, which happens with probability about 1/4, chooses nothing and skips `longest` elements. So no draw is from the
    far tail, where a uniform number of 52 bits is too coarse.
    """
    found: list[np.ndarray] = []
    last = -1
    log_stay = math.log1p(-probability)
    longest = max(1, math.ceil(math.log(0.25) / log_stay))
    block = int(min(_BLOCK, 1.5 * count * probability + 10 * math.sqrt(count * probability) + 16))
    while last < count:
        skipped = np.floor(np.log(source.uniform(block).numpy()) / log_stay).astype(np.int64)
        chosen = skipped < longest
        places = last + np.cumsum(np.where(chosen, skipped + 1, longest))
        found.append(places[chosen & (places < count)])
        last = int(places[-1])
    return np.concatenate(found)


def _bit_of(adjacency: sp.csr_array, paired: bool) -> np.ndarray:
    """The number of each stored entry's bit; pairs are numbered along the rows below the diagonal."""
    rows = np.repeat(np.arange(adjacency.shape[0], dtype=np.int64), np.diff(adjacency.indptr))
    columns = adjacency.indices.astype(np.int64)
    if paired:
        below = columns < rows
        rows, columns = rows[below], columns[below]
        return rows * (rows - 1) // 2 + columns
    return rows * (adjacency.shape[0] - 1) + columns - (columns > rows)


def _graph_of(bits: np.ndarray, nodes: int, paired: bool) -> sp.csr_array:
    if paired:
        rows = ((1 + np.sqrt(1 + 8.0 * bits)) / 2).astype(np.int64)
        # The square root may be off by one either way for large numbers.
        rows -= rows * (rows - 1) // 2 > bits
        rows += rows * (rows + 1) // 2 <= bits
        columns = bits - rows * (rows - 1) // 2
        half = _csr(rows.astype(np.int32), columns.astype(np.int32), nodes)
        return sp.csr_array(half + half.T)
    rows, columns = np.divmod(bits, max(nodes - 1, 1))
    columns += columns >= rows
    return _csr(rows.astype(np.int32), columns.astype(np.int32), nodes)


def _csr(rows: np.ndarray, columns: np.ndarray, nodes: int) -> sp.csr_array:
    ones = np.ones(len(rows), dtype=np.float32)
    return sp.csr_array(sp.coo_array((ones, (rows, columns)), shape=(nodes, nodes)))
