import json
import re
from dataclasses import replace

import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import SPECS
from graphveil.report import read_folder, write_report
from support.results import write_results


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
