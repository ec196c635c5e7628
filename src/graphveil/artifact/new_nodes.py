"""New nodes in a file: a CSV or Parquet table with an id, the nodes that each one reads, and features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphveil.errors import InvalidInput
from graphveil.graph.io.columns import FORMATS, Table
from graphveil.graph.report import FeatureColumn
from graphveil.methods.naming import Naming
from graphveil.privacy.facts import PublicFacts

ID, NEIGHBORS = "id", "neighbors"


@dataclass(frozen=True)
class NewNodes:
    """Arguments of `predict_new`."""

    ids: list[str]
    features: np.ndarray
    neighbors: list[list[int]]


def read_new_nodes(path: Path, naming: Naming, facts: PublicFacts) -> NewNodes:
    """Read the table.

    Columns: `id`; `neighbors`, names of nodes of the training graph, separated by spaces (in Parquet also as a list);
    and features. If the training graph came from tables, features are found by their column names, and text is turned
    into the categories that were known then; otherwise all other columns are features, in their order.
    """
    if path.suffix[1:] not in FORMATS:
        raise InvalidInput("new", str(path), f"must end in {' or '.join('.' + ending for ending in FORMATS)}")
    if not path.is_file():
        raise InvalidInput("new", str(path), "there is no such file")
    table = Table(path, [ID, NEIGHBORS], text=[column.name for column in naming.columns if column.categories])
    return NewNodes(
        ids=[str(name) for name in table.ids(ID).to_pylist()],
        features=_features(table, naming.columns, facts.features),
        neighbors=[naming.places(NEIGHBORS, names, facts.nodes) for names in _neighbors(table)],
    )


def _neighbors(table: Table) -> list[list[str]]:
    rows = table.table.column(NEIGHBORS).to_pylist()
    found = []
    for number, row in enumerate(rows):
        if row is None or isinstance(row, str):
            found.append((row or "").split())
        elif isinstance(row, list) and all(isinstance(name, str | int) for name in row):
            found.append([str(name) for name in row])
        else:
            raise table.cell_error(NEIGHBORS, number, "must be names of nodes: text with spaces between, or a list")
    return found


def _features(table: Table, columns: tuple[FeatureColumn, ...], width: int) -> np.ndarray:
    given = [name for name in table.table.column_names if name not in (ID, NEIGHBORS)]
    if not columns:
        columns = tuple(FeatureColumn(name, "numeric") for name in given)
        if len(columns) != width:
            raise table.error("columns", len(columns), f"must be {width} features beside {ID} and {NEIGHBORS}")
    for name in given:
        if name not in {column.name for column in columns}:
            raise table.error("columns", name, "is no feature of this model")
    blocks = [_block(table, column) for column in columns]
    return np.concatenate([np.zeros((len(table), 0), np.float32), *blocks], axis=1)


def _block(table: Table, column: FeatureColumn) -> np.ndarray:
    table.require(column.name)
    if column.kind == "numeric":
        table.check_numbers(column.name, "must be a number")
        if len(table):
            table.is_numeric(column.name)  # or it is an error: dates, for example
        return table.numbers(column.name)[:, None]
    texts = table.table.column(column.name).cast(pa.string()).to_pylist()
    block = np.zeros((len(texts), column.width), dtype=np.float32)
    for row, text in enumerate(texts):
        if text not in column.categories:
            raise table.cell_error(column.name, row, "is not a category that the model was trained on")
        block[row, column.categories.index(text)] = 1
    return block
