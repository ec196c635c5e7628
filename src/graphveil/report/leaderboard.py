"""Leaderboards: the methods of an experiment by rank, for each level with its unit and budget."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphveil.experiments import cell_line, escaped, figure_text, notes, plain_table, run_counts, settings_text
from graphveil.experiments.results import (
    Cell,
    Interval,
    Results,
    joint_bootstrap,
    make_tables,
    placed_results,
    score_in,
)
from graphveil.privacy.levels import Edge, is_zero_out, level_from_dict
from graphveil.report.document import Html, element, scrolling, simple_table, together

# A run by its graph, its level with unit and budget, and its method with options.
Place = tuple[str, str, str]

_HEADS = ("rank", "method", "mean rank", "mean score", "first or within", "seconds", "memory, MB", "certified epsilon")
_TOTALS = ("method", "first", "first or within", "strict unit", "unit of most papers", "mean regret", "largest regret")
_ABOUT = (
    "Methods are ranked on each graph by their mean {score} over seeds, and listed by their mean rank over graphs; a "
    "graph on which a method has no finished run counts as its last rank. The score is the mean over its graphs ± half "
    "the 95 % bootstrap interval over seeds. First or within: on how many graphs it is the best, or its mean is within "
    "the interval of the best. Seconds: the median of its fits; memory: the most that one took; epsilon: the largest "
    "on its certificates. At node and k-neighbour levels a node is replaced, unless the unit zero-out is named. Only "
    "graphs on which at least two methods have finished runs count."
)
_ABOUT_TOTALS = (
    "A cell is a graph at one level, unit and budget. Regret is by how many points a method is below the best of the "
    "others on the seeds that both have, 0 where it is above; the mean is over its cells. The strict unit is a "
    "replaced node or a connection in both directions; most papers count an emptied node (zero-out) or one stored "
    "entry (directed)."
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
        regrets: By graph, by how many points it is below the best of the others, on the seeds that both have.
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
    regrets: Mapping[str, float]
    seconds: float
    memory_mb: float | None
    epsilon: float | None


@dataclass(frozen=True)
class Board:
    """The methods at one level.

    Args:
        block: The level, its unit and the budget.
        strict: Whether the unit is the stricter of the two: undirected, or replace.
        graphs: The graphs on which at least two methods have finished runs.
        standings: The methods, the best first.
    """

    block: str
    strict: bool
    graphs: tuple[str, ...]
    standings: tuple[Standing, ...]


@dataclass(frozen=True)
class Total:
    """A method over all boards. A cell is a graph at one level, unit and budget.

    Args:
        method: The method.
        cells: In how many cells it has a finished run.
        first: In how many of them it is the best.
        near: In how many it is the best, or within the interval of the best.
        strict: `near` and `cells` in the stricter unit alone.
        papers: The same in the other unit.
        mean_regret: The mean over cells of its points below the best of the others, 0 where it is above.
        largest_regret: The largest of these.
        where: The cell of the largest; empty if it is 0.
    """

    method: str
    cells: int
    first: int
    near: int
    strict: tuple[int, int]
    papers: tuple[int, int]
    mean_regret: float
    largest_regret: float
    where: str


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
    boards = list[Board]()
    for table in make_tables(results.records, "graph", results.metric):
        blocks: dict[str, dict[str, Mapping[str, Cell]]] = defaultdict(dict)
        for row in table.rows:
            blocks[row.block][row.method] = row.cells
        for block, rows in blocks.items():
            graphs = [column for column in table.columns if sum(column in cells for cells in rows.values()) > 1]
            compared = {method: {g: cells[g] for g in graphs if g in cells} for method, cells in rows.items()}
            compared = {method: cells for method, cells in compared.items() if cells}
            if compared:
                boards.append(_board(block, compared, graphs, runs, results.metric))
    return boards


def overall(boards: Iterable[Board]) -> list[Total]:
    """Each method over all boards, the one that is most often first or within the interval of the first at the top."""
    own: dict[str, list[tuple[Board, Standing]]] = defaultdict(list)
    for board in boards:
        for standing in board.standings:
            if standing.graphs:
                own[standing.method].append((board, standing))
    return sorted((_total(method, places) for method, places in own.items()), key=lambda t: -t.near / t.cells)


def _total(method: str, places: Sequence[tuple[Board, Standing]]) -> Total:
    regrets = [(regret, f"{graph}, {board.block}") for board, each in places for graph, regret in each.regrets.items()]
    largest, where = max(regrets, key=lambda pair: pair[0])

    def counts(strict: bool) -> tuple[int, int]:
        there = [each for board, each in places if board.strict == strict]
        return sum(each.near for each in there), sum(len(each.graphs) for each in there)

    return Total(
        method,
        cells=sum(len(each.graphs) for _, each in places),
        first=sum(each.first for _, each in places),
        near=sum(each.near for _, each in places),
        strict=counts(True),
        papers=counts(False),
        mean_regret=statistics.fmean(regret for regret, _ in regrets),
        largest_regret=largest,
        where=where if largest > 0 else "",
    )


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
    graphs: Sequence[str],
    runs: Mapping[Place, Sequence[Mapping[str, Any]]],
    metric: str,
) -> Board:
    scores = {
        (graph, method): {
            record["run"]["seed"]: score_in(record, metric) or 0.0 for record in runs[graph, block, method]
        }
        for method, cells in rows.items()
        for graph in cells
    }
    level = level_from_dict(
        next(iter(runs[graphs[0], block, m] for m in rows if graphs[0] in rows[m]))[0]["run"]["level"]
    )
    ranks = {method: sum(_rank(method, rows, graph) for graph in graphs) / len(graphs) for method in rows}
    ordered = sorted(rows, key=lambda method: (ranks[method], -_mean(rows[method])))
    standings = []
    for method in ordered:
        cells = rows[method]
        own = [record for graph in cells for record in runs[graph, block, method]]
        standings.append(
            Standing(
                place=1 + sum(ranks[other] < ranks[method] for other in rows),
                method=method,
                mean_rank=ranks[method],
                score=joint_bootstrap([cell.values for cell in cells.values()]),
                graphs=tuple(graph for graph in graphs if graph in cells),
                first=sum(cell.best for cell in cells.values()),
                near=sum(cell.best or cell.close for cell in cells.values()),
                regrets={graph: _regret(method, graph, scores) for graph in graphs if graph in cells},
                seconds=statistics.median(record["seconds"] for record in own),
                memory_mb=_largest(record.get("peak_memory_mb") for record in own),
                epsilon=_largest((record.get("certificate") or {}).get("epsilon") for record in own),
            )
        )
    strict = level.unit != "directed" if isinstance(level, Edge) else not is_zero_out(level)
    return Board(block, strict, tuple(graphs), tuple(standings))


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _regret(method: str, graph: str, scores: Mapping[tuple[str, str], Mapping[int, float]]) -> float:
    """By how many points a method is below the best of the others; each is compared on the seeds that both have."""
    own, regret = scores[graph, method], 0.0
    for (place, other), theirs in scores.items():
        both = own.keys() & theirs.keys()
        if place == graph and other != method and both:
            regret = max(regret, 100 * statistics.fmean(theirs[seed] - own[seed] for seed in both))
    return regret


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


def _total_words(total: Total) -> tuple[str, ...]:
    def share(near: int, cells: int) -> str:
        return f"{near} of {cells} ({near / cells:.0%})" if cells else "–"

    return (
        total.method,
        str(total.first),
        share(total.near, total.cells),
        share(*total.strict),
        share(*total.papers),
        f"{total.mean_regret:.2f}",
        f"{total.largest_regret:.1f} ({total.where})" if total.where else "0",
    )


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
    rows = [_total_words(total) for total in overall(boards)]
    parts += [element("h4", "All levels together"), element("p", _ABOUT_TOTALS, class_="quiet")]
    parts.append(simple_table(_TOTALS, rows, "All levels together"))
    for board in boards:
        parts += [element("h4", board.block), _board_html(board, cells)]
    opened = results.name.startswith("field")  # also a part of it
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
    parts = ["### Leaderboard", _ABOUT.format(score=results.metric.replace("_", " "))]
    parts += ["#### All levels together", _ABOUT_TOTALS]
    parts.append(plain_table(_TOTALS, [_total_words(total) for total in overall(boards)]))
    for board in boards:
        parts += [
            f"#### {escaped(board.block)}",
            plain_table(_HEADS, [_words(board, each) for each in board.standings]),
        ]
    return parts


def board_page(results: Results) -> list[str]:
    """A page for a repository: over all cells, each cell, each level, and how to do it again. It has no certificates.

    Args:
        results: The experiment.

    Returns:
        The parts of the page as Markdown; none where nothing is compared.
    """
    boards = leaderboards(results)
    if not boards:
        return []
    lines = (*notes(results), *run_counts(results), *settings_text(results.records))
    commands = dict.fromkeys(call["command"] for call in results.calls if call["command"])
    return [
        f"# {escaped(results.title)}",
        *boards_markdown(results),
        "### Each cell",
        _cells_markdown(results, boards),
        "### How it was made",
        "\n".join(f"- {escaped(line)}" for line in lines),
        "\n".join(f"    {' '.join(command.splitlines())}" for command in commands),
    ]


def _cells_markdown(results: Results, boards: Sequence[Board]) -> str:
    """A row for each graph of each board, a column for each method; the number of seeds where others have more."""
    cells = {
        (row.block, graph, row.method): cell
        for table in results.tables
        for row in table.rows
        for graph, cell in row.cells.items()
    }
    methods = list(dict.fromkeys(method for _, _, method in cells))
    usual = max(cell.interval.count for cell in cells.values())

    def text(cell: Cell | None) -> str:
        if cell is None:
            return ""
        words = figure_text(cell)
        words = f"**{words}**" if cell.best else f"<u>{words}</u>" if cell.close else words
        return words if cell.interval.count == usual else f"{words} <sub>n = {cell.interval.count}</sub>"

    lines = [
        cell_line(["level", "graph", *map(escaped, methods)]),
        cell_line(["---", "---", *("--:" for _ in methods)]),
    ]
    for board in boards:
        for graph in board.graphs:
            own = (text(cells.get((board.block, graph, method))) for method in methods)
            lines.append(cell_line([escaped(board.block), escaped(graph), *own]))
    return "\n".join(lines)
