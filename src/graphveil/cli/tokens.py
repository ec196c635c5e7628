"""`graphveil tokens`: who may ask `graphveil serve` for what."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli.options import Nodes, RunPath, check_new_file, read_names
from graphveil.errors import InvalidInput


def tokens(
    run: RunPath,
    nodes: Nodes = None,
    every: Annotated[bool, typer.Option("--all", help="All nodes.")] = False,
    operator: Annotated[
        bool, typer.Option("--operator", help="The operator's token, which exports everything.")
    ] = False,
    renew: Annotated[bool, typer.Option("--renew", help="First end all tokens given so far.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A new file that only you can read; otherwise to the terminal.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of CSV.")] = False,
) -> None:
    """Print tokens for `graphveil serve`. Hand each to its own node: it opens that node's prediction and no other.

    Tokens are not stored anywhere; they are computed from a secret in the run's owner/ folder.

    Example: graphveil tokens runs/first --nodes 3,17
    """
    if (nodes is not None) + every + operator != 1:
        raise InvalidInput("nodes", nodes, "give one of --nodes, --all and --operator")
    check_new_file(out, run)
    from graphveil.artifact import load
    from graphveil.serve.answers import Predictions, tokens_of

    predictions = Predictions.of(load(run))
    names = [] if operator else [*map(predictions.name, range(len(predictions)))] if every else read_names(nodes or "")
    for name in names:
        if predictions.place(name) is None:
            raise InvalidInput("nodes", name, "is not a node of this run")
    issued = tokens_of(run, renew=renew)
    if operator:
        token = issued.of_operator()
        text = (json.dumps({"operator": token}) if as_json else token) + "\n"
    else:
        text = _table({name: issued.of_node(name) for name in names}, as_json)
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidInput("out", str(out), f"cannot be written: {error.strerror}") from None
    typer.echo(f"written to {out}: {'1 token' if operator or len(names) == 1 else f'{len(names)} tokens'}")


def _table(tokens: dict[str, str], as_json: bool) -> str:
    if as_json:
        return json.dumps(tokens, indent=2) + "\n"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("node", "token"), *tokens.items()])
    return text.getvalue()
