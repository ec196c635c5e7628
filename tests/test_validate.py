"""Damage becomes one line, and a checksum covers every byte."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from graphveil.errors import InvalidInput
from graphveil.validate import (
    check_declared,
    check_rendered,
    decoding,
    inside,
    parse_checksummed,
    render_checksummed,
)


@pytest.mark.parametrize(
    "error", [ValueError("two\nlines"), KeyError("x"), RuntimeError(), UnicodeDecodeError("a", b"", 0, 1, "b")]
)
def test_whatever_a_decoder_raises_is_one_line(error):
    with pytest.raises(InvalidInput) as caught, decoding(Path("g.npz"), "arrays"):
        raise error
    assert re.fullmatch(r"path = 'g\.npz': cannot be read as arrays: .+", str(caught.value))


def test_our_own_errors_stay_and_name_the_file():
    path = Path("folder/g.npz")
    with pytest.raises(InvalidInput, match=r"^g\.npz: labels = 7: is wrong$"), decoding(path, "arrays"), inside(path):
        raise InvalidInput("labels", 7, "is wrong")


def read(data):
    body = parse_checksummed("graphveil-test/2", data)
    check_rendered(render_checksummed("graphveil-test/2", {"number": body["number"]}), data)
    return body["number"]


def test_every_changed_byte_is_noticed():
    data = render_checksummed("graphveil-test/2", {"number": 12})
    assert read(data) == 12
    for at in range(len(data)):
        for new in (data[at] ^ 1, ord("1"), ord(" ")):
            changed = data[:at] + bytes([new]) + data[at + 1 :]
            if changed != data:
                with pytest.raises((InvalidInput, ValueError, KeyError)):
                    read(changed)


def test_another_version_is_named():
    with pytest.raises(InvalidInput, match="was written by another version of graphveil"):
        read(render_checksummed("graphveil-test/1", {"number": 12}))
    with pytest.raises(InvalidInput, match="must be graphveil-test/2"):
        read(b"[1]")


@dataclass(frozen=True)
class Inner:
    share: float


@dataclass(frozen=True)
class Outer:
    count: int = 1
    kind: Literal["a", "b"] = "a"
    name: str | None = None
    parts: tuple[Inner, ...] = ()
    by_name: Mapping[str, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    "right", [{}, {"parts": (Inner(1),)}, {"name": "x"}, {"by_name": {"a": 1}}, {"count": 2**63 - 1}]
)
def test_values_of_declared_types(right):
    check_declared(Outer(**right))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", True),
        ("count", 1.0),
        ("count", 2**63),
        ("kind", "c"),
        ("name", 3),
        ("parts", [Inner(1.0)]),
        ("by_name", {1: 1.0}),
        ("by_name", {"a": float("nan")}),
    ],
)
def test_values_of_other_types(field, value):
    with pytest.raises(InvalidInput, match=rf"^{field} = .*: is missing or has the wrong form$"):
        check_declared(Outer(**{field: value}))


def test_values_below():
    with pytest.raises(InvalidInput, match=r"^parts\.share = 'x'"):
        check_declared(Outer(parts=(Inner(0.5), Inner("x"))))
