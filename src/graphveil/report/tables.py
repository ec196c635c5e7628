"""Tables of a page: the paper's, those behind figures, and plain ones. Each scrolls in a box of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphveil.experiments.summary import figure_text
from graphveil.experiments.table import Cell, Row, Table
from graphveil.report.charts import Chart
from graphveil.report.markup import Html, element, together


def paper_table(table: Table, label: str) -> Html:
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
    made = element("table", *caption, element("thead", *lines), element("tbody", *body), class_="results")
    return scrolling(made, label)


def has_questioned_figures(tables: Iterable[Table]) -> bool:
    """Whether figures stand there that the paper obtained without effective noise."""
    return any(_is_questioned(row, cell) for table in tables for row in table.rows for cell in row.cells.values())


def chart_data(chart: Chart) -> Html:
    """The numbers behind a figure."""
    numbers = chart.numbers()
    named = any(what for _, what, *_ in numbers)
    rows = [[label, *([what] if named else []), *figures] for label, what, *figures in numbers]
    level = ["level"] if named else []
    table = simple_table(["series", *level, chart.x_label, chart.y_label, "interval", chart.counted], rows, chart.title)
    return element("details", element("summary", "The numbers"), table, class_="numbers")


def simple_table(heads: Sequence[str], rows: Iterable[Sequence[str]], label: str) -> Html:
    """A table whose first column names its rows."""
    top = element("tr", *(element("th", head, scope="col") for head in heads))
    body = (element("tr", element("th", row[0], scope="row"), *(element("td", c) for c in row[1:])) for row in rows)
    return scrolling(element("table", element("thead", top), element("tbody", *body)), label)


def scrolling(table: Html, label: str) -> Html:
    """A box that scrolls instead of the page; it takes the focus, so that keys scroll it too."""
    return element("div", table, class_="scroll", role="region", aria_label=label, tabindex=0)


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
    small = [element("small", f"n = {cell.interval.count}")]
    if cell.paper is not None:
        mark = "†" if _is_questioned(row, cell) else ""
        small.append(element("small", f"paper {cell.paper.mean:.2f} ± {cell.paper.half_width:.2f}{mark}"))
    return element("td", text, together(*small))


def _is_questioned(row: Row, cell: Cell) -> bool:
    """The paper's private DPDGC rows: docs/theory.md, section 7.2."""
    return cell.paper is not None and row.block != "none" and row.method.startswith("dpdgc")
