"""Made-up results in the form in which the runner writes them: real specs, real journals, a real certificate."""

import json
import random
from functools import cache

from graphveil.experiments import SPECS
from graphveil.methods.spending import make_plan
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import KNeighbor, Public, level_to_dict
from graphveil.storage import Journal

FACTS = PublicFacts(nodes=2708, train_nodes=2031, features=1433, classes=7)
VERSIONS = {"python": "3.11", "graphveil": "0.1.0", "torch": "2.13.0"}


@cache
def certificate_of(private):
    level, epsilon = (KNeighbor(1), 16.0) if private else (Public(), None)
    return Certificate.of(make_plan("dpdgc", level, FACTS, epsilon=epsilon), "AES-256, seeded", secure=False)


def certificate(run, *, apart_by=None):
    """A certificate that says what the run was; `apart_by` makes it differ from all others."""
    data = certificate_of(run.epsilon is not None).to_dict()
    if run.epsilon is not None:
        data = {**data, "level": {**level_to_dict(run.level)}, "method": run.method, "epsilon": run.epsilon}
        if data["level"].get("unit", "") is None:
            data["level"]["unit"] = "undirected"
    return data if apart_by is None else {**data, "assumptions": [*data["assumptions"], f"This is {apart_by}."]}


def record(run, accuracy, *, apart_by=None):
    return {
        "key": run.key,
        "run": run.to_dict(),
        "status": "done",
        "test_accuracy": accuracy,
        "val_accuracy": accuracy,
        "macro_f1": accuracy,
        "class_f1": [accuracy] * 7,
        "seconds": 1.0 + 10 * accuracy,
        "certificate": certificate(run, apart_by=apart_by),
        "total_seconds": 12.0,
        "peak_memory_mb": 400.0,
        "threads": 1,
        "versions": VERSIONS,
        "code": "0123456789ab",
        "finished": "2026-01-02T03:04:05+00:00",
    }


def write_results(folder, spec, *, runs=None, all_apart=False):
    """The journals of a finished spec. Accuracies are drawn, the same for the same run."""
    runs = spec.runs() if runs is None else runs
    call = {
        "spec": spec.name,
        "title": spec.title,
        "axis": spec.axis,
        "command": f"graphveil bench {spec.name} --seeds {len(spec.seeds)}",
        "keys": [run.key for run in runs],
    }
    with Journal(folder / "calls.jsonl") as calls:
        calls.append(call)
    with Journal(folder / "runs.jsonl") as lines:
        lines.append(_drawn(runs[0], all_apart))
    # The rest by hand: a journal waits for the disk after every line, and there are thousands.
    with (folder / "runs.jsonl").open("a") as file:
        file.writelines(json.dumps(_drawn(run, all_apart)) + "\n" for run in runs[1:])


def _drawn(run, all_apart):
    accuracy = 0.4 + 0.5 * random.Random(run.key).random()
    return record(run, accuracy, apart_by=run.key if all_apart else None)


def write_paper(folder, seeds=10):
    """Everything that the paper has, one folder for each table and figure; the number of runs."""
    total = 0
    for name, spec in SPECS.items():
        spec = spec.narrowed(seeds=seeds)
        write_results(folder / name, spec)
        total += len(spec.runs())
    return total
