"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Directed = Annotated[
    bool | None, typer.Option("--directed/--undirected", help="What the graph is, for files that do not say.")
]
Classes = Annotated[
    str | None, typer.Option(help="All classes in order, with commas between, for tables that do not say.")
]
Categories = Annotated[
    list[str] | None, typer.Option(help="COLUMN=A,B,C: all categories of a text column; repeat for others.")
]
