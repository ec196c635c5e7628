import json
import re
from dataclasses import replace

import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import SPECS
from graphveil.report import read_folder, write_report
from support.results import write_results


def test_markdown(results_folder):
    (path,) = write_report(results_folder, "markdown")
    text = path.read_text()
    assert path.name == "report.md"
    assert "## Table 2" in text
    assert "released without noise" in text
    assert "### Accuracy against seconds: cora" in text
    assert text.count("PRIVACY CERTIFICATE") == 7


def test_a_run_in_other_formats(run_folder):
    text = write_report(run_folder, "markdown")[0].read_text()
    assert "## Confusion matrix" in text
    assert "- test accuracy: 50.00 %" in text
    assert "validation accuracy" not in text
    assert [path.name for path in write_report(run_folder, "png")] == ["calibration.png"]


@pytest.mark.slow
def test_figures_as_files(results_folder):
    names = {"table2-k-cora", "table2-k-photo", "table2-seconds-cora", "table2-seconds-photo"}
    drawn = write_report(results_folder, "svg")
    assert {path.stem for path in drawn} == names
    assert all(path.parent == results_folder / "figures" and "<svg" in path.read_text() for path in drawn)
    painted = write_report(results_folder, "png", results_folder / "elsewhere")
    assert {path.stem for path in painted} == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in painted)
    # The same results make the same files.
    before = [path.read_bytes() for path in drawn]
    assert [path.read_bytes() for path in write_report(results_folder, "svg")] == before


def test_nothing_to_draw(tmp_path):
    spec = SPECS["table2"].narrowed(methods=["mlp"], levels=["none"], seeds=1)
    write_results(tmp_path, spec)
    with pytest.raises(InvalidInput, match="nothing to draw"):
        write_report(tmp_path, "svg")
    assert not (tmp_path / "figures").exists()


def test_a_report_that_cannot_be_written_leaves_the_old_one(results_folder, monkeypatch):
    (path,) = write_report(results_folder)
    before = path.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(InvalidInput, match="No space left"):
        write_report(results_folder)
    assert path.read_text() == before
    assert {p.name for p in results_folder.iterdir()} == {"calls.jsonl", "runs.jsonl", "report.html"}


def test_a_folder_is_not_replaced_by_a_file(results_folder, tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(InvalidInput, match="is a folder"):
        write_report(results_folder)
    assert not list(tmp_path.glob(".report-*"))


def test_the_papers_experiments_come_first(tmp_path):
    table = SPECS["table2"].narrowed(methods=["mlp"], seeds=1)
    figure = SPECS["figure-a"].narrowed(methods=["mlp"], seeds=1)
    own = replace(figure, name="a-figure"), replace(table, name="my-own")
    for place, spec in {"a": figure, "b": own[0], "c": own[1], "d": table}.items():
        (tmp_path / place).mkdir()
        write_results(tmp_path / place, spec)
    assert [experiment.place for experiment in read_folder(tmp_path)] == ["d", "a", "c", "b"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"key": "a"}', "is not the record of a run: 'run'"),
        ('{"key": "a", "run": {"level": {"name": "all"}}}', "level = 'all'"),
        ('{"key": "a", "run": 3}', "is not the record of a run"),
    ],
)
def test_a_record_that_is_none(results_folder, line, message):
    calls = json.loads((results_folder / "calls.jsonl").read_text())
    (results_folder / "calls.jsonl").write_text(json.dumps({**calls, "keys": ["a"]}) + "\n")
    (results_folder / "runs.jsonl").write_text(line + "\n")
    with pytest.raises(InvalidInput, match=re.escape(message)):
        write_report(results_folder)
    assert not (results_folder / "report.html").exists()


@pytest.mark.slow
def test_a_certificate_that_is_none(results_folder):
    lines = (results_folder / "runs.jsonl").read_text().replace("graphveil-certificate/4", "something-else/1")
    (results_folder / "runs.jsonl").write_text(lines)
    with pytest.raises(InvalidInput, match="its certificate cannot be read"):
        write_report(results_folder)
    assert not list(results_folder.glob("*report*"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metrics.json", "{", "cannot be read as JSON"),
        ("metrics.json", "[]", "must be an object"),
        ("metrics.json", "{}", "'graph': is missing"),
        ("certificate.json", "{}", "certificate schema"),
    ],
)
def test_damaged_files(run_folder, name, text, message):
    (run_folder / name).write_text(text)
    with pytest.raises(InvalidInput, match=message):
        write_report(run_folder)
    assert not (run_folder / "report.html").exists()


def test_a_call_that_is_none(results_folder):
    (results_folder / "calls.jsonl").write_text('{"title": "no spec"}\n')
    with pytest.raises(InvalidInput, match=r"calls\.jsonl = .*is missing or has the wrong form"):
        read_folder(results_folder)
