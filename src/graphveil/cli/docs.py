"""`graphveil docs`: the pages that certificates and messages cite, where there is no copy of the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli.options import AsJson
from graphveil.errors import InvalidInput


def docs(
    page: Annotated[str | None, typer.Argument(help="A page, such as theory; without it, the list of pages.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a page of the documentation, or the list of pages.

    Certificates cite docs/theory.md: its text comes with every installation.

    Example: graphveil docs theory
    """
    pages = {file.stem: file for file in sorted(_folder().glob("*.md"))}
    if page is None:
        titles = {name: _title(file) for name, file in pages.items()}
        lines = (f"{name:12} {title}" for name, title in titles.items())
        typer.echo(json.dumps(titles, indent=2) if as_json else "\n".join(lines))
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        raise InvalidInput("page", page, f"must be one of {', '.join(pages)}")
    text = pages[name].read_text(encoding="utf-8")
    typer.echo(json.dumps({"page": name, "text": text}, indent=2) if as_json else text, nl=as_json)


def _folder() -> Path:
    """The pages in an installed package, or those of the source tree that it runs from."""
    package = Path(__file__).parents[1]
    for place in (package / "docs", package.parents[1] / "docs"):
        if (place / "theory.md").is_file():
            return place
    raise InvalidInput("docs", str(package / "docs"), "the pages are missing; install graphveil again")


def _title(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("# ").strip()
