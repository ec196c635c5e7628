"""A progress bar on a terminal, and nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import track


def steps(count: int, description: str, show: bool | None = None, first: int = 0) -> Iterator[int]:
    """The numbers from `first` to count - 1, with a progress bar if `show` (None: if stderr is a terminal)."""
    if show is None:
        show = sys.stderr.isatty()
    left = range(first, count)
    if not show:
        return iter(left)
    bar = track(left, description, total=count, completed=first, console=Console(stderr=True), transient=True)
    return iter(bar)
