"""Commands about the guarantee: `plan`, `ledger`, `audit` and `verify`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil import validate
from graphveil.cli.options import (
    METHOD_NAMES,
    AsJson,
    Attributes,
    BatchSize,
    Delta,
    Directed,
    K,
    LevelName,
    MaxDegree,
    Method,
    Root,
    RunPath,
    Shares,
    Steps,
    TableW,
    Unit,
    about_tables,
    chosen_level,
    default_epsilon,
    default_method,
    load_graph,
    parse_delta,
    parse_named,
    parse_number,
)
from graphveil.errors import InvalidInput
from graphveil.privacy.levels import UNITS, Level, Public, describe, level_to_dict

if TYPE_CHECKING:
    from rich.table import Table

    from graphveil.auditing import AuditReport
    from graphveil.graph import Graph
    from graphveil.privacy.mechanisms import Mechanism
    from graphveil.privacy.plan import Plan

# No node of the built-in graph is read by more.
_BUILT_IN_DEGREE = 25


def plan(
    nodes: Annotated[int, typer.Option(help="Number of nodes.")],
    train_nodes: Annotated[int, typer.Option(help="Number of training nodes.")],
    classes: Annotated[int, typer.Option(help="Number of classes.")],
    features: Annotated[int, typer.Option(help="Number of features.")] = 0,
    edges: Annotated[
        int | None, typer.Option("--public-edges", "--edges", help="A declared bound on the number of stored edges.")
    ] = None,
    directed: Annotated[bool, typer.Option("--directed/--undirected", help="What the graph declares itself.")] = False,
    method: Method = None,
    level: LevelName = "k-neighbor",
    k: K = None,
    max_degree: MaxDegree = None,
    unit: Unit = None,
    attributes: Attributes = True,
    epsilon: Annotated[
        float | None, typer.Option(help="The budget, for which the least noise is searched (default 8; edge: 1).")
    ] = None,
    delta: Delta = "auto",
    noise: Annotated[
        list[str] | None, typer.Option(help="Instead of --epsilon: a multiplier for all, or NAME=VALUE for each.")
    ] = None,
    share: Shares = None,
    shared_multiplier: Annotated[
        bool, typer.Option("--shared-multiplier", help="One noise multiplier for all, as in the paper.")
    ] = False,
    table: TableW = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    class_weight: Annotated[str | None, typer.Option(help="balanced: with counts of the classes.")] = None,
    hops: Annotated[int, typer.Option(help="GAP's hops.")] = 2,
    layers: Annotated[int, typer.Option(help="DP-SAGE's layers.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Print the mechanisms of a method, their noise and their cost. Needs no data.

    Example: graphveil plan --method dpdgc --level k-neighbor --k 5 --epsilon 16 --delta 1e-5 --nodes 7535
    --train-nodes 5651 --features 745 --classes 8

    The reverse: replace --epsilon 16 by --noise 30, or by --table trained --noise embedding=400 --noise release=2
    --noise head=40.
    """
    from graphveil.methods.spending import Settings, make_plan
    from graphveil.privacy.facts import PublicFacts

    chosen = chosen_level(level, k, max_degree, unit, attributes)
    for field, value in {"hops": hops, "layers": layers}.items():
        validate.count(field, value, most=1000)
    if epsilon is None and not noise:
        epsilon = default_epsilon(level)
    made = make_plan(
        method or default_method(table),
        chosen,
        PublicFacts(nodes, train_nodes, features, classes, directed, edges),
        epsilon=epsilon,
        delta=parse_delta(delta),
        settings=Settings(
            steps=steps,
            batch_size=batch_size,
            hops=hops,
            layers=layers,
            table=table or "auto",
            max_degree=max_degree,
            shares=parse_named("share", share),
            counts_classes=_counts_classes(class_weight),
        ),
        noise=_noise(noise),
        shared_multiplier=shared_multiplier,
    )
    if noise and math.isinf(made.epsilon) and not isinstance(made.level, Public):
        raise InvalidInput("delta", made.delta, "no epsilon can be certified at it here; take a larger one")
    warn_of_delta(made)
    if as_json:
        typer.echo(json.dumps(_plan_to_dict(made), indent=2))
    else:
        _show_plan(made)


def warn_of_delta(plan: Plan) -> None:
    """Warn on stderr of a delta that is large for the number of nodes; the certificate says it too."""
    from graphveil.privacy.facts import delta_warning

    warning = delta_warning(plan.level, plan.facts, plan.delta) if plan.all_mechanisms else None
    if warning is not None:
        typer.echo(f"WARNING: {warning}", err=True)


def _counts_classes(class_weight: str | None) -> bool:
    if class_weight not in (None, "balanced"):
        raise InvalidInput("class_weight", class_weight, "must be balanced; declared weights change no plan")
    return class_weight is not None


def _noise(values: list[str] | None) -> float | dict[str, float] | None:
    if not values:
        return None
    if len(values) == 1 and "=" not in values[0]:
        return _in_range("noise", parse_number("noise", values[0]))
    return {name: _in_range(f"noise {name}", value) for name, value in parse_named("noise", values).items()}


def _in_range(field: str, noise: float) -> float:
    """Outside of this range the accountants' arithmetic overflows."""
    if not 1e-100 <= noise <= 1e100:
        raise InvalidInput(field, noise, "must lie between 1e-100 and 1e100")
    return noise


