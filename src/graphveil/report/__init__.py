"""Reports: tables, figures and certificates of experiments, or of a single run, as one page that opens from disk.

Nothing here computes a result; everything is read from what `graphveil bench` and `graphveil train --out` wrote.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphveil.errors import InvalidInput
from graphveil.evaluation import Evaluation
from graphveil.experiments import escaped, markdown_table, plain_table
from graphveil.experiments.paper import ABOUT_THE_PAPERS_FIGURES, SPECS
from graphveil.experiments.results import CALLS, RUNS, Results, read_results
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.levels import level_from_dict
from graphveil.report.charts import Chart, Point, Series, calibration_chart, charts_of
from graphveil.report.document import Collection, plain
from graphveil.report.leaderboard import board_page, boards_markdown
from graphveil.storage import write_files

__all__ = [
    "FORMATS",
    "Chart",
    "Experiment",
    "Point",
    "RunFolder",
    "Series",
    "charts_of",
    "html_report",
    "read_folder",
    "write_report",
]


FORMATS = ("html", "markdown", "leaderboard", "png", "svg")
_FILES = {"html": "report.html", "markdown": "report.md", "leaderboard": "leaderboard.md"}
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


def write_report(folder: str | Path, form: str = "html", out: str | Path | None = None) -> list[Path]:
    """Write the report of a folder.

    Args:
        folder: Results of `graphveil bench`, in it or below it, or a run of `graphveil train --out`.
        form: html, markdown or leaderboard (methods by rank and each cell, without certificates), one file; or png or
            svg, one file for each figure.
        out: The file (by default report.html, report.md or leaderboard.md in FOLDER), or for png and svg the folder (by
            default FOLDER/figures).

    Returns:
        The files that were written.

    Raises:
        InvalidInput: If the format is unknown, the folder holds no results or damaged ones, nothing can be drawn, or
            the files cannot be written.
    """
    from graphveil.artifact import list_derived

    folder = Path(folder)
    if form not in FORMATS:
        raise InvalidInput("format", form, f"must be one of {', '.join(FORMATS)}")
    content = read_folder(folder)
    if form in _FILES:
        text = _WRITERS[form](content)
        target = folder / _FILES[form] if out is None else Path(out)
        files = write_files(target.parent, {target.name: text.encode(errors="replace")})
    else:
        target = folder / "figures" if out is None else Path(out)
        files = write_files(target, _pictures(content, form, folder))
    if isinstance(content, RunFolder):
        list_derived(folder, files)
    return files


def html_report(content: list[Experiment] | RunFolder) -> str:
    """The report as one HTML document.

    Args:
        content: What `read_folder` returned.

    Returns:
        The document. It holds its style, script and figures, and loads nothing.
    """
    # Imported here because matplotlib takes a second to load, which other formats and errors do not need.
    from graphveil.report.pages import experiments_page, run_page

    return run_page(content) if isinstance(content, RunFolder) else experiments_page(content)


def markdown_report(content: list[Experiment] | RunFolder) -> str:
    """The report as Markdown, for repositories and chats; figures become tables of their numbers."""
    parts = _run_markdown(content) if isinstance(content, RunFolder) else _experiments_markdown(content)
    return plain("\n\n".join(parts) + "\n")


def leaderboard_report(content: list[Experiment] | RunFolder) -> str:
    """Leaderboards alone, as Markdown: a page to keep beside code.

    Raises:
        InvalidInput: If nothing is compared.
    """
    boards = [] if isinstance(content, RunFolder) else [part for each in content for part in board_page(each.results)]
    if not boards:
        raise InvalidInput(
            "format", "leaderboard", "needs an experiment with several methods, whose columns are graphs"
        )
    return plain("\n\n".join(boards) + "\n")


_WRITERS = {"html": html_report, "markdown": markdown_report, "leaderboard": leaderboard_report}


def _experiments_markdown(experiments: Sequence[Experiment]) -> list[str]:
    certificates = Collection()
    parts = ["# Node classification on private graphs"]
    if any(table.has_questioned_figures for each in experiments for table in each.results.tables):
        parts += [text.replace("(†) ", "") for text in ABOUT_THE_PAPERS_FIGURES]
    for experiment in experiments:
        parts += [markdown_table(experiment.results), *boards_markdown(experiment.results)]
        parts += [_numbers(chart) for chart in charts_of(experiment.results)]
        for record in experiment.results.records:
            certificates.add(record)
    if certificates.certificates:
        parts.append("## Certificates\n\nThose of runs that differ only in their seed are listed once.")
        parts += [_indented(str(certificate)) for certificate in certificates.certificates]
    return parts


def _run_markdown(run: RunFolder) -> list[str]:
    metrics = run.metrics
    parts = [f"# {escaped(run.certificate.method)} on {escaped(str(metrics['graph']))}", f"> {FOR_THE_OWNER}"]
    scores = {"test": metrics["test_accuracy"], "validation": metrics["val_accuracy"]}
    known = [f"- {name} accuracy: {100 * value:.2f} %" for name, value in scores.items() if value is not None]
    if run.evaluation is not None:
        majority = f"- of the majority class alone: {100 * run.evaluation.majority_accuracy:.2f} %"
        known = [*known[:1], majority, *known[1:], *(f"- {line}" for line in run.evaluation.sentences())]
    parts += ["\n".join([*known, *(f"- {line}" for line in run.certificate.learnt)])] if known else []
    parts += ["## Certificate", _indented(str(run.certificate))]
    if run.evaluation is not None:
        names = run.evaluation.classes
        rows = ([name, *map(str, row)] for name, row in zip(names, run.evaluation.confusion, strict=True))
        parts += ["## Confusion matrix (rows: true class)", plain_table(["true class", *names], rows)]
        parts += [_numbers(calibration_chart(run.evaluation), "##")]
    if metrics.get("command"):
        parts += ["## To do it again", _indented(str(metrics["command"]))]
    return parts


def _numbers(chart: Chart, level: str = "###") -> str:
    rows = ([f"{label}, {what}" if what else label, *values] for label, what, *values in chart.numbers())
    table = plain_table(["series", chart.x_label, chart.y_label, "interval", chart.counted], rows)
    return f"{level} {escaped(chart.kind)}: {escaped(chart.title)}\n\n{table}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _pictures(content: list[Experiment] | RunFolder, form: str, folder: Path) -> dict[str, bytes]:
    from graphveil.report.drawing import picture

    pictures: dict[str, bytes] = {}
    for chart in _charts(content):
        name, often = chart.name, 1
        while f"{name}.{form}".lower() in map(str.lower, pictures):
            often += 1
            name = f"{chart.name}-{often}"
        pictures[f"{name}.{form}"] = picture(chart, form)
    if not pictures:
        raise InvalidInput("folder", str(folder), "has nothing to draw: a figure needs runs to compare")
    return pictures


def _charts(content: list[Experiment] | RunFolder) -> list[Chart]:
    if isinstance(content, RunFolder):
        return [] if content.evaluation is None else [calibration_chart(content.evaluation)]
    return [chart for experiment in content for chart in charts_of(experiment.results)]
