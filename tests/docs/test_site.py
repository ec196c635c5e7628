"""The documentation as pages: they build, need no network, and can be read and searched from disk."""

import re
import subprocess
import sys
import time
from html import unescape
from pathlib import Path

import pytest

from support.browser import NETWORK, TOO_WIDE, Browser

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocs", reason="needs the docs extra: make docs")
pytest.importorskip("material", reason="needs the docs extra: make docs")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) >= 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="?((?:https?:)?//[^" >]*)', text)
        styles = re.findall(r'<link[^>]* href="?((?:https?:)?//[^" >]*)', text)
        assert loaded + styles == []


def test_the_home_page_links_to_every_page(site):
    linked = set(re.findall(r'<td><a href="([^"#]+\.html)', (site / "index.html").read_text(encoding="utf-8")))
    there = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"index.html", "404.html"}
    details = {page for page in there if page.startswith("results/")} - {"results/index.html"}
    assert there - details <= linked


def test_formulas_are_set_as_formulas(site):
    text = (site / "theory.html").read_text(encoding="utf-8")
    assert text.count("<math") > 500
    assert text.count('<math display="block"') > 20
    left = [unescape(re.sub(r"<[^>]+>", "", code)) for code in re.findall(r"<code>(.*?)</code>", text, re.DOTALL)]
    assert [code for code in left if re.search(r"sqrt\(|<=|_\{|\be\^", code)] == []
    assert "sensitivity.embedding_group" in left


def test_notebooks_are_shown_with_their_pictures(site):
    for name in ("fraud", "social-network", "auditing"):
        text = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        pictures = re.findall(r'<img alt="([^"]+)" src="([^"]+)"', text)
        assert pictures
        assert all(alt and (site / "notebooks" / source).is_file() for alt, source in pictures)
        assert f'href="{name}.ipynb"' in text


def test_search_works_from_disk(site, browser):
    browser.requests()
    browser.open(site / "index.html")
    for words in ("missing values", "weights", "imbalance", "fraud"):
        assert results_of(browser, words), f"nothing is found for {words}"
    assert "Rare classes, such as fraud" in results_of(browser, "imbalance")
    assert results_of(browser, "xyzzyx") == []
    assert [url for url in browser.requests() if url.startswith(NETWORK)] == []
    assert browser.console() == []


def results_of(browser, words):
    """Titles of what the theme's search finds; the words are typed as a person would."""
    found = "[...document.querySelectorAll('.md-search-result__item :is(h1, h2)')].map(each => each.textContent)"
    typed = "i.dispatchEvent(new Event('input', {bubbles: true})); i.dispatchEvent(new KeyboardEvent('keyup'))"
    browser.run("document.querySelector('.md-search__input').focus()")
    browser.run(f"(() => {{ const i = document.querySelector('.md-search__input'); i.value = {words!r}; {typed}; }})()")
    said = "document.querySelector('.md-search-result__meta').textContent"
    for _ in range(50):
        time.sleep(0.1)
        if "matching" in browser.run(said):
            time.sleep(0.2)
            break
    titles = browser.run(found)
    # Without words the theme forgets what it found, so that the next answer is not taken for this one.
    browser.run(f"(() => {{ const i = document.querySelector('.md-search__input'); i.value = ''; {typed}; }})()")
    time.sleep(0.3)
    return titles


def test_pages_fit_a_telephone(site, browser):
    for page in sorted(site.rglob("*.html")):
        browser.open(page, width=400)
        assert browser.run(TOO_WIDE) == 0, page.name


def test_wide_tables_scroll_with_a_hint(site, browser):
    for dark in (False, True):
        browser.open(site / "results" / "benchmarks.html", width=400, dark=dark)
        box = "document.querySelector('.md-typeset__scrollwrap')"
        assert browser.run(f"{box}.scrollWidth > {box}.clientWidth")
        assert "radial-gradient" in browser.run(f"getComputedStyle({box}).backgroundImage")


def test_formulas_are_laid_out(site, browser):
    browser.open(site / "theory.html")
    root = browser.run("document.querySelector('msqrt').getBoundingClientRect().width")
    assert root > 8, "the browser does not set MathML"
