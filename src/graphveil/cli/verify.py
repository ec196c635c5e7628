"""`graphveil verify`: check a run folder against its certificate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def verify(
    run: Annotated[Path, typer.Argument(help="A folder that `graphveil train --out` wrote.")],
    audits: Annotated[bool, typer.Option(help="Also play the cheap audits.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recompute a certificate with both accountants, compare the run's files with it, and audit its mechanisms.

    The exit code is 1 if there are problems, and 2 if the folder or its certificate cannot be read.

    Example: graphveil verify runs/first
    """
    from graphveil.auditing.verify import verify as check

    found = check(run, audits=audits)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    elif found.ok:
        typer.echo(f"{run}: the certificate holds ({len(found.findings)} audits passed)")
        if found.epsilon_spent is not None:
            typer.echo(f"spent, with later releases for new nodes: epsilon {found.epsilon_spent:.4g}")
    else:
        typer.echo("\n".join([f"{run}: {len(found.problems)} problems", *(f"  - {p}" for p in found.problems)]))
    if not found.ok:
        raise typer.Exit(1)
