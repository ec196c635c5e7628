"""Charts as data: what there is to draw. A chart is made only where there is something to compare."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from graphveil.evaluation import Evaluation
from graphveil.experiments.results import Cell, Interval, Results, Row, bootstrap, make_tables, placed_results, score_in
from graphveil.experiments.spec import Axis

Scale = Literal["linear", "log"]


@dataclass(frozen=True)
class Point:
    """A mean and its interval.

    Args:
        x: Its place on the horizontal axis.
        mean: The mean.
        low: The lower end of the interval.
        high: The upper end of the interval.
        count: How many values the mean is of.
        what: Which point it is, where x alone does not say it.
    """

    x: float
    mean: float
    low: float
    high: float
    count: int
    what: str = ""


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Args:
        label: Its name in the legend.
        method: The method, which decides the colour.
        points: The points, by x.
        hollow: Whether points are drawn hollow: they were trained without noise.
        level_line: Whether its only point holds at every x, and is drawn as a horizontal line.
    """

    label: str
    method: str
    points: tuple[Point, ...]
    hollow: bool = False
    level_line: bool = False


@dataclass(frozen=True)
class Chart:
    """One figure.

    Args:
        kind: What it shows; charts of different graphs may have the same kind.
        name: The name of its file.
        title: What distinguishes it from others of its kind.
        x_label: What the horizontal axis shows.
        y_label: What the vertical axis shows.
        series: The series.
        scale: The scale of the horizontal axis.
        joined: Whether the points of a series are joined by a line.
        diagonal: Whether the line y = x is drawn.
        counted: What the count of a point counts.
    """

    kind: str
    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    scale: Scale = "linear"
    joined: bool = True
    diagonal: bool = False
    counted: str = "runs"

    def numbers(self) -> list[list[str]]:
        """Every point as text: its series, what it is, x, mean, interval and count."""
        return [
            [
                series.label,
                point.what,
                "every" if series.level_line else f"{point.x:.4g}",
                f"{point.mean:.2f}",
                f"{point.low:.2f} to {point.high:.2f}",
                str(point.count),
            ]
            for series in self.series
            for point in series.points
        ]

    def describe(self) -> str:
        """The figure in words, for those who cannot see it."""
        lines = [f"{self.y_label} against {self.x_label}."]
        for series in self.series:
            ends = series.points[0], series.points[-1]
            if series.level_line or len(series.points) == 1:
                lines.append(f"{series.label}: {ends[0].mean:.1f}.")
            else:
                span = " to ".join(f"{end.mean:.1f} at {end.x:.4g}" for end in ends)
                lines.append(f"{series.label}: from {span}.")
        return " ".join(lines)


def charts_of(results: Results) -> list[Chart]:
    """The charts of one experiment.

    Args:
        results: The experiment.

    Returns:
        Accuracy against what the experiment varies, or against everything that its runs happen to vary, and against
        the time they took. The list is empty if there is nothing to compare.
    """
    axis: Axis = results.calls[-1]["axis"]
    axes: tuple[Axis, ...] = ("epsilon", "k", "phi") if axis == "graph" else (axis,)
    charts = [chart for each in axes for chart in _curves(results, each)]
    # Graphs that differ only in phi take the same time.
    return charts if axis == "phi" else [*charts, *_times(results)]


def _curves(results: Results, axis: Axis) -> Iterable[Chart]:
    for table in make_tables(results.records, axis, results.metric):
        rows = [row for row in table.rows if len(_swept(row, axis)) > 1]
        if not rows:
            continue
        # Without privacy there is no epsilon: that accuracy is drawn as a horizontal line.
        lines = [row for row in table.rows if axis == "epsilon" and "none" in row.cells]
        blocks = {row.block for row in (*rows, *lines)}
        series = [Series(_label(row, blocks), row.method, _swept(row, axis), row.block == "none") for row in rows]
        series += [
            Series(_label(row, blocks), row.method, (_point(math.nan, row.cells["none"]),), True, level_line=True)
            for row in lines
        ]
        positive = all(point.x > 0 for line in series for point in line.points if not line.level_line)
        yield Chart(
            kind=f"{_score(results).capitalize()} against {axis}",
            name=_file_name(results.name, axis, table.title),
            title=table.title or results.title,
            x_label=axis,
            y_label=f"test {_score(results)} (%)",
            series=tuple(series),
            scale="log" if positive and axis != "phi" else "linear",
        )


def _swept(row: Row, axis: Axis) -> tuple[Point, ...]:
    """The points of a row's curve; none for levels without the parameter that varies."""
    if axis == "k" and not row.block.startswith("N_k"):
        return ()
    numbers = {column: cell for column, cell in row.cells.items() if _is_number(column)}
    return tuple(sorted((_point(float(column), cell) for column, cell in numbers.items()), key=lambda point: point.x))


def _times(results: Results) -> Iterable[Chart]:
    """Accuracy against seconds, one chart for each graph: filled points are private, hollow ones are not."""
    records = [r for r in results.records if r["status"] == "done" and score_in(r, results.metric) is not None]
    by_graph: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for record, place in zip(records, placed_results(records, "graph", results.metric), strict=True):
        by_graph[place.column][place.method, place.block].append((record["seconds"], 100 * place.score))
    for graph, cells in by_graph.items():
        points: dict[tuple[str, bool], list[Point]] = defaultdict(list)
        for (method, block), pairs in cells.items():
            seconds, scores = zip(*pairs, strict=True)
            interval = bootstrap(scores)
            mean = max(sum(seconds) / len(seconds), 1e-3)
            point = Point(mean, interval.mean, *_possible(interval), interval.count, block)
            points[method, block == "none"].append(point)
        if len(cells) < 2:
            continue
        yield Chart(
            kind=f"{_score(results).capitalize()} against seconds",
            name=_file_name(results.name, "seconds", graph),
            title=graph,
            x_label="seconds to train",
            y_label=f"test {_score(results)} (%)",
            series=tuple(
                Series(f"{method}, no noise" if free else method, method, tuple(members), hollow=free)
                for (method, free), members in points.items()
            ),
            scale="log",
            joined=False,
        )


def calibration_chart(evaluation: Evaluation) -> Chart:
    """How often a model is right, against how sure it says it is."""
    points = tuple(
        Point(100 * b.confidence, 100 * b.accuracy, 100 * b.interval[0], 100 * b.interval[1], b.count)
        for b in evaluation.bins
    )
    return Chart(
        kind="Calibration",
        name="calibration",
        title="Reliability diagram",
        x_label="mean confidence (%)",
        y_label="accuracy (%)",
        series=(Series("test nodes", "dpdgc", points),),
        diagonal=True,
        counted="nodes",
    )


def _score(results: Results) -> str:
    return results.metric.replace("_", " ")


def _label(row: Row, blocks: set[str]) -> str:
    return row.method if len(blocks) == 1 else f"{row.method}, {row.block}"


def _point(x: float, cell: Cell) -> Point:
    interval = cell.interval
    return Point(x, interval.mean, *_possible(interval), interval.count)


def _possible(interval: Interval) -> tuple[float, float]:
    """The ends of an interval of percentages, as far as they can be reached."""
    return max(interval.low, 0.0), min(interval.high, 100.0)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text) is not None


def _file_name(*words: str) -> str:
    """A name that every file system accepts, whatever a graph is called."""
    return "-".join(re.sub(r"[^A-Za-z0-9_.]+", "-", word).strip("-.")[:60] for word in words if word) or "figure"
