"""Normal noise on a lattice: each result is the correctly rounded sum of a value and an ideal normal number.

Normals are made from random words by the Box-Muller transform in double precision. Nearly always this precision is
enough to decide to which point of the lattice a sum is rounded. Where it is not, the pair of entries is left open, and
`settle` decides it with more random bits and more digits. So the result depends on the random words alone, not on
rounding errors.

There are two implementations with the same results, bit for bit: C (`normals.c`), built at installation if there is a
compiler, and torch, which is always available. docs/theory.md, section 8.2, has the error bound.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from graphveil.noise import LockFreeKeystream

# Words that are made at a time: enough to amortise a call, few enough to stay in the cache.
CHUNK = 2**15
# The largest error of a normal in a pair that is not left open (docs/theory.md, section 8.2).
NORMAL_ERROR = 2.0**-34
# The most lattice steps in a standard deviation; with more, too many pairs would be left open.
MOST_STEPS = 2.0**16

# The exponent bits of [1, 2), the 52 mantissa bits, and 2^-20 of the mantissa's range.
_ONE, _MANTISSA, _EDGE = 0x3FF0000000000000, 0x000FFFFFFFFFFFFF, 2**32
# Further random bits of a radius and of an angle whose pair was left open.
_MORE_BITS = 256
# The most open pairs of one call; about one pair in a million is open.
_ROOM = 4096


@dataclass(frozen=True)
class Rounding:
    """Noise of standard deviation `std`, rounded with its value to multiples of `step`, a power of two."""

    std: float
    step: float

    def __post_init__(self) -> None:
        assert 0 < self.per_step <= MOST_STEPS

    @property
    def per_step(self) -> float:
        """The standard deviation in steps."""
        return self.std / self.step

    @property
    def clear(self) -> float:
        """The largest distance of a computed sum from the nearest step, in steps, at which rounding is certain.

        It is 1/2 less twice the possible error: that of the normal, and that of sums of up to 2^16 * 16 steps in double
        precision.
        """
        return 0.5 - 2 * (self.per_step * NORMAL_ERROR + 2.0**-32)


class OpenPair(NamedTuple):
    """A pair of entries that is left open: its chunk, its place among the chunk's pairs, and its two words."""

    chunk: int
    pair: int
    radius: int
    angle: int


class Normals(Protocol):
    """Noise for one thread.

    `add` overwrites `words`: for n values, n random int64, or n + 1 if n is odd.
    """

    name: str

    def add(self, words: torch.Tensor, values: torch.Tensor, rounding: Rounding) -> list[OpenPair]:
        """Replace values (float64) by rounded sums of value and noise; return the pairs that are left open."""


def between_one_and_two(words: torch.Tensor) -> torch.Tensor:
    """Convert random words to float64 in [1, 2), in place: 52 random bits with a fixed exponent."""
    return words.bitwise_and_(_MANTISSA).bitwise_or_(_ONE).view(torch.float64)


def settle(pair: OpenPair, place: bytes, values: torch.Tensor, rounding: Rounding) -> None:
    """Add ideal noise to an open pair of a chunk's `values`, with 256 further random bits for each of its two words.

    The further bits are a hash of `place`, which is different for every pair and as secret as the key.

    Formal guarantee (docs/theory.md, section 8.2): with `pairs` drawn in all, the results are within a total variation
    of pairs * 2^-180 of rounded sums of values and ideal normals.
    """
    import mpmath  # imported here because only one pair in a million needs it

    more = [int.from_bytes(hashlib.sha256(place + part).digest(), "big") for part in (b"radius", b"angle")]
    half = (len(values) + 1) // 2
    with mpmath.workprec(2 * _MORE_BITS):
        # u is uniform in the cell of width 2^-52 below 1 - word / 2^52, the angle in the cell above word / 2^52.
        u = mpmath.ldexp(((_MANTISSA + 1 - (pair.radius & _MANTISSA)) << _MORE_BITS) - more[0], -52 - _MORE_BITS)
        turn = mpmath.ldexp(((pair.angle & _MANTISSA) << _MORE_BITS) + more[1], -52 - _MORE_BITS)
        radius = rounding.per_step * mpmath.sqrt(-2 * mpmath.log(u))
        for at, share in ((pair.pair, mpmath.cospi(2 * turn)), (half + pair.pair, mpmath.sinpi(2 * turn))):
            if at < len(values):
                steps = int(mpmath.nint(mpmath.mpf(float(values[at])) / rounding.step + radius * share))
                values[at] = float(steps) * rounding.step


