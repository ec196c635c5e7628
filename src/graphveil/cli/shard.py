"""`graphveil shard`: divide a graph into parts, of which each process of a job reads its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli.options import Categories, Classes, Directed


def shard(
    graph: Annotated[str, typer.Argument(help="A dataset, a file or a folder.")],
    out: Annotated[Path, typer.Argument(help="New folder for the parts.")],
    parts: Annotated[int, typer.Option(help="At least as many as processes will run.")] = 16,
    directed: Directed = None,
    classes: Classes = None,
    categories: Categories = None,
    root: Annotated[Path | None, typer.Option(help="Raw datasets; else GRAPHVEIL_DATA, else ./data.")] = None,
    split_seed: Annotated[int, typer.Option(help="Seed of the random split.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Divide a graph into parts for several processes (docs/scale.md says how to write larger ones).

    Example: graphveil shard my-graph/ parts/ --parts 16
    """
    from graphveil.cli.train import _load, declared_words
    from graphveil.distributed.parts import write_parts

    found = _load(graph, root, split_seed, directed, **declared_words(classes, categories))
    write_parts(found, out, parts)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "parts": parts, "nodes": found.num_nodes, "edges": found.num_edges}))
        return
    typer.echo(f"{found!r}\nwritten to {out}/: graph.json and {parts} parts")
