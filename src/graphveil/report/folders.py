"""Reads the folder of a report: experiments of `graphveil bench`, in it or below it, or a run of `graphveil train`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphveil.errors import InvalidInput
from graphveil.evaluation import Evaluation
from graphveil.experiments.paper import SPECS
from graphveil.experiments.results import CALLS, RUNS, Results, read_results
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.levels import level_from_dict

METRICS, CERTIFICATE = "metrics.json", "certificate.json"
FOR_THE_OWNER = (
    "All scores on this page are computed from labels that the certificate does not cover. They are "
    "for the owner of the data: publishing them spends privacy that nobody has counted."
)


@dataclass(frozen=True)
class Experiment:
    """One experiment of a folder.

    Args:
        place: The folder that holds it, relative to the folder of the report.
        results: Its runs.
    """

    place: str
    results: Results


@dataclass(frozen=True)
class RunFolder:
    """A run that `graphveil train --out` wrote.

    Args:
        metrics: Its scores, and the command that made it.
        certificate: Its certificate.
        evaluation: The confusion matrix and the calibration, if there were test nodes.
    """

    metrics: Mapping[str, Any]
    certificate: Certificate
    evaluation: Evaluation | None


def read_folder(folder: Path) -> list[Experiment] | RunFolder:
    """Read what a report is about.

    Args:
        folder: A folder with results.

    Returns:
        All experiments in the folder and below it, the paper's first; or the single run that it holds.

    Raises:
        InvalidInput: If there is no such folder, it holds no results, or they are damaged.
    """
    if not folder.is_dir():
        raise InvalidInput("folder", str(folder), "there is no such folder")
    if (folder / METRICS).is_file():
        return _read_run(folder)
    experiments = [
        Experiment(os.path.relpath(place, folder), results)
        for place in _result_folders(folder)
        for results in _read_checked(place)
    ]
    if not experiments:
        raise InvalidInput("folder", str(folder), "holds no results of graphveil bench or graphveil train --out")
    return sorted(experiments, key=_place_in_report)


def _place_in_report(experiment: Experiment) -> tuple[int, bool]:
    """The paper's experiments in its order, then others; tables before figures."""
    last, known = experiment.results.calls[-1], list(SPECS)
    return known.index(last["spec"]) if last["spec"] in known else len(known), last["axis"] != "graph"


def _result_folders(folder: Path) -> list[Path]:
    places = []
    for place, below, files in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if RUNS in files:
            places.append(Path(place))
    return places


def _read_checked(place: Path) -> list[Results]:
    """The results of a folder; a line that is not the record of a run is an error that names it."""
    try:
        experiments = read_results(place)
    except (KeyError, TypeError) as error:
        raise InvalidInput(str(place / CALLS), str(error), "is missing or has the wrong form") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("folder", str(place), f"cannot be read: {error}") from None
    for results in experiments:
        for record in results.records:
            try:
                _check(record)
            except (KeyError, TypeError, AttributeError, ValueError, InvalidInput) as error:
                raise InvalidInput(str(place / RUNS), record["key"], f"is not the record of a run: {error}") from None
    return experiments


def _check(record: Mapping[str, Any]) -> None:
    """Read every field that a report needs; a missing one raises here, before anything is written."""
    run = record["run"]
    level_from_dict(run["level"])
    float(0 if run["epsilon"] is None else run["epsilon"])
    str(run["graph"]["name"]), str(run["method"]), int(run["seed"]), run["delta"], run["options"].items()
    float(record["total_seconds"]), record["threads"]
    if record["status"] == "done":
        float(record["seconds"]), float(record["test_accuracy"] or 0)
    else:
        str(record["error"]["kind"]), str(record["error"]["message"])


def _read_run(folder: Path) -> RunFolder:
    metrics = _read_json(folder / METRICS)
    path = folder / CERTIFICATE
    try:
        certificate = Certificate.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), str(error), "cannot be read") from None
    for key in ("graph", "method", "test_accuracy", "val_accuracy", "seconds"):
        if key not in metrics:
            raise InvalidInput(str(folder / METRICS), key, "is missing")
    evaluation = metrics.get("evaluation")
    return RunFolder(metrics, certificate, None if evaluation is None else Evaluation.from_dict(evaluation))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(str(path), str(error), "cannot be read as JSON") from None
    if not isinstance(data, dict):
        raise InvalidInput(str(path), type(data).__name__, "must be an object")
    return data
