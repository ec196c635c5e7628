"""A private name of a class is used in the package that defines it and nowhere else."""

import ast
from pathlib import Path

import graphveil

SRC = Path(graphveil.__file__).parent
OWN = ("self", "cls", "super()")


def package_of(path, root):
    """The package below the root that a file is in; a file beside the packages is one by itself."""
    return path.relative_to(root).parts[0]


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def definitions(tree):
    """Private names that a class of this module gives to its methods, its attributes and those of its instances."""
    for node in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
        for part in ast.walk(node):
            if isinstance(part, ast.FunctionDef):
                yield part.name
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id
            elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) in OWN:
                yield part.attr


def uses(tree):
    """Private attributes of something else than the object at hand, and the line of each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) not in OWN:
            yield node.attr, node.lineno


def foreign_uses(root):
    trees = {path: ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    homes = {}
    for path, tree in trees.items():
        for name in filter(is_private, definitions(tree)):
            homes.setdefault(name, set()).add(package_of(path, root))
    return [
        f"{path.relative_to(root)}:{line}: {name}"
        for path, tree in trees.items()
        for name, line in uses(tree)
        if name in homes and package_of(path, root) not in homes[name]
    ]


def test_no_package_uses_private_names_of_another():
    assert foreign_uses(SRC) == []


def test_such_a_use_is_seen(tmp_path):
    for name, text in {
        "methods/model.py": "class Model:\n    def _go(self):\n        self._state = 1\n",
        "methods/other.py": "def same_package(model):\n    return model._state\n",
        "cli/train.py": "def train(model):\n    model._go()\n    return model.inner._state\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert sorted(foreign_uses(tmp_path)) == ["cli/train.py:2: _go", "cli/train.py:3: _state"]
