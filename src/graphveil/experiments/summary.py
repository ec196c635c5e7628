"""The results of a folder as Markdown (`table.md`) and as text for a terminal."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from graphveil.errors import InvalidInput
from graphveil.experiments.display import duration
from graphveil.experiments.runner import CALLS, RUNS
from graphveil.experiments.table import Cell, Table, make_tables
from graphveil.storage.files import replace_file, unwritable
from graphveil.storage.journal import read_journal

NOTES = (
    "Mean test accuracy in percent ± half the 95 % bootstrap interval over seeds (splits), with the number of seeds. "
    "Bold: the best of its level; underlined: within the best one's interval; small: the paper's own figure.",
    "Edge: unless a unit is named, one connection on undirected graphs (both stored entries) and one link on directed "
    "graphs. The paper's edge rows count one stored entry on every graph.",
    'delta, unless given as a number: "paper" is 10 to the minus number of digits of the training nodes, at edge level '
    'of the stored edges; "auto" is the largest power of ten up to 0.1 / nodes, at edge level up to 0.1 / (n (n - 1)).',
)


@dataclass(frozen=True)
class Results:
    """One experiment in a folder: the calls that asked for it and the latest record of each run, in their order."""

    name: str
    calls: tuple[Mapping[str, Any], ...]
    records: tuple[Mapping[str, Any], ...]
    missing: int

    @property
    def title(self) -> str:
        return str(self.calls[-1]["title"])

    @property
    def tables(self) -> list[Table]:
        return make_tables(self.records, self.calls[-1]["axis"])

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        return [record for record in self.records if record["status"] == "failed"]


def read_results(folder: str | Path) -> list[Results]:
    """The experiments in a folder, in the order in which they were first asked for."""
    folder = Path(folder)
    calls = read_journal(folder / CALLS)
    if not calls:
        raise InvalidInput("folder", str(folder), "holds no results of graphveil bench")
    latest = {record["key"]: record for record in read_journal(folder / RUNS)}
    found = []
    for name in dict.fromkeys(call["spec"] for call in calls):
        own = tuple(call for call in calls if call["spec"] == name)
        keys = dict.fromkeys(key for call in own for key in call["keys"])
        records = tuple(latest[key] for key in keys if key in latest)
        found.append(Results(name, own, records, len(keys) - len(records)))
    return found


def summary(folder: str | Path) -> str:
    """Write `table.md` with all experiments of a folder, and return its text."""
    text = "\n\n".join(markdown_table(results) for results in read_results(folder)) + "\n"
    try:
        replace_file(Path(folder) / "table.md", text.encode())
    except OSError as error:
        raise unwritable(Path(folder) / "table.md", error, "out") from None
    return text


def as_text(results: Results) -> str:
    """One experiment for a terminal: the paper's figure stands below ours."""
    console = Console(file=StringIO(), width=200, highlight=False)
    console.print(results.title, markup=False)
    for table in results.tables:
        console.print(_rich(table))
    for line in run_counts(results):
        console.print(line, markup=False, soft_wrap=True)
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def markdown_table(results: Results) -> str:
    parts = [f"## {escaped(results.title)}"]
    for table in results.tables:
        if table.title:
            parts.append(f"### {escaped(table.title)}")
        parts.append(_markdown_table(table))
    lines = (*NOTES, *run_counts(results), *settings_text(results.records))
    parts.append("\n".join(f"- {escaped(line)}" for line in lines))
    commands = dict.fromkeys(call["command"] for call in results.calls if call["command"])
    if commands:
        parts.append("\n".join(["Commands:", "", *(f"    {' '.join(command.splitlines())}" for command in commands)]))
    return "\n\n".join(parts)


def _markdown_table(table: Table) -> str:
    heads = [f"{table.heading} = {column}" if table.heading else column for column in table.columns]
    lines = [cell_line(["level", "method", *map(escaped, heads)]), cell_line(["---", "---", *("--:" for _ in heads)])]
    before = None
    for row in table.rows:
        block = "" if row.block == before else row.block
        before = row.block
        names = escaped(block), escaped(row.method)
        lines.append(cell_line([*names, *(_markdown_cell(row.cells.get(c)) for c in table.columns)]))
    return "\n".join(lines)


def _markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = figure_text(cell)
    text = f"**{text}**" if cell.best else f"<u>{text}</u>" if cell.close else text
    small = f"n = {cell.interval.count}"
    if cell.paper is not None:
        small += f"; paper {cell.paper.mean:.2f} ± {cell.paper.half_width:.2f}"
    return f"{text} <sub>{small}</sub>"


def escaped(text: str) -> str:
    """A name as one line of text, whatever a user has called a graph."""
    return html.escape(" ".join(text.split()), quote=False)


def _rich(table: Table) -> RichTable:
    made = RichTable(box=box.SIMPLE, title=table.title or None, title_justify="left", pad_edge=False)
    made.add_column("level")
    made.add_column("method")
    for column in table.columns:
        made.add_column(f"{table.heading} = {column}" if table.heading else column, justify="right")
    before = None
    for row in table.rows:
        if before not in (None, row.block):
            made.add_section()
        block = "" if row.block == before else row.block
        before = row.block
        made.add_row(block, row.method, *(_text_cell(row.cells.get(column)) for column in table.columns))
    return made


def _text_cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    mark = "*" if cell.best else "~" if cell.close else " "
    paper = "" if cell.paper is None else f"\n({cell.paper.mean:.2f} ± {cell.paper.half_width:.2f})"
    return f"{figure_text(cell)}{mark}{paper}"


def figure_text(cell: Cell) -> str:
    if cell.interval.count == 1:
        return f"{cell.interval.mean:.2f}"
    return f"{cell.interval.mean:.2f} ± {cell.interval.half_width:.2f}"


def cell_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def run_counts(results: Results) -> list[str]:
    done = len(results.records) - len(results.failed)
    total = len(results.records) + results.missing
    taken = sum(record["total_seconds"] for record in results.records)
    lines = [f"{done} of {total} runs done in {duration(taken)} of computing."]
    kinds: dict[str, int] = {}
    for record in results.failed:
        error = record["error"]
        what = f"{record['run']['method']} on {record['run']['graph']['name']}, {error['kind']}: {error['message']}"
        kinds[what] = kinds.get(what, 0) + 1
    return lines + [f"{count} failed: {what}" for what, count in kinds.items()]


def settings_text(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Seeds, options, threads and versions: all that differ are listed, so that a mixture shows."""
    runs = [record["run"] for record in records]
    seeds = sorted({run["seed"] for run in runs})
    options = {method: set[str]() for method in dict.fromkeys(run["method"] for run in runs)}
    for run in runs:
        options[run["method"]] |= {f"{name} = {value}" for name, value in run["options"].items()}
    chosen = [f"{method}: {', '.join(sorted(words))}" for method, words in options.items() if words]
    lines = [f"Seeds: {', '.join(map(str, seeds))}."] if seeds else []
    lines.append(f"Options other than the methods' own: {'; '.join(chosen) or 'none'}.")
    threads = sorted({str(record["threads"]) for record in records})
    versions = sorted({_software(record) for record in records if "versions" in record})
    return [*lines, *([f"Threads for each run: {', '.join(threads)}."] if threads else []), *versions]


def _software(record: Mapping[str, Any]) -> str:
    found = {**record["versions"], "code": record.get("code", "unknown")}
    return ", ".join(f"{name} {version}" for name, version in found.items())
