"""The draws: Gaussian noise on exact values, and randomised response on symbols and on all possible edges.

Adding floating-point noise to a floating-point value leaves traces of the value in the low-order bits of the sum
(Mironov 2012 for Laplace, Jin et al. 2022, arXiv:2112.05307, for Gaussian). Here the result is the rounded sum of the
exact value and an ideal normal number, which is post-processing of the ideal Gaussian mechanism for every value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.accounting import RandomizedResponse
from graphveil.errors import InvalidInput
from graphveil.noise import NoiseSource
from graphveil.noise.normals import Rounding
from graphveil.privacy.mechanisms import MOST_CLASSES, OUTWARD, noise_step

if TYPE_CHECKING:
    from graphveil.execution import LedgerLike


def rounding_of(std: float) -> Rounding:
    """The standard deviation that is drawn for a planned one, and the lattice to which results are rounded."""
    return Rounding(std * OUTWARD, noise_step(std))


def add_gaussian(value: torch.Tensor, std: float, source: NoiseSource) -> torch.Tensor:
    """`value`, in float64, plus independent Gaussian noise, rounded to the lattice.

    Formal guarantee (docs/theory.md, section 8.3): if the exact values of adjacent inputs differ by at most S in L2,
    the output is post-processing of a Gaussian mechanism of mu = S / std, up to `mechanisms.SAMPLER_DELTA`. `value`
    must hold the exact values: see `graphveil.execution.exact`.
    """
    out = value.detach().to("cpu", torch.float64, copy=True).contiguous()
    add_gaussian_([out], std, source)
    return out.to(value.device)


def add_gaussian_(parts: Sequence[torch.Tensor], std: float, source: NoiseSource) -> None:
    """Add noise in place to one value that is given as several contiguous float64 tensors."""
    if std == 0:
        return
    for part in parts:
        # A sum shows any entry that is not finite, and takes a fifth of the time; it may be infinite for other reasons.
        if not math.isfinite(float(part.sum())) and not bool(part.isfinite().all()):
            raise InvalidInput("value", "not finite", "cannot be released")
    rounding = rounding_of(std)
    for part in parts:
        source.add_normals(part.view(-1), rounding)


# The true symbol is returned this much less often than planned. This covers the rounding of uniform numbers to 52
# bits, which changes each probability by a relative 2^-37 at most, for up to 2^14 classes.
_LESS_TRUTH = 1 - 2.0**-36


def randomized_response(symbols: torch.Tensor, loss: RandomizedResponse, source: NoiseSource) -> torch.Tensor:
    """Each symbol itself with probability e^eps / (e^eps + C - 1), else one of the C - 1 others, uniformly.

    -1 stands for no symbol, and is answered uniformly.

    Formal guarantee (docs/theory.md, sections 2.6 and 8.5): pure `loss.epsilon`-DP for each entry of `symbols`,
    rounding included, for epsilon of at least 2^-34 and up to 2^14 classes.
    """
    if loss.classes > MOST_CLASSES:
        raise InvalidInput("classes", loss.classes, f"are more than responses can have, {MOST_CLASSES}")
    if not within(symbols + 1, loss.classes + 1):
        raise InvalidInput("symbols", int(symbols.max()), f"must lie in 0 .. {loss.classes - 1}")
    shape = tuple(symbols.shape)
    # No symbol: the first one with probability 1 / C, else one of the others.
    truth = torch.where(symbols < 0, 1 / loss.classes, loss.truth_probability * _LESS_TRUTH).to(symbols.device)
    told = symbols.clamp_min(0)
    keep = source.uniform(*shape).to(symbols.device) < truth
    shift = 1 + source.integers(loss.classes - 1, *shape).to(symbols.device)
    return torch.where(keep, told, (told + shift) % loss.classes)


def within(symbols: torch.Tensor, count: int) -> bool:
    """Whether all of them lie in 0 .. count - 1."""
    return bool(((symbols >= 0) & (symbols < count)).all())


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

    def fits(kept: torch.Tensor) -> bool:
        ordered = kept.ndim == 1 and kept.dtype == torch.int64 and bool((kept.diff() > 0).all())
        return ordered and within(kept, bits)

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
    pieces: list[np.ndarray] = []
    last = -1
    log_stay = math.log1p(-probability)
    longest = max(1, math.ceil(math.log(0.25) / log_stay))
    block = int(min(_BLOCK, 1.5 * count * probability + 10 * math.sqrt(count * probability) + 16))
    while last < count:
        skipped = np.floor(np.log(source.uniform(block).numpy()) / log_stay).astype(np.int64)
        chosen = skipped < longest
        places = last + np.cumsum(np.where(chosen, skipped + 1, longest))
        pieces.append(places[chosen & (places < count)])
        last = int(places[-1])
    return np.concatenate(pieces)


def _bit_of(adjacency: sp.csr_array, paired: bool) -> np.ndarray:
    """The number of each stored entry's bit; pairs are numbered along the rows below the diagonal."""
    rows = np.repeat(np.arange(adjacency.shape[0], dtype=np.int64), np.diff(adjacency.indptr))
    columns = adjacency.indices.astype(np.int64)
    if paired:
        below = columns < rows
        rows, columns = rows[below], columns[below]
        return rows * (rows - 1) // 2 + columns
    return rows * (adjacency.shape[0] - 1) + columns - (columns > rows)


def pairs_of(bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each pair below the diagonal, from the numbers that `_bit_of` gives them."""
    rows = ((1 + np.sqrt(1 + 8.0 * bits)) / 2).astype(np.int64)
    # The square root may be off by one either way for large numbers.
    rows -= rows * (rows - 1) // 2 > bits
    rows += rows * (rows + 1) // 2 <= bits
    return rows, bits - rows * (rows - 1) // 2


def _graph_of(bits: np.ndarray, nodes: int, paired: bool) -> sp.csr_array:
    if paired:
        rows, columns = pairs_of(bits)
        half = _csr(rows.astype(np.int32), columns.astype(np.int32), nodes)
        return sp.csr_array(half + half.T)
    rows, columns = np.divmod(bits, max(nodes - 1, 1))
    columns += columns >= rows
    return _csr(rows.astype(np.int32), columns.astype(np.int32), nodes)


def _csr(rows: np.ndarray, columns: np.ndarray, nodes: int) -> sp.csr_array:
    ones = np.ones(len(rows), dtype=np.float32)
    return sp.csr_array(sp.coo_array((ones, (rows, columns)), shape=(nodes, nodes)))
