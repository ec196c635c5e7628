import json

import numpy as np
import pytest

from graphveil.errors import InvalidInput
from graphveil.report import evaluate, write_report
from support.results import certificate_of


@pytest.fixture
def evaluation():
    draws = np.random.default_rng(1)
    return evaluate(draws.integers(3, size=400), draws.dirichlet(np.ones(3), size=400), ("a", "<b>", "c"))


@pytest.fixture
def folder(tmp_path, evaluation):
    metrics = {"graph": "mine", "method": "dpdgc", "test_accuracy": 0.5, "val_accuracy": None, "seconds": 1.0}
    more = {"evaluation": evaluation.to_dict(), "command": "graphveil train mine.npz --out run"}
    (tmp_path / "metrics.json").write_text(json.dumps({**metrics, **more}))
    (tmp_path / "certificate.json").write_text(certificate_of(True).to_json())
    return tmp_path


def test_the_page(folder):
    (path,) = write_report(folder)
    text = path.read_text()
    assert "For the data owner" in text
    assert "50.00 %" in text
    assert "What is NOT protected" in text
    assert "share of the budget" in text
    assert "Confusion matrix" in text
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
    assert "Reliability diagram" in text
    assert "graphveil train mine.npz --out run" in text


def test_many_classes_are_folded(folder):
    truth = np.repeat(np.arange(50), np.arange(50) + 1)
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["evaluation"] = evaluate(truth, np.eye(50)[truth]).to_dict()
    (folder / "metrics.json").write_text(json.dumps(metrics))
    text = write_report(folder)[0].read_text()
    assert "21 others" in text


def test_other_formats(folder):
    assert "## Confusion matrix" in write_report(folder, "markdown")[0].read_text()
    assert [path.name for path in write_report(folder, "png")] == ["calibration.png"]


def test_without_test_nodes(folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({**metrics, "evaluation": None, "test_accuracy": None}))
    assert "Confusion" not in write_report(folder)[0].read_text().split("<main>")[1].split("</aside>")[1]
    with pytest.raises(InvalidInput, match="nothing to draw"):
        write_report(folder, "svg")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metrics.json", "{", "cannot be read as JSON"),
        ("metrics.json", "[]", "must be an object"),
        ("metrics.json", "{}", "'graph': is missing"),
        ("certificate.json", "{}", "certificate schema"),
    ],
)
def test_damaged_files(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(InvalidInput, match=message):
        write_report(folder)
    assert not (folder / "report.html").exists()
