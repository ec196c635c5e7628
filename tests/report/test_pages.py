import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from graphveil.errors import InvalidInput
from graphveil.evaluation import evaluate
from graphveil.experiments import SPECS, GraphRef
from graphveil.report import write_report
from support.results import certificate_of, write_results

HOSTILE = '</script><script>alert(1)</script><img src=x onerror=alert(1)>"$\\frac{&amp;\x00\n_|'


class Page(HTMLParser):
    """All tags of a page, and whether every one that was opened is closed in its place."""

    def __init__(self, text):
        super().__init__()
        self.tags, self._open = [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_table_in_the_form_of_the_paper(results_folder):
    (path,) = write_report(results_folder)
    assert path == results_folder / "report.html"
    text = path.read_text()
    page = Page(text)
    assert "<strong>60.50 ± 6.35</strong><small>2 runs</small>" in text
    assert "<u>60.40 ± 6.35</u>" in text
    assert "paper 59.98 ± 0.81†" in text
    assert "paper 82.44 ± 0.83</small>" in text
    assert "released without noise" in text
    assert "1 failed, 1 not run yet" in text
    assert "Oops: a &lt; b" in text
    assert re.search(r"cora · N_1, epsilon = 16 · gap <span>50\.50 %, 2 seeds, certified epsilon 16 at delta", text)
    assert "graphveil bench table2 --seeds 2" in text
    assert "torch 2.13.0" in text
    images = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert images
    assert all(image["role"] == "img" and image["aria-labelledby"] for image in images)
    assert text.count("<title id=") == text.count("<desc id=") == len(images)


def test_nothing_is_loaded(results_folder):
    page = Page(write_report(results_folder)[0].read_text())
    assert [attributes["src"] for _, attributes in page.tags if "src" in attributes] == []
    addresses = [attributes.get("href") or attributes.get("xlink:href") or "" for _, attributes in page.tags]
    assert [address for address in addresses if address and not address.startswith(("#", "data:"))] == []
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_equal_certificates_are_kept_once(results_folder):
    text = write_report(results_folder)[0].read_text()
    data = json.loads(re.search(r'id="runs">(.*?)</script>', text)[1])
    cells = {(tuple(cell["certificates"])) for cell in data["cells"]}
    assert len(data["certificates"]) == len(cells) == 7
    assert len(data["lines"]) == len({tuple(line) for line in data["lines"]})
    first = [data["lines"][line][1] for line in data["certificates"][0]]
    assert "Nothing is protected." in first


def test_ids_are_unique(results_folder):
    page = Page(write_report(results_folder)[0].read_text())
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["xlink:href"][1:] for _, a in page.tags if "xlink:href" in a}
    assert targets <= set(ids)


@pytest.mark.slow
def test_two_thousand_runs_fit(tmp_path):
    spec = SPECS["table2"].narrowed(seeds=14)
    assert len(spec.runs()) >= 2000
    write_results(tmp_path, spec)
    (path,) = write_report(tmp_path)
    assert path.stat().st_size < 1e6


@pytest.mark.slow
def test_two_thousand_certificates_that_all_differ_fit(tmp_path):
    write_results(tmp_path, SPECS["table2"].narrowed(seeds=14), all_apart=True)
    (path,) = write_report(tmp_path)
    assert path.stat().st_size < 5e6


@pytest.mark.parametrize("form", ["html", "markdown", "svg", "png"])
def test_a_name_is_never_a_tag(tmp_path, form):
    spec = SPECS["figure-c"].narrowed(seeds=1)
    graph = GraphRef(HOSTILE, path="there", content="ab")
    write_results(tmp_path, replace(spec, name=HOSTILE, title=HOSTILE, graphs=(graph,)))
    files = write_report(tmp_path, form)
    assert files
    if form == "png":
        assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
        return
    for file in files:
        text = file.read_text()
        if form == "markdown":
            # Indented lines are code: nothing in them is a tag.
            text = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "\x00" not in text
        if form == "html":
            assert sum(tag == "script" for tag, _ in Page(text).tags) == 2
        if form == "markdown":
            assert "&lt;script&gt;" in text