class TorchNormals:
    """The implementation in torch: about two dozen operations, in buffers that are reused."""

    name = "torch"

    def __init__(self) -> None:
        self._normals = torch.empty(CHUNK, dtype=torch.float64)
        self._steps = torch.empty(CHUNK, dtype=torch.float64)

    def add(self, words: torch.Tensor, values: torch.Tensor, rounding: Rounding) -> list[OpenPair]:
        half, count = len(words) // 2, len(values)
        kept = words.clone()
        sums = self._pairs(words, self._normals[: len(words)]).mul_(rounding.per_step)[:count]
        scaled = values / rounding.step
        steps = torch.round(scaled, out=self._steps[:count])
        sums += scaled.sub_(steps)
        nearest = sums.round()
        open_places = (sums.sub_(nearest).abs_() > rounding.clear).nonzero().flatten() % max(half, 1)
        at_edge = ((kept[:half] + _EDGE) & _MANTISSA) < 2 * _EDGE
        chosen = sorted({*open_places.tolist(), *at_edge.nonzero().flatten().tolist()})
        both = [place for pair in chosen for place in (pair, half + pair) if place < count]
        before = values[both]
        # The sign of a zero would tell that of the value: adding 0 makes one zero of both.
        torch.add(steps, nearest, out=values).mul_(rounding.step).add_(0.0)
        values[both] = before
        return [OpenPair(0, pair, int(kept[pair]), int(kept[half + pair])) for pair in chosen]

    @staticmethod
    def _pairs(words: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        half = len(words) // 2
        units = between_one_and_two(words)
        u = units[:half].neg_().add_(2.0)
        u.log_().mul_(-2)
        np.sqrt(u.numpy(), out=u.numpy())  # takes half as long as torch's
        angle = units[half:].mul_(2 * math.pi)
        torch.cos(angle, out=pairs[:half])
        torch.sin(angle, out=pairs[half:])
        pairs.view(2, half).mul_(u)
        return pairs


class CompiledNormals:
    """The implementation in C: one pass, without Python's lock and without further memory."""

    name = "compiled"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._open = np.empty((_ROOM, 4), dtype=np.uint64)

    def add(self, words: torch.Tensor, values: torch.Tensor, rounding: Rounding) -> list[OpenPair]:
        _check(values)
        where = words.data_ptr(), values.data_ptr(), len(values)
        left = self._library.graphveil_add_noise(*where, *self._rounding(rounding), self._open.ctypes.data, _ROOM, 0)
        return self._pairs(left)

    def add_run(
        self, stream: LockFreeKeystream, key: bytes, block: int, values: Sequence[torch.Tensor], rounding: Rounding
    ) -> list[OpenPair]:
        """`add` for consecutive chunks of the keystream in one call; all but the last must be whole chunks."""
        count = len(values)
        for chunk in values:
            _check(chunk)
        left = self._library.graphveil_add_noise_to_run(
            *stream.for_compiled_code(key, block),
            (ctypes.c_void_p * count)(*[chunk.data_ptr() for chunk in values]),
            (ctypes.c_size_t * count)(*[len(chunk) for chunk in values]),
            count,
            *self._rounding(rounding),
            self._open.ctypes.data,
            _ROOM,
        )
        return self._pairs(left)

    def _pairs(self, left: int) -> list[OpenPair]:
        if left == -2:
            raise OSError("OpenSSL did not make the keystream")
        if left < 0:
            raise OSError("the keystream is not random: too many of its words are at the edges of their range")
        return [OpenPair(*map(int, row)) for row in self._open[:left]]

    @staticmethod
    def _rounding(rounding: Rounding) -> tuple[float, float, float]:
        return rounding.per_step, rounding.step, rounding.clear**2


def _check(values: torch.Tensor) -> None:
    """Refuse values that C code would read or write wrongly."""
    assert values.dtype == torch.float64
    assert values.is_contiguous()
    assert len(values) <= CHUNK


def load(path: str) -> ctypes.CDLL:
    """`normals.c` as a shared library, with the types of its functions."""
    library = ctypes.CDLL(path)
    pointer, size, real = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double
    rounding, open_pairs = (real, real, real), (pointer, size)
    library.graphveil_add_noise.argtypes = (pointer, pointer, size, *rounding, *open_pairs, ctypes.c_uint64)
    run = (pointer, pointer, ctypes.c_char_p, pointer, pointer, pointer, size)
    library.graphveil_add_noise_to_run.argtypes = (*run, *rounding, *open_pairs)
    library.graphveil_add_noise.restype = library.graphveil_add_noise_to_run.restype = ctypes.c_ssize_t
    return library


@cache
def compiled_library() -> ctypes.CDLL | None:
    """The library that the installation built, or None if there is none or it does not agree with torch on a sample.

    The check protects against a library that an older version of the source left behind.
    """
    spec = find_spec("graphveil.noise._normals")
    if spec is None or spec.origin is None:
        return None
    try:
        library = load(spec.origin)
    except (OSError, AttributeError) as error:
        warnings.warn(f"the compiled noise arithmetic cannot be loaded, torch's is used: {error}", stacklevel=2)
        return None
    words = torch.arange(1, 2**7 + 1).mul_(0x1E3779B97F4A7C15)  # spread over all 64 bits
    rounding = Rounding(std=1.0, step=2.0**-10)
    sums, expected = torch.linspace(-3, 3, 2 * len(words), dtype=torch.float64).view(2, -1)
    # The angle is a little more than a quarter turn, so that the sum is negative and rounded to zero.
    words[-1] = 2**50 + 2**34
    sums[len(words) // 2 - 1] = -rounding.step / 4
    expected.copy_(sums)
    left = [
        CompiledNormals(library).add(words.clone(), sums, rounding),
        TorchNormals().add(words.clone(), expected, rounding),
    ]
    if left[0] != left[1] or not torch.equal(sums.view(torch.int64), expected.view(torch.int64)):
        warnings.warn("the compiled noise arithmetic disagrees with torch's, which is used", stacklevel=2)
        return None
    return library


def fastest_normals() -> Normals:
    """The fastest implementation that is available, for one thread."""
    library = compiled_library()
    return TorchNormals() if library is None else CompiledNormals(library)
