"""`graphveil plan`: what noise would this take, or what would this noise give, before any data is touched."""

from __future__ import annotations

import json
import math
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.methods.plans import METHODS, Settings, make_plan
from graphveil.privacy.facts import PublicFacts, delta_warning
from graphveil.privacy.levels import Public, describe, level_to_dict, make_level
from graphveil.privacy.plan import Plan, mechanisms_to_list


def plan(
    nodes: Annotated[int, typer.Option(help="Number of nodes.")],
    train_nodes: Annotated[int, typer.Option(help="Number of training nodes.")],
    classes: Annotated[int, typer.Option(help="Number of classes.")],
    features: Annotated[int, typer.Option(help="Number of features.")] = 0,
    edges: Annotated[
        int | None, typer.Option("--public-edges", "--edges", help="A declared bound on the number of stored edges.")
    ] = None,
    directed: Annotated[bool, typer.Option("--directed/--undirected", help="What the graph declares itself.")] = False,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "dpdgc",
    level: Annotated[str, typer.Option(help="none, edge, k-neighbor or node.")] = "k-neighbor",
    k: Annotated[int | None, typer.Option(help="Neighbours that change together (level k-neighbor).")] = None,
    max_degree: Annotated[int | None, typer.Option(help="Promise: nobody is read by more nodes than this.")] = None,
    unit: Annotated[str | None, typer.Option(help="undirected or directed (level edge).")] = None,
    attributes: Annotated[bool, typer.Option(help="Features and labels are private.")] = True,
    epsilon: Annotated[float | None, typer.Option(help="Target; the least noise that meets it is found.")] = None,
    delta: Annotated[str, typer.Option(help="A number, or auto: by the number of protected units.")] = "auto",
    noise: Annotated[
        list[str] | None, typer.Option(help="Instead of --epsilon: a multiplier for all, or NAME=VALUE for each.")
    ] = None,
    share: Annotated[list[str] | None, typer.Option(help="NAME=PART: a mechanism's part of mu^2.")] = None,
    shared_multiplier: Annotated[
        bool, typer.Option("--shared-multiplier", help="One noise multiplier for all, as in the paper.")
    ] = False,
    table: Annotated[str, typer.Option(help="DPDGC's W: auto, trained, labels, ...; see docs/choosing.md.")] = "auto",
    steps: Annotated[int | None, typer.Option(help="Steps of each trained part; by default by epsilon.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Poisson batches of this expected size.")] = None,
    hops: Annotated[int, typer.Option(help="GAP's hops.")] = 2,
    layers: Annotated[int, typer.Option(help="DP-SAGE's layers.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the mechanisms of a method, their noise and their cost. Needs no data.

    Example: graphveil plan --method dpdgc --level k-neighbor --k 5 --epsilon 16 --delta 1e-5 --nodes 7535
    --train-nodes 5651 --features 745 --classes 8

    The reverse: replace --epsilon 16 by --noise 30, or by --table trained --noise embedding=400 --noise release=2
    --noise head=40.
    """
    if level == "node" and max_degree is None:
        raise InvalidInput("max_degree", None, "level node needs a promise on the degree: --max-degree")
    for field, value in {"hops": hops, "layers": layers}.items():
        validate.count(field, value, most=1000)
    made = make_plan(
        method,
        make_level(level, k=k, max_degree=max_degree, unit=unit, attributes=attributes),
        PublicFacts(nodes, train_nodes, features, classes, directed, edges),
        epsilon=epsilon,
        delta=_delta(delta),
        settings=Settings(
            steps=steps,
            batch_size=batch_size,
            hops=hops,
            layers=layers,
            table=table,
            max_degree=max_degree,
            shares=_named("share", share),
        ),
        noise=_noise(noise),
        shared_multiplier=shared_multiplier,
    )
    if noise and math.isinf(made.epsilon) and not isinstance(made.level, Public):
        raise InvalidInput("delta", made.delta, "no epsilon can be certified at it here; take a larger one")
    warn_of_delta(made)
    if as_json:
        typer.echo(json.dumps(_to_dict(made), indent=2))
    else:
        _show(made)


def warn_of_delta(plan: Plan) -> None:
    """Say on the terminal, beside the output, that delta is large; the certificate says it too."""
    found = delta_warning(plan.level, plan.facts, plan.delta) if plan.all_mechanisms else None
    if found is not None:
        typer.echo(f"WARNING: {found}", err=True)


def _delta(text: str) -> float | str:
    if text == "auto":
        return text
    return _number("delta", text)


def _noise(values: list[str] | None) -> float | dict[str, float] | None:
    if not values:
        return None
    if len(values) == 1 and "=" not in values[0]:
        return _in_range("noise", _number("noise", values[0]))
    return {name: _in_range(f"noise {name}", value) for name, value in _named("noise", values).items()}


def _in_range(field: str, noise: float) -> float:
    """Beyond this range no accountant's arithmetic says anything."""
    if not 1e-100 <= noise <= 1e100:
        raise InvalidInput(field, noise, "must lie between 1e-100 and 1e100")
    return noise


def _named(field: str, values: list[str] | None) -> dict[str, float]:
    named = {}
    for value in values or []:
        name, separator, number = value.partition("=")
        if not separator:
            raise InvalidInput(field, value, "must have the form NAME=VALUE")
        named[name] = _number(f"{field} {name}", number)
    return named


def _number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(field, text, "must be a number") from None


def _to_dict(plan: Plan) -> dict[str, object]:
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


def _table(plan: Plan) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("mechanism", "what", "sensitivity", "noise", "share of mu²"):
        table.add_column(heading)
    shares = plan.shares()
    for m in plan.mechanisms:
        share = f"{shares[m.name]:.1%}" if shares[m.name] else "-"
        table.add_row(m.name, m.type, f"{m.sensitivity.worst:.4g}", m.describe_noise(), share)
    return table


def _show(plan: Plan) -> None:
    console = Console(highlight=False)
    console.print(f"{plan.method}: {describe(plan.level)}")
    if not plan.all_mechanisms:
        why = "trained without noise" if math.isinf(plan.epsilon) else "the model reads nothing that is protected"
        console.print(f"No mechanisms: {why}.")
        return
    for outcome in plan.outcomes():
        if outcome.followed is not None:
            console.print(f"branch {outcome.followed} (at delta / {len(plan.branches)}):")
        console.print(_table(outcome))
    by_kind = plan.epsilon_by_kind()
    kinds = ", ".join(f"{value:.4g} for {kind} nodes" for kind, value in by_kind.items())
    differing = f" ({kinds})" if len(set(by_kind.values())) > 1 else ""
    console.print(f"total: epsilon {plan.epsilon:.4f} at delta {plan.delta:.3g}{differing}")
    console.print(f"cross-check by Rényi accounting: {plan.rdp_epsilon:.4f}")
    for line in plan.assumptions:
        console.print(f"assumed: {line}")
