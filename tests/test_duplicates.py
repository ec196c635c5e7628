"""The same lines stand nowhere twice in the source: six in a row are one function that two places need."""

from collections import defaultdict
from pathlib import Path

import graphveil

ROOT = Path(graphveil.__file__).parent
LENGTH = 6


def lines_of(text):
    """(number, line) of lines that say something: no imports, exports, comments, blank lines or lone punctuation."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if inside or line.startswith(("import ", "from ", "__all__ = ")):
            inside = (inside or line.endswith(("(", "["))) and not line.endswith((")", "]"))
            continue
        if not line.startswith("#") and any(letter.isalnum() for letter in line):
            yield number, line


def repeated(root):
    """By the modules that share them: where `LENGTH` lines in a row stand that also stand elsewhere."""
    places = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        lines = list(lines_of(path.read_text()))
        for start in range(len(lines) - LENGTH + 1):
            window = lines[start : start + LENGTH]
            places[tuple(line for _, line in window)].append((path.relative_to(root).as_posix(), window[0][0]))
    shared = defaultdict(list)
    for at in places.values():
        if len(at) > 1:
            shared[tuple(module for module, _ in at)].append(" = ".join(f"{module}:{line}" for module, line in at))
    return dict(shared)


def test_no_lines_are_repeated():
    assert repeated(ROOT) == {}, "make one of the two"


def test_a_copy_is_seen(tmp_path):
    body = [f"    value_{number} = work({number})" for number in range(LENGTH)]
    (tmp_path / "one.py").write_text("\n".join(["def f():", *body]))
    (tmp_path / "two.py").write_text("\n".join(["import os", "def g():", body[0], "", "    # a word", *body[1:]]))
    assert repeated(tmp_path) == {("one.py", "two.py"): ["one.py:2 = two.py:3"]}
    (tmp_path / "two.py").write_text("\n".join(["def g():", *body[1:]]))
    assert repeated(tmp_path) == {}
