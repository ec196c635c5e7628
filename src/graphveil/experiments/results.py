"""Results of experiments: reads them from a folder and arranges finished runs in tables, in the paper's form.

Rows are levels and methods; columns are graphs, or the parameter that a figure varies.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from graphveil.errors import InvalidInput
from graphveil.experiments.paper import Figure, paper_figure
from graphveil.experiments.spec import Axis, level_label
from graphveil.privacy.levels import KNeighbor, Level, level_from_dict
from graphveil.storage import read_journal

RUNS, CALLS = "runs.jsonl", "calls.jsonl"
_RESAMPLES = 10_000
# The probability with which an interval holds the mean.
_LEVEL = 0.95
# From this many values on, resampling them says enough about others.
_FEW = 5


@dataclass(frozen=True)
class Interval:
    """The mean, and a 95 % interval of it over seeds; `half_width` is what stands after ±."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def bootstrap(values: Sequence[float]) -> Interval:
    """The percentile bootstrap of the mean, as in the paper; always the same for the same values.

    Resampling few values never leaves their range, and so says too little about what other seeds would give. Up to
    four values have Student's t-interval instead, which is exact for normal values.

    >>> bootstrap([0.5]).half_width
    0.0
    >>> round(bootstrap([60.0, 61.0]).half_width, 2)
    6.35
    """
    return _bootstrap(tuple(values))


# A report asks for the same cells as a table, as a curve and as a line of its list.
@lru_cache(maxsize=4096)
def _bootstrap(values: tuple[float, ...]) -> Interval:
    data = np.asarray(values, dtype=np.float64)
    if 1 < len(data) < _FEW:
        spread = float(stdtrit(len(data) - 1, (1 + _LEVEL) / 2) * data.std(ddof=1) / len(data) ** 0.5)
        return Interval(float(data.mean()), float(data.mean()) - spread, float(data.mean()) + spread, len(data))
    low, high = np.quantile(data[_drawn(len(data))].mean(axis=1), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(float(data.mean()), float(low), float(high), len(data))


def joint_bootstrap(groups: Sequence[Sequence[float]]) -> Interval:
    """The mean over groups (graphs) of their means over seeds, with the interval over resampled seeds.

    >>> joint_bootstrap([[1.0], [3.0, 3.0]])
    Interval(mean=2.0, low=2.0, high=2.0, count=3)
    """
    data = [np.asarray(group, dtype=np.float64) for group in groups]
    means = np.mean([each[_drawn(len(each))].mean(axis=1) for each in data], axis=0)
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(float(np.mean([each.mean() for each in data])), float(low), float(high), sum(map(len, data)))


@lru_cache(maxsize=4)
def _drawn(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))


@dataclass(frozen=True)
class Cell:
    """A score on test nodes, in percent.

    Args:
        interval: Its mean and interval over seeds.
        values: The scores themselves.
        best: Whether it is the best of its level.
        close: Whether its mean lies within the interval of the best one.
        paper: What the paper prints.
    """

    interval: Interval
    values: tuple[float, ...] = ()
    best: bool = False
    close: bool = False
    paper: Figure | None = None


@dataclass(frozen=True)
class Row:
    """One method at one level.

    Args:
        block: What the rows that are compared with each other have in common: the level, and the budget.
        method: The method, with the options in which it differs from other rows.
        cells: Cells by column.
    """

    block: str
    method: str
    cells: Mapping[str, Cell]

    def is_questioned(self, cell: Cell) -> bool:
        """Whether the paper obtained its figure without effective noise: its private DPDGC rows."""
        return cell.paper is not None and self.block != "none" and self.method.startswith("dpdgc")


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        title: Its title, where an experiment has several tables.
        heading: What the columns are; empty for graphs.
        columns: The names of the columns.
        rows: The rows, those of a block one after the other.
    """

    title: str
    heading: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def has_questioned_figures(self) -> bool:
        """Whether one of the paper's figures here was obtained without effective noise."""
        return any(row.is_questioned(cell) for row in self.rows for cell in row.cells.values())


@dataclass(frozen=True)
class _Result:
    """A finished run by its place in a table."""

    table: str
    block: str
    method: str
    column: str
    score: float
    paper: Figure | None


@dataclass(frozen=True)
class Results:
    """One experiment of a folder.

    Args:
        name: The name of its spec.
        calls: The calls that asked for its runs, as calls.jsonl has them.
        records: The latest record of each run, in the order in which they were asked for.
        missing: How many runs have no record yet.
    """

    name: str
    calls: tuple[Mapping[str, Any], ...]
    records: tuple[Mapping[str, Any], ...]
    missing: int

    @property
    def title(self) -> str:
        return str(self.calls[-1]["title"])

    @property
    def metric(self) -> str:
        """The score that is compared."""
        return str(self.calls[-1].get("metric", "accuracy"))

    @property
    def tables(self) -> list[Table]:
        return make_tables(self.records, self.calls[-1]["axis"], self.metric)

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        return [record for record in self.records if record["status"] == "failed"]


def read_results(folder: str | Path) -> list[Results]:
    """Read the experiments of a folder.

    Args:
        folder: A folder that `graphveil bench` wrote.

    Returns:
        The experiments, in the order in which they were first asked for.

    Raises:
        InvalidInput: If the folder holds no results.
    """
    folder = Path(folder)
    calls = read_journal(folder / CALLS)
    if not calls:
        raise InvalidInput("folder", str(folder), "holds no results of graphveil bench")
    latest = {record["key"]: record for record in read_journal(folder / RUNS)}
    experiments = []
    for name in dict.fromkeys(call["spec"] for call in calls):
        own = tuple(call for call in calls if call["spec"] == name)
        keys = dict.fromkeys(key for call in own for key in call["keys"])
        records = tuple(latest[key] for key in keys if key in latest)
        experiments.append(Results(name, own, records, len(keys) - len(records)))
    return experiments


