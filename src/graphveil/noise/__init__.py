"""Random numbers: the AES-256 counter-mode keystream, keyed by the operating system or by a seed.

The keystream has two implementations with the same output. One calls the OpenSSL that Python itself is linked to; it
runs without Python's global lock, so threads can draw at the same time. The other uses the package `cryptography`,
which is always installed but holds the lock.

With no seed the key is 256 bits from the operating system and is never stored. With a seed the key is derived from it:
the run can be repeated, and anyone who guesses the seed can repeat its noise, so such a source calls itself insecure.
Both use the same code, so tests with a seed test what runs without one.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec

import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.noise.normals import (
    CHUNK,
    CompiledNormals,
    OpenPair,
    Rounding,
    between_one_and_two,
    fastest_normals,
    settle,
)

__all__ = ["NoiseSource"]


# The least number of chunks for a further thread: one takes 0.15 ms, and starting a thread may take a few times that.
_WORTH_A_THREAD = 6
# Consecutive chunks that a thread takes at a time: their keystream needs one start.
_IN_A_ROW = 4

_BYTES = 8  # of a word
_BLOCK = 16  # bytes that the cipher makes at a time
# Each chunk has a fixed part of the keystream, so the number of threads does not change what is drawn.
BLOCKS = CHUNK * _BYTES // _BLOCK
_ZEROS = bytes(_BYTES * CHUNK)


class Worker:
    """Draws for one thread: from a place in the keystream to uniform numbers and noise, several chunks at a time.

    Chunks that are given together follow each other in the keystream; all but the last are whole. What a chunk gets
    depends only on the key and on its place. A worker has buffers of its own, so no two threads may share it.
    """

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


# Fills consecutive chunks of the result, given a worker, the chunks and the keystream's block where they begin.
Draw = Callable[[Worker, Sequence[torch.Tensor], int], None]


class NoiseSource:
    """A stream of independent random numbers on the CPU.

    Args:
        seed: Makes the stream repeatable, for experiments. None: the key comes from the operating system.

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
        self._key, self._block, self._process = key, 0, os.getpid()
        self._threads = torch.get_num_threads()
        self._workers = [Worker()]

    def __repr__(self) -> str:
        return f"NoiseSource({self.description})"

    def __getstate__(self) -> dict[str, object]:
        """The state for copies and files. A secure key is never stored: a copy gets a key of its own."""
        return {} if self.secure else {"secure": False, "_key": self._key, "_block": self._block}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(vars(NoiseSource()))
        vars(self).update(state)

    @property
    def description(self) -> str:
        """How a certificate names this source."""
        if self.secure:
            return "AES-256 counter mode, keyed by the operating system"
        return "AES-256 counter mode, seeded: for experiments only"

    @property
    def position(self) -> int:
        """How many blocks of the keystream have been used."""
        return self._block

    def seek(self, position: int | None) -> None:
        """Continue from the position of another source of the same seed. A secure source cannot do that."""
        if self.secure:
            raise InvalidInput("seed", None, "without one there is no earlier keystream to go on with")
        self._block = validate.count("position", position, least=self._block)

    def seal(self, data: bytes) -> bytes:
        """Encrypt `data` so that only a source of the same seed can `unseal` it, for data from which the seed could be
        derived.

        Without a seed there is nothing to derive, and `data` is returned as it is.
        """
        if self.secure:
            return data
        nonce = os.urandom(12)
        return nonce + AESGCM(self._sealing_key).encrypt(nonce, data, None)

    def unseal(self, sealed: bytes) -> bytes:
        """What was given to `seal`; another seed, or damaged data, is an error."""
        if self.secure:
            return sealed
        try:
            return AESGCM(self._sealing_key).decrypt(sealed[:12], sealed[12:], None)
        except (InvalidTag, ValueError):  # the latter where it is cut off
            raise InvalidInput("seed", "given", "is not the seed that this was made with") from None

    @property
    def _sealing_key(self) -> bytes:
        return hashlib.sha256(b"graphveil seal" + self._key).digest()

    @property
    def arithmetic(self) -> str:
        """Which implementation makes normals: "compiled", or "torch" where `normals.c` was not built."""
        return self._workers[0].arithmetic

    def uniform(self, *shape: int) -> torch.Tensor:
        """float64 in (0, 1), neither end included."""
        out = torch.empty(math.prod(shape), dtype=torch.float64)
        self._each(out.split(CHUNK), self._draw_uniform)
        return out.reshape(shape)

    def _draw_uniform(self, worker: Worker, chunks: Sequence[torch.Tensor], block: int) -> None:
        worker.uniforms(chunks, self._key, block)

    def normal(self, *shape: int) -> torch.Tensor:
        """float64 standard normals, rounded to multiples of 2^-16."""
        out = torch.zeros(math.prod(shape), dtype=torch.float64)
        self.add_normals(out, Rounding(std=1.0, step=2.0**-16))
        return out.reshape(shape)

    def add_normals(self, flat: torch.Tensor, rounding: Rounding) -> None:
        """Replace float64 values by rounded sums of value and ideal normal, in place.

        Args:
            flat: The values, in one dimension.
            rounding: The standard deviation of the noise, and the lattice of the sums.

        Formal guarantee (docs/theory.md, section 8.2): each result is the correctly rounded sum of the value and an
        independent ideal normal number, up to a total variation of 2^-180 for each pair of entries, if the keystream
        is uniform.
        """
        self._each(flat.split(CHUNK), self._adding(rounding))

    def _adding(self, rounding: Rounding) -> Draw:
        return lambda worker, chunks, block: worker.add(chunks, self._key, block, rounding)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        """int64 uniform on 0 .. high - 1; the bias of 53-bit arithmetic is below high * 2^-53."""
        return self.uniform(*shape).mul_(high).long().clamp_(max=high - 1)

    def _each(self, chunks: Sequence[torch.Tensor], draw: Draw, skipped: int = 0, of: int | None = None) -> None:
        """Call `draw` for all chunks, on several threads. The keystream of a chunk follows from its place, not from the
        thread.

        The chunks are those after the first `skipped` of `of` chunks (None: there are no others). The keystream of the
        others is skipped.
        """
        if self.secure and self._process != os.getpid():  # after a fork both processes would draw the same noise
            self._key, self._block, self._process = os.urandom(32), 0, os.getpid()
        first = self._block + BLOCKS * skipped
        self._block += BLOCKS * (len(chunks) if of is None else of)
        threads = max(1, min(self._threads, len(chunks) // _WORTH_A_THREAD))
        self._workers.extend(Worker() for _ in range(threads - len(self._workers)))
        places = range(len(chunks))
        left = deque(places[i : i + _IN_A_ROW] for i in places[::_IN_A_ROW])  # safe to share between threads

        def run(worker: Worker) -> None:
            while left:
                try:
                    row = left.popleft()
                except IndexError:  # another thread was faster
                    return
                draw(worker, chunks[row.start : row.stop], first + row.start * BLOCKS)

        # The calling thread starts at once; other threads take chunks that are left when they start.
        futures = [_pool(threads - 1).submit(run, worker) for worker in self._workers[1:threads]]
        try:
            run(self._workers[0])
        finally:
            for future in futures:
                if not future.cancel():
                    future.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "graphveil noise")


class Keystream(ABC):
    """Random words for one thread."""

    def __init__(self) -> None:
        self._buffer = bytearray(_BYTES * CHUNK + _BLOCK)  # `cryptography` wants room for a block more
        self._words = torch.frombuffer(self._buffer, dtype=torch.int64, count=CHUNK)
        self._place: tuple[bytes, int] | None = None

    def words(self, count: int, key: bytes, block: int) -> torch.Tensor:
        """The keystream from `block` on, in whole blocks of two words; the next call overwrites the buffer."""
        assert count <= CHUNK  # OpenSSL would write beyond the buffer
        count += count % 2
        if self._place != (key, block):  # if equal, the last call ended where this one begins
            self._seek(key, block)
        self._place = None  # stays unknown if the next line fails
        self._go_on(_BYTES * count)
        self._place = (key, block + count * _BYTES // _BLOCK)
        return self._words[:count]

    def _seek(self, key: bytes, block: int) -> None:
        assert len(key) == 32  # OpenSSL would read beyond a shorter one
        self._place = None
        self._begin(key, block.to_bytes(_BLOCK, "big"))

    @abstractmethod
    def _begin(self, key: bytes, counter: bytes) -> None: ...

    @abstractmethod
    def _go_on(self, size: int) -> None:
        """Write the next `size` bytes of the keystream into the buffer."""


class PackagedKeystream(Keystream):
    """The keystream by the package `cryptography`."""

    _stream: CipherContext

    def _begin(self, key: bytes, counter: bytes) -> None:
        self._stream = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()

    def _go_on(self, size: int) -> None:
        self._stream.update_into(memoryview(_ZEROS)[:size], self._buffer)


class LockFreeKeystream(Keystream):
    """The keystream by OpenSSL's functions (its manual's page EVP_EncryptInit), called without Python's lock."""

    def __init__(self, openssl: ctypes.CDLL) -> None:
        super().__init__()
        self._openssl, self._cipher = openssl, openssl.EVP_aes_256_ctr()
        self._context = openssl.EVP_CIPHER_CTX_new()
        if not self._cipher or not self._context:
            raise OSError("OpenSSL has no AES-256 in counter mode")
        weakref.finalize(self, openssl.EVP_CIPHER_CTX_free, self._context)
        self._out, self._written = self._words.data_ptr(), ctypes.c_int()

    def _begin(self, key: bytes, counter: bytes) -> None:
        if self._openssl.EVP_EncryptInit_ex(self._context, self._cipher, None, key, counter) != 1:
            raise OSError("OpenSSL did not take the key")

    def _go_on(self, size: int) -> None:
        done = self._openssl.EVP_EncryptUpdate(self._context, self._out, self._written, _ZEROS, size)
        if done != 1 or self._written.value != size:
            raise OSError("OpenSSL did not make the keystream")

    def for_compiled_code(self, key: bytes, block: int) -> tuple[object, ...]:
        """The arguments that `normals.c` needs to make the keystream from `block` on.

        A pointer to the cipher function, its state, zeros to encrypt, and the buffer for words.
        """
        self._seek(key, block)
        return ctypes.cast(self._openssl.EVP_EncryptUpdate, ctypes.c_void_p), self._context, _ZEROS, self._out


@cache
def openssl() -> ctypes.CDLL | None:
    """The OpenSSL of Python's hashlib, if it can be called and its keystream equals that of `cryptography`."""
    spec = find_spec("_hashlib")
    if spec is None or spec.origin is None:
        return None
    try:
        library = ctypes.CDLL(spec.origin)
        pointer, number = ctypes.c_void_p, ctypes.c_int
        library.EVP_aes_256_ctr.restype = library.EVP_CIPHER_CTX_new.restype = pointer
        library.EVP_CIPHER_CTX_free.argtypes, library.EVP_CIPHER_CTX_free.restype = (pointer,), None
        library.EVP_EncryptInit_ex.argtypes = (pointer, pointer, pointer, ctypes.c_char_p, ctypes.c_char_p)
        library.EVP_EncryptUpdate.argtypes = (pointer, pointer, ctypes.POINTER(number), ctypes.c_char_p, number)
        keystream = LockFreeKeystream(library)
        place = (64, bytes(range(32)), 2**32 - 7)  # the counter overflows its lowest 32 bits here
        return library if torch.equal(keystream.words(*place), PackagedKeystream().words(*place)) else None
    except (OSError, AttributeError):
        return None


def fastest_keystream() -> Keystream:
    """The fastest implementation that is available, for one thread."""
    library = openssl()
    return PackagedKeystream() if library is None else LockFreeKeystream(library)
