"""Commands about graphs, before anything is trained: `init`, `datasets` and `shard`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil import validate
from graphveil.cli.options import (
    AsJson,
    Directed,
    Download,
    Root,
    SplitSeed,
    about_tables,
    load_graph,
    seen_from_here,
)

if TYPE_CHECKING:
    from graphveil.distributed.unfinished import Progress
    from graphveil.graph.datasets.paper import Statistics

# What tables at an address may use if nothing else is said.
_MEMORY = "4GiB"


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
    from graphveil.graph.datasets.paper import PAPER_TABLE_1, statistics

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
        typer.echo(json.dumps([_row_to_dict(ours, paper) for ours, paper in rows], indent=2))
    else:
        _print_table(rows)
    for message in missing:
        print(f"missing: {message}", file=sys.stderr)


def _row_to_dict(ours: Statistics, paper: Statistics | None) -> dict[str, Any]:
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


@about_tables
def shard(
    graph: Annotated[str, typer.Argument(help="A dataset, a file, a folder, or the address of a folder.")],
    out: Annotated[Path, typer.Argument(help="New folder for the parts.")],
    parts: Annotated[int, typer.Option(help="At least as many as processes will run.")] = 16,
    directed: Directed = None,
    memory: Annotated[
        str | None, typer.Option(help="Never use more than this, such as 4GiB: for tables that are longer than memory.")
    ] = None,
    root: Root = None,
    split_seed: SplitSeed = 0,
    as_json: AsJson = False,
    *,
    tables: dict[str, Any],
) -> None:
    """Divide a graph into parts for several processes (docs/scale.md).

    With --memory, tables are read some rows at a time, from one file or a folder of files, here or at an address such
    as s3://bucket/graph. A division that was ended goes on where it was when the same command is given again.

    Example: graphveil shard my-graph/ parts/ --parts 16 --memory 4GiB
    """
    from graphveil.distributed.division import divide_tables
    from graphveil.distributed.parts import write_parts
    from graphveil.distributed.unfinished import parse_memory
    from graphveil.graph.io import table_options

    validate.seed("split_seed", split_seed)
    if memory is None and "://" not in graph:
        whole = load_graph(graph, root, split_seed, directed, tables=tables)
        write_parts(whole, out, parts)
        nodes, edges, said = whole.num_nodes, whole.num_edges, str(whole.counts or repr(whole))
    else:
        with _progress() as progress:
            counts = divide_tables(
                graph,
                out,
                parts,
                parse_memory(memory or _MEMORY),
                options=table_options(tables),
                directed=directed,
                seed=split_seed,
                progress=progress,
            )
        nodes, edges, said = counts.nodes, counts.edges_stored, str(counts)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "parts": parts, "nodes": nodes, "edges": edges}))
        return
    typer.echo(f"{said}\nwritten to {out}/: graph.json and {parts} parts")


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar for each kind of work on a terminal, and nothing in a pipe."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield show
