"""The same content as Markdown, for repositories and chats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphveil.experiments.summary import cell_line, escaped, markdown_table
from graphveil.report.certificates import Collection
from graphveil.report.charts import Chart, charts_of
from graphveil.report.experiments_page import PAPER_STATUS
from graphveil.report.folders import Experiment, RunFolder
from graphveil.report.markup import plain
from graphveil.report.run_page import FOR_THE_OWNER, calibration_chart
from graphveil.report.tables import has_questioned_figures


def experiments_markdown(experiments: Sequence[Experiment]) -> str:
    certificates = Collection()
    parts = ["# Node classification on private graphs"]
    if has_questioned_figures(table for e in experiments for table in e.results.tables):
        parts += [text.replace("(†) ", "") for text in PAPER_STATUS]
    for experiment in experiments:
        parts.append(markdown_table(experiment.results))
        parts += [_numbers(chart) for chart in charts_of(experiment.results)]
        for record in experiment.results.records:
            certificates.add(record)
    if certificates.certificates:
        parts.append("## Certificates\n\nThose of runs that differ only in their seed are listed once.")
        parts += [_indented(str(certificate)) for certificate in certificates.certificates]
    return plain("\n\n".join(parts) + "\n")


def run_markdown(run: RunFolder) -> str:
    metrics = run.metrics
    parts = [f"# {escaped(run.certificate.method)} on {escaped(str(metrics['graph']))}", f"> {FOR_THE_OWNER}"]
    scores = {"test": metrics["test_accuracy"], "validation": metrics["val_accuracy"]}
    known = [f"- {name} accuracy: {100 * value:.2f} %" for name, value in scores.items() if value is not None]
    parts += ["\n".join(known)] if known else []
    parts += ["## Certificate", _indented(str(run.certificate))]
    if run.evaluation is not None:
        names = run.evaluation.classes
        rows = ([name, *map(str, row)] for name, row in zip(names, run.evaluation.confusion, strict=True))
        parts += ["## Confusion matrix (rows: true class)", _table(["true class", *names], rows)]
        parts += [_numbers(calibration_chart(run.evaluation), "##")]
    if metrics.get("command"):
        parts += ["## To do it again", _indented(str(metrics["command"]))]
    return plain("\n\n".join(parts) + "\n")


def _numbers(chart: Chart, level: str = "###") -> str:
    rows = ([f"{label}, {what}" if what else label, *figures] for label, what, *figures in chart.numbers())
    table = _table(["series", chart.x_label, chart.y_label, "interval", chart.counted], rows)
    return f"{level} {escaped(chart.kind)}: {escaped(chart.title)}\n\n{table}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [cell_line(map(escaped, heads)), cell_line("---" for _ in heads)]
    return "\n".join([*lines, *(cell_line(map(escaped, row)) for row in rows)])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
