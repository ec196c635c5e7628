import json

import pytest

from graphveil.experiments import SPECS
from support.results import write_results


@pytest.fixture
def folder(tmp_path):
    write_results(tmp_path / "results", SPECS["figure-a"].narrowed(seeds=1))
    return tmp_path / "results"


@pytest.mark.slow
def test_the_command(run_process, folder, tmp_path):
    out = tmp_path / "shown" / "page.html"
    done = run_process("report", folder, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"format": "html", "files": [str(out)]}
    assert done.stderr == ""
    assert "Figure (a)" in out.read_text()
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "folder = 'nowhere': there is no such folder"),
        (["{folder}/runs.jsonl"], "there is no such folder"),
        (["{folder}", "--format", "pdf"], "format = 'pdf'"),
        (["{folder}", "--out", "{folder}"], "is a folder"),
        (["{folder}", "--out", "{folder}/runs.jsonl/report.html"], "cannot be written to"),
        (["{folder}/empty"], "holds no results"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(run, folder, words, message):
    (folder / "empty").mkdir()
    before = sorted(folder.rglob("*"))
    done = run("report", *(word.format(folder=folder) for word in words))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_help_has_an_example(run):
    assert "Example: graphveil report results/" in run("report", "--help").stdout
