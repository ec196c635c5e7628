"""`graphveil docs`."""

import json
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs"


def test_pages_that_certificates_cite_can_be_read(run):
    text = (PAGES / "theory.md").read_text(encoding="utf-8")
    assert run("docs", "theory").stdout == text
    assert run("docs", "docs/theory.md").stdout == text
    assert json.loads(run("docs", "theory", "--json").stdout) == {"page": "theory", "text": text}


def test_alone_it_lists_all_pages(run):
    listed = json.loads(run("docs", "--json").stdout)
    assert set(listed) == {file.stem for file in PAGES.glob("*.md")}
    assert listed["theory"] == "Theory"
    assert "theory       Theory\n" in run("docs").stdout


def test_a_page_that_is_not_there(run):
    done = run("docs", "../README")
    assert done.returncode == 2
    assert "page = '../README': must be one of api, artifact, " in done.stderr
