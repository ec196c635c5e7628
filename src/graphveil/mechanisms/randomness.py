"""Where noise comes from: the AES-256 counter-mode keystream, keyed by the operating system or by a seed.

With no seed the key is 256 bits from the operating system and is never stored. With a seed the key is derived
from it: the run can be repeated, and so can its noise by anyone who guesses the seed, which is why such a source
calls itself insecure. Both use the same code, so what is tested seeded is what runs in production.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from graphveil import validate

# Large enough to amortise the calls, small enough to stay in the cache.
CHUNK = 2**16
_ZEROS = memoryview(bytes(8 * CHUNK))
# AES yields two words a block. Every chunk owns as much of the keystream, so that threads do not change what is drawn.
_BLOCKS = CHUNK // 2

# The exponent of [1, 2) and the 52 bits below it; the width of one cell of the grid there.
_ONE, _MANTISSA, _CELL = 0x3FF0000000000000, 0x000FFFFFFFFFFFFF, 2.0**-52
# Below this the grid is refined; about one number in a million.
_RARE = 2.0**-20

Change = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


class _Lane:
    """The buffers of one thread and its place in the keystream."""

    def __init__(self) -> None:
        self._bytes = bytearray(8 * CHUNK + 16)
        self._words = torch.frombuffer(self._bytes, dtype=torch.int64, count=CHUNK)
        self._floats = self._words.view(torch.float64)
        self._normals = torch.empty(CHUNK, dtype=torch.float64)
        self.spare = torch.empty(CHUNK, dtype=torch.float64)

    def between_one_and_two(self, count: int, key: bytes, block: int) -> torch.Tensor:
        """float64 in [1, 2): 52 random bits under a fixed exponent, in a buffer that the next call overwrites."""
        stream = Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()
        stream.update_into(_ZEROS[: 8 * count], self._bytes)
        self._words[:count].bitwise_and_(_MANTISSA).bitwise_or_(_ONE)
        return self._floats[:count]

    def normals(self, count: int, key: bytes, block: int, out: torch.Tensor | None = None) -> torch.Tensor:
        """Standard normals by the Box-Muller transform, in `out` or in a buffer that the next call overwrites."""
        half = (count + 1) // 2
        units = self.between_one_and_two(2 * half, key, block)
        square = units[:half].neg_().add_(2.0)  # multiples of 2^-52 in (0, 1]
        if half and float(square.min()) < _RARE:
            _refine(square, key, block)
        square.log_().mul_(-2)
        np.sqrt(square.numpy(), out=square.numpy())  # half as long as torch's
        angle = units[half:].mul_(2 * math.pi)
        pair = self._normals[: 2 * half] if out is None or len(out) != 2 * half else out
        torch.cos(angle, out=pair[:half])
        torch.sin(angle, out=pair[half:])
        pair.view(2, half).mul_(square)
        return pair[:count]


def _refine(square: torch.Tensor, key: bytes, block: int) -> None:
    """Fill the grid below small numbers, where its width would show: with 52 bits no normal exceeds 8.5.

    Rare, so each takes its 52 further bits from a keyed hash of its place in the keystream.
    """
    for place in (square < _RARE).nonzero().flatten().tolist():
        found = hashlib.sha256(key + f"{block} {place}".encode()).digest()
        square[place] -= _CELL * (int.from_bytes(found[:8], "big") >> 12) * 2.0**-52


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that each keep torch on themselves: OpenMP's own teams stall when another process wants a core."""
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    everyone = Barrier(threads)
    list(pool.map(lambda _: everyone.wait(), range(threads)))
    torch.set_num_threads(threads)  # the calls above also changed what threads to come would get
    return pool


class NoiseSource:
    """A stream of independent random numbers on the CPU.

    Formal guarantee: without a seed, the stream is indistinguishable from uniform bits for anyone who cannot break
    AES-256. With a seed there is no guarantee: for experiments only.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            key = os.urandom(32)
        else:
            seed = validate.count("seed", seed, least=0)
            key = hashlib.sha256(f"graphveil noise {seed}".encode()).digest()
        self.secure = seed is None
        self._key, self._block = key, 0
        self._lanes = [_Lane()]

    def __repr__(self) -> str:
        return f"NoiseSource({self.description})"

    @property
    def description(self) -> str:
        """How a certificate names this source."""
        if self.secure:
            return "AES-256 counter mode, keyed by the operating system"
        return "AES-256 counter mode, seeded: for experiments only"

    def uniform(self, *shape: int) -> torch.Tensor:
        """float64 in (0, 1), neither end included."""
        out = torch.empty(math.prod(shape), dtype=torch.float64)

        def draw(lane: _Lane, chunk: torch.Tensor, block: int) -> None:
            torch.add(lane.between_one_and_two(len(chunk), self._key, block), 2.0**-53 - 1, out=chunk)

        self._each(out.split(CHUNK), draw)
        return out.reshape(shape)

    def normal(self, *shape: int) -> torch.Tensor:
        """float64 standard normals."""
        out = torch.empty(math.prod(shape), dtype=torch.float64)

        def draw(lane: _Lane, chunk: torch.Tensor, block: int) -> None:
            drawn = lane.normals(len(chunk), self._key, block, chunk)
            if drawn.data_ptr() != chunk.data_ptr():
                chunk.copy_(drawn)

        self._each(out.split(CHUNK), draw)
        return out.reshape(shape)

    def over_normals(self, flat: torch.Tensor, change: Change) -> None:
        """Calls `change` on all of torch's threads: a chunk of `flat`, as many standard normals, a spare buffer."""

        def draw(lane: _Lane, chunk: torch.Tensor, block: int) -> None:
            change(chunk, lane.normals(len(chunk), self._key, block), lane.spare[: len(chunk)])

        self._each(flat.split(CHUNK), draw)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        """int64 uniform on 0 .. high - 1; the bias of 53-bit arithmetic is below high * 2^-53."""
        return self.uniform(*shape).mul_(high).long().clamp_(max=high - 1)

    def _each(self, chunks: Sequence[torch.Tensor], draw: Callable[[_Lane, torch.Tensor, int], None]) -> None:
        """Draws into every chunk; a chunk's keystream follows from its place, whichever thread takes it."""
        first, self._block = self._block, self._block + _BLOCKS * len(chunks)
        threads = torch.get_num_threads() if len(chunks) > 1 else 1
        self._lanes.extend(_Lane() for _ in range(threads - len(self._lanes)))

        def run(thread: int) -> None:
            for i in range(thread, len(chunks), threads):
                draw(self._lanes[thread], chunks[i], first + i * _BLOCKS)

        if threads > 1:
            list(_pool(threads).map(run, range(threads)))
        else:
            run(0)