def test_the_page_of_a_run(run_folder):
    (path,) = write_report(run_folder)
    text = path.read_text()
    assert "For the data owner" in text
    assert "50.00 %" in text
    assert "What is NOT protected" in text
    assert "share of the budget" in text
    shares = certificate_of(True).plan().shares()
    shown = re.findall(r"<td>(\d+ %|–)<", text)
    assert [text != "–" for text in shown[:-1]] == [share > 0 for share in shares.values()]
    assert shown[-1] == "100 %"
    percents = [int(text.split()[0]) if text != "–" else 0 for text in shown[:-1]]
    assert sum(percents) == 100
    assert percents == pytest.approx([100 * share for share in shares.values()], abs=1)
    assert [float(width) for width in re.findall(r'style="width:([\d.]+)%"', text)] == [
        pytest.approx(100 * share, abs=0.1) for share in shares.values() if share
    ]
    assert "Confusion matrix" in text
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
    assert "Reliability diagram" in text
    assert "graphveil train mine.npz --out run" in text


def test_what_was_learnt_is_near_the_top(run_folder):
    assert "links" not in _in_short(write_report(run_folder)[0].read_text())
    certificate = replace(
        certificate_of(True), learnt=("A node has about 5 links.", "The graph was not used, because <b>.")
    )
    (run_folder / "certificate.json").write_text(certificate.to_json())
    text = write_report(run_folder)[0].read_text()
    assert "<li>A node has about 5 links.</li><li>The graph was not used, because &lt;b&gt;.</li>" in _in_short(text)


def _in_short(text):
    return text[text.index(">In short<") : text.index(">By class<")]


def test_the_first_answers_are_about_the_rare_class(run_folder):
    metrics = json.loads((run_folder / "metrics.json").read_text())
    truth = (np.arange(100) % 33 == 0).astype(int)
    rare = np.linspace(0.9, 0.0, 100)
    probabilities = np.stack([1 - rare, rare], axis=1)
    metrics["evaluation"] = evaluate(truth, probabilities, ("ok", "fraud"), positive=1, threshold=0.8).to_dict()
    (run_folder / "metrics.json").write_text(json.dumps({**metrics, "graph_used": True}))
    text = write_report(run_folder)[0].read_text()
    shown = _in_short(text)
    assert "By a threshold of 0.8, 1 of 4 nodes of class fraud are found: 12 nodes are flagged" in shown
    assert "the majority class, ok, alone has 96.00 %" in shown
    assert "The model reads the graph." in shown
    assert "publishing them spends privacy" in shown
    assert "<dt>majority class alone</dt><dd>96.00 %</dd>" in text[: text.index(">In short<")]
    assert "What a threshold finds" in text
    markdown = write_report(run_folder, "markdown")[0].read_text()
    assert "- of the majority class alone: 96.00 %" in markdown


def test_many_classes_are_folded(run_folder):
    truth = np.repeat(np.arange(50), np.arange(50) + 1)
    metrics = json.loads((run_folder / "metrics.json").read_text())
    metrics["evaluation"] = evaluate(truth, np.eye(50)[truth]).to_dict()
    (run_folder / "metrics.json").write_text(json.dumps(metrics))
    text = write_report(run_folder)[0].read_text()
    assert "21 others" in text


def test_without_test_nodes(run_folder):
    metrics = json.loads((run_folder / "metrics.json").read_text())
    (run_folder / "metrics.json").write_text(json.dumps({**metrics, "evaluation": None, "test_accuracy": None}))
    assert "Confusion" not in write_report(run_folder)[0].read_text().split("<main")[1].split("</aside>")[1]
    with pytest.raises(InvalidInput, match="nothing to draw"):
        write_report(run_folder, "svg")
