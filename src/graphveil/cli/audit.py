"""`graphveil audit`: attack a method's guarantee and bound epsilon from below."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil.cli.plan import _delta
from graphveil.cli.train import _load
from graphveil.errors import InvalidInput
from graphveil.privacy.levels import Level, make_level

if TYPE_CHECKING:
    from graphveil.auditing import AuditReport
    from graphveil.graph import Graph


def audit(
    graph: Annotated[str | None, typer.Argument(help="A dataset, a file or a folder; else a built-in cSBM.")] = None,
    method: Annotated[str | None, typer.Option(help="dpdgc, auto, gap, mlp, sage, randedge or dp-sage.")] = None,
    level: Annotated[str | None, typer.Option(help="edge, k-neighbor or node (default k-neighbor).")] = None,
    k: Annotated[int | None, typer.Option(help="Neighbours that change together (k-neighbor; default 1).")] = None,
    max_degree: Annotated[int | None, typer.Option(help="Promise: nobody is read by more nodes than this.")] = None,
    unit: Annotated[str | None, typer.Option(help="undirected or directed (level edge).")] = None,
    attributes: Annotated[bool, typer.Option(help="Features and labels are private.")] = True,
    epsilon: Annotated[float | None, typer.Option(help="The claimed budget (default 4).")] = None,
    delta: Annotated[str, typer.Option(help="A number, or auto: by the number of protected units.")] = "auto",
    table: Annotated[str | None, typer.Option(help="DPDGC's W: auto, trained, labels, labels+neighbors, ...")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of each private training.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Poisson batches of this expected size.")] = None,
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
    root: Annotated[Path | None, typer.Option(help="Raw datasets; else GRAPHVEIL_DATA, else ./data.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the audit repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for audit.json, audit.txt and the picture.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Try to break a method's guarantee, and print a lower bound on epsilon beside the claim.

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
    data = None if graph is None else _load(graph, root, 0, None)
    options: dict[str, Any] = {"table": table, "steps": steps, "batch_size": batch_size}
    if level != "node":
        options["max_degree"] = max_degree
    report = run_audit(
        method,
        _level(level, k, max_degree, unit, attributes, data, twin),
        epsilon,
        graph=data,
        delta=_delta(delta),
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
    """None leaves the choice to the twin, or to the default."""
    if name is None:
        if k is None and unit is None and attributes and twin is not None:
            return None
        name = "edge" if unit is not None else "k-neighbor"
    if name == "k-neighbor" and k is None:
        k = 1
    promised = max_degree if name == "node" else None
    if name == "node" and promised is None:
        if graph is not None:
            raise InvalidInput("max_degree", None, "level node needs a promise on the degree: --max-degree")
        promised = 25  # the built-in graph keeps it
    return make_level(name, k=k, max_degree=promised, unit=unit, attributes=attributes)


def _write(out: Path, report: AuditReport) -> None:
    from graphveil.auditing import picture
    from graphveil.report.writing import write_files

    words = picture.text_of(report)
    found = json.loads(report.to_json()) | {"picture": words}
    texts = {"audit.json": json.dumps(found, indent=2) + "\n", "audit.txt": f"{report}\n\n{words}\n"}
    write_files(out, {name: text.encode() for name, text in texts.items()})
    try:
        picture.draw(report, out)
    except InvalidInput as missing:
        print(f"note: {missing}", file=sys.stderr)