def score_in(record: Mapping[str, Any], metric: str) -> float | None:
    """A score of a finished run; None where it is not defined, or was not computed when the run was made."""
    value: float | None = record.get("test_accuracy" if metric == "accuracy" else metric)
    return value


def make_tables(records: Iterable[Mapping[str, Any]], axis: Axis, metric: str = "accuracy") -> list[Table]:
    """The tables of one experiment.

    Args:
        records: Records of runs. Failed runs, and runs without this score, are left out.
        axis: What the columns are.
        metric: The score.

    Returns:
        The tables.
    """
    kept = [r for r in records if r["status"] == "done" and score_in(r, metric) is not None]
    results = placed_results(kept, axis, metric)
    titles = dict.fromkeys(result.table for result in results)
    return [_table(title, axis, [result for result in results if result.table == title]) for title in titles]


def _table(title: str, axis: Axis, results: Sequence[_Result]) -> Table:
    cells: dict[tuple[str, str], dict[str, Cell]] = defaultdict(dict)
    groups: dict[tuple[str, str, str], list[_Result]] = defaultdict(list)
    for result in results:
        groups[result.block, result.method, result.column].append(result)
    for (block, method, column), members in groups.items():
        values = tuple(100 * member.score for member in members)
        cells[block, method][column] = Cell(bootstrap(values), values, paper=members[0].paper)
    columns = tuple(dict.fromkeys(result.column for result in results))
    blocks = dict.fromkeys(block for block, _ in cells)
    for block in blocks:
        for column in columns:
            _mark([row for (name, _), row in cells.items() if name == block], column)
    rows = tuple(
        Row(block, method, cells[block, method]) for block in blocks for name, method in cells if name == block
    )
    heading = {"graph": "", "epsilon": "epsilon", "k": "k", "phi": "phi"}[axis]
    return Table(title, heading, columns, rows)


def _mark(rows: list[dict[str, Cell]], column: str) -> None:
    """Mark the best of a block in this column, and those within its interval."""
    filled = [row for row in rows if column in row]
    if not filled:
        return
    best = max((row[column].interval for row in filled), key=lambda interval: interval.mean)
    for row in filled:
        mean = row[column].interval.mean
        is_best = mean == best.mean
        row[column] = replace(row[column], best=is_best, close=not is_best and mean >= best.mean - best.half_width)


def placed_results(records: Sequence[Mapping[str, Any]], axis: Axis, metric: str = "accuracy") -> list[_Result]:
    """For each finished run, in the same order, the table, row and column it belongs to, and its score."""
    graph_names = _labels((r["run"]["graph"] for r in records), lambda graph: graph["name"], "content")
    method_names = _method_names(records)
    return [_place(record, axis, metric, graph_names, method_names[record["key"]]) for record in records]


def _place(record: Mapping[str, Any], axis: Axis, metric: str, graph_names: Mapping[str, str], method: str) -> _Result:
    run = record["run"]
    level, epsilon = level_from_dict(run["level"]), run["epsilon"]
    graph = graph_names[_text(run["graph"])]
    name = level_label(level)
    budget = "" if epsilon is None else f", epsilon = {epsilon:g}"
    table, block, column = "", f"{name}{budget}", graph
    if axis == "epsilon":
        table, block, column = graph, name, "none" if epsilon is None else f"{epsilon:g}"
    elif axis == "k":
        table = graph
        if isinstance(level, KNeighbor):
            block, column = f"{_any_k(level)}{budget}", str(level.k)
    elif axis == "phi":
        column = graph.removeprefix("csbm:")
    # The paper has accuracies only.
    paper = paper_figure(level, epsilon, run["method"], run["graph"]["name"]) if metric == "accuracy" else None
    return _Result(table, block, method, column, score_in(record, metric) or 0.0, paper)


def _any_k(level: KNeighbor) -> str:
    label: Level = level
    return level_label(label).replace(f"N_{level.k}", "N_k", 1)


def _method_names(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The label of each run's method: its name, and the options in which variants of one cell differ."""
    variants: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    places = {}
    for record in records:
        run = record["run"]
        place = places[record["key"]] = _text([run["graph"], run["method"], run["level"], run["epsilon"]])
        variants[place][_text(_choices(run))] = _choices(run)
    differing = {place: _differing(list(there.values())) for place, there in variants.items()}
    names = {}
    for record in records:
        run = record["run"]
        chosen = [f"{key} = {_choices(run).get(key, 'default')}" for key in differing[places[record["key"]]]]
        names[record["key"]] = f"{run['method']} ({', '.join(chosen)})" if chosen else run["method"]
    return names


def _choices(run: Mapping[str, Any]) -> dict[str, Any]:
    return {**run["options"], "delta": run["delta"]}


def _differing(variants: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = sorted({key for variant in variants for key in variant})
    return [key for key in keys if len({_text(variant.get(key)) for variant in variants}) > 1]


def _labels(
    items: Iterable[Mapping[str, Any]], name: Callable[[Mapping[str, Any]], str], detail: str
) -> dict[str, str]:
    """A label for each distinct item: its name, with a detail where two share one."""
    distinct = {_text(item): item for item in items}
    often = Counter(name(item) for item in distinct.values())
    return {
        text: name(item) if often[name(item)] == 1 else f"{name(item)} {str(item.get(detail))[:6]}"
        for text, item in distinct.items()
    }


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
