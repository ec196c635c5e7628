"""Standard normals from random words by the Box-Muller transform: drawn alone, or added to values on a lattice.

The same arithmetic twice: in C (`normals.c`), which is built at installation if there is a compiler, and in torch,
which is always there. From the same words the two draw the same normals up to rounding (about 1e-15); a sum may then
fall on the neighbouring lattice point.
"""

from __future__ import annotations

import ctypes
import math
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Protocol

import numpy as np
import torch

from graphveil.mechanisms.keystream import CHUNK, LockFreeKeystream

# Below this the grid of radii is refined; about one in a million.
RARE = 2.0**-20

# The exponent of [1, 2) and the 52 bits below it.
_ONE, _MANTISSA = 0x3FF0000000000000, 0x000FFFFFFFFFFFFF

# Given u of the radii, multiples of 2^-52 in (0, 1], fills the cells below the rare ones in place.
Refine = Callable[[torch.Tensor], None]


class Normals(Protocol):
    """One thread's way to normals. `words` are used up: for n normals, n random int64, or n + 1 if n is odd."""

    name: str

    def draw(self, words: torch.Tensor, refine: Refine, out: torch.Tensor) -> None:
        """Standard normals into `out` (float64)."""

    def add(self, words: torch.Tensor, refine: Refine, values: torch.Tensor, std: float, step: float) -> None:
        """Rounds `values` and as much noise to multiples of `step`, a power of two, and leaves their sum in `values`.

        Exact for values up to 2^52 steps; float32 values are rounded once more at the end.
        """


def between_one_and_two(words: torch.Tensor) -> torch.Tensor:
    """Random words to float64 in [1, 2), in place: 52 bits under a fixed exponent."""
    return words.bitwise_and_(_MANTISSA).bitwise_or_(_ONE).view(torch.float64)


class TorchNormals:
    """About a dozen passes, in buffers that stay."""

    name = "torch"

    def __init__(self) -> None:
        self._normals = torch.empty(CHUNK, dtype=torch.float64)
        self._spare = torch.empty(CHUNK, dtype=torch.float64)

    def draw(self, words: torch.Tensor, refine: Refine, out: torch.Tensor) -> None:
        pairs = self._pairs(words, refine, out if len(out) == len(words) else self._normals[: len(words)])
        if len(out) != len(words):
            out.copy_(pairs[: len(out)])

    def add(self, words: torch.Tensor, refine: Refine, values: torch.Tensor, std: float, step: float) -> None:
        rounded = self._spare[: len(values)].copy_(values).mul_(1 / step).round_()
        drawn = self._pairs(words, refine, self._normals[: len(words)])[: len(values)]
        values.copy_(drawn.mul_(std / step).round_().add_(rounded).mul_(step))

    @staticmethod
    def _pairs(words: torch.Tensor, refine: Refine, pairs: torch.Tensor) -> torch.Tensor:
        half = len(words) // 2
        units = between_one_and_two(words)
        u = units[:half].neg_().add_(2.0)
        if half and float(u.min()) < RARE:
            refine(u)
        u.log_().mul_(-2)
        np.sqrt(u.numpy(), out=u.numpy())  # half as long as torch's
        angle = units[half:].mul_(2 * math.pi)
        torch.cos(angle, out=pairs[:half])
        torch.sin(angle, out=pairs[half:])
        pairs.view(2, half).mul_(u)
        return pairs


