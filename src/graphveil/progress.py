"""A progress bar on a terminal, and nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import track


def steps(count: int, description: str, show: bool | None = None) -> Iterator[int]:
    """0 .. count - 1, with a bar on stderr if `show`, by default when stderr is a terminal."""
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        return iter(range(count))
    return iter(track(range(count), description=description, console=Console(stderr=True), transient=True))
