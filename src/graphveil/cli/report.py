"""`graphveil report`: results as one page that opens from disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli.options import AsJson
from graphveil.errors import InvalidInput


def report(
    folder: Annotated[Path, typer.Argument(help="Results of bench, in it or below it, or a run of train --out.")],
    form: Annotated[
        str, typer.Option("--format", help="html, markdown, or png or svg: one file for each figure.")
    ] = "html",
    out: Annotated[
        Path | None, typer.Option(help="The file, or for png and svg the folder; by default in FOLDER.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a report of results: one file that needs no network.

    It has tables, figures, certificates and commands.

    Example: graphveil report results/
    """
    from graphveil.report import write_report

    files = write_report(folder, form, out)
    if as_json:
        typer.echo(json.dumps({"format": form, "files": [str(file) for file in files]}, indent=2))
        return
    for file in files:
        typer.echo(f"written to {file}")


def report_on(out: Path) -> None:
    """Write the report of a run. If that fails, the run is still complete, so it is only a note."""
    from graphveil.report import write_report

    try:
        write_report(out)
    except (InvalidInput, OSError) as error:
        print(f"note: the run is complete, its report is not: {error}; graphveil report {out}", file=sys.stderr)
