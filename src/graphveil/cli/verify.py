"""`graphveil verify`: check a run folder against its certificate."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from graphveil.cli.options import AsJson, RunPath


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
