"""The example package as if it were installed: its code and its entry points can be found."""

import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path

from graphveil import methods

PACKAGE = Path(__file__).parents[2] / "examples" / "graphveil-votes"


def write_entry_points(folder):
    """What an installer writes beside the code of a package: its name and its entry points."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head)
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def forget_methods():
    """Look for entry points anew."""
    methods._points.cache_clear()
    methods._load_other.cache_clear()


@contextmanager
def installed(folder):
    """The example package can be imported and found."""
    write_entry_points(folder)
    places = [str(folder), str(PACKAGE / "src")]
    sys.path[:0] = places
    forget_methods()
    try:
        yield
    finally:
        for place in places:
            sys.path.remove(place)
        forget_methods()
