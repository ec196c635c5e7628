import json

import numpy as np
import pytest

from graphveil.evaluation import evaluate
from graphveil.experiments import SPECS
from graphveil.storage import Journal
from support.results import certificate_of, record


@pytest.fixture
def results_folder(tmp_path):
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


@pytest.fixture
def evaluation():
    draws = np.random.default_rng(1)
    return evaluate(draws.integers(3, size=400), draws.dirichlet(np.ones(3), size=400), ("a", "<b>", "c"))


@pytest.fixture
def run_folder(tmp_path, evaluation):
    """What `graphveil train --out` writes, as far as a report reads it."""
    metrics = {"graph": "mine", "method": "dpdgc", "test_accuracy": 0.5, "val_accuracy": None, "seconds": 1.0}
    more = {"evaluation": evaluation.to_dict(), "command": "graphveil train mine.npz --out run"}
    (tmp_path / "metrics.json").write_text(json.dumps({**metrics, **more}))
    (tmp_path / "certificate.json").write_text(certificate_of(True).to_json())
    return tmp_path
