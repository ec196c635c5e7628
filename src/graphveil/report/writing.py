"""Writes a report in each of its formats; a file is on disk completely, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from graphveil.errors import InvalidInput
from graphveil.experiments.paper import ABOUT_THE_PAPERS_FIGURES
from graphveil.experiments.summary import cell_line, escaped, markdown_table
from graphveil.report.charts import Chart, calibration_chart, charts_of
from graphveil.report.document import Collection, plain
from graphveil.report.folders import FOR_THE_OWNER, Experiment, RunFolder, read_folder
from graphveil.report.leaderboard import boards_markdown

FORMATS = ("html", "markdown", "png", "svg")
_FILES = {"html": "report.html", "markdown": "report.md"}


def write_report(folder: str | Path, form: str = "html", out: str | Path | None = None) -> list[Path]:
    """Write the report of a folder.

    Args:
        folder: Results of `graphveil bench`, in it or below it, or a run of `graphveil train --out`.
        form: html or markdown, one file; or png or svg, one file for each figure.
        out: The file (by default FOLDER/report.html or FOLDER/report.md), or for png and svg the folder (by default
            FOLDER/figures).

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
        text = html_report(content) if form == "html" else markdown_report(content)
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


def write_files(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Put files into a folder, each complete the moment it is there, and none unless all could be written.

    Args:
        folder: Made if it is not there.
        files: Their contents by name.

    Returns:
        The paths of the files.

    Raises:
        InvalidInput: If the folder or a file cannot be written, or a folder or device has a file's name.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".report-", dir=folder))
    except OSError as error:
        raise InvalidInput("out", str(folder), f"cannot be written to: {error.strerror}") from None
    try:
        for name, data in files.items():
            if (folder / name).is_dir():
                raise InvalidInput("out", str(folder / name), "is a folder")
            if (folder / name).exists() and not (folder / name).is_file():
                raise InvalidInput("out", str(folder / name), "is not an ordinary file, and would be replaced by one")
            (beside / name).write_bytes(data)
        for name in files:
            os.replace(beside / name, folder / name)
    except OSError as error:
        raise InvalidInput("out", str(folder), f"cannot be written to: {error.strerror}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return [folder / name for name in files]


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
        parts += ["## Confusion matrix (rows: true class)", _table(["true class", *names], rows)]
        parts += [_numbers(calibration_chart(run.evaluation), "##")]
    if metrics.get("command"):
        parts += ["## To do it again", _indented(str(metrics["command"]))]
    return parts


def _numbers(chart: Chart, level: str = "###") -> str:
    rows = ([f"{label}, {what}" if what else label, *values] for label, what, *values in chart.numbers())
    table = _table(["series", chart.x_label, chart.y_label, "interval", chart.counted], rows)
    return f"{level} {escaped(chart.kind)}: {escaped(chart.title)}\n\n{table}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [cell_line(map(escaped, heads)), cell_line("---" for _ in heads)]
    return "\n".join([*lines, *(cell_line(map(escaped, row)) for row in rows)])


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
