"""`graphveil shard`: divide a graph into parts, of which each process of a job reads its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli.options import (
    AsJson,
    Categories,
    Classes,
    Directed,
    Root,
    SplitSeed,
    load_graph,
    parse_declared,
)


def shard(
    graph: Annotated[str, typer.Argument(help="A dataset, a file or a folder.")],
    out: Annotated[Path, typer.Argument(help="New folder for the parts.")],
    parts: Annotated[int, typer.Option(help="At least as many as processes will run.")] = 16,
    directed: Directed = None,
    classes: Classes = None,
    categories: Categories = None,
    root: Root = None,
    split_seed: SplitSeed = 0,
    as_json: AsJson = False,
) -> None:
    """Divide a graph into parts for several processes (docs/scale.md says how to write larger ones).

    Example: graphveil shard my-graph/ parts/ --parts 16
    """
    from graphveil.distributed.parts import write_parts

    whole = load_graph(graph, root, split_seed, directed, **parse_declared(classes, categories))
    write_parts(whole, out, parts)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "parts": parts, "nodes": whole.num_nodes, "edges": whole.num_edges}))
        return
    typer.echo(f"{whole!r}\nwritten to {out}/: graph.json and {parts} parts")
