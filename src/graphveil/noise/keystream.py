"""The AES-256 counter-mode keystream as random words.

There are two implementations with the same output. One calls the OpenSSL that Python itself is linked to; it runs
without Python's global lock, so threads can draw at the same time. The other uses the package `cryptography`, which is
always installed but holds the lock.
"""

from __future__ import annotations

import ctypes
import weakref
from abc import ABC, abstractmethod
from functools import cache
from importlib.util import find_spec

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

# Words that are made at a time: enough to amortise a call, few enough to stay in the cache.
CHUNK = 2**15

_BYTES = 8  # of a word
_BLOCK = 16  # bytes that the cipher makes at a time
# Each chunk has a fixed part of the keystream, so the number of threads does not change what is drawn.
BLOCKS = CHUNK * _BYTES // _BLOCK
_ZEROS = bytes(_BYTES * CHUNK)


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
