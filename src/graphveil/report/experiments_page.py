"""The page over experiments: tables in the paper's form, figures, every run with its certificate, and how to repeat."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count, groupby
from typing import Any

from graphveil.evaluation.intervals import bootstrap
from graphveil.experiments.summary import NOTES, Results, run_counts, settings_text
from graphveil.experiments.table import placed_results
from graphveil.report.certificates import Collection, spent
from graphveil.report.charts import Chart, charts_of
from graphveil.report.drawing import inline_svg
from graphveil.report.folders import Experiment
from graphveil.report.markup import Html, data_block, element
from graphveil.report.page import code, note, page, section
from graphveil.report.tables import chart_data, has_questioned_figures, paper_table

# A page shows so many graphs of a kind of figure; `--format svg` draws them all.
MOST_CHARTS = 8
_HEADS = ("seed", "test accuracy", "validation", "macro F1", "seconds", "memory, MB")

PAPER_STATUS = (
    "The paper's figures are shown as printed. Those of its private DPDGC rows (†) were obtained with an embedding "
    "that was in effect released without noise: the published implementation normalises the rows of W in a temporary "
    "copy that never reaches the weights, so the noise on Z is scaled for rows of norm 1e-8 while their norms are 0.1 "
    "to 0.8.",
    "Its accuracies reproduce, but not under the guarantee that is claimed for them: with the normalisation repaired, "
    "Chameleon at k = 1 falls from 48.5 to between 28 and 37. Its group factors spend an epsilon of at least 26 at "
    "k = 25, and of at least 185 at node level, where 16 is claimed. Our rows keep the guarantee that their "
    "certificates state, so the two are not like for like (docs/theory.md, section 7.2).",
)


def experiments_page(experiments: Sequence[Experiment]) -> str:
    """One document over all of them."""
    runs = _Runs()
    numbers = count(1)
    parts = [_section(experiment, index, runs, numbers) for index, experiment in enumerate(experiments, start=1)]
    tables = [table for experiment in experiments for table in experiment.results.tables]
    heading = element("p", element("strong", "About the paper's figures"))
    status = note(heading, *(element("p", text) for text in PAPER_STATUS)) if has_questioned_figures(tables) else Html()
    without = element("noscript", element("p", "Certificates open with JavaScript. They are in runs.jsonl as well."))
    return page(
        f"graphveil report: {experiments[0].results.title}" if len(experiments) == 1 else "graphveil report",
        element("header", *_header(experiments)),
        element("main", status, without, *parts),
        data_block("runs", runs.to_data()),
    )


def _header(experiments: Sequence[Experiment]) -> list[Html]:
    records = [record for experiment in experiments for record in experiment.results.records]
    done = sum(record["status"] == "done" for record in records)
    missing = sum(experiment.results.missing for experiment in experiments)
    failed = len(records) - done
    finished = max((record["finished"] for record in records if "finished" in record), default="")[:10]
    words = [f"{done} runs done"]
    words += [f"{failed} failed"] if failed else []
    words += [f"{missing} not run yet"] if missing else []
    words += [f"the last on {finished}"] if finished else []
    links = (
        element("li", element("a", experiment.results.title, href=f"#experiment-{index}"))
        for index, experiment in enumerate(experiments, start=1)
    )
    contents = element("nav", element("ul", *links), aria_label="Experiments") if len(experiments) > 1 else Html()
    title = element("h1", "Node classification on private graphs")
    return [title, element("p", ", ".join(words), class_="lead"), contents]


def _section(experiment: Experiment, index: int, runs: _Runs, numbers: count[int]) -> Html:
    results = experiment.results
    tables = [paper_table(table, table.title or results.title) for table in results.tables]
    nothing = element("p", "No finished run has an accuracy on test nodes yet.", class_="quiet")
    reading = element("ul", *(element("li", line) for line in (*NOTES, *run_counts(results))), class_="quiet")
    commands = dict.fromkeys(call["command"] for call in results.calls if call["command"])
    place = f"Folder: {experiment.place}" if experiment.place != "." else ""
    about = settings_text(results.records)
    return section(
        results.title,
        *(tables or [nothing]),
        element("details", element("summary", "How to read the table"), reading),
        *_figures(charts_of(results), numbers),
        element("h3", "Runs and certificates"),
        runs.list_of(results),
        element("h3", "To do it again"),
        *([code("\n".join(commands))] if commands else []),
        element("ul", *(element("li", line) for line in (*about, *([place] if place else [])))),
        id_=f"experiment-{index}",
    )


def _figures(charts: Sequence[Chart], numbers: count[int]) -> list[Html]:
    shown: list[Chart] = []
    notes: list[Html] = []
    for kind, members in groupby(charts, key=lambda chart: chart.kind):
        found = list(members)
        shown += found[:MOST_CHARTS]
        if len(found) > MOST_CHARTS:
            more = f"{kind}: the first {MOST_CHARTS} of {len(found)}; graphveil report --format svg draws them all."
            notes.append(element("p", more, class_="quiet"))
    if not shown:
        return []
    drawn = (figure(chart, next(numbers)) for chart in shown)
    return [element("h3", "Figures"), element("div", *drawn, class_="charts"), *notes]


def figure(chart: Chart, number: int) -> Html:
    """A chart with its caption and the numbers behind it."""
    caption = element("figcaption", chart.kind, element("span", f" · {chart.title}"))
    return element("figure", caption, inline_svg(chart, number), chart_data(chart))


class _Runs:
    """Every run of a page: a line for those that differ only in their seed, details and certificate on demand."""

    def __init__(self) -> None:
        self._certificates = Collection()
        self._cells: list[dict[str, Any]] = []

    def list_of(self, results: Results) -> Html:
        done = [record for record in results.records if record["status"] == "done"]
        groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
        for record, place in zip(done, placed_results(done, "graph"), strict=True):
            groups[place.column, place.block, place.method].append(record)
        cells = [self._cell(place, records) for place, records in groups.items()]
        cells += [_failure(record) for record in results.failed]
        summary = f"{len(results.records)} runs, by graph, level and method"
        return element("details", element("summary", summary), *cells, class_="runs")

    def to_data(self) -> dict[str, Any]:
        return {"heads": _HEADS, "cells": self._cells, **self._certificates.to_data()}

    def _cell(self, place: tuple[str, str, str], records: Sequence[Mapping[str, Any]]) -> Html:
        numbers = dict.fromkeys(self._certificates.add(record) for record in records)
        found = [number for number in numbers if number is not None]
        self._cells.append({"runs": [_row(record) for record in records], "certificates": found})
        scores = [100 * record["test_accuracy"] for record in records if record["test_accuracy"] is not None]
        words = [f"{bootstrap(scores).mean:.2f} %" if scores else "no test nodes"]
        words += [f"{len(records)} seeds" if len(records) > 1 else f"seed {records[0]['run']['seed']}"]
        words += [spent(self._certificates.certificates[number] for number in found)] if found else []
        summary = element("summary", " · ".join(place), " ", element("span", ", ".join(words)))
        return element("details", summary, class_="cell", data_cell=len(self._cells) - 1)


def _row(record: Mapping[str, Any]) -> list[Any]:
    def percent(key: str) -> str | None:
        value = record.get(key)
        return None if value is None else f"{100 * value:.2f}"

    numbers = [percent("test_accuracy"), percent("val_accuracy"), percent("macro_f1")]
    seconds = f"{record['seconds']:.4g}"
    return [record["run"]["seed"], *numbers, seconds, record.get("peak_memory_mb")]


def _failure(record: Mapping[str, Any]) -> Html:
    run, error = record["run"], record["error"]
    what = f"{run['graph']['name']} · {run['method']} · seed {run['seed']} "
    return element("p", what, element("span", f"failed, {error['kind']}: {error['message']}", class_="quiet"))
