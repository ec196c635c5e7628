"""Predictions as a table: one row for each node by its name, the predicted class, and a probability for each class.

The columns are `node`, `prediction`, and `p(NAME)` for each class, so that no name of a class is taken for another
column. Every table of predictions that graphveil writes has this form.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from graphveil.methods.naming import Naming


def column_names(naming: Naming, classes: int) -> list[str]:
    """The header of a table of predictions.

    Example:
        >>> column_names(Naming(classes=("north", "node")), 2)
        ['node', 'prediction', 'p(north)', 'p(node)']
    """
    return ["node", "prediction", *(f"p({naming.class_name(number)})" for number in range(classes))]


def best_classes(naming: Naming, probabilities: np.ndarray) -> list[str]:
    """The most probable class of each row, by name."""
    return [naming.class_name(number) for number in probabilities.argmax(axis=1).tolist()]


def csv_head(naming: Naming, classes: int) -> bytes:
    return _csv([column_names(naming, classes)])


def csv_rows(naming: Naming, nodes: Sequence[str], probabilities: np.ndarray) -> bytes:
    """Rows of these nodes, without a header; probabilities with as many digits as float32 has."""
    best = best_classes(naming, probabilities)
    return _csv([node, name, *map(str, row)] for node, name, row in zip(nodes, best, probabilities, strict=True))


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
