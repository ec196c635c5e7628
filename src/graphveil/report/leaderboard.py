"""Leaderboards: the methods of an experiment by rank, for each level with its unit and budget."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphveil.experiments import escaped, plain_table
from graphveil.experiments.results import (
    Cell,
    Interval,
    Results,
    joint_bootstrap,
    make_tables,
    placed_results,
    score_in,
)
from graphveil.report.document import Html, element, scrolling, simple_table, together

# A run by its graph, its level with unit and budget, and its method with options.
Place = tuple[str, str, str]

_HEADS = ("rank", "method", "mean rank", "mean score", "first or within", "seconds", "memory, MB", "certified epsilon")
_ABOUT = (
    "Methods are ranked on each graph by their mean {score} over seeds, and listed by their mean rank over graphs; a "
    "graph on which a method has no finished run counts as its last rank. The score is the mean over its graphs ± half "
    "the 95 % bootstrap interval over seeds. First or within: on how many graphs it is the best, or its mean is within "
    "the interval of the best. Seconds: the median of its fits; memory: the most that one took; epsilon: the largest "
    "on its certificates. At node and k-neighbour levels a node is replaced, unless the unit zero-out is named."
)


@dataclass(frozen=True)
class Standing:
    """A method at one level.

    Args:
        place: Its place on the board; equal mean ranks share one.
        method: The method, with the options in which it differs from other rows.
        mean_rank: The mean of its ranks over the board's graphs.
        score: Its score in percent: mean and interval over its graphs.
        graphs: The graphs on which it has a finished run.
        first: On how many graphs it is the best.
        near: On how many graphs it is the best, or within the interval of the best.
        seconds: The median of its fits.
        memory_mb: The largest peak memory of its fits; None if it was not recorded.
        epsilon: The largest epsilon on its certificates; None if there are none.
    """

    place: int
    method: str
    mean_rank: float
    score: Interval
    graphs: tuple[str, ...]
    first: int
    near: int
    seconds: float
    memory_mb: float | None
    epsilon: float | None


@dataclass(frozen=True)
class Board:
    """The methods at one level.

    Args:
        block: The level, its unit and the budget.
        graphs: The graphs on which at least one method has a finished run.
        standings: The methods, the best first.
    """

    block: str
    graphs: tuple[str, ...]
    standings: tuple[Standing, ...]


def leaderboards(results: Results) -> list[Board]:
    """The boards of an experiment: one for each level, unit and budget at which methods are compared.

    Args:
        results: The experiment. Failed and missing runs count as not finished, so that a board can be made at any time.

    Returns:
        The boards in the order of the table; none if the columns of the experiment are not graphs.
    """
    if results.calls[-1]["axis"] != "graph":
        return []
    runs = _runs_by_place(results)
    boards = []
    for table in make_tables(results.records, "graph", results.metric):
        blocks: dict[str, dict[str, Mapping[str, Cell]]] = defaultdict(dict)
        for row in table.rows:
            blocks[row.block][row.method] = row.cells
        boards += [_board(block, rows, table.columns, runs) for block, rows in blocks.items() if len(rows) > 1]
    return boards


def overall(boards: Iterable[Board]) -> list[tuple[str, int, int, int]]:
    """For each method: on how many cells of all boards it is first, first or within its interval, and runs at all."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for board in boards:
        for standing in board.standings:
            each = counts[standing.method]
            each[0] += standing.first
            each[1] += standing.near
            each[2] += len(standing.graphs)
    rows = [(method, first, near, of) for method, (first, near, of) in counts.items()]
    return sorted(rows, key=lambda row: -row[2] / row[3])


def _runs_by_place(results: Results) -> dict[Place, list[Mapping[str, Any]]]:
    """Finished runs with a score, as the tables name them."""
    metric = results.metric
    done = [r for r in results.records if r["status"] == "done" and score_in(r, metric) is not None]
    runs: dict[Place, list[Mapping[str, Any]]] = defaultdict(list)
    for record, place in zip(done, placed_results(done, "graph", metric), strict=True):
        runs[place.column, place.block, place.method].append(record)
    return runs


