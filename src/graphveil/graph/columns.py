"""Which columns of a user's tables mean what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TableColumns:
    """Which columns mean what. None for label and split: "label" and "split", if there are such columns."""

    id_column: str = "id"
    source_column: str = "source"
    target_column: str = "target"
    label_column: str | None = None
    split_column: str | None = None
    feature_columns: tuple[str, ...] | None = None
    classes: tuple[Any, ...] | None = None
    categories: Mapping[str, tuple[str, ...]] | None = None
    max_categories: int = 1000
