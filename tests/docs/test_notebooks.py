"""Notebooks run from their first cell to their last, and the files hold what they show, pictures too.

Cells run as plain Python, without Jupyter. `make notebooks` runs them in Jupyter and stores what comes out.
"""

import ast
import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def cells(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["auditing", "fraud", "social-network"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = []
    monkeypatch.setattr(plt, "show", lambda: (shown.append(len(plt.get_fignums())), plt.close("all")))
    names = {"__name__": "notebook"}
    with mpl.rc_context({"backend": "agg"}):
        for number, cell in enumerate(cells(path), start=1):
            code = compile(ast.parse("".join(cell["source"])), f"{path.name}, cell {number}", "exec")
            exec(code, names)
    assert shown == [1] * len(pictures(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_what_they_show(path):
    assert pictures(path), "run: make notebooks"
    counts = [cell["execution_count"] for cell in cells(path)]
    assert counts == list(range(1, len(counts) + 1)), "run from the first cell to the last: make notebooks"
    outputs = [output for cell in cells(path) for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert path.stat().st_size < 300_000
    text = path.read_text(encoding="utf-8")
    assert "/tmp/" not in text
    assert "/home/" not in text


def pictures(path):
    outputs = [output for cell in cells(path) for output in cell["outputs"]]
    return [output for output in outputs if "image/png" in output.get("data", {})]
