"""`graphveil datasets`: the paper's Table 1, recomputed."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil.cli.options import AsJson, Download, Root

if TYPE_CHECKING:
    from graphveil.graph.statistics import Statistics


def datasets(
    names: Annotated[list[str] | None, typer.Argument(help="Graphs to describe; all known ones by default.")] = None,
    root: Root = None,
    download: Download = False,
    as_json: AsJson = False,
) -> None:
    """Recompute the paper's Table 1 for the graphs at hand.

    Graphs whose raw files are missing are named on stderr.

    Example: graphveil datasets cora photo --root data --json
    """
    from rich.console import Console
    from rich.progress import track

    from graphveil.graph.datasets import MissingData, canonical_name, dataset_names, load_dataset
    from graphveil.graph.statistics import PAPER_TABLE_1, statistics

    wanted = [canonical_name(name) for name in names or dataset_names()]
    rows, missing = [], list[str]()
    terminal = Console(stderr=True)
    for name in track(wanted, "reading", console=terminal, transient=True, disable=not terminal.is_terminal):
        try:
            graph = load_dataset(name, root, download=download)
        except MissingData as error:
            missing.append(str(error))
            continue
        rows.append((dataclasses.replace(statistics(graph), name=name), PAPER_TABLE_1.get(name)))
    if as_json:
        typer.echo(json.dumps([_to_dict(ours, paper) for ours, paper in rows], indent=2))
    else:
        _print_table(rows)
    for message in missing:
        print(f"missing: {message}", file=sys.stderr)


def _to_dict(ours: Statistics, paper: Statistics | None) -> dict[str, Any]:
    row = dataclasses.asdict(ours)
    if paper is not None:
        printed = dataclasses.asdict(paper)
        del printed["name"]
        row |= {"paper": printed, "matches_paper": ours.printed() == paper.printed()}
    return row


def _print_table(rows: list[tuple[Statistics, Statistics | None]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    table.add_column("graph", no_wrap=True)
    for heading in ("nodes", "edges", "features", "classes", "density", "homophily"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("paper")
    for ours, paper in rows:
        table.add_row(ours.name, *ours.printed(), "" if paper is None else _difference(ours, paper))
    Console().print(table)


def _difference(ours: Statistics, paper: Statistics) -> str:
    """The paper's figures where they differ from ours."""
    pairs = zip(ours.printed(), paper.printed(), strict=True)
    return ", ".join(theirs for own, theirs in pairs if own != theirs) or "same"
