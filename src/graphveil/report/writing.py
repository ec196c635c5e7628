"""Reports on disk: complete or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from graphveil.errors import InvalidInput
from graphveil.report.charts import Chart, charts_of
from graphveil.report.folders import Experiment, RunFolder, read_folder

FORMATS = ("html", "markdown", "png", "svg")
_FILES = {"html": "report.html", "markdown": "report.md"}


def write_report(folder: str | Path, form: str = "html", out: str | Path | None = None) -> list[Path]:
    """Write the report of a folder and return the files.

    `html` and `markdown` are one file (by default FOLDER/report.html or report.md), `png` and `svg` one file for
    each figure, in a folder (by default FOLDER/figures).
    """
    from graphveil.artifact import list_derived

    folder = Path(folder)
    if form not in FORMATS:
        raise InvalidInput("format", form, f"must be one of {', '.join(FORMATS)}")
    found = read_folder(folder)
    if form in _FILES:
        text = html_report(found) if form == "html" else _markdown(found)
        target = folder / _FILES[form] if out is None else Path(out)
        files = write_files(target.parent, {target.name: text.encode(errors="replace")})
    else:
        target = folder / "figures" if out is None else Path(out)
        files = write_files(target, _pictures(found, form, folder))
    if isinstance(found, RunFolder):
        list_derived(folder, files)
    return files


def html_report(found: list[Experiment] | RunFolder) -> str:
    """The page for what a folder holds."""
    # Drawing takes a second to import, which other formats and errors do not need.
    from graphveil.report.experiments_page import experiments_page
    from graphveil.report.run_page import run_page

    return run_page(found) if isinstance(found, RunFolder) else experiments_page(found)


def write_files(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Put files into a folder, each complete the moment it is there, and none unless all could be written."""
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


def _markdown(found: list[Experiment] | RunFolder) -> str:
    from graphveil.report.markdown import experiments_markdown, run_markdown

    return run_markdown(found) if isinstance(found, RunFolder) else experiments_markdown(found)


def _pictures(found: list[Experiment] | RunFolder, form: str, folder: Path) -> dict[str, bytes]:
    from graphveil.report.drawing import picture

    pictures: dict[str, bytes] = {}
    for chart in _charts(found):
        name, often = chart.name, 1
        while f"{name}.{form}".lower() in map(str.lower, pictures):
            often += 1
            name = f"{chart.name}-{often}"
        pictures[f"{name}.{form}"] = picture(chart, form)
    if not pictures:
        raise InvalidInput("folder", str(folder), "has nothing to draw: a figure needs runs to compare")
    return pictures


def _charts(found: list[Experiment] | RunFolder) -> list[Chart]:
    if not isinstance(found, RunFolder):
        return [chart for experiment in found for chart in charts_of(experiment.results)]
    if found.evaluation is None:
        return []
    from graphveil.report.run_page import calibration_chart

    return [calibration_chart(found.evaluation)]
