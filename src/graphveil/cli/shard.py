"""`graphveil shard`: divide a graph into parts, of which each process of a job reads its own."""

from __future__ import annotations

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
    Root,
    SplitSeed,
    about_tables,
    load_graph,
)

if TYPE_CHECKING:
    from graphveil.distributed.unfinished import Progress

# What tables at an address may use if nothing else is said.
_MEMORY = "4GiB"


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
    from graphveil.distributed.part_files import write_parts
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
