"""`graphveil init`: a first graph.json for tables, with comments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from graphveil.cli.options import AsJson, about_tables, seen_from_here


@about_tables
def init(
    nodes: Annotated[Path, typer.Argument(help="A table of nodes (.csv or .parquet), or the folder of nodes.csv.")],
    as_json: AsJson = False,
    *,
    tables: dict[str, Any],
) -> None:
    """Write a commented graph.json for a table of nodes.

    It also says which of its lines to look at.

    It goes by the names of columns and the first rows. What options say is taken as it is. The file and what is printed
    are for the owner of the tables: they were made by looking at private data.

    Example: graphveil init accounts.csv --edges transfers.csv
    """
    from graphveil.graph.io import table_options
    from graphveil.graph.io.draft import write_draft

    draft = write_draft(nodes, table_options(seen_from_here(tables)))
    if as_json:
        look = [{"line": line, "key": key, "why": why} for line, key, why in draft.look]
        typer.echo(json.dumps({"path": str(draft.path), "look": look}, indent=2))
        return
    typer.echo(f"written to {draft.path}, for the owner of the tables: it was made by looking at them")
    typer.echo("look at:")
    for line, key, why in draft.look:
        typer.echo(f"  line {line:>3}  {key}: {why}")
    typer.echo(f"then: graphveil train {draft.path.parent} --level k-neighbor --k 5 --epsilon 8 --out runs/first")
