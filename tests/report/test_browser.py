"""The report as a reader sees it: in Chromium, from disk, on a phone, in the dark, without a network."""

import numpy as np
import pytest

from graphveil.evaluation import evaluate
from graphveil.report import RunFolder, html_report, write_report
from support.browser import NETWORK, TOO_WIDE
from support.results import certificate_of, write_paper

UNDESCRIBED = """[...document.querySelectorAll("svg, img")].filter(image => {
  if (image.tagName === "IMG") return !image.alt;
  const names = (image.getAttribute("aria-labelledby") || "").split(" ").map(id => document.getElementById(id));
  return image.getAttribute("role") !== "img" || !names.length || !names.every(name => name && name.textContent);
}).length"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def experiments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    write_paper(folder, seeds=2)
    return write_report(folder)[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    draws = np.random.default_rng(0)
    evaluation = evaluate(draws.integers(7, size=200), draws.dirichlet(np.ones(7), size=200))
    metrics = {"graph": "cora", "method": "dpdgc", "test_accuracy": 0.5, "val_accuracy": None, "seconds": 1.0}
    path = tmp_path_factory.mktemp("run") / "report.html"
    path.write_text(
        html_report(RunFolder({**metrics, "command": "graphveil train cora"}, certificate_of(True), evaluation))
    )
    return path


@pytest.fixture(params=["experiments", "run"])
def path(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_opens_without_errors_or_network_and_fits(browser, path, width, dark):
    browser.requests()
    browser.open(path, width=width, dark=dark)
    assert browser.console() == []
    assert [url for url in browser.requests() if url.startswith(NETWORK)] == []
    assert browser.run(TOO_WIDE) == 0
    assert browser.run(UNDESCRIBED) == 0
    assert browser.run('document.querySelectorAll("svg").length') > 0


def test_dark_is_dark(browser, path):
    browser.open(path)
    light = browser.run(BACKGROUND)
    browser.open(path, dark=True)
    assert browser.run(BACKGROUND) != light


def test_every_opened_detail_fits_a_phone(browser, path):
    browser.open(path, width=390)
    browser.run('document.querySelectorAll("details").forEach(details => { details.open = true; })')
    # A toggle is told to the page a moment later.
    assert browser.run(f"new Promise(r => setTimeout(() => r({TOO_WIDE}), 500))") == 0
    assert browser.console() == []


@pytest.mark.parametrize("dark", [False, True])
def test_wide_tables_scroll_with_a_hint(browser, path, dark):
    browser.open(path, width=400, dark=dark)
    wide = """[...document.querySelectorAll(".scroll")].filter(box => box.checkVisibility()
        && box.scrollWidth > box.clientWidth)"""
    assert browser.run(f"{wide}.length") > 0
    hinted = "getComputedStyle(box).backgroundImage.includes('radial-gradient') && box.tabIndex === 0"
    assert browser.run(f"{wide}.every(box => {hinted})")


# The part of each card's width that what is in it takes up: text, tables and pictures, and not the boxes around them.
FILLED = """[...document.querySelectorAll("main section, .note")].map(card => {
  const box = card.getBoundingClientRect();
  const ends = [...card.querySelectorAll("p, li, table, svg, pre")].filter(part => part.checkVisibility()).map(part => {
    const range = document.createRange();
    range.selectNodeContents(part);
    return Math.max(part.matches("table, svg, pre") ? part.getBoundingClientRect().right : 0,
      ...[...range.getClientRects()].map(line => line.right));
  });
  return ends.length ? (Math.max(...ends) - box.left) / box.width : 1;
})"""


def test_no_card_is_a_quarter_empty(browser, path):
    browser.open(path, width=1280)
    assert min(browser.run(FILLED)) > 0.75


def test_certificates_open(browser, experiments):
    browser.open(experiments)
    assert browser.run('document.querySelectorAll(".certificate").length') == 0
    browser.run(
        """(() => { const cell = [...document.querySelectorAll("details.cell")].find(
             cell => cell.textContent.includes("N_1")); cell.parentElement.open = true; cell.open = true; })()"""
    )
    text = browser.run('new Promise(r => setTimeout(() => r(document.querySelector(".certificate").textContent), 200))')
    assert "What is NOT protected" in text
    assert "are protected together" in text
    assert browser.console() == []


def test_a_rank_leads_to_its_certificates(browser, experiments):
    browser.open(experiments)
    browser.run(
        """(() => { const link = document.querySelector("table.board a[href^='#cell-']");
             link.closest("details").open = true; link.click(); })()"""
    )
    opened = 'document.querySelector("details.cell[open]")'
    shown = f"{opened}.checkVisibility() && {opened}.querySelector('.certificate').textContent"
    text = browser.run(f"new Promise(r => setTimeout(() => r({shown}), 300))")
    assert text
    assert browser.console() == []


def test_tables_and_figures_need_no_script(browser, experiments):
    browser.open(experiments, script=False)
    assert browser.run('document.querySelectorAll("table.results td").length') > 100
    assert browser.run('document.querySelectorAll("figure svg").length') > 5


def test_the_checks_see_what_they_look_for(browser, tmp_path):
    path = tmp_path / "bad.html"
    wide, image = '<p style="width:900px">wide</p>', '<img src="http://127.0.0.1:9/x.png">'
    path.write_text(f"<!doctype html><meta name=viewport content=width=device-width>{wide}{image}<svg></svg>")
    browser.requests()
    browser.open(path, width=390)
    assert any(url.startswith(NETWORK) for url in browser.requests())
    assert browser.console() != []
    assert browser.run(TOO_WIDE) > 0
    assert browser.run(UNDESCRIBED) == 2