def _plan_to_dict(plan: Plan) -> dict[str, object]:
    from graphveil.privacy.plan import mechanisms_to_list

    shares = {name: share for outcome in reversed(plan.outcomes()) for name, share in outcome.shares().items()}
    finite = math.isfinite(plan.epsilon)
    return {
        "method": plan.method,
        "level": level_to_dict(plan.level),
        "epsilon": plan.epsilon if finite else None,
        "rdp_epsilon": plan.rdp_epsilon if finite else None,
        "delta": plan.delta,
        "epsilon_by_kind": plan.epsilon_by_kind() if finite else None,
        "branches": [branch.name for branch in plan.branches],
        "mechanisms": [
            {**item, "noise_std": m.noise, "uses": m.uses, "share": shares[m.name]}
            for item, m in zip(mechanisms_to_list(plan.shared, plan.branches), plan.all_mechanisms, strict=True)
        ],
        "assumptions": list(plan.assumptions),
    }


def _mechanism_table(mechanisms: Sequence[Mechanism], outcomes: Sequence[Plan]) -> Table:
    """Mechanisms that all of these outcomes of a plan have."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("mechanism", "what", "sensitivity", "noise", "share of mu²"):
        table.add_column(heading)
    shares = [outcome.shares() for outcome in outcomes]
    for m in mechanisms:
        parts = sorted(share[m.name] for share in shares)
        texts = dict.fromkeys(f"{part:.1%}" for part in (parts[0], parts[-1]) if part) or ["-"]
        table.add_row(m.name, m.type, f"{m.sensitivity.worst:.4g}", m.describe_noise(), " to ".join(texts))
    return table


def _show_plan(plan: Plan) -> None:
    from rich.console import Console

    from graphveil.privacy.mechanisms import READS_THE_GRAPH

    console = Console(highlight=False)
    console.print(f"{plan.method}: {describe(plan.level)}")
    if not plan.all_mechanisms:
        why = "trained without noise" if math.isinf(plan.epsilon) else "the model reads nothing that is protected"
        console.print(f"No mechanisms: {why}.")
        return
    if plan.branches:
        console.print("First, whatever comes out of it:")
    console.print(_mechanism_table(plan.shared, plan.outcomes()))
    if plan.branches:
        number = len(plan.branches)
        console.print(f"Then one of {number} branches, by what was released; each is accounted at delta / {number}:")
    for branch in plan.branches:
        reads = any(mechanism.role in READS_THE_GRAPH for mechanism in branch.mechanisms)
        console.print(f"branch {branch.name} ({'reads the graph' if reads else 'features alone'})")
        console.print(_mechanism_table(branch.mechanisms, [plan.follow(branch.name)]))
    by_kind = plan.epsilon_by_kind()
    kinds = ", ".join(f"{value:.4g} for {kind} nodes" for kind, value in by_kind.items())
    differing = f" ({kinds})" if len(set(by_kind.values())) > 1 else ""
    console.print(f"total: epsilon {plan.epsilon:.4f} at delta {plan.delta:.3g}{differing}")
    console.print(f"cross-check by Rényi accounting: {plan.rdp_epsilon:.4f}")
    for line in plan.assumptions:
        console.print(f"assumed: {line}")


def ledger(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file that `train --ledger FILE` wrote.")],
    limit: Annotated[float | None, typer.Option(help="Set the epsilon that all trainings together may cost.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print what trainings on the same people have cost together.

    It lists the trainings of a ledger, their cost, and the room that is left.

    Example: graphveil ledger people.json
    """
    from graphveil.privacy.budget import BudgetLedger

    book = BudgetLedger(path)
    if limit is not None:
        book.set_limit(limit)
    account = book.account
    if account is None:
        raise InvalidInput("ledger", str(path), "there is no such file; `graphveil train --ledger FILE` makes it")
    typer.echo(json.dumps(account.to_dict(), indent=2) if as_json else str(account))


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
    from graphveil.storage import check_folder

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
        _audited_level(level, k, max_degree, unit, attributes, data, twin),
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
        _write_audit(out, report)
    typer.echo(report.to_json() if as_json else str(report))
    if report.verdict == "violated":
        raise typer.Exit(1)


def _audited_level(
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


def _write_audit(out: Path, report: AuditReport) -> None:
    from graphveil.auditing.report import draw_picture, picture_in_words
    from graphveil.storage import write_files

    words = picture_in_words(report)
    content = json.loads(report.to_json()) | {"picture": words}
    texts = {"audit.json": json.dumps(content, indent=2) + "\n", "audit.txt": f"{report}\n\n{words}\n"}
    write_files(out, {name: text.encode() for name, text in texts.items()})
    try:
        draw_picture(report, out)
    except InvalidInput as missing:
        print(f"note: {missing}", file=sys.stderr)


def verify(
    run: RunPath,
    audits: Annotated[bool, typer.Option(help="Also run the cheap attacks.")] = True,
    as_json: AsJson = False,
) -> None:
    """Check a run folder against its certificate.

    The certificate is recomputed with both accountants, the run's files are compared with it, and its mechanisms are
    audited.

    The exit code is 1 if there are problems, and 2 if the folder or its certificate cannot be read.

    Example: graphveil verify runs/first
    """
    from graphveil.auditing.verify import verify as check

    verification = check(run, audits=audits)
    if as_json:
        typer.echo(json.dumps(verification.to_dict(), indent=2, allow_nan=False))
    elif verification.ok:
        typer.echo(f"{run}: the certificate holds ({len(verification.findings)} audits passed)")
        if verification.epsilon_spent is not None:
            typer.echo(f"spent, with later releases for new nodes: epsilon {verification.epsilon_spent:.4g}")
    else:
        lines = (f"  - {problem}" for problem in verification.problems)
        typer.echo("\n".join([f"{run}: {len(verification.problems)} problems", *lines]))
    if not verification.ok:
        raise typer.Exit(1)
