import json

import numpy as np
import pytest

from graphveil.errors import InvalidInput
from graphveil.report import Evaluation, evaluate, write_report
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


def test_counts_add_up(evaluation):
    assert evaluation.count == 400 == sum(b.count for b in evaluation.bins)
    assert Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict()))) == evaluation
    for b in evaluation.bins:
        low, high = b.interval
        assert 0 <= low <= b.accuracy <= high <= 1


def test_nodes_without_a_label_do_not_count():
    assert evaluate(np.array([-1, -1]), np.full((2, 3), 1 / 3)) is None
    assert evaluate(np.array([-1, 2]), np.full((2, 3), 1 / 3)).count == 1


def test_a_perfect_model_is_calibrated():
    found = evaluate(np.array([0, 1]), np.eye(2))
    assert (found.accuracy, found.calibration_error) == (1, 0)


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
