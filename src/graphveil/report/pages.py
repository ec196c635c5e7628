"""The two pages: one over experiments, with tables, figures and every run's certificate, and one of a single run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import Any

from graphveil.evaluation import Evaluation
from graphveil.experiments import figure_text, notes, run_counts, settings_text
from graphveil.experiments.paper import ABOUT_THE_PAPERS_FIGURES
from graphveil.experiments.results import Cell, Results, Row, Table, bootstrap, placed_results
from graphveil.privacy.levels import Public
from graphveil.report import FOR_THE_OWNER, Experiment, RunFolder
from graphveil.report.charts import Chart, calibration_chart, charts_of
from graphveil.report.document import (
    Collection,
    Html,
    as_html,
    beside,
    code,
    data_block,
    element,
    note,
    page,
    scrolling,
    section,
    simple_table,
    spent,
    together,
    whole_percents,
)
from graphveil.report.drawing import figure_html
from graphveil.report.leaderboard import Place, boards_html

# Figures of one kind on a page; `--format svg` draws all of them.
MOST_CHARTS = 8
_HEADS = ("seed", "test accuracy", "validation", "average precision", "macro F1", "seconds", "memory, MB")

# Smaller classes than these are shown together in a confusion matrix.
_MOST_CLASSES = 30
# Up to so many, the matrix has room beside the diagram of calibration.
_FEW_CLASSES = 6


def experiments_page(experiments: Sequence[Experiment]) -> str:
    """The page over all experiments of a folder."""
    runs = _Runs()
    numbers = count(1)
    parts = [_section(experiment, index, runs, numbers) for index, experiment in enumerate(experiments, start=1)]
    questioned = any(table.has_questioned_figures for each in experiments for table in each.results.tables)
    heading = element("p", element("strong", "About the paper's figures"))
    status = note(heading, *(element("p", text) for text in ABOUT_THE_PAPERS_FIGURES)) if questioned else Html()
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
    tables = [_paper_table(table, table.title or results.title) for table in results.tables]
    nothing = element("p", f"No finished run has a test {results.metric.replace('_', ' ')} yet.", class_="quiet")
    reading = element("ul", *(element("li", line) for line in (*notes(results), *run_counts(results))), class_="quiet")
    commands = dict.fromkeys(call["command"] for call in results.calls if call["command"])
    place = f"Folder: {experiment.place}" if experiment.place != "." else ""
    about = settings_text(results.records)
    listed, cells = runs.list_of(results)
    return section(
        results.title,
        *boards_html(results, cells),
        *(tables or [nothing]),
        element("details", element("summary", "How to read the table"), reading),
        *_figures(charts_of(results), numbers),
        element("h3", "Runs and certificates"),
        listed,
        element("h3", "To do it again"),
        *([code("\n".join(commands))] if commands else []),
        element("ul", *(element("li", line) for line in (*about, *([place] if place else [])))),
        id_=f"experiment-{index}",
    )


def _figures(charts: Sequence[Chart], numbers: count[int]) -> list[Html]:
    shown: list[Chart] = []
    notes: list[Html] = []
    for kind, members in groupby(charts, key=lambda chart: chart.kind):
        same_kind = list(members)
        shown += same_kind[:MOST_CHARTS]
        if len(same_kind) > MOST_CHARTS:
            more = f"{kind}: the first {MOST_CHARTS} of {len(same_kind)}; graphveil report --format svg draws them all."
            notes.append(element("p", more, class_="quiet"))
    if not shown:
        return []
    drawn = (figure_html(chart, next(numbers)) for chart in shown)
    return [element("h3", "Figures"), element("div", *drawn, class_="charts"), *notes]


class _Runs:
    """The runs of a page. Those that differ only in their seed share a line, which opens to details and certificate."""

    def __init__(self) -> None:
        self._certificates = Collection()
        self._cells: list[dict[str, Any]] = []

    def list_of(self, results: Results) -> tuple[Html, dict[Place, int]]:
        """The runs of an experiment, and by place the number of the line that they share."""
        done = [record for record in results.records if record["status"] == "done"]
        groups: dict[Place, list[Mapping[str, Any]]] = defaultdict(list)
        for record, place in zip(done, placed_results(done, "graph"), strict=True):
            groups[place.column, place.block, place.method].append(record)
        first = len(self._cells)
        cells = [self._cell(place, records) for place, records in groups.items()]
        numbers = {place: number for number, place in enumerate(groups, start=first)}
        cells += [_failure(record) for record in results.failed]
        summary = f"{len(results.records)} runs, by graph, level and method"
        return element("details", element("summary", summary), *cells, class_="runs"), numbers

    def to_data(self) -> dict[str, Any]:
        return {"heads": _HEADS, "cells": self._cells, **self._certificates.to_data()}

    def _cell(self, place: Place, records: Sequence[Mapping[str, Any]]) -> Html:
        added = (self._certificates.add(record) for record in records)
        numbers = dict.fromkeys(number for number in added if number is not None)
        self._cells.append({"runs": [_row(record) for record in records], "certificates": list(numbers)})
        scores = [100 * record["test_accuracy"] for record in records if record["test_accuracy"] is not None]
        words = [f"{bootstrap(scores).mean:.2f} %" if scores else "no test nodes"]
        words += [f"{len(records)} seeds" if len(records) > 1 else f"seed {records[0]['run']['seed']}"]
        words += [spent(self._certificates.certificates[number] for number in numbers)] if numbers else []
        summary = element("summary", " · ".join(place), " ", element("span", ", ".join(words)))
        number = len(self._cells) - 1
        return element("details", summary, class_="cell", id=f"cell-{number}", data_cell=number)


def _row(record: Mapping[str, Any]) -> list[Any]:
    def percent(key: str) -> str | None:
        value = record.get(key)
        return None if value is None else f"{100 * value:.2f}"

    numbers = [percent(key) for key in ("test_accuracy", "val_accuracy", "average_precision", "macro_f1")]
    seconds = f"{record['seconds']:.4g}"
    return [record["run"]["seed"], *numbers, seconds, record.get("peak_memory_mb")]


def _failure(record: Mapping[str, Any]) -> Html:
    run, error = record["run"], record["error"]
    what = f"{run['graph']['name']} · {run['method']} · seed {run['seed']} "
    return element("p", what, element("span", f"failed, {error['kind']}: {error['message']}", class_="quiet"))


def _paper_table(table: Table, label: str) -> Html:
    """Levels and methods down, graphs (or what is swept) across; the paper's own figure below ours."""
    heads = [f"{table.heading} = {column}" if table.heading else column for column in table.columns]
    lines = [element("tr", element("th", "method", scope="col"), *(element("th", head, scope="col") for head in heads))]
    body: list[Html] = []
    before = None
    for row in table.rows:
        if row.block != before:
            before = row.block
            body.append(_block(row.block, len(table.columns) + 1))
        cells = (_cell(row, row.cells.get(column)) for column in table.columns)
        body.append(element("tr", element("th", row.method, scope="row"), *cells))
    caption = [element("caption", table.title)] if table.title else []
    whole = element("table", *caption, element("thead", *lines), element("tbody", *body), class_="results")
    return scrolling(whole, label)


