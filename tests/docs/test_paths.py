"""Pages for contributors and the page of the API name things that exist."""

import ast
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "graphveil"
PAGES = [*(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "README.md", "docs/audit.md"))]
PAGES += sorted(PACKAGE.rglob("README.md"))
PLACE = re.compile(r"`([\w./-]+\.(?:py|c|md))(?:::([\w.]+))?`")


def names(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_files_and_functions_exist(page):
    for path, name in PLACE.findall(page.read_text(encoding="utf-8")):
        places = [place / path for place in (page.parent, PACKAGE, ROOT) if (place / path).is_file()]
        assert places, f"there is no {path}"
        if name:
            assert name in defined(places[0]), f"{path} has no {name}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=names)
def test_pages_name_files_that_exist(page):
    named = re.findall(
        r"\b(?:src|tests|benchmarks|tools|pages)/[\w./-]+\.(?:py|c|md)\b", page.read_text(encoding="utf-8")
    )
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_source_names_pages_that_exist():
    for path in PACKAGE.rglob("*.py"):
        for page in re.findall(r"\bdocs/[\w./-]+\.md\b", path.read_text(encoding="utf-8")):
            assert (ROOT / page).is_file(), f"{path.name} names {page}"


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"links to {target}"


@pytest.mark.parametrize("page", sorted(PACKAGE.rglob("README.md")), ids=names)
def test_a_package_lists_all_of_its_modules(page):
    listed = {path for path, _ in PLACE.findall(page.read_text(encoding="utf-8"))}
    there = {file.name for file in page.parent.iterdir() if file.suffix in (".py", ".c")} - {"__init__.py"}
    assert there <= listed


def defined(path):
    """The classes and functions of a module, and the methods of its classes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = {node.name for node in tree.body if isinstance(node, kinds)}
    for outer in tree.body:
        if isinstance(outer, ast.ClassDef):
            names |= {f"{outer.name}.{node.name}" for node in outer.body if isinstance(node, kinds)}
    return names


def test_the_api_page_names_what_exists():
    named = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) > 10
    for name in named:
        pkgutil.resolve_name(name)
