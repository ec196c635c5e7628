"""Where noise comes from: the AES-256 counter-mode keystream, keyed by the operating system or by a seed.

With no seed the key is 256 bits from the operating system and is never stored. With a seed the key is derived
from it: the run can be repeated, and so can its noise by anyone who guesses the seed, which is why such a source
calls itself insecure. Both use the same code, so what is tested seeded is what runs in production.
"""

from __future__ import annotations

import hashlib
import math
import os

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from graphveil import validate

# Large enough to amortise the calls, small enough to stay in the cache.
CHUNK = 2**16
_MOST_WORDS = 3 * CHUNK // 2
_ZEROS = bytes(8 * _MOST_WORDS)


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
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._bytes = bytearray(8 * _MOST_WORDS + 16)
        self._words = torch.frombuffer(self._bytes, dtype=torch.int64, count=_MOST_WORDS)
        self._units = torch.empty(_MOST_WORDS, dtype=torch.float64)

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
        for chunk in out.split(CHUNK):
            torch.add(0.5, self._signed_unit(len(chunk)), alpha=0.5, out=chunk).clamp_(max=1 - 2.0**-53)
        return out.reshape(shape)

    def normal(self, *shape: int) -> torch.Tensor:
        """float64 standard normals by the Box-Muller transform.

        The radius takes 106 random bits: with 53 it would end at 8.6 and a shift in the far tail would show.
        """
        out = torch.empty(math.prod(shape), dtype=torch.float64)
        for chunk in out.split(CHUNK):
            half = (len(chunk) + 1) // 2
            rest = len(chunk) - half
            units = self._signed_unit(3 * half)
            fine, angle = units[half : 2 * half], units[2 * half :].mul_(math.pi)
            radius = units[:half].abs_().add_(fine, alpha=2.0**-53).log_().mul_(-2).sqrt_()
            torch.cos(angle, out=chunk[:half]).mul_(radius)
            torch.sin(angle[:rest], out=chunk[half:]).mul_(radius[:rest])
        return out.reshape(shape)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        """int64 uniform on 0 .. high - 1; the bias of 53-bit arithmetic is below high * 2^-53."""
        return self.uniform(*shape).mul_(high).long().clamp_(max=high - 1)

    def _signed_unit(self, count: int) -> torch.Tensor:
        """float64 in (-1, 1), odd multiples of 2^-53: a buffer that the next call overwrites."""
        self._stream.update_into(memoryview(_ZEROS)[: 8 * count], self._bytes)
        # An arithmetic shift leaves a signed 53-bit integer; a half moves it off zero.
        words = self._words[:count].bitwise_right_shift_(11)
        return self._units[:count].copy_(words).add_(0.5).mul_(2.0**-52)
