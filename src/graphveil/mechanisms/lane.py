"""One thread's way from a place in the keystream to uniforms, normals and noise, a run of chunks at a time.

The chunks of a run follow each other in the keystream; all but the last are whole. What a chunk gets depends on the
key and its place alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

import torch

from graphveil.mechanisms.keystream import BLOCKS, LockFreeKeystream, fastest_keystream
from graphveil.mechanisms.normals import RARE, CompiledNormals, between_one_and_two, fastest_normals


class Lane:
    """With buffers of its own, so that no two threads may share it."""

    def __init__(self) -> None:
        self._keystream, self._normals = fastest_keystream(), fastest_normals()

    @property
    def arithmetic(self) -> str:
        return self._normals.name

    def uniforms(self, chunks: Sequence[torch.Tensor], key: bytes, block: int) -> None:
        """float64 in (0, 1), neither end included."""
        for place, chunk in enumerate(chunks):
            units = between_one_and_two(self._keystream.words(len(chunk), key, block + place * BLOCKS))
            torch.add(units[: len(chunk)], 2.0**-53 - 1, out=chunk)

    def normals(self, chunks: Sequence[torch.Tensor], key: bytes, block: int) -> None:
        """float64 standard normals."""
        for place, chunk in enumerate(chunks):
            here = block + place * BLOCKS
            self._normals.draw(self._keystream.words(len(chunk), key, here), partial(refine, key, here), chunk)

    def add(self, chunks: Sequence[torch.Tensor], key: bytes, block: int, std: float, step: float) -> None:
        """Values plus normals of standard deviation `std`, each rounded to multiples of `step`, in place."""
        done = 0
        while done < len(chunks):
            done += self._add_at_once(chunks[done:], key, block + done * BLOCKS, std, step)
            if done < len(chunks):
                chunk, here = chunks[done], block + done * BLOCKS
                words = self._keystream.words(len(chunk), key, here)
                self._normals.add(words, partial(refine, key, here), chunk, std, step)
                done += 1

    def _add_at_once(self, chunks: Sequence[torch.Tensor], key: bytes, block: int, std: float, step: float) -> int:
        """One call outside Python for the whole run, or for what comes before a rare radius; returns how many."""
        if not isinstance(self._keystream, LockFreeKeystream) or not isinstance(self._normals, CompiledNormals):
            return 0
        if not all(map(self._normals.takes, chunks)):
            return 0
        return self._normals.add_run(self._keystream, key, block, chunks, std, step)


def refine(key: bytes, block: int, square: torch.Tensor) -> None:
    """Fill the grid below small numbers, where its width would show: with 52 bits no normal exceeds 8.5.

    Rare, so each takes its 52 further bits from a keyed hash of its place in the keystream.
    """
    for place in (square < RARE).nonzero().flatten().tolist():
        found = hashlib.sha256(key + f"{block} {place}".encode()).digest()
        square[place] -= 2.0**-52 * (int.from_bytes(found[:8], "big") >> 12) * 2.0**-52
