"""`graphveil audit`: attack a method's guarantee and bound epsilon from below."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil.cli.options import (
    METHOD_NAMES,
    AsJson,
    Attributes,
    BatchSize,
    Delta,
    Directed,
    K,
    MaxDegree,
    Root,
    Steps,
    TableW,
    Unit,
    about_tables,
    chosen_level,
    load_graph,
    parse_delta,
)
from graphveil.errors import InvalidInput
from graphveil.privacy.levels import UNITS, Level

if TYPE_CHECKING:
    from graphveil.auditing import AuditReport
    from graphveil.graph import Graph

# No node of the built-in graph is read by more.
_BUILT_IN_DEGREE = 25


@about_tables
def audit(
    graph: Annotated[str | None, typer.Argument(help="A dataset, a file or a folder; else a built-in cSBM.")] = None,
    method: Annotated[str | None, typer.Option(help=f"{METHOD_NAMES}; default dpdgc, or the twin's.")] = None,
    level: Annotated[
        str | None, typer.Option(help="edge, k-neighbor or node (default k-neighbor, or the twin's).")
    ] = None,
    k: K = None,
    max_degree: MaxDegree = None,
    unit: Unit = None,
    attributes: Attributes = True,
    epsilon: Annotated[float | None, typer.Option(help="The claimed budget (default 4).")] = None,
    delta: Delta = "auto",
    table: TableW = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help="release, table, gradient, response, joint, one-run, end-to-end, links, membership, or arithmetic; "
            "may be repeated. Without it: all but arithmetic."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Canaries of each attack on mechanisms (100000); random pairs of arithmetic alone (0)."),
    ] = None,
    fits: Annotated[int | None, typer.Option(help="Fits of the end-to-end attack (200).")] = None,
    scale: Annotated[float, typer.Option(help="Size of the graphs of arithmetic: 1 takes a minute.")] = 1.0,
    twin: Annotated[str | None, typer.Option(help="Audit a broken twin: published, halved-noise, ...")] = None,
    confidence: Annotated[float, typer.Option(help="A sound method is flagged with at most 1 minus this.")] = 0.95,
    every: Annotated[bool, typer.Option("--all", help="Every method, level, twin; csbm, cora, chameleon.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="With --all: few canaries, csbm only.")] = False,
    root: Root = None,
    seed: Annotated[int | None, typer.Option(help="Makes the audit repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for audit.json, audit.txt and the picture.")] = None,
    as_json: AsJson = False,
    *,
    directed: Directed = None,
    tables: dict[str, Any],
) -> None:
    """Attack a method's guarantee and bound its epsilon from below.

    The exit code is 1 if the claim is violated.

    Example: graphveil audit --method dpdgc --level k-neighbor --k 1 --epsilon 4 --seed 1
    """
    from graphveil.auditing import TWINS, survey
    from graphveil.auditing import audit as run_audit
    from graphveil.storage.files import check_folder

    if every:
        page = survey.run(out or Path("docs/results/audit"), root=root, seed=seed or 0, quick=quick)
        typer.echo(f"written to {page}")
        return
    if out is not None:
        check_folder("out", out)
    if twin is not None and twin not in TWINS:
        raise InvalidInput("twin", twin, f"must be one of {', '.join(TWINS)}")
    method = method or (TWINS[twin].method if twin else "dpdgc")
    said = any(value is not None for value in (directed, *tables.values()))
    data = load_graph(graph or "csbm", root, 0, directed, tables=tables) if graph or said else None
    options: dict[str, Any] = {"table": table, "steps": steps, "batch_size": batch_size}
    if level != "node":
        options["max_degree"] = max_degree
    report = run_audit(
        method,
        _level(level, k, max_degree, unit, attributes, data, twin),
        epsilon,
        graph=data,
        delta=parse_delta(delta),
        attacks=attack,
        twin=twin,
        trials=trials,
        fits=fits,
        confidence=confidence,
        scale=scale,
        seed=seed,
        **{name: value for name, value in options.items() if value is not None},
    )
    if out is not None:
        _write(out, report)
    typer.echo(report.to_json() if as_json else str(report))
    if report.verdict == "violated":
        raise typer.Exit(1)


def _level(
    name: str | None,
    k: int | None,
    max_degree: int | None,
    unit: str | None,
    attributes: bool,
    graph: Graph | None,
    twin: str | None,
) -> Level | None:
    """The level that the options name; None leaves the choice to the twin."""
    if name is None:
        if k is None and unit is None and attributes and twin is not None:
            return None
        name = "edge" if unit in UNITS else "k-neighbor"
    if name == "node" and max_degree is None and graph is None:
        max_degree = _BUILT_IN_DEGREE
    return chosen_level(name, k, max_degree, unit, attributes)


def _write(out: Path, report: AuditReport) -> None:
    from graphveil.auditing.report import draw_picture, picture_in_words
    from graphveil.storage.files import write_files

    words = picture_in_words(report)
    content = json.loads(report.to_json()) | {"picture": words}
    texts = {"audit.json": json.dumps(content, indent=2) + "\n", "audit.txt": f"{report}\n\n{words}\n"}
    write_files(out, {name: text.encode() for name, text in texts.items()})
    try:
        draw_picture(report, out)
    except InvalidInput as missing:
        print(f"note: {missing}", file=sys.stderr)
