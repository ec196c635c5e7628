"""Results as a table in the terminal, as JSON and as a page."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.result import Result, Section


def show(section: Section) -> None:
    table = Table("", "ours", "peer", "ratio", "unit", "target", title=section.title, title_justify="left")
    for result in section.results:
        table.add_row(*_cells(result))
    console = Console(width=None if Console().is_terminal else 160)
    console.print(table)
    for note in section.notes:
        console.print(f"- {note}", highlight=False, markup=False)


def write_json(sections: Sequence[Section], path: Path, *, keep_others: bool) -> None:
    """Write the rows of these sections; with `keep_others`, rows of other benchmarks stay in the file."""
    rows = [result.to_dict() for section in sections for result in section.results]
    before = json.loads(path.read_text()) if keep_others and path.exists() else []
    named = {row["name"]: row for row in [*before, *rows]}
    path.write_text(json.dumps(list(named.values()), indent=2) + "\n")


def write_page(sections: Sequence[Section], path: Path, command: str) -> None:
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{command}`. {machine()}",
        "",
        "`ratio` is how many times better ours is than the peer, measured in the same run; for growth it is how many "
        "times more the larger size takes. Absolute times belong to this machine and to what else ran on it.",
    ]
    for section in sections:
        lines += ["", f"## {section.title}", ""]
        lines += ["| | ours | peer | ratio | unit | target |", "|---|--:|--:|--:|---|---|"]
        lines += [f"| {' | '.join(_cells(result))} |" for result in section.results]
        lines += ["", *(f"- {note}" for note in section.notes)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def machine() -> str:
    """What the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, {torch.get_num_threads()} torch threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}, opacus {version('opacus')}. "
        f"Load of the machine when the report was written: {os.getloadavg()[2]:.1f} (15 minutes)."
    )


def _cells(result: Result) -> tuple[str, ...]:
    figures = (_short(result.ours), _short(result.peer), f"{result.ratio:.2f}")
    return (result.name, *figures, result.unit, result.verdict)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
