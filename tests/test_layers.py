"""Which package of graphveil may import which: downwards only. Imports inside functions and for types alone count."""

import ast
from pathlib import Path

import pytest

import graphveil

ROOT = Path(graphveil.__file__).parent
# From the ground up: each may import what stands before it. "graphveil" is the public surface, `__init__.py`.
LAYERS = (
    "errors",
    "validate",
    "process",
    "storage",
    "accounting",
    "privacy",
    "noise",
    "execution",
    "graph",
    "evaluation",
    "methods",
    "artifact",
    "checkpoint",
    "distributed",
    "experiments",
    "report",
    "auditing",
    "serve",
    "graphveil",
    "cli",
    "__main__",
)


def imports(root):
    """(module, its package, package that it imports), for every import of another package of graphveil."""
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root)
        own = owner(".".join(("graphveil", *module.with_suffix("").parts)), root)
        for name in imported(ast.parse(path.read_text())):
            if name.split(".")[0] == "graphveil" and owner(name, root) != own:
                yield module.as_posix(), own, owner(name, root)


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (given.value for given in node.args if isinstance(given, ast.Constant))


def owner(name, root):
    """The package or single module right below graphveil, or graphveil itself for a name that it defines."""
    first = name.split(".")[1] if "." in name else "__init__"
    is_there = first != "__init__" and ((root / first).is_dir() or (root / f"{first}.py").is_file())
    return first if is_there else "graphveil"


def upward(root):
    height = {name: level for level, name in enumerate(LAYERS)}
    return {(module, target) for module, own, target in imports(root) if height[target] > height[own]}


def test_every_package_has_a_layer():
    code = [path for path in ROOT.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))]
    assert {owner(f"graphveil.{path.stem}", ROOT) for path in code} == set(LAYERS)


def test_imports_go_down():
    assert upward(ROOT) == set(), "import from below, or hand the thing in"


@pytest.mark.parametrize(
    "line",
    [
        "import graphveil.cli",
        "from graphveil import cli",
        "from graphveil.cli.train import train",
        "def f():\n    from graphveil.cli import main",
        "if TYPE_CHECKING:\n    from graphveil.cli import main",
        "from importlib import import_module\nimport_module('graphveil.cli')",
    ],
)
def test_an_upward_import_is_seen(tmp_path, line):
    for name in ("privacy", "cli"):
        (tmp_path / name).mkdir()
    (tmp_path / "privacy" / "plan.py").write_text(line)
    assert upward(tmp_path) == {("privacy/plan.py", "cli")}
