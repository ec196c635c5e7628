"""Commands about predictions of a run: `predict`, `tokens` and `serve`."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil.cli.options import Nodes, Root, RunPath, SplitSeed, about_tables, check_new_file, load_graph, read_names
from graphveil.errors import GraphveilError, InvalidInput

if TYPE_CHECKING:
    import numpy as np

    from graphveil.methods.estimator import NodeClassifier

FORMATS = ("csv", "json", "parquet")
_ROWS_AT_ONCE = 2**14
# What `serve` needs beside the rest.
_NEEDED = ("fastapi", "uvicorn", "httptools")


@about_tables
def predict(
    run: RunPath,
    nodes: Nodes = None,
    every: Annotated[bool, typer.Option("--all", help="All nodes of the training graph.")] = False,
    new: Annotated[Path | None, typer.Option(help="Table of new nodes: id, neighbors, features.")] = None,
    own_links: Annotated[
        bool, typer.Option("--own-links", help="Neighbours in --new are the asker's own, not from the private graph.")
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="Changed data of new nodes: a release that costs.")] = False,
    graph: Annotated[
        str | None, typer.Option(help="The training graph; gap, dp-sage and sage need it for --new.")
    ] = None,
    root: Root = None,
    split_seed: SplitSeed = 0,
    form: Annotated[str | None, typer.Option("--format", help="csv, json or parquet (default csv).")] = None,
    out: Annotated[Path | None, typer.Option(help="A new file; otherwise to standard output.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    *,
    tables: dict[str, Any],
) -> None:
    """Print class probabilities. Each prediction is for its own node only, unless the certificate says otherwise.

    Nodes of the training graph are free and always get the same answer. A new node's noise is drawn once and kept in
    the run before the answer is shown. Options about tables are about the tables of --graph, and --id-column also
    about that of --new.

    Example: graphveil predict runs/first --nodes 3,17 --format json
    """
    form = form or ("json" if as_json else "csv")
    _check_words(nodes, every, new, form, out, run)
    _check_options_of_new(new, {"graph": graph, "own_links": own_links, "update": update}, tables)
    model = _model(run, graph, root, split_seed, tables)
    naming, facts = model.fitted_.naming, model.plan_.facts
    if new is not None:
        from graphveil.artifact.predictions import read_new_nodes

        asked = read_new_nodes(new, naming, facts, tables["id_column"] or "id")
        probabilities = model.predict_new(
            asked.ids, asked.features, asked.neighbors, from_graph=not own_links, update=update
        )
        names = [name.strip() for name in asked.ids]
    else:
        if every and form == "csv":
            _write_predictions(_all_lines(model), out, f"{facts.nodes} predictions; {_spent(model)}")
            return
        places = range(facts.nodes) if every else naming.places("nodes", read_names(nodes or ""), facts.nodes)
        names = [naming.node(place) for place in places]
        probabilities = model.predict_proba(list(places))
    _write_predictions([_render(model, names, probabilities, form)], out, f"{len(names)} predictions; {_spent(model)}")


def _write_predictions(pieces: Iterable[bytes], out: Path | None, what: str) -> None:
    if out is None:
        for piece in pieces:
            typer.echo(piece.decode(), nl=False)
        return
    from graphveil.storage import replace_file

    try:
        replace_file(out, pieces)
    except OSError as error:
        raise InvalidInput("out", str(out), f"cannot be written: {error.strerror}") from None
    typer.echo(f"written to {out}: {what}")


def _all_lines(model: NodeClassifier) -> Iterator[bytes]:
    """The table of all nodes, some rows at a time: it may be longer than memory."""
    from graphveil.artifact.predictions import Probabilities, csv_head, csv_rows

    naming, probabilities = model.fitted_.naming, Probabilities(model.logits_, model.probabilities)
    yield csv_head(naming, probabilities.shape[1])
    for low in range(0, len(probabilities), _ROWS_AT_ONCE):
        rows = probabilities[low : low + _ROWS_AT_ONCE]
        yield csv_rows(naming, [naming.node(place) for place in range(low, low + len(rows))], rows)


def _check_words(nodes: str | None, every: bool, new: Path | None, form: str, out: Path | None, run: Path) -> None:
    """Everything that can be wrong before anything is read."""
    if (nodes is not None) + every + (new is not None) != 1:
        raise InvalidInput("nodes", nodes, "give one of --nodes, --all and --new")
    if form not in FORMATS:
        raise InvalidInput("format", form, f"must be one of {', '.join(FORMATS)}")
    if out is None:
        if form == "parquet":
            raise InvalidInput("out", None, "parquet is not for a terminal; name a file")
        return
    check_new_file(out, run)
    if not out.parent.is_dir():
        raise InvalidInput("out", str(out), "its folder does not exist")
    if not os.access(out.parent, os.W_OK):
        raise InvalidInput("out", str(out), "its folder cannot be written to")


def _check_options_of_new(new: Path | None, options: Mapping[str, object], tables: Mapping[str, Any]) -> None:
    """Refuse options that belong to new nodes, or to the graph that some models need for them, where these are not."""
    if new is None:
        for name, value in {**options, **tables}.items():
            if value:
                raise InvalidInput(name, value, "belongs to --new")
    elif options["graph"] is None:
        for name, value in tables.items():
            if value is not None and name != "id_column":
                raise InvalidInput(name, value, "belongs to --graph, the tables that the model was trained on")


def _model(
    run: Path, graph: str | None, root: Path | None, split_seed: int, tables: Mapping[str, Any]
) -> NodeClassifier:
    """The model of a run, with the training graph if it is given."""
    from graphveil.artifact import load

    model = load(run)
    if graph is None:
        return model
    from_files = Path(graph).exists() or os.sep in graph
    directed = model.plan_.facts.directed if from_files else None
    from_tables = Path(graph).is_dir() or Path(graph).suffix in (".csv", ".parquet")
    declared = model.fitted_.naming.declared() if from_tables else {}
    said = {name: value for name, value in tables.items() if value is not None}
    return load(run, graph=load_graph(graph, root, split_seed, directed, tables=declared | said))


def _render(model: NodeClassifier, names: Sequence[str], probabilities: np.ndarray, form: str) -> bytes:
    from graphveil.artifact.predictions import best_classes, csv_head, csv_rows
    from graphveil.validate import without_infinity

    naming, width = model.fitted_.naming, probabilities.shape[1]
    if form == "csv":
        return csv_head(naming, width) + csv_rows(naming, names, probabilities)
    best = best_classes(naming, probabilities)
    if form == "parquet":
        return _parquet(model, names, best, probabilities)
    rows: list[dict[str, Any]] = [
        {"node": name, "prediction": guess, "probabilities": [float(p) for p in row]}
        for name, guess, row in zip(names, best, probabilities, strict=True)
    ]
    classes = [naming.class_name(index) for index in range(width)]
    ledger = {"epsilon": without_infinity(model.epsilon_spent), "budget": without_infinity(model.budget_)}
    return (json.dumps({"classes": classes, "predictions": rows, "ledger": ledger}, indent=2) + "\n").encode()


def _parquet(model: NodeClassifier, names: Sequence[str], best: Sequence[str], probabilities: np.ndarray) -> bytes:
    import pyarrow.parquet

    from graphveil.methods.predictions import prediction_table

    sink = io.BytesIO()
    pyarrow.parquet.write_table(prediction_table(model.fitted_.naming, names, best, probabilities), sink)
    return sink.getvalue()


def _spent(model: NodeClassifier) -> str:
    if math.isinf(model.epsilon_spent):
        return "nothing is protected"
    return f"epsilon {model.epsilon_spent:.4g} of {model.budget_:.4g} spent"


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
    from graphveil.serve import Predictions, tokens_of

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
        text = _token_table({name: issued.of_node(name) for name in names}, as_json)
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidInput("out", str(out), f"cannot be written: {error.strerror}") from None
    typer.echo(f"written to {out}: {'1 token' if operator or len(names) == 1 else f'{len(names)} tokens'}")


def _token_table(tokens: dict[str, str], as_json: bool) -> str:
    if as_json:
        return json.dumps(tokens, indent=2) + "\n"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("node", "token"), *tokens.items()])
    return text.getvalue()


def serve(
    run: RunPath,
    host: Annotated[
        str, typer.Option(help="Address to listen on; anything but loopback needs TLS in front.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log requests, without tokens and names.")] = False,
) -> None:
    """Serve predictions over HTTP, each node's own, until Ctrl-C.

    Whoever asks needs a token of `graphveil tokens`.

    Example: graphveil serve runs/first --port 8080
    """
    if not 0 <= port <= 65535:
        raise InvalidInput("port", port, "must lie between 0 and 65535")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise GraphveilError(f"graphveil serve needs {', '.join(missing)}: pip install 'graphveil[serve]'")
    from graphveil.serve.app import app_of
    from graphveil.serve.server import address_of, bind, is_loopback, serve_until_told

    with bind(host, port) as bound:
        app = app_of(run)
        if not is_loopback(bound):
            typer.echo(f"warning: tokens travel in clear, and {host} is not loopback: put TLS in front", err=True)
        typer.echo(f"serving {run} on {address_of(bound)} until Ctrl-C")
        serve_until_told(app, bound, access_log=access_log)
