import ctypes
from importlib.machinery import ModuleSpec

import pytest
import torch

from graphveil import noise
from graphveil.noise import LockFreeKeystream, PackagedKeystream
from graphveil.noise.normals import CHUNK

KEY = bytes(range(32))


@pytest.fixture(params=["packaged", "lock-free"])
def stream(request):
    if request.param == "packaged":
        return PackagedKeystream()
    library = noise.openssl()
    return LockFreeKeystream(library) if library is not None else pytest.skip("Python's OpenSSL is out of reach")


def test_the_standard_s_example(stream):
    """NIST SP 800-38A, F.5.5: the output blocks of AES-256 in counter mode."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    words = stream.words(8, key, counter).numpy().tobytes().hex()
    assert words == (
        "0bdf7df1591716335e9a8b15c860c5025a6e699d536119065433863c8f657b94"
        "1bc12c9c01610d5d0d8bd6a3378eca622956e1c8693536b1bee99c73a31576b6"
    )


@pytest.mark.parametrize("block", [0, 7, 2**32 - 3, 2**64 - 3])
def test_a_part_is_the_same_wherever_the_stream_was_before(stream, block):
    whole = PackagedKeystream().words(100, KEY, block).clone()
    for first, last in ((0, 100), (0, 10), (10, 60), (60, 61), (62, 100), (4, 8), (0, 0), (0, 2)):
        words = stream.words(last - first, KEY, block + first // 2)
        assert torch.equal(words, whole[first : first + len(words)])
        assert len(words) == last - first + (last - first) % 2  # whole blocks
    assert not torch.equal(stream.words(100, KEY[::-1], block), whole)


def test_a_whole_chunk(stream):
    assert torch.equal(stream.words(CHUNK, KEY, 5), PackagedKeystream().words(CHUNK, KEY, 5))


def test_more_than_a_chunk_is_refused(stream):
    with pytest.raises(AssertionError):
        stream.words(CHUNK + 1, KEY, 0)


def test_after_a_failure_the_place_is_sought_anew(stream, monkeypatch):
    expected = stream.words(4, KEY, 2).clone()
    stream.words(4, KEY, 0)
    with monkeypatch.context() as patch:
        patch.setattr(type(stream), "_go_on", lambda self, size: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stream.words(4, KEY, 2)
    stream._go_on(8)  # it had written some words
    assert torch.equal(stream.words(4, KEY, 2), expected)


def test_a_key_of_another_length_is_refused(stream):
    for key in (KEY[:24], KEY[:31], KEY + KEY):
        with pytest.raises(AssertionError):
            stream.words(2, key, 0)
    assert torch.equal(stream.words(2, KEY, 0), PackagedKeystream().words(2, KEY, 0))


def test_an_openssl_that_refuses_makes_no_words():
    class Refusing:
        def __getattr__(self, name):
            return lambda *arguments: 1 if name in self.works else 0

        works = ("EVP_aes_256_ctr", "EVP_CIPHER_CTX_new", "EVP_CIPHER_CTX_free")

    library = Refusing()
    with pytest.raises(OSError, match="did not take the key"):
        LockFreeKeystream(library).words(2, KEY, 0)
    library.works += ("EVP_EncryptInit_ex",)
    with pytest.raises(OSError, match="did not make the keystream"):
        LockFreeKeystream(library).words(2, KEY, 0)
    library.works += ("EVP_EncryptUpdate",)  # says that it worked, but wrote nothing
    with pytest.raises(OSError, match="did not make the keystream"):
        LockFreeKeystream(library).words(2, KEY, 0)
    library.works = ()
    with pytest.raises(OSError, match="has no AES"):
        LockFreeKeystream(library)


def test_one_that_disagrees_is_not_used(monkeypatch):
    monkeypatch.setattr(PackagedKeystream, "_go_on", lambda self, size: self._words.fill_(7))
    assert noise.openssl.__wrapped__() is None


@pytest.mark.parametrize("origin", [None, ctypes.__file__, "built-in"])
def test_where_it_is_out_of_reach_the_package_draws(monkeypatch, origin):
    monkeypatch.setattr(noise, "find_spec", lambda name: ModuleSpec(name, None, origin=origin))
    monkeypatch.setattr(noise, "openssl", noise.openssl.__wrapped__)
    assert isinstance(noise.fastest_keystream(), PackagedKeystream)
