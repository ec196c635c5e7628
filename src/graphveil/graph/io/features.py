"""From columns of a table to the feature matrix: what each column is, and the numbers it becomes.

Which columns X has follows from the names and types of a table's columns and from what was declared, never from which
values are missing. Each row of X is a function of the same row of the table (and of the categories, where they were
read from the data).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from graphveil.graph.io.columns import Table
from graphveil.graph.io.declared import TableOptions, check_like
from graphveil.graph.summary import CYCLIC_PARTS, FIRST_DAY, ColumnKind, FeatureColumn, Scaling

_DENSE_LIMIT = 2**30  # bytes of one-hot columns above which the features are kept sparse
_MICROSECONDS = 86400e6
# How long each cycle is, in days, and how many days after its beginning 2020 began, on a Wednesday.
_CYCLES = {"hour of day": (1.0, 0.0), "day of week": (7.0, 2.0)}


def feature_columns(nodes: Table, options: TableOptions, others: Iterable[str | None]) -> tuple[FeatureColumn, ...]:
    """What becomes of each feature column of a table.

    Args:
        nodes: The table.
        options: What is declared, `resolved`.
        others: Columns that are no features.

    Returns:
        The columns, in the order of X.

    Raises:
        InvalidInput: A column cannot be a feature, or something is declared of a column that is none.
    """
    skipped = {*others, *(options.drop_columns or ())}
    names = options.feature_columns
    if names is None:
        names = tuple(name for name in nodes.table.column_names if name not in skipped)
    if "" in names:
        why = (
            f"column {nodes.table.column_names.index('') + 1} has no name, as row numbers that were written along; "
            "name it in the file, or name the features: feature_columns (--feature-columns A,B)"
        )
        raise nodes.error("columns", nodes.table.column_names, why)
    for what in ("categories", "ranges", "missing"):
        for name in getattr(options, what):
            if name not in names:
                why = f"{what} are declared of {name!r}, no feature"
                raise nodes.error("columns", nodes.table.column_names, why)
    return tuple(_described(nodes, name, options) for name in names)


def _described(nodes: Table, name: str, options: TableOptions) -> FeatureColumn:
    declared, ranges, missing = options.categories or {}, options.ranges or {}, options.missing or {}
    kind: ColumnKind = "categorical" if name in declared else nodes.kind_of(name)
    if name not in (*declared, *ranges, *missing) and nodes.kind_by_cells(name) and nodes.given(name) < 2:
        why = (
            "a single cell has a value, and would decide by itself whether this is text or numbers; drop the column: "
            f"drop_columns (--drop-columns {name}), or declare its categories or its range"
        )
        raise nodes.error(f"column {name!r}", 1, why)
    if kind == "categorical":
        if name in ranges or name in missing:
            raise nodes.error(f"column {name!r}", "text", "has no range and no number for missing values")
        known = declared.get(name)
        categories = known or nodes.found_categories(name, options.max_categories or 0)
        return FeatureColumn(name, "categorical", len(categories), tuple(categories), known is not None)
    limits, constant = ranges.get(name), missing.get(name)
    for what, values in (("ranges", limits or ()), ("missing", () if constant is None else (constant,))):
        for value in values:
            check_like(f"{what} of column {name!r}", value, times=kind in CYCLIC_PARTS)
    limits = None if limits is None else (float(limits[0]), float(limits[1]))
    constant = None if constant is None else float(constant)
    if kind == "boolean" and limits is None and constant is None and options.scaling == "auto":
        return FeatureColumn(name, "boolean")
    if kind == "boolean":
        kind = "numeric"
    scaling: Scaling = "range" if limits is not None else "paid" if options.scaling == "auto" else "none"
    return FeatureColumn.of_numbers(name, kind, scaling, limits, constant)


def encoded(nodes: Table, columns: tuple[FeatureColumn, ...]) -> np.ndarray | sp.csr_array:
    """The feature matrix, sparse or dense (`is_sparse`).

    Numbers that a fit scales are in it as they are (`summary.scaled_by_fit`).

    Raises:
        InvalidInput: A value is missing where it must not be, or is not of its column's kind.
    """
    fill = _sparse if is_sparse(columns, len(nodes)) else _dense
    return fill(nodes, columns, sum(column.width for column in columns))


def is_sparse(columns: tuple[FeatureColumn, ...], nodes: int) -> bool:
    """Whether one-hot columns would take too much memory, which their number says."""
    one_hot = sum(column.width for column in columns if column.kind == "categorical")
    return one_hot * nodes * 4 > _DENSE_LIMIT


def _dense(nodes: Table, columns: tuple[FeatureColumn, ...], width: int) -> np.ndarray:
    x = np.zeros((len(nodes), width), dtype=np.float32)
    at = 0
    for column in columns:
        if column.kind == "categorical":
            codes = nodes.codes(column.name, column.categories)
            rows = np.flatnonzero(codes >= 0)
            x[rows, at + codes[rows]] = 1
        else:
            x[:, at : at + column.width] = _block(nodes, column)
        at += column.width
    return x


def _sparse(nodes: Table, columns: tuple[FeatureColumn, ...], width: int) -> sp.csr_array:
    # Every value of a column that is not text is stored, zeros too.
    data, row, place = [], [], []
    at = 0
    for column in columns:
        if column.kind == "categorical":
            codes = nodes.codes(column.name, column.categories)
            rows = np.flatnonzero(codes >= 0)
            data.append(np.ones(len(rows), np.float32))
            row.append(rows)
            place.append(at + codes[rows])
        else:
            block = _block(nodes, column)
            data.append(block.ravel())
            row.append(np.repeat(np.arange(len(nodes)), column.width))
            place.append(np.tile(at + np.arange(column.width), len(nodes)))
        at += column.width
    entries = (np.concatenate(data), (np.concatenate(row), np.concatenate(place)))
    return sp.coo_array(entries, shape=(len(nodes), width)).tocsr()


def _block(nodes: Table, column: FeatureColumn) -> np.ndarray:
    """The columns of X of a column that is not text."""
    if column.kind == "boolean":
        return _truth(nodes, column.name)[:, None]
    values = nodes.numbers(column.name) if column.kind == "numeric" else _days(nodes, column.name)
    gone = np.isnan(values)
    if gone.any() and not column.has_indicator:
        why = "a feature value is missing; declare what it counts as (missing), or leave scaling at auto"
        raise nodes.cell_error(column.name, int(np.argmax(gone)), why)
    if column.constant is not None:
        values = np.where(gone, column.constant, values)
    if column.range is not None:
        low, high = column.range
        values = np.clip(2 * (values - low) / (high - low) - 1, -1, 1)
    parts = [np.nan_to_num(values) if gone.any() else values]
    for cycle in CYCLIC_PARTS.get(column.kind, ()):
        length, offset = _CYCLES[cycle]
        angle = 2 * np.pi * np.mod(_days(nodes, column.name) + offset, length) / length
        parts += [np.where(gone, 0, np.sin(angle)), np.where(gone, 0, np.cos(angle))]
    if column.has_indicator:
        parts.append(gone)
    block = np.empty((len(values), len(parts)), np.float32)
    for place, part in enumerate(parts):
        block[:, place] = part
    return block


def _truth(nodes: Table, name: str) -> np.ndarray:
    """1 for true, -1 for false, 0 for a missing value."""
    nodes.check_kind(name, "boolean")
    values = nodes.array(name)
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.float32)
    truth = values.cast(pa.float32()).to_numpy(zero_copy_only=False)
    return np.nan_to_num(2 * truth - 1)


def _days(nodes: Table, name: str) -> np.ndarray:
    """Days since 2020 in UTC, NaN for a missing time."""
    nodes.check_kind(name, "timestamp")
    values = nodes.array(name)
    if pa.types.is_null(values.type):
        return np.full(len(values), np.nan)
    micro = pc.cast(values, pa.timestamp("us"), safe=False) if pa.types.is_date(values.type) else values
    micro = pc.cast(micro, pa.timestamp("us", getattr(micro.type, "tz", None)), safe=False).cast(pa.int64())
    return micro.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) / _MICROSECONDS - FIRST_DAY


def times(nodes: Table, options: TableOptions) -> np.ndarray:
    """The times of a column by which nodes are divided: numbers, or days since 2020; NaN where there is none."""
    name = options.time_column or ""
    nodes.require(name)
    kind: ColumnKind = nodes.kind_of(name)
    for field in ("train_before", "test_after"):
        if getattr(options, field) is not None and kind in ("numeric", *CYCLIC_PARTS):
            check_like(field, getattr(options, field), times=kind in CYCLIC_PARTS)
    if kind in CYCLIC_PARTS:
        return _days(nodes, name)
    if kind != "numeric":
        raise nodes.error(f"column {name!r}", "text", "must hold times or numbers, to divide nodes by")
    return nodes.numbers(name).astype(np.float64)
