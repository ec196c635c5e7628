import pytest

from graphveil.experiments import SPECS, as_text, read_results, summary
from graphveil.storage import Journal
from support.results import record

ACCURACY = {"dpdgc": 0.60, "gap": 0.50, "mlp": 0.598}


@pytest.fixture
def folder(tmp_path):
    """Made-up results of Table 2 at N_1 on two graphs and three seeds; one run is missing and one failed."""
    spec = SPECS["table2"].narrowed(levels=["N_1"], seeds=3)
    runs = [run for run in spec.runs() if run.graph.name in ("cora", "photo")]
    runs = [run for run in runs if run.options.get("table", "trained") == "trained"]
    call = {"spec": "table2", "title": spec.title, "axis": "graph", "command": "graphveil bench table2 --seeds 3"}
    with Journal(tmp_path / "calls.jsonl") as calls, Journal(tmp_path / "runs.jsonl") as lines:
        calls.append({**call, "keys": [run.key for run in runs]})
        for run in runs[:-2]:
            lines.append(record(run, ACCURACY[run.method] + 0.01 * (run.seed - 1)))
        lines.append({**record(runs[-2], 0), "status": "failed", "error": {"kind": "Oops", "message": "no"}})
    return tmp_path


def test_the_table_in_the_form_of_the_paper(folder):
    text = summary(folder)
    assert (folder / "table.md").read_text() == text
    lines = text.splitlines()
    assert lines[0].startswith("## Table 2")
    assert "| level | method | cora | photo |" in lines
    best = next(line for line in lines if "| dpdgc |" in line)
    assert best.startswith("| N_1, epsilon = 16 | dpdgc | **60.00 ± ")
    assert "<sub>n = 3; paper 59.98 ± 0.81</sub>" in best
    assert "<sub>n = 3; paper 88.38 ± 0.44</sub>" in best
    close = next(line for line in lines if "| mlp |" in line)
    assert "<u>59.80 ± " in close
    assert "<sub>n = 2; paper 85.61 ± 0.42</sub>" in close
    far = next(line for line in lines if "| gap |" in line)
    assert "| 50.00 ± " in far


def test_what_is_needed_to_do_it_again(folder):
    text = summary(folder)
    assert "16 of 18 runs done" in text
    assert "1 failed: gap on photo, Oops: no" in text
    assert "Seeds: 0, 1, 2." in text
    assert "gap: cap_degrees = True, max_degree = 100" in text
    assert "Threads for each run: 1." in text
    assert "python 3.11" in text
    assert "    graphveil bench table2 --seeds 3" in text


def test_the_same_on_a_terminal(folder):
    text = as_text(read_results(folder)[0])
    assert "60.00 ± 2.48*" in text  # Student's t for three seeds
    assert "~" in text
    assert "(59.98 ± 0.81)" in text
    assert "<sub>" not in text
    assert text.count("N_1, epsilon = 16") == 1, "a level stands beside its first row"