def _board(
    block: str,
    rows: Mapping[str, Mapping[str, Cell]],
    columns: Sequence[str],
    runs: Mapping[Place, Sequence[Mapping[str, Any]]],
) -> Board:
    graphs = tuple(column for column in columns if any(column in cells for cells in rows.values()))
    ranks = {method: sum(_rank(method, rows, graph) for graph in graphs) / len(graphs) for method in rows}
    ordered = sorted(rows, key=lambda method: (ranks[method], -_mean(rows[method])))
    standings = []
    for method in ordered:
        cells = rows[method]
        own = [record for graph in cells for record in runs[graph, block, method]]
        epsilons = [spent for record in own if (spent := (record.get("certificate") or {}).get("epsilon")) is not None]
        memory = [record["peak_memory_mb"] for record in own if record.get("peak_memory_mb") is not None]
        standings.append(
            Standing(
                place=1 + sum(ranks[other] < ranks[method] for other in rows),
                method=method,
                mean_rank=ranks[method],
                score=joint_bootstrap([cell.values for cell in cells.values()]),
                graphs=tuple(graph for graph in graphs if graph in cells),
                first=sum(cell.best for cell in cells.values()),
                near=sum(cell.best or cell.close for cell in cells.values()),
                seconds=statistics.median(record["seconds"] for record in own),
                memory_mb=max(memory, default=None),
                epsilon=max(epsilons, default=None),
            )
        )
    return Board(block, graphs, tuple(standings))


def _rank(method: str, rows: Mapping[str, Mapping[str, Cell]], graph: str) -> int:
    """One more than the number of methods with a higher mean; the last rank without a finished run."""
    own = rows[method].get(graph)
    if own is None:
        return len(rows)
    return 1 + sum(graph in cells and cells[graph].interval.mean > own.interval.mean for cells in rows.values())


def _mean(cells: Mapping[str, Cell]) -> float:
    return statistics.fmean(cell.interval.mean for cell in cells.values())


def _words(board: Board, standing: Standing) -> list[str]:
    score = f"{standing.score.mean:.2f}"
    if standing.score.high > standing.score.low:
        score += f" ± {standing.score.half_width:.2f}"
    missing = len(board.graphs) - len(standing.graphs)
    score += f" ({len(standing.graphs)} of {len(board.graphs)} graphs)" if missing else ""
    epsilon = standing.epsilon
    return [
        str(standing.place),
        standing.method,
        f"{standing.mean_rank:.2f}",
        score,
        f"{standing.near} of {len(board.graphs)}",
        f"{standing.seconds:.3g}",
        "–" if standing.memory_mb is None else f"{standing.memory_mb:.0f}",
        "no guarantee" if epsilon is None or math.isinf(epsilon) else f"{epsilon:.4g}",
    ]


def boards_html(results: Results, cells: Mapping[Place, int]) -> list[Html]:
    """The leaderboards as a part of a page.

    Args:
        results: The experiment.
        cells: By place, the number of the line of the page that opens to the runs and their certificates.

    Returns:
        Elements; none where nothing is compared.
    """
    boards = leaderboards(results)
    if not boards:
        return []
    parts = [element("p", _ABOUT.format(score=results.metric.replace("_", " ")), class_="quiet")]
    rows = [(method, str(first), f"{near} of {of}", f"{near / of:.0%}") for method, first, near, of in overall(boards)]
    heads = ("method", "first", "first or within its interval", "of its cells")
    parts += [element("h4", "All levels together"), simple_table(heads, rows, "All levels together")]
    for board in boards:
        parts += [element("h4", board.block), _board_html(board, cells)]
    opened = results.name == "field"
    return [element("details", element("summary", "Leaderboard: methods by rank"), *parts, open=opened)]


def _board_html(board: Board, cells: Mapping[Place, int]) -> Html:
    top = element("tr", *(element("th", head, scope="col") for head in (*_HEADS, "runs and certificates")))
    lines = []
    for standing in board.standings:
        place, method, *words = _words(board, standing)
        places = {graph: cells.get((graph, board.block, standing.method)) for graph in standing.graphs}
        links = (element("a", graph, href=None if at is None else f"#cell-{at}") for graph, at in places.items())
        joined = together(*(part for link in links for part in (link, " ")))
        own = (element("td", place), element("th", method, scope="row"), *(element("td", word) for word in words))
        lines.append(element("tr", *own, element("td", joined)))
    table = element("table", element("thead", top), element("tbody", *lines), class_="board")
    return scrolling(table, f"Leaderboard, {board.block}")


def boards_markdown(results: Results) -> list[str]:
    """The same as Markdown."""
    boards = leaderboards(results)
    if not boards:
        return []
    rows = [(m, str(first), f"{near} of {of} ({near / of:.0%})") for m, first, near, of in overall(boards)]
    parts = ["### Leaderboard", _ABOUT.format(score=results.metric.replace("_", " "))]
    parts.append(plain_table(("all levels together", "first", "first or within its interval"), rows))
    for board in boards:
        parts += [
            f"#### {escaped(board.block)}",
            plain_table(_HEADS, [_words(board, each) for each in board.standings]),
        ]
    return parts