def _block(name: str, width: int) -> Html:
    return element("tr", element("th", name, scope="rowgroup", colspan=width), class_="block")


def _cell(row: Row, cell: Cell | None) -> Html:
    if cell is None:
        return element("td", "–")
    text: str = figure_text(cell)
    if cell.best:
        text = element("strong", text)
    elif cell.close:
        text = element("u", text)
    small = [element("small", f"{cell.interval.count} runs" if cell.interval.count > 1 else "1 run")]
    if cell.paper is not None:
        mark = "†" if row.is_questioned(cell) else ""
        small.append(element("small", f"paper {cell.paper.mean:.2f} ± {cell.paper.half_width:.2f}{mark}"))
    return element("td", text, together(*small))


def run_page(run: RunFolder) -> str:
    """The page of a single run: scores, certificate, noise, confusion matrix and calibration."""
    metrics, certificate = run.metrics, run.certificate
    title = f"{certificate.method} on {metrics['graph']}"
    parts = [section("In short", _short(run))]
    if run.evaluation is not None:
        parts.append(section("By class", *_by_class(run.evaluation), *_by_threshold(run.evaluation)))
    parts += [section("Certificate", as_html(certificate)), section("Noise by mechanism", _noise(run))]
    if run.evaluation is not None:
        matrix = section("Confusion matrix", _confusion(_folded(run.evaluation)))
        diagram = section("Calibration", *_calibration(run.evaluation))
        few = len(run.evaluation.classes) <= _FEW_CLASSES
        parts += beside([matrix], [diagram]) if few else [matrix, diagram]
    if metrics.get("command"):
        parts.append(section("To do it again", code(str(metrics["command"]))))
    return page(
        f"graphveil run: {title}",
        element("header", element("h1", title), element("p", _lead(run), class_="lead"), _facts(run)),
        element("main", *parts, class_="run"),
    )


