"""Looking ids up gives what Arrow's own lookup gives."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from graphveil.graph.io import ids as module
from graphveil.graph.io.ids import NodeIds, plain_words, texts_in_numpy


@pytest.fixture(autouse=True, params=["ids.c", "NumPy"])
def arithmetic(request, monkeypatch):
    """Each test looks words up in both ways."""
    if request.param == "NumPy":
        monkeypatch.setattr(module, "compiled_library", lambda: None)
    elif module.compiled_library() is None:
        pytest.skip("ids.c is not built")


def text(words):
    return pa.array(words, pa.large_string())


def expected(values, ids):
    return pc.index_in(values, value_set=ids).fill_null(-1).to_numpy(zero_copy_only=False)


def words_of(longest, count=3000):
    """Different words whose length is at most `longest` bytes."""
    rng = np.random.default_rng(longest)
    letters = list("abé_0-9 ")
    made = {"".join(rng.choice(letters, rng.integers(1, longest + 1))) for _ in range(count)}
    return [word for word in sorted(made) if len(word.encode()) <= longest]


@pytest.mark.parametrize("longest", [2, 7, 8, 9, 16, 36, 40, 60])
@pytest.mark.parametrize("at_once", [5, 2**15])
def test_words(monkeypatch, longest, at_once):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    words = words_of(longest)
    ids = text(words[::2])
    known = NodeIds(ids)
    assert (known._words is not None) == (longest <= 40)
    assert known.first_again() is None
    asked = text([*words, "", words[0] + "x" * 50, "a" * 41])
    assert known.positions(asked).tolist() == expected(asked, ids).tolist()
    some = asked.slice(3, 40)
    assert known.positions(some).tolist() == expected(some, ids).tolist()
    assert len(known.positions(text([]))) == 0


def test_a_letter_that_is_zero():
    ids = text(["a", "b"])
    asked = text(["a\0", "a", "b\0\0"])
    assert NodeIds(ids).positions(asked).tolist() == [-1, 0, -1]
    with_zero = NodeIds(text(["a\0", "b"]))
    assert with_zero._words is None
    assert with_zero.positions(asked).tolist() == [0, -1, -1]


@pytest.mark.parametrize("at_once", [1, 2, 2**15])
@pytest.mark.parametrize("make", [text, lambda words: pa.array([int(word[1:]) for word in words])])
def test_an_id_that_is_given_again(monkeypatch, make, at_once):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    assert NodeIds(make(["n1", "n2", "n3", "n2", "n1"])).first_again() == (3, 1)
    assert NodeIds(make(["n1", "n2", "n2", "n2"])).first_again() == (2, 1)
    assert NodeIds(make(["n1", "n3", "n2"])).first_again() is None


def test_words_with_one_hash_are_left_to_arrow(monkeypatch):
    monkeypatch.setattr(module, "_MIX", np.uint64(0))
    monkeypatch.setattr(module, "_MOST_STEPS", 50)
    few, many = (text([f"n{i}" for i in range(count)]) for count in (15, 80))
    assert NodeIds(few)._words is not None
    assert NodeIds(many)._words is None
    for ids in (few, many):
        assert NodeIds(ids).first_again() is None
        assert NodeIds(ids).positions(many).tolist() == expected(many, ids).tolist()


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
@pytest.mark.parametrize("first", [0, -50, 7, 2**31, 2**62])
def test_numbers(kind, first):
    ids = pa.array(np.random.default_rng(0).permutation(100) + first)
    numbers = (first, first + 99, first + 100, first - 1, 5, 0, -1, 2**31 - 1, -(2**31))
    asked = pa.array([value for value in numbers if kind == pa.int64() or abs(value) < 2**31], kind)
    for values in (asked, asked.slice(0, 1), asked.slice(0, 0)):
        assert NodeIds(ids).positions(values).tolist() == expected(values.cast(pa.int64()), ids).tolist()
    scattered = pa.array([first, first + 10**6])
    assert NodeIds(scattered).positions(asked).tolist() == expected(asked.cast(pa.int64()), scattered).tolist()


def test_which_words_are_plain():
    assert plain_words(text(["n1", "p-2"]), 3)
    for words in (["n1", ""], ["n1", "long"], ["n 1"], ["n1 "], ["né"], ["n\t"], []):
        assert not plain_words(text(words), 3)
    assert plain_words(text(["n 1", "n2", "n3"]).slice(1), 3)


@pytest.mark.parametrize("words", [["n1", "n234567890123", "a"], ["né", "n1"], ["n 1", "b"], ["a" * 41, "b"]])
def test_words_in_numpy(words):
    for some in (text(words), text(["before", *words]).slice(1)):
        made = texts_in_numpy(some)
        assert made.dtype == np.array(words).dtype
        assert made.tolist() == words
