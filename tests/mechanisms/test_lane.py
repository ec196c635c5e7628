import ctypes

import pytest
import torch

from graphveil.mechanisms import lane as lanes
from graphveil.mechanisms.keystream import BLOCKS, CHUNK, LockFreeKeystream
from graphveil.mechanisms.lane import Lane
from graphveil.mechanisms.normals import CompiledNormals

KEY = bytes(range(32))
STD, STEP = 1.7, 2.0**-33


@pytest.fixture
def lane():
    found = Lane()
    if not isinstance(found._keystream, LockFreeKeystream) or not isinstance(found._normals, CompiledNormals):
        pytest.skip("normals.c is not built, or Python's OpenSSL is out of reach")
    return found


def one_by_one(monkeypatch, lane, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(lane, "_add_at_once", lambda *arguments: 0)
        lane.add(*arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 2, 513, CHUNK, CHUNK + 1, 3 * CHUNK - 1])
def test_a_run_at_once_is_its_chunks_one_by_one(lane, monkeypatch, dtype, count):
    values = torch.linspace(-3, 3, count, dtype=dtype)
    found, expected = values.clone(), values.clone()
    for _ in range(2):  # wherever the keystream was left
        lane.add(found.split(CHUNK), KEY, 11, STD, STEP)
        one_by_one(monkeypatch, lane, expected.split(CHUNK), KEY, 11, STD, STEP)
    assert torch.equal(found, expected)
    assert count < 10 or not torch.equal(found, values)


def test_rare_radii_are_refined_on_the_way(lane, monkeypatch):
    """Some of the 8 million radii: those chunks are left to Python, the others before and after them are not."""
    refined, at_once = [], []
    monkeypatch.setattr(lanes, "refine", lambda key, block, u, refine=lanes.refine: refined.append(block))
    add_run = lane._normals.add_run
    monkeypatch.setattr(lane._normals, "add_run", lambda *arguments: at_once.append(add_run(*arguments)) or at_once[-1])
    found = torch.zeros(16_000_000)
    expected = found.clone()
    lane.add(found.split(CHUNK), KEY, 0, STD, STEP)
    chunks, blocks = -(-len(found) // CHUNK), sorted(refined)
    assert 2 < len(blocks) < 30
    assert sum(at_once) == chunks - len(blocks)
    refined.clear()
    one_by_one(monkeypatch, lane, expected.split(CHUNK), KEY, 0, STD, STEP)
    assert sorted(refined) == blocks
    assert all(block % BLOCKS == 0 for block in blocks)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("chunks", [torch.zeros(2, 40)[:, ::2], torch.zeros(2, 20, dtype=torch.float16)])
def test_values_that_c_cannot_change_are_left_to_python(lane, chunks):
    assert lane._add_at_once(list(chunks), KEY, 0, STD, STEP) == 0
    lane.add(list(chunks), KEY, 0, STD, STEP)
    assert (chunks != 0).all()


def test_a_chunk_that_is_too_long_is_refused(lane):
    with pytest.raises(AssertionError):
        lane.add([torch.zeros(CHUNK + 1)], KEY, 0, STD, STEP)


@pytest.mark.parametrize(("answer", "written"), [(0, 8 * CHUNK), (1, 8 * CHUNK - 16)])
def test_a_cipher_that_fails_adds_nothing(lane, monkeypatch, answer, written):
    @ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4, ctypes.c_int)
    def broken(state, out, size, zeros, asked):
        ctypes.cast(size, ctypes.POINTER(ctypes.c_int))[0] = written
        return answer

    sound = lane._keystream.for_compiled_code
    cipher = ctypes.cast(broken, ctypes.c_void_p)
    monkeypatch.setattr(lane._keystream, "for_compiled_code", lambda *place: (cipher, *sound(*place)[1:]))
    values = torch.zeros(CHUNK)
    with pytest.raises(OSError, match="keystream"):
        lane.add([values], KEY, 0, STD, STEP)
    assert not values.any()
