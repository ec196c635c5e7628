import ctypes

import pytest
import torch

from graphveil import noise
from graphveil.noise import BLOCKS, LockFreeKeystream, Worker
from graphveil.noise.normals import CHUNK, CompiledNormals, Rounding

KEY = bytes(range(32))
ROUNDING = Rounding(std=1.7, step=2.0**-10)


@pytest.fixture
def worker():
    made = Worker()
    if not isinstance(made._keystream, LockFreeKeystream) or not isinstance(made._normals, CompiledNormals):
        pytest.skip("normals.c is not built, or Python's OpenSSL is out of reach")
    return made


def one_by_one(worker, chunks, block):
    """A chunk at a time, and from Python."""
    for number, chunk in enumerate(chunks):
        here = block + number * BLOCKS
        words = worker._keystream.words(len(chunk), KEY, here)
        for pair in worker._normals.add(words, chunk, ROUNDING):
            noise.settle(pair, KEY + f"{here} {pair.pair} ".encode(), chunk, ROUNDING)


@pytest.mark.parametrize("count", [0, 1, 2, 513, CHUNK, CHUNK + 1, 3 * CHUNK - 1])
def test_a_run_at_once_is_its_chunks_one_by_one(worker, count):
    values = torch.linspace(-3, 3, count, dtype=torch.float64)
    noisy, expected = values.clone(), values.clone()
    for _ in range(2):  # wherever the keystream was left
        worker.add(noisy.split(CHUNK), KEY, 11, ROUNDING)
        one_by_one(worker, expected.split(CHUNK), 11)
    assert torch.equal(noisy, expected)
    assert count < 10 or not torch.equal(noisy, values)


def test_open_pairs_are_settled_on_the_way(worker, monkeypatch):
    """Some of the 8 million pairs, each with the hash of its own place."""
    places = []
    settle = noise.settle

    def recorded(pair, place, *rest):
        places.append(place)
        settle(pair, place, *rest)

    monkeypatch.setattr(noise, "settle", recorded)
    noisy = torch.zeros(16_000_000, dtype=torch.float64)
    expected = noisy.clone()
    worker.add(noisy.split(CHUNK), KEY, 0, ROUNDING)
    assert 5 < len(places) == len(set(places)) < 60
    seen = sorted(places)
    places.clear()
    one_by_one(worker, expected.split(CHUNK), 0)
    assert sorted(places) == seen
    assert torch.equal(noisy, expected)


@pytest.mark.parametrize("chunk", [torch.zeros(40).double()[::2], torch.zeros(20)])
def test_values_that_c_cannot_change_are_refused(worker, chunk):
    with pytest.raises(AssertionError):
        worker.add([chunk], KEY, 0, ROUNDING)


def test_a_chunk_that_is_too_long_is_refused(worker):
    with pytest.raises(AssertionError):
        worker.add([torch.zeros(CHUNK + 1).double()], KEY, 0, ROUNDING)


@pytest.mark.parametrize(("answer", "written"), [(0, 8 * CHUNK), (1, 8 * CHUNK - 16)])
def test_a_cipher_that_fails_adds_nothing(worker, monkeypatch, answer, written):
    @ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4, ctypes.c_int)
    def broken(state, out, size, zeros, asked):
        ctypes.cast(size, ctypes.POINTER(ctypes.c_int))[0] = written
        return answer

    sound = worker._keystream.for_compiled_code
    cipher = ctypes.cast(broken, ctypes.c_void_p)
    monkeypatch.setattr(worker._keystream, "for_compiled_code", lambda *place: (cipher, *sound(*place)[1:]))
    values = torch.zeros(CHUNK).double()
    with pytest.raises(OSError, match="OpenSSL did not make the keystream"):
        worker.add([values], KEY, 0, ROUNDING)
    assert not values.any()
