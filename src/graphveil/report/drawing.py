"""Charts as pictures, by matplotlib: SVG inside a page, which follows its colours and fonts, or SVG and PNG files."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from graphveil.methods import METHODS
from graphveil.report.charts import Chart, Series
from graphveil.report.document import GRID, INK, MUTED, PAPER, SERIES, Html, element, plain, simple_table

# Series differ in colour, and in print by marker and dashes.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ((0, ()), (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
# Inside a page the colours of a drawing are replaced by the page's own, which follow its theme.
_THEMED = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    PAPER: "var(--card)",
    **{colour: f"var(--series-{index})" for index, colour in enumerate(SERIES)},
}
# Inches.
_WIDTH, _PLOT_HEIGHT = 4.7, 2.3
_BELOW, _ROW, _TITLE = 0.54, 0.185, 0.34
_STYLE = {
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud, and takes the page's font
    "svg.hashsalt": "graphveil",  # the same chart is the same file
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.5,
}


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    colour: str
    marker: str
    dashes: tuple[float, tuple[float, ...]]


def figure_html(chart: Chart, number: int) -> Html:
    """A chart on a page, with its caption and a table of its numbers; `number` is unique on the page."""
    caption = element("figcaption", chart.kind, element("span", f" · {chart.title}"))
    return element("figure", caption, inline_svg(chart, number), _numbers(chart))


def _numbers(chart: Chart) -> Html:
    numbers = chart.numbers()
    named = any(what for _, what, *_ in numbers)
    rows = [[label, *([what] if named else []), *values] for label, what, *values in numbers]
    level = ["level"] if named else []
    table = simple_table(["series", *level, chart.x_label, chart.y_label, "interval", chart.counted], rows, chart.title)
    return element("details", element("summary", "The numbers"), table, class_="numbers")


def inline_svg(chart: Chart, number: int) -> Html:
    """The chart inside a page: in the page's colours, with a title and a description for those who cannot see it."""
    with _style():
        drawn = _svg(chart, titled=False)
    body = drawn[drawn.index("<defs") : drawn.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->|\n\s*", "", body, flags=re.DOTALL)
    used = set(re.findall(r"#([\w-]+)", body))
    # Only tags are changed: the text between them may contain anything.
    body = re.sub(r"<[^>]+>", lambda tag: _themed(tag[0], used, number), body)
    box = re.search(r'viewBox="([^"]+)"', drawn)
    assert box is not None
    names = f"t{number} d{number}"
    return Html(
        f'<svg viewBox="{box[1]}" role="img" aria-labelledby="{names}" xmlns:xlink="http://www.w3.org/1999/xlink">'
        + element("title", f"{chart.kind}: {chart.title}", id=f"t{number}")
        + element("desc", chart.describe(), id=f"d{number}")
        + body
        + "</svg>"
    )


def _themed(tag: str, used: set[str], number: int) -> str:
    """A tag with the page's colours and font, and with ids that are unique on the page."""
    # A tenth of a point is finer than any screen.
    tag = re.sub(r"-?\d+\.\d{2,}", lambda digits: f"{float(digits[0]):.1f}".removesuffix(".0"), tag)
    tag = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", tag)
    tag = re.sub(r" font-family: [^;\"]*;| transform=\"rotate\(-?0 [^\"]*\"", "", tag)
    tag = re.sub(r' id="([^"]+)"', lambda name: f' id="c{number}-{name[1]}"' if name[1] in used else "", tag)
    tag = re.sub(r'(url\(|href=")#', rf"\1#c{number}-", tag)
    for colour, variable in _THEMED.items():
        tag = tag.replace(colour, variable)
    return tag


def picture(chart: Chart, form: str) -> bytes:
    """The chart as a file of its own, png or svg, on white."""
    with _style():
        if form == "svg":
            return _svg(chart, titled=True).encode()
        figure = _draw(chart, titled=True)
        out = BytesIO()
        FigureCanvasAgg(figure).print_png(out, metadata={"Title": plain(chart.title), "Description": chart.describe()})
        return out.getvalue()


@contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes in a png; svg text is not affected.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def _svg(chart: Chart, *, titled: bool) -> str:
    out = BytesIO()
    metadata = {"Title": plain(chart.title), "Description": chart.describe()} if titled else {}
    FigureCanvasSVG(_draw(chart, titled=titled)).print_svg(out, metadata={**metadata, "Date": None})
    return out.getvalue().decode()


def _draw(chart: Chart, *, titled: bool) -> Figure:
    """A figure whose plot has a fixed size: a legend or a title makes the figure taller."""
    columns = 3 if max(len(series.label) for series in chart.series) < 16 else 2
    rows = -(-len(chart.series) // columns) if len(chart.series) > 1 else 0
    below, above = _BELOW + _ROW * rows, _TITLE if titled else 0.08
    height = below + _PLOT_HEIGHT + above
    figure = Figure(figsize=(_WIDTH, height), dpi=160, facecolor=PAPER if titled else "none")
    figure.subplots_adjust(left=0.14, right=0.985, bottom=below / height, top=1 - above / height)
    axes = figure.add_subplot(facecolor="none")
    for series, look in zip(chart.series, _looks([(line.method, line.hollow) for line in chart.series]), strict=True):
        _plot(axes, chart, series, look)
    if chart.diagonal:
        axes.axline((0, 0), slope=1, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set(xlim=(0, 102), ylim=(0, 102))
    _mark_x(axes, chart)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y")
    axes.tick_params(length=0)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    if titled:
        # A user's name may contain a dollar sign, which must not start a formula.
        axes.set_title(_short(f"{chart.kind}: {chart.title}", 70), loc="left", fontsize=10, parse_math=False)
    if rows:
        legend = figure.legend(loc="lower left", ncols=columns, frameon=False, fontsize=9, handlelength=2.2)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def _looks(series: Sequence[tuple[str, bool]]) -> list[Look]:
    """One look for each series, which is given by its method and whether its points are hollow.

    A method looks the same in every figure, unless a figure has several curves of it.
    """
    told_apart = len(set(series)) == len(series) and all(method in METHODS for method, _ in series)
    places = [list(METHODS).index(method) for method, _ in series] if told_apart else range(len(series))
    return [_look(place) for place in places]


def _look(place: int) -> Look:
    turn = place // len(SERIES)
    colour, marker = SERIES[place % len(SERIES)], _MARKERS[(place + turn) % len(_MARKERS)]
    return Look(colour, marker, _DASHES[turn % len(_DASHES)])


def _plot(axes: Any, chart: Chart, series: Series, look: Look) -> None:
    label = _short(series.label, 40)
    if series.level_line:
        axes.axhline(series.points[0].mean, label=label, color=look.colour, linestyle=(0, (1, 2)), linewidth=1.2)
        return
    means = [point.mean for point in series.points]
    axes.errorbar(
        [point.x for point in series.points],
        means,
        yerr=[
            [max(mean - point.low, 0) for mean, point in zip(means, series.points, strict=True)],
            [max(point.high - mean, 0) for mean, point in zip(means, series.points, strict=True)],
        ],
        label=label,
        color=look.colour,
        marker=look.marker,
        markerfacecolor=PAPER if series.hollow else look.colour,
        linestyle=look.dashes if chart.joined else "none",
        elinewidth=0.9,
        capsize=2,
    )


def _mark_x(axes: Any, chart: Chart) -> None:
    """Ticks where the points are, for a sweep; at round numbers otherwise."""
    axes.set_xscale(chart.scale)
    places = sorted({point.x for series in chart.series if not series.level_line for point in series.points})
    if chart.joined and not chart.diagonal and len(places) <= 12:
        axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if chart.scale == "log" and not chart.joined:
        axes.xaxis.set_major_locator(LogLocator(subs=_subdivisions(places)))


def _subdivisions(places: list[float]) -> tuple[float, ...]:
    """A few labels on a logarithmic axis, however many powers of ten it spans."""
    decades = math.log10(places[-1] / places[0])
    return (1,) if decades > 2.5 else (1, 3) if decades > 1.5 else (1, 2, 5)


def _short(text: str, most: int) -> str:
    text = plain(text)
    # A leading underscore would hide a series from the legend.
    return "\u200b" + text if text.startswith("_") else text if len(text) <= most else text[: most - 1] + "…"