class CompiledNormals:
    """Two passes, without Python's lock, in no memory but the words' own; or a whole run of chunks in one call."""

    name = "compiled"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._add = {torch.float32: library.graphveil_add_to_float, torch.float64: library.graphveil_add_to_double}
        self._add_run = {
            torch.float32: library.graphveil_add_run_to_float,
            torch.float64: library.graphveil_add_run_to_double,
        }

    def draw(self, words: torch.Tensor, refine: Refine, out: torch.Tensor) -> None:
        u, angles = self._radii(words, refine)
        self._library.graphveil_normals(u, angles, out.data_ptr(), len(out))

    def add(self, words: torch.Tensor, refine: Refine, values: torch.Tensor, std: float, step: float) -> None:
        if not self.takes(values):
            plain = values.to(torch.float64, memory_format=torch.contiguous_format, copy=True)
            self.add(words, refine, plain, std, step)
            values.copy_(plain)
            return
        u, angles = self._radii(words, refine)
        self._add[values.dtype](u, angles, values.data_ptr(), len(values), std, step)

    def takes(self, values: torch.Tensor) -> bool:
        """Whether C can change these values where they are."""
        return values.dtype in self._add and values.is_contiguous()

    def add_run(
        self, stream: LockFreeKeystream, key: bytes, block: int, values: Sequence[torch.Tensor], std: float, step: float
    ) -> int:
        """`add` for several chunks in one call, from a block of the keystream on. Returns how many chunks are done.

        After fewer than all, the next one has a rare radius, and nothing is added to it. All `values` are of one type
        that `takes` approves, and all but the last are whole chunks.
        """
        count = len(values)
        assert max(map(len, values)) <= CHUNK  # the words would not fit into their buffer
        done: int = self._add_run[values[0].dtype](
            *stream.for_compiled_code(key, block),
            (ctypes.c_void_p * count)(*[chunk.data_ptr() for chunk in values]),
            (ctypes.c_size_t * count)(*[len(chunk) for chunk in values]),
            count,
            std,
            step,
        )
        if done < 0:
            raise OSError("OpenSSL did not make the keystream")
        return done

    def _radii(self, words: torch.Tensor, refine: Refine) -> tuple[int, int]:
        """Addresses of the radii's u and of the words of the angles."""
        half, start = len(words) // 2, words.data_ptr()
        if self._library.graphveil_radii(start, half):
            refine(words[:half].view(torch.float64))
        return start, start + 8 * half


def load(path: str) -> ctypes.CDLL:
    """`normals.c` as a shared library, with the types of its functions."""
    library = ctypes.CDLL(path)
    pointer, size, real = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double
    library.graphveil_radii.argtypes = (pointer, size)
    library.graphveil_normals.argtypes = (pointer, pointer, pointer, size)
    library.graphveil_normals.restype = None
    for add in (library.graphveil_add_to_float, library.graphveil_add_to_double):
        add.argtypes = (pointer, pointer, pointer, size, real, real)
        add.restype = None
    for add in (library.graphveil_add_run_to_float, library.graphveil_add_run_to_double):
        add.argtypes = (pointer, pointer, ctypes.c_char_p, pointer, pointer, pointer, size, real, real)
        add.restype = ctypes.c_ssize_t
    return library


@cache
def compiled_library() -> ctypes.CDLL | None:
    """What the installation built, if it did and if that draws what torch draws: a stale file must not make noise."""
    spec = find_spec("graphveil.mechanisms._normals")
    if spec is None or spec.origin is None:
        return None
    try:
        library = load(spec.origin)
    except (OSError, AttributeError) as error:
        warnings.warn(f"the compiled noise arithmetic cannot be loaded, torch's is used: {error}", stacklevel=2)
        return None
    words = torch.arange(1, 2**7 + 1).mul_(0x1E3779B97F4A7C15)  # spread over all 64 bits
    found, expected = torch.empty(2, len(words), dtype=torch.float64)
    CompiledNormals(library).draw(words.clone(), lambda u: None, found)
    TorchNormals().draw(words, lambda u: None, expected)
    if not torch.allclose(found, expected, rtol=0, atol=1e-12):
        warnings.warn("the compiled noise arithmetic disagrees with torch's, which is used", stacklevel=2)
        return None
    return library


def fastest_normals() -> Normals:
    """For one thread."""
    library = compiled_library()
    return TorchNormals() if library is None else CompiledNormals(library)
