import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import SPECS, GraphRef
from graphveil.report import charts_of, read_folder, write_report
from graphveil.storage.journal import Journal
from support.results import record, write_paper, write_results

HOSTILE = '</script><script>alert(1)</script><img src=x onerror=alert(1)>"$\\frac{&amp;\x00\n_|'


class Tags(HTMLParser):
    """All tags of a page, and whether every one that was opened is closed in its place."""

    def __init__(self, text):
        super().__init__()
        self.found, self._open = [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def small(tmp_path):
    """Table 2 on two graphs, two seeds; one run failed and one is missing."""
    spec = SPECS["table2"].narrowed(seeds=2, levels=["none", "N_1", "N_5"])
    runs = [run for run in spec.runs() if run.graph.name in ("cora", "photo")]
    with Journal(tmp_path / "calls.jsonl") as calls, Journal(tmp_path / "runs.jsonl") as lines:
        call = {"spec": "table2", "title": spec.title, "axis": "graph", "command": "graphveil bench table2 --seeds 2"}
        calls.append({**call, "keys": [run.key for run in runs]})
        for run in runs[:-2]:
            lines.append(record(run, {"dpdgc": 0.6, "gap": 0.5}.get(run.method, 0.599) + 0.01 * run.seed))
        error = {"kind": "Oops", "message": "a < b"}
        lines.append({**record(runs[-2], 0), "status": "failed", "error": error})
    return tmp_path


def test_the_table_in_the_form_of_the_paper(small):
    (path,) = write_report(small)
    assert path == small / "report.html"
    text = path.read_text()
    tags = Tags(text)
    assert "<strong>60.50 ± 0.50</strong>" in text
    assert "<u>60.40 ± 0.50</u>" in text
    assert "paper 59.98 ± 0.81†" in text
    assert "paper 82.44 ± 0.83</small>" in text
    assert "released without noise" in text
    assert "1 failed, 1 not run yet" in text
    assert "Oops: a &lt; b" in text
    assert "graphveil bench table2 --seeds 2" in text
    assert "torch 2.13.0" in text
    images = [attributes for tag, attributes in tags.found if tag == "svg"]
    assert images
    assert all(image["role"] == "img" and image["aria-labelledby"] for image in images)
    assert text.count("<title id=") == text.count("<desc id=") == len(images)


def test_nothing_is_loaded(small):
    tags = Tags(write_report(small)[0].read_text())
    assert [attributes["src"] for _, attributes in tags.found if "src" in attributes] == []
    addresses = [attributes.get("href") or attributes.get("xlink:href") or "" for _, attributes in tags.found]
    assert [address for address in addresses if address and not address.startswith(("#", "data:"))] == []
    policy = next(a["content"] for tag, a in tags.found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_equal_certificates_are_kept_once(small):
    text = write_report(small)[0].read_text()
    data = json.loads(re.search(r'id="runs">(.*?)</script>', text)[1])
    cells = {(tuple(cell["certificates"])) for cell in data["cells"]}
    assert len(data["certificates"]) == len(cells) == 7
    assert len(data["lines"]) == len({tuple(line) for line in data["lines"]})
    first = [data["lines"][line][1] for line in data["certificates"][0]]
    assert "Nothing is protected." in first


def test_ids_are_unique(small):
    tags = Tags(write_report(small)[0].read_text())
    ids = [attributes["id"] for _, attributes in tags.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["xlink:href"][1:] for _, a in tags.found if "xlink:href" in a}
    assert targets <= set(ids)


@pytest.mark.slow
def test_curves_are_drawn_where_the_runs_have_them(tmp_path):
    write_paper(tmp_path, seeds=2)
    kinds = {e.results.name: {chart.kind for chart in charts_of(e.results)} for e in read_folder(tmp_path)}
    seconds = "Accuracy against seconds"
    assert next(iter(kinds)) == "table2"
    assert kinds == {
        "table2": {"Accuracy against k", seconds},
        "figure-a": {"Accuracy against epsilon", seconds},
        "figure-b": {"Accuracy against epsilon", seconds},
        "figure-c": {"Accuracy against k", seconds},
        "figure-d": {"Accuracy against phi"},
    }
    text = write_report(tmp_path)[0].read_text()
    assert text.count("<section") == 5
    assert text.count("About the paper") == 1


def test_a_sweep_in_a_table_is_drawn_beside_what_it_costs(tmp_path):
    spec = SPECS["figure-a"].narrowed(methods=["dpdgc"], seeds=1)
    public = replace(SPECS["table2"].settings[0], methods=("dpdgc",))
    write_results(tmp_path, replace(spec, axis="graph", settings=(*spec.settings, public)))
    curve = charts_of(read_folder(tmp_path)[0].results)[0]
    assert [(line.label, len(line.points), line.level_line) for line in curve.series] == [
        ("dpdgc (table = trained), edge", 6, False),
        ("dpdgc (table = auto), edge", 6, False),
        ("dpdgc, none", 1, True),
    ]


def test_the_papers_experiments_come_first(tmp_path):
    table = SPECS["table2"].narrowed(methods=["mlp"], seeds=1)
    figure = SPECS["figure-a"].narrowed(methods=["mlp"], seeds=1)
    own = replace(figure, name="a-figure"), replace(table, name="my-own")
    for place, spec in {"a": figure, "b": own[0], "c": own[1], "d": table}.items():
        (tmp_path / place).mkdir()
        write_results(tmp_path / place, spec)
    assert [experiment.place for experiment in read_folder(tmp_path)] == ["d", "a", "c", "b"]


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
    if form == "png":
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
            assert sum(tag == "script" for tag, _ in Tags(text).found) == 2
        if form == "markdown":
            assert "&lt;script&gt;" in text


def test_markdown(small):
    (path,) = write_report(small, "markdown")
    text = path.read_text()
    assert path.name == "report.md"
    assert "## Table 2" in text
    assert "released without noise" in text
    assert "### Accuracy against seconds: cora" in text
    assert text.count("PRIVACY CERTIFICATE") == 7


@pytest.mark.slow
def test_figures_as_files(small):
    names = {"table2-k-cora", "table2-k-photo", "table2-seconds-cora", "table2-seconds-photo"}
    drawn = write_report(small, "svg")
    assert {path.stem for path in drawn} == names
    assert all(path.parent == small / "figures" and "<svg" in path.read_text() for path in drawn)
    painted = write_report(small, "png", small / "elsewhere")
    assert {path.stem for path in painted} == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in painted)
    # The same results make the same files.
    before = [path.read_bytes() for path in drawn]
    assert [path.read_bytes() for path in write_report(small, "svg")] == before


def test_nothing_to_draw(tmp_path):
    spec = SPECS["table2"].narrowed(methods=["mlp"], levels=["none"], seeds=1)
    write_results(tmp_path, spec)
    with pytest.raises(InvalidInput, match="nothing to draw"):
        write_report(tmp_path, "svg")
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"key": "a"}', "is not the record of a run: 'run'"),
        ('{"key": "a", "run": {"level": {"name": "all"}}}', "level = 'all'"),
        ('{"key": "a", "run": 3}', "is not the record of a run"),
    ],
)
def test_a_record_that_is_none(small, line, message):
    calls = json.loads((small / "calls.jsonl").read_text())
    (small / "calls.jsonl").write_text(json.dumps({**calls, "keys": ["a"]}) + "\n")
    (small / "runs.jsonl").write_text(line + "\n")
    with pytest.raises(InvalidInput, match=re.escape(message)):
        write_report(small)
    assert not (small / "report.html").exists()


@pytest.mark.slow
def test_a_certificate_that_is_none(small):
    lines = (small / "runs.jsonl").read_text().replace("graphveil-certificate/2", "something-else/1")
    (small / "runs.jsonl").write_text(lines)
    with pytest.raises(InvalidInput, match="its certificate cannot be read"):
        write_report(small)
    assert not list(small.glob("*report*"))


def test_a_report_that_cannot_be_written_leaves_the_old_one(small, monkeypatch):
    (path,) = write_report(small)
    before = path.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(InvalidInput, match="No space left"):
        write_report(small)
    assert path.read_text() == before
    assert {p.name for p in small.iterdir()} == {"calls.jsonl", "runs.jsonl", "report.html"}
