"""Code in the documentation runs: every `python` block, and every `graphveil` command of a `console` block.

Blocks of a page share their names and their folder, in order. Lines below a command are its output, with `...` for
whatever varies. A command that ends with & goes on beside the following ones.
"""

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import graphveil.graph
from graphveil.cli import app
from graphveil.graph import csbm

ROOT = Path(__file__).parents[2]
NAMES = ("index", "tutorial", "data", "rare-classes", "choosing", "artifact", "serving", "checkpoint", "scale")
PAGES = ["README.md", *(f"docs/{name}.md" for name in (*NAMES, "pitfalls", "search", "from-pyg"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n?((?:(?!\$ ).*\n?)*)", re.MULTILINE)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder with a user's graph; datasets are a small graph, whatever their name."""
    small = csbm(0.5, n=300, f=6, seed=0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(graphveil.graph, "load_dataset", lambda name, **_: small.replace(name=name))
    monkeypatch.setattr(sys.modules["graphveil.cli.train"], "fetch", lambda name, root: None)
    folder = tmp_path / "my-graph"
    folder.mkdir()
    with (folder / "nodes.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "size", "label"])
        rows.writerows([i, i / 300, int(label)] for i, label in enumerate(small.labels))
    with (folder / "edges.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["source", "target"])
        entries = small.to_scipy().tocoo()
        rows.writerows((int(i), int(j)) for i, j in zip(entries.row, entries.col, strict=True) if i < j)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_examples(page, elsewhere, beside):
    if page == "docs/serving.md":
        pytest.importorskip("httptools", reason="needs the extra: pip install 'graphveil[serve]'")
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert blocks, "a page without examples needs no test"
    names = {"__name__": "example"}
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, page, "exec"), names)
            continue
        for command, expected in COMMAND.findall(text):
            run(command, expected, beside)


@pytest.fixture
def beside():
    """Processes that end with the test."""
    started = []
    yield started
    for process in started:
        process.terminate()
        process.wait(timeout=30)


def run(command, expected, beside):
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    if words[0] != "graphveil":
        return
    if words[-1] == "&":
        process = subprocess.Popen([sys.executable, "-m", *words[:-1]], stdout=subprocess.PIPE, text=True)
        beside.append(process)
        output = process.stdout.readline()
    else:
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{command}: {done.output}"
        output = done.output
    pattern = re.escape(expected.strip()).replace(re.escape("..."), ".*")
    assert not expected.strip() or re.search(pattern, output, re.DOTALL), f"{command}: {output}"


def test_pages_are_all_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().split("nav:")[1]))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    there |= {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert listed == there


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
