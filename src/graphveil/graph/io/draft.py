"""A first `graph.json` for tables that nobody has described yet.

It is made of the names of columns and of the first rows, for the owner of the tables to read and to change. Classes,
categories, ranges and the largest weight stay open: what counts as declared must not be read from the data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from graphveil.errors import InvalidInput
from graphveil.graph.io.columns import Table
from graphveil.graph.io.declared import DECLARATIONS, Days, TableOptions, as_date
from graphveil.graph.io.sources import FORMATS, find_table, first_rows, is_text
from graphveil.storage import written_beside
from graphveil.validate import decoding

# How many rows of each table are looked at.
ROWS = 1000
# More distinct texts than this, and in more than half of the rows, are names or free text.
_FEW = 20
# Usual names of columns, in small letters.
_USUAL = {
    "id_column": ("id", "node_id", "node", "account_id", "account", "user_id", "user", "customer_id", "customer"),
    "label_column": ("label", "class", "y", "is_fraud", "fraud", "target"),
    "split_column": ("split",),
    "source_column": ("source", "from", "src", "sender", "payer", "u", "node1", "start", "follower"),
    "target_column": ("target", "to", "dst", "destination", "receiver", "payee", "v", "node2", "end", "followed"),
}
# The keys of the file in order, each with the comment above it.
_COMMENTS = {
    "node_table": "The table of nodes.",
    "id_column": "Of the nodes: their ids.",
    "label_column": "Of the nodes: the classes to predict; an empty cell has no label.",
    "split_column": "Of the nodes: train, val, test or empty. null: a split is drawn.",
    "time_column": "In place of split_column: train before, test after. Times are public then.",
    "train_before": "Such as 2024-01-31.",
    "test_after": "null: the same as train_before.",
    "feature_columns": "null: all columns of the nodes that are nothing else.",
    "drop_columns": "Columns of both tables that are not read. Text that differs in most rows, as names do, is here.",
    "classes": "All classes in order, if they are known without looking at the table. null: they are read from it, and "
    "their number is public.",
    "categories": 'The same for columns of text, as {"country": ["DE", "FR"]}.',
    "max_categories": "Text with more values is an error, unless they are declared.",
    "ranges": 'The least and the largest value, where they are known without looking at the table, as {"age": [18, '
    "100]}. Numbers and times without a range are scaled by the fit, for a part of the budget.",
    "missing": 'What a missing number counts as, as {"age": 40}. Others count as the centre of their column.',
    "scaling": "auto, or none: numbers without a range are taken as they are.",
    "edge_table": "The table of edges.",
    "directed": "true: an edge from a to b says nothing about b to a.",
    "source_column": "Of the edges: where they begin.",
    "target_column": "Of the edges: where they end.",
    "drop_self_loops": "true: edges from a node to itself are left out. false: they are an error.",
    "merge_duplicates": "true: edges that are listed again count once, or add up their weights. false: they are an "
    "error.",
    "weight_column": "Of the edges: how much they count. null: all alike.",
    "max_weight": "From this weight on an edge counts fully. It is public: choose it without looking at the table. "
    "Without a weight_column, the number of repeated edges is the weight.",
    "relation_column": "Of the edges: their kinds. null: one kind.",
    "relations": "The names of all kinds. They are public.",
}


@dataclass(frozen=True)
class Draft:
    """A `graph.json` that was written.

    Args:
        path: The file.
        look: For each line that is a guess or stands open: its number, its key and what to think of.
    """

    path: Path
    look: tuple[tuple[int, str, str], ...]


@dataclass
class _Guess:
    """What the file says, what each key could say, and the keys that somebody has to look at."""

    values: dict[str, Any]
    columns: dict[str, list[str]]
    open: set[str]


def write_draft(path: Path, given: TableOptions) -> Draft:
    """Write a `graph.json` beside a table of nodes.

    Args:
        path: The table of nodes, or a folder with a table of this name.
        given: What is known already.

    Returns:
        Where it is, and which lines to look at.

    Raises:
        InvalidInput: There is a `graph.json` already, or a table is not there or cannot be read.
    """
    if not path.exists():
        raise InvalidInput("path", str(path), "there is no such file or folder")
    folder = path if path.is_dir() else path.parent
    place = folder / DECLARATIONS
    if place.exists():
        raise InvalidInput("path", str(place), "exists already; change it by hand, or remove it first")
    nodes = find_table(folder, "nodes", given.node_table if path.is_dir() else path.name)
    edges, sure = _edge_table(folder, nodes, given.edge_table)
    guess = _Guess({}, {}, {"directed"} if sure else {"directed", "edge_table"})
    _guess_nodes(_sample(nodes), given, guess)
    _guess_edges(_sample(edges), given, guess)
    known = {field.name: getattr(given, field.name) for field in fields(given)}
    guess.values |= {key: _as_written(value) for key, value in known.items() if value is not None}
    guess.open -= {key for key, value in known.items() if value is not None and key != "edge_table"}
    guess.values |= {"node_table": nodes.name, "edge_table": os.path.relpath(edges, folder)}
    text = _rendered(guess, nodes.name, edges.name)
    with written_beside(place) as fresh:
        fresh.write_text(text, encoding="utf-8")
    at = {line.split('"')[1]: number for number, line in enumerate(text.splitlines(), 1) if line.startswith('  "')}
    return Draft(place, tuple((at[key], key, _comment(key, guess)) for key in _COMMENTS if key in guess.open))


def _as_written(value: Any) -> Any:
    """A declared value as JSON has it: dates as text."""
    if isinstance(value, Days):
        return as_date(value)
    if isinstance(value, Mapping):
        return {name: _as_written(each) for name, each in value.items()}
    return [_as_written(each) for each in value] if isinstance(value, list | tuple) else value


def _edge_table(folder: Path, nodes: Path, name: str | None) -> tuple[Path, bool]:
    """The table of edges, and whether it is certain."""
    if name is not None or any((folder / f"edges.{ending}").exists() for ending in FORMATS):
        return find_table(folder, "edges", name), True
    others = [each for each in sorted(folder.iterdir()) if each.suffix[1:] in FORMATS and each.name != nodes.name]
    if len(others) != 1:
        why = f"name the table of edges: --edges; beside {nodes.name} are {len(others)} other tables"
        raise InvalidInput("edges", None, why)
    return others[0], False


def _sample(path: Path) -> Table:
    with decoding(path, FORMATS[path.suffix[1:]]):
        table = Table.part(path, first_rows(path, ROWS), 0)
    table.check_columns([])
    if not table.table.column_names:
        raise table.error("columns", 0, "the table has none")
    return table


def _guess_nodes(nodes: Table, given: TableOptions, guess: _Guess) -> None:
    names = nodes.table.column_names
    ids = _named("id_column", names, given) or _distinct(nodes) or names[0]
    rest = [name for name in names if name != ids]
    label, split = (_named(key, rest, given) for key in ("label_column", "split_column"))
    numbers, times, texts, free = _kinds(nodes, [name for name in rest if name not in (label, split)])
    guess.values |= {"id_column": ids, "label_column": label, "split_column": split, "drop_columns": free}
    guess.values |= {"categories": {}, "ranges": {}, "missing": {}, "scaling": "auto"}
    guess.columns |= {"id_column": names, "label_column": rest, "time_column": times}
    guess.columns |= {"categories": texts, "ranges": [*numbers, *times]}
    guess.open |= {"id_column", "label_column", "classes"}
    guess.open |= {key for key, there in (("categories", texts), ("ranges", numbers), ("drop_columns", free)) if there}


def _guess_edges(edges: Table, given: TableOptions, guess: _Guess) -> None:
    names = edges.table.column_names
    source = _named("source_column", names, given) or names[0]
    rest = [name for name in names if name != source]
    target = _named("target_column", rest, given) or next(iter(rest), None)
    numbers, _, texts, _ = _kinds(edges, [name for name in rest if name != target])
    guess.values |= {"source_column": source, "target_column": target, "directed": False}
    guess.values |= {"drop_self_loops": True, "merge_duplicates": True}
    guess.columns |= {"source_column": names, "target_column": names, "weight_column": numbers}
    guess.columns |= {"relation_column": texts}
    guess.open |= {"source_column", "target_column"}
    guess.open |= {key for key, there in (("weight_column", numbers), ("relation_column", texts)) if there}


def _named(key: str, names: Sequence[str], given: TableOptions) -> str | None:
    """The column that was named, or else the one with the most usual name."""
    known: str | None = getattr(given, key)
    if known is not None:
        if known not in names:
            raise InvalidInput(key, known, f"there is no such column; there are {', '.join(names)}")
        return known
    small = {name.strip().lower(): name for name in reversed(names)}
    return next((small[usual] for usual in _USUAL[key] if usual in small), None)


def _distinct(nodes: Table) -> str | None:
    """The first column that could be ids, by the rows that are looked at."""
    for name in nodes.table.column_names:
        values = nodes.table.column(name)
        could = (is_text(values.type) or pa.types.is_integer(values.type)) and values.null_count == 0
        if could and pc.count_distinct(values).as_py() == len(values):
            return str(name)
    return None


def _kinds(table: Table, names: Sequence[str]) -> tuple[list[str], list[str], list[str], list[str]]:
    """The columns of numbers, of times, of categories, and of names or free text."""
    types = {name: table.table.column(name).type for name in names}
    numbers = [n for n, kind in types.items() if pa.types.is_integer(kind) or pa.types.is_floating(kind)]
    times = [n for n, kind in types.items() if pa.types.is_timestamp(kind) or pa.types.is_date(kind)]
    texts = [n for n, kind in types.items() if is_text(kind)]
    most = max(_FEW, len(table) / 2)
    free = [name for name in texts if pc.count_distinct(table.table.column(name)).as_py() > most]
    return numbers, times, [name for name in texts if name not in free], free


def _comment(key: str, guess: _Guess) -> str:
    columns = guess.columns.get(key)
    return _COMMENTS[key] if not columns else f"{_COMMENTS[key]} Columns: {', '.join(columns)}."


def _rendered(guess: _Guess, nodes: str, edges: str) -> str:
    about = (
        f"Made by graphveil init from the columns and the first {ROWS:,} rows of {nodes} and {edges}. Names that begin "
        "with _ are comments. This file is for the owner of the tables: it was made by looking at them, so read it "
        "before anybody else sees it. docs/data.md explains every line."
    )
    content: dict[str, Any] = {"_": about}
    for key in _COMMENTS:
        content[f"_{key}"] = f"{'LOOK: ' if key in guess.open else ''}{_comment(key, guess)}"
        content[key] = guess.values.get(key)
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