def _short(run: RunFolder) -> Html:
    """The answers that a reader comes for: what is found, is it more than the majority class, did the graph help."""
    lines = list(run.certificate.learnt)
    if run.evaluation is not None:
        each = run.evaluation
        beside = f"the majority class, {each.majority_class}, alone has {100 * each.majority_accuracy:.2f} %"
        lines = [*each.sentences(), f"Accuracy is {100 * each.accuracy:.2f} %; {beside}.", *lines]
    if not run.certificate.learnt and run.metrics.get("graph_used") is not None:
        lines.append("The model reads the graph." if run.metrics["graph_used"] else "The graph was not used.")
    owner = note(element("p", element("strong", "For the data owner. "), FOR_THE_OWNER))
    return together(element("ul", *(element("li", line) for line in lines)) if lines else Html(), owner)


def _by_class(evaluation: Evaluation) -> list[Html]:
    """Precision, recall and F1 of each class."""
    there = sorted((each for each in evaluation.by_class if each is not None), key=lambda each: -each.count)
    rows = [
        (each.name, *map(str, each.counts), *(f"{value:.3f}" for value in (each.precision, each.recall, each.f1)))
        for each in there[:_MOST_CLASSES]
    ]
    heads = ("class", "test nodes", "predicted", "of these right", "precision", "recall", "F1")
    parts = [simple_table(heads, rows, "Scores by class")]
    if len(there) > _MOST_CLASSES:
        parts.append(element("p", f"The {_MOST_CLASSES} largest of {len(there)} classes.", class_="quiet"))
    return parts


def _by_threshold(evaluation: Evaluation) -> list[Html]:
    """What flagging more or fewer nodes finds of the class of interest, if there is one."""
    if evaluation.positive is None or not evaluation.cuts:
        return []
    name, total = evaluation.classes[evaluation.positive], sum(evaluation.confusion[evaluation.positive])
    found = [
        (
            str(cut.flagged),
            f"{cut.found} of {total}",
            f"{cut.found / cut.flagged:.3f}",
            f"{cut.found / total:.3f}" if total else "–",
            f"{cut.threshold:.3g}",
        )
        for cut in evaluation.cuts
    ]
    about = f"The nodes that are most probably of class {name}: flag as many as you can look into."
    table = simple_table(("flagged", "found", "precision", "recall", "threshold"), found, "By threshold")
    return [element("h3", "What a threshold finds"), element("p", about, class_="quiet"), table]


def _lead(run: RunFolder) -> str:
    facts = run.certificate.facts
    shape = f"{facts.nodes:,} nodes, {facts.features:,} features, {facts.classes} classes"
    return f"{shape}; trained in {run.metrics['seconds']:.1f} s"


def _facts(run: RunFolder) -> Html:
    def percent(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.2f} %"

    certificate = run.certificate
    public = isinstance(certificate.level, Public)
    facts = {
        "test accuracy": percent(run.metrics["test_accuracy"]),
        **({} if run.evaluation is None else _score_facts(run.evaluation)),
        "validation accuracy": percent(run.metrics["val_accuracy"]),
        "epsilon": "no guarantee" if public else f"{certificate.epsilon:.4g}",
        **({} if public else {"delta": f"{certificate.delta:.3g}"}),
    }
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in facts.items())
    return element("dl", *pairs, class_="facts")


