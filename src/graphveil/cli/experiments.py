"""Commands about experiments: `bench` runs one, `report` makes a page of its results, or of a run."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil.cli.options import AsJson, Root, command_line
from graphveil.errors import InvalidInput
from graphveil.privacy.levels import NODE_UNITS, UNITS

if TYPE_CHECKING:
    from graphveil.experiments import Results, Spec


def bench(
    experiment: Annotated[
        str, typer.Argument(help="table2, figure-a to figure-d, field, or a .toml file of one's own.")
    ],
    graphs: Annotated[str | None, typer.Option(help="Only these graphs, or others, or files: cora,mine.npz")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these methods: dpdgc,mlp")] = None,
    levels: Annotated[str | None, typer.Option(help="Only these levels: none,edge,N_1,k-neighbor,node")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of random splits (the paper: 10).")] = None,
    metric: Annotated[
        str | None, typer.Option(help="Compare by accuracy (default), average_precision, auc, macro_f1, ...")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="Edge level: undirected, or directed as the paper counts. N_k and node: replace or zero-out."
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; by default one for each core.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each run; by default cores / jobs.")] = None,
    backend: Annotated[str, typer.Option(help="Where jobs run: loky (this machine) or ray (a cluster).")] = "loky",
    out: Annotated[Path, typer.Option(help="Folder of the results; finished runs there are not repeated.")] = Path(
        "results"
    ),
    root: Root = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment, or go on with one, and print its table.

    Each finished run is one line of OUT/runs.jsonl; OUT/table.md has the tables. The exit code is 1 if runs failed.

    Example: graphveil bench table2 --graphs cora,chameleon --methods dpdgc,mlp --seeds 2 --root data --out results
    """
    from graphveil.experiments import read_results, run_spec, summary

    spec = _chosen(experiment, graphs, methods, levels, seeds, unit, metric, root)
    try:
        progress = run_spec(
            spec,
            out,
            root=root,
            jobs=jobs,
            threads=threads,
            backend=backend,
            retry_failed=retry_failed,
            command=command_line(),
        )
    except KeyboardInterrupt:
        print("interrupted: finished runs are kept, and the same command goes on from here", file=sys.stderr)
        raise
    summary(out)
    results = next(results for results in read_results(out) if results.name == spec.name)
    if as_json:
        typer.echo(json.dumps({"out": str(out), **asdict(progress), **_results_to_dict(results)}, indent=2))
    else:
        _show_results(results, out)
    if progress.failed:
        raise typer.Exit(1)


def _chosen(
    experiment: str,
    graphs: str | None,
    methods: str | None,
    levels: str | None,
    seeds: int | None,
    unit: str | None,
    metric: str | None,
    root: Path | None,
) -> Spec:
    from graphveil.experiments import builtin_spec, read_spec
    from graphveil.experiments.execution import chosen_graphs, graphs_at_hand

    if unit is not None and unit not in (*UNITS, *NODE_UNITS):
        raise InvalidInput("unit", unit, f"must be one of {', '.join((*UNITS, *NODE_UNITS))}")
    spec = read_spec(experiment) if experiment.endswith(".toml") else builtin_spec(experiment)
    spec = spec.narrowed(
        methods=_words("methods", methods),
        levels=_words("levels", levels),
        seeds=seeds,
        unit=unit,
        metric=metric,
    )
    place = None if root is None else str(root)
    named = _words("graphs", graphs)
    if named is not None:
        return chosen_graphs(spec, named, place)
    spec, notes = graphs_at_hand(spec, place)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return spec


def _words(field: str, text: str | None) -> list[str] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InvalidInput(field, text, "must name at least one")
    return words


def _show_results(results: Results, out: Path) -> None:
    from graphveil.experiments import as_text

    typer.echo(as_text(results))
    typer.echo(f"* best of its level, ~ within its interval, in brackets the paper's figure; written to {out}/table.md")


def _results_to_dict(results: Results) -> dict[str, Any]:
    return {
        "experiment": results.name,
        "title": results.title,
        "metric": results.metric,
        "tables": [asdict(table) for table in results.tables],
        "errors": [{"key": record["key"], **record["error"]} for record in results.failed],
    }


def report(
    folder: Annotated[Path, typer.Argument(help="Results of bench, in it or below it, or a run of train --out.")],
    form: Annotated[
        str, typer.Option("--format", help="html, markdown, leaderboard, or png or svg: one file for each figure.")
    ] = "html",
    out: Annotated[
        Path | None, typer.Option(help="The file, or for png and svg the folder; by default in FOLDER.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a report of results: one file that needs no network.

    It has tables, figures, certificates and commands.

    Example: graphveil report results/
    """
    from graphveil.report import write_report

    files = write_report(folder, form, out)
    if as_json:
        typer.echo(json.dumps({"format": form, "files": [str(file) for file in files]}, indent=2))
        return
    for file in files:
        typer.echo(f"written to {file}")


def report_on(out: Path) -> None:
    """Write the report of a run. If that fails, the run is still complete, so it is only a note."""
    from graphveil.report import write_report

    try:
        write_report(out)
    except (InvalidInput, OSError) as error:
        print(f"note: the run is complete, its report is not: {error}; graphveil report {out}", file=sys.stderr)
