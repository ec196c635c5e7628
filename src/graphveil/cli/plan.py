"""`graphveil plan`: which noise a budget takes, or which budget some noise takes, before any data is read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from graphveil import validate
from graphveil.cli.options import (
    AsJson,
    Attributes,
    BatchSize,
    Delta,
    K,
    LevelName,
    MaxDegree,
    Method,
    Shares,
    Steps,
    TableW,
    Unit,
    chosen_level,
    default_epsilon,
    default_method,
    parse_delta,
    parse_named,
    parse_number,
)
from graphveil.errors import InvalidInput
from graphveil.privacy.levels import Public, describe, level_to_dict

if TYPE_CHECKING:
    from rich.table import Table

    from graphveil.privacy.mechanisms import Mechanism
    from graphveil.privacy.plan import Plan


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
        typer.echo(json.dumps(_to_dict(made), indent=2))
    else:
        _show(made)


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


def _to_dict(plan: Plan) -> dict[str, object]:
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


def _table(mechanisms: Sequence[Mechanism], outcomes: Sequence[Plan]) -> Table:
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


def _show(plan: Plan) -> None:
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
    console.print(_table(plan.shared, plan.outcomes()))
    if plan.branches:
        number = len(plan.branches)
        console.print(f"Then one of {number} branches, by what was released; each is accounted at delta / {number}:")
    for branch in plan.branches:
        reads = any(mechanism.role in READS_THE_GRAPH for mechanism in branch.mechanisms)
        console.print(f"branch {branch.name} ({'reads the graph' if reads else 'features alone'})")
        console.print(_table(branch.mechanisms, [plan.follow(branch.name)]))
    by_kind = plan.epsilon_by_kind()
    kinds = ", ".join(f"{value:.4g} for {kind} nodes" for kind, value in by_kind.items())
    differing = f" ({kinds})" if len(set(by_kind.values())) > 1 else ""
    console.print(f"total: epsilon {plan.epsilon:.4f} at delta {plan.delta:.3g}{differing}")
    console.print(f"cross-check by Rényi accounting: {plan.rdp_epsilon:.4f}")
    for line in plan.assumptions:
        console.print(f"assumed: {line}")