def _score_facts(evaluation: Evaluation) -> dict[str, str]:
    facts = {"majority class alone": f"{100 * evaluation.majority_accuracy:.2f} %"}
    for name, value in {"average precision": evaluation.average_precision, "AUC": evaluation.auc}.items():
        facts |= {} if value is None else {name: f"{value:.3f}"}
    return facts


def _noise(run: RunFolder) -> Html:
    mechanisms = run.certificate.mechanisms
    if not mechanisms:
        return element("p", "No noise was drawn: the model does not read what is protected, or nothing is protected.")
    shares = run.certificate.plan().shares()
    percents = whole_percents(shares)
    rows: list[Sequence[str]] = [
        (
            *(m.name, m.type, f"{m.sensitivity.worst:.4g}", m.describe_noise()),
            _share(shares[m.name], percents[m.name]),
            m.source,
        )
        for m in mechanisms
    ]
    if any(percents.values()):
        rows.append(("together", "", "", "", f"{sum(percents.values())} %", ""))
    heads = ("mechanism", "kind", "sensitivity", "noise", "share of the budget", "why")
    about = "Shares are of mu², in which Gaussian noise adds up; randomised responses are paid beside it and have none."
    return together(simple_table(heads, rows, "Noise by mechanism", "words"), element("p", about, class_="quiet"))


def _share(share: float, percent: int) -> Html:
    bar = element("span", element("i", style=f"width:{100 * share:.1f}%"), class_="bar", aria_hidden="true")
    return together(f"{percent} %" if percent else "< 1 %", bar) if share else Html("–")


def _confusion(evaluation: Evaluation) -> Html:
    names = evaluation.classes
    top = element("tr", element("th", "true class", scope="col"), *(element("th", n, scope="col") for n in names))
    body = [
        element("tr", element("th", name, scope="row"), *_confusion_row(row, index))
        for index, (name, row) in enumerate(zip(names, evaluation.confusion, strict=True))
    ]
    about = "Test nodes by true class (rows) and predicted class (columns); darker: a larger part of the true class."
    table = element("table", element("thead", top), element("tbody", *body), class_="confusion")
    return together(element("p", about, class_="quiet"), scrolling(table, "Confusion matrix"))


def _confusion_row(row: Sequence[int], own: int) -> list[Html]:
    total = max(sum(row), 1)
    return [
        element("td", str(n), style=f"--part:{60 * n / total:.0f}%", class_="right" if index == own else None)
        for index, n in enumerate(row)
    ]


def _calibration(evaluation: Evaluation) -> list[Html]:
    error = f"{100 * evaluation.calibration_error:.1f}"
    about = (
        "On the dashed line the model is right as often as it says; below it, it is too sure of itself. On average "
        f"confidence and accuracy of the {evaluation.count} test nodes differ by {error} points (expected calibration "
        "error, ten bins)."
    )
    return [element("p", about), element("div", figure_html(calibration_chart(evaluation), 1), class_="charts")]


def _folded(evaluation: Evaluation) -> Evaluation:
    """The largest classes by themselves, and all others as one."""
    size = len(evaluation.classes)
    if size <= _MOST_CLASSES:
        return evaluation
    by_size = sorted(range(size), key=lambda index: -sum(evaluation.confusion[index]))
    kept = sorted(by_size[: _MOST_CLASSES - 1])
    groups = [[index] for index in kept] + [sorted(by_size[_MOST_CLASSES - 1 :])]
    confusion = tuple(
        tuple(sum(evaluation.confusion[i][j] for i in rows for j in columns) for columns in groups) for rows in groups
    )
    names = (*(evaluation.classes[index] for index in kept), f"{size - len(kept)} others")
    return replace(evaluation, classes=names, confusion=confusion, positive=None, cuts=())
