"""What one thread does: from a place in the keystream to uniform numbers and noise, several chunks at a time.

Chunks that are given together follow each other in the keystream; all but the last are whole. What a chunk gets
depends only on the key and on its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from graphveil.noise.keystream import BLOCKS, LockFreeKeystream, fastest_keystream
from graphveil.noise.normals import CompiledNormals, OpenPair, Rounding, between_one_and_two, fastest_normals, settle


class Worker:
    """Draws for one thread. It has buffers of its own, so no two threads may share it."""

    def __init__(self) -> None:
        self._keystream, self._normals = fastest_keystream(), fastest_normals()

    @property
    def arithmetic(self) -> str:
        return self._normals.name

    def uniforms(self, chunks: Sequence[torch.Tensor], key: bytes, block: int) -> None:
        """Fill chunks with float64 in (0, 1), neither end included."""
        for place, chunk in enumerate(chunks):
            units = between_one_and_two(self._keystream.words(len(chunk), key, block + place * BLOCKS))
            torch.add(units[: len(chunk)], 2.0**-53 - 1, out=chunk)

    def add(self, chunks: Sequence[torch.Tensor], key: bytes, block: int, rounding: Rounding) -> None:
        """Replace values (float64) by rounded sums of value and ideal normal, in place."""
        for pair in self._add_in_double(chunks, key, block, rounding):
            place = key + f"{block + pair.chunk * BLOCKS} {pair.pair} ".encode()
            settle(pair, place, chunks[pair.chunk], rounding)

    def _add_in_double(
        self, chunks: Sequence[torch.Tensor], key: bytes, block: int, rounding: Rounding
    ) -> list[OpenPair]:
        """The same in double precision: some pairs are left open. In one call of C code where possible."""
        if isinstance(self._keystream, LockFreeKeystream) and isinstance(self._normals, CompiledNormals):
            return self._normals.add_run(self._keystream, key, block, chunks, rounding)
        left = []
        for number, chunk in enumerate(chunks):
            words = self._keystream.words(len(chunk), key, block + number * BLOCKS)
            left += [pair._replace(chunk=number) for pair in self._normals.add(words, chunk, rounding)]
        return left
