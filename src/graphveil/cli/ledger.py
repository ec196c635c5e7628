"""`graphveil ledger`: what all trainings on the same people have cost together, and what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli.options import AsJson
from graphveil.errors import InvalidInput


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
