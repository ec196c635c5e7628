"""What is declared about tables: by arguments of `read_graph`, by options of commands, or in a `graph.json`.

All three have the same names. An argument goes before the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.graph.links import relation_names
from graphveil.graph.summary import FIRST_DAY, Undeclared
from graphveil.graph.validation import category_lists, class_list, spells_integer
from graphveil.validate import decoding, inside

DECLARATIONS = "graph.json"
_DAY = 86400.0


class Days(float):
    """Days since 2020 that were given as a date or a time, as which errors show them."""

    def __repr__(self) -> str:
        return repr(as_date(self))


@dataclass(frozen=True)
class TableOptions:
    """Which tables and columns mean what, and what becomes of them. None: not declared, `resolved` has the default.

    Args:
        node_table, edge_table: File names in the folder; by default nodes.csv or .parquet and edges.csv or .parquet.
        id_column, label_column, split_column: Of the nodes; by default "id", and "label" and "split" if there are such.
        source_column, target_column: Of the edges; by default "source" and "target".
        feature_columns: The columns that are features; by default all others.
        drop_columns: Columns of both tables that are not read.
        classes: All classes in order.
        categories: All values of a text column in order, by its name.
        ranges: The least and the largest value of a column of numbers or times, by its name.
        missing: What a missing number or time counts as, by the name of its column.
        scaling: "auto": numbers and times without a declared range are scaled by statistics of the fit; "none": they
            are taken as they are, and a missing value is an error.
        max_categories: A text column with more values that are not declared is an error.
        drop_self_loops: Remove edges from a node to itself.
        merge_duplicates: Make one of equal edges. Their weights are added; without a column of weights, `max_weight`
            makes their number the weight.
        weight_column: Of the edges: how much a link counts, a number that is 0 or more.
        max_weight: The weight from which on a link counts fully. It is public.
        relation_column: Of the edges: which relation a link belongs to.
        relations: The names of all relations. They are public.
        time_column: Of the nodes: decides which set a node is in, with `train_before` and `test_after`.
        train_before: Labelled nodes with an earlier time are in training.
        test_after: Labelled nodes with this or a later time are in the test set; those in between are for validation.
            By default `train_before`.
    """

    node_table: str | None = None
    edge_table: str | None = None
    id_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    source_column: str | None = None
    target_column: str | None = None
    feature_columns: tuple[str, ...] | None = None
    drop_columns: tuple[str, ...] | None = None
    classes: tuple[Any, ...] | None = None
    categories: Mapping[str, tuple[str, ...]] | None = None
    ranges: Mapping[str, tuple[float, float]] | None = None
    missing: Mapping[str, float] | None = None
    scaling: Literal["auto", "none"] | None = None
    max_categories: int | None = None
    drop_self_loops: bool | None = None
    merge_duplicates: bool | None = None
    weight_column: str | None = None
    max_weight: float | None = None
    relation_column: str | None = None
    relations: tuple[str, ...] | None = None
    time_column: str | None = None
    train_before: float | None = None
    test_after: float | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Options from values as a user or a JSON file gives them, checked."""
        return cls(**{name: _CHECKS[name](name, value) for name, value in given.items() if value is not None})

    def over(self, declared: Self) -> Self:
        """These options, and where they leave something open, what is declared."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(declared, **{name: value for name, value in given.items() if value is not None})

    def resolved(self) -> Self:
        """With the defaults in place of what was left open."""
        self._check_times()
        self._check_links()
        resolved = replace(self, **{name: value for name, value in _DEFAULTS.items() if getattr(self, name) is None})
        resolved._check_roles()
        return resolved

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns of nodes that are text, whatever a CSV file's cells look like.

        Labels are if a class is declared that as a number would be missing or the same as another: "NA", "0" and "00".
        """
        words = [name for name in self.classes or () if isinstance(name, str) and not spells_integer(name)]
        return (*(self.categories or ()), *((self.label_column or "label",) if words else ()))

    def _check_roles(self) -> None:
        """A column of a table has one role."""
        of_nodes, of_edges = ("id", "label", "split"), ("source", "target", "weight", "relation")
        for names in (of_nodes, of_edges):
            taken: dict[str, str] = {}
            for role in (f"{name}_column" for name in names):
                column = getattr(self, role)
                if column in taken:
                    raise InvalidInput(role, column, f"is the {taken[column]} already; name another column")
                if column is not None:
                    taken[column] = role
                if names is of_nodes and column is not None and column in (self.feature_columns or ()):
                    raise InvalidInput("feature_columns", column, f"is the {role}; leave it out of the features")

    def check_columns(self, nodes: Sequence[str], edges: Sequence[str]) -> None:
        """Refuse to drop a column that is in neither table, or that is needed. To be asked of `resolved` options."""
        roles = [field.name for field in fields(self) if field.name.endswith("_column")]
        for name in self.drop_columns or ():
            if name not in (*nodes, *edges):
                why = f"there is no such column; there are {', '.join(dict.fromkeys((*nodes, *edges)))}"
                raise InvalidInput("drop_columns", name, why)
            for role in roles:
                if getattr(self, role) == name:
                    raise InvalidInput("drop_columns", name, f"is the {role}, which is read")

    def _check_times(self) -> None:
        """The three options about times belong together."""
        if self.time_column is None:
            for name in ("train_before", "test_after"):
                if getattr(self, name) is not None:
                    raise InvalidInput(name, getattr(self, name), "belongs to time_column, which is not given")
            return
        if self.train_before is None:
            raise InvalidInput("train_before", None, f"must say when training ends, by column {self.time_column!r}")
        if self.test_after is not None and self.test_after < self.train_before:
            raise InvalidInput("test_after", self.test_after, "must not be before train_before")
        if self.split_column is not None:
            raise InvalidInput("split_column", self.split_column, "and time_column both divide the nodes; give one")

    def _check_links(self) -> None:
        """Weights need a maximum, and relations need names: both are public, so they are declared."""
        if self.weight_column is not None and self.max_weight is None:
            why = f"declare from which weight in column {self.weight_column!r} on a link counts fully (--max-weight)"
            raise InvalidInput("max_weight", None, why)
        if self.max_weight is not None and self.weight_column is None and not self.merge_duplicates:
            why = "name the weight_column, or let merge_duplicates count edges that are listed again"
            raise InvalidInput("max_weight", self.max_weight, why)
        if self.relations is not None and self.relation_column is None:
            raise InvalidInput("relations", list(self.relations), "name the relation_column that holds them")


_DEFAULTS: dict[str, Any] = {
    "id_column": "id",
    "source_column": "source",
    "target_column": "target",
    "drop_columns": (),
    "categories": {},
    "ranges": {},
    "missing": {},
    "scaling": "auto",
    "max_categories": 1000,
    "drop_self_loops": False,
    "merge_duplicates": False,
}


def declarations(folder: Path) -> dict[str, Any]:
    """The content of the `graph.json` of a folder, checked; keys that begin with "_" are comments."""
    path = folder / DECLARATIONS
    if not path.is_file():
        return {}
    with decoding(path, "JSON"), inside(path):
        declared = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_unrepeated)
        if not isinstance(declared, dict):
            raise InvalidInput("content", type(declared).__name__, "must be an object")
        stated = {key: value for key, value in declared.items() if not key.startswith("_")}
        return check_declarations(stated, ("directed", "name", "found", *_CHECKS))


@dataclass(frozen=True)
class Declared:
    """All that is declared about tables.

    Args:
        options: Which columns mean what, `resolved`.
        directed: The declaration of direction; None if there is none.
        name: The name of the graph; None if there is none.
        found: What of the options was read from the data in truth, by whoever wrote them.
    """

    options: TableOptions
    directed: bool | None = None
    name: str | None = None
    found: Undeclared = field(default_factory=Undeclared)

    @classmethod
    def of(cls, folder: Path, options: TableOptions) -> Self:
        """What these options and the `graph.json` of a folder declare."""
        in_file = declarations(folder)
        others = {key: in_file.pop(key) for key in ("directed", "name", "found") if key in in_file}
        found = others.pop("found", Undeclared())
        if options.classes is not None:
            found = replace(found, classes=None)
        return cls(options.over(TableOptions.of(in_file)).resolved(), found=found, **others)


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no key stands twice; comments may."""
    given: dict[str, Any] = {}
    for key, value in pairs:
        if key in given and not key.startswith("_"):
            raise InvalidInput("key", key, "is there twice; remove one")
        given[key] = value
    return given


def check_declarations(declared: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The content of a `graph.json` in which nothing is unknown and everything is of its type."""
    for key in declared:
        if key not in known:
            raise InvalidInput("key", key, f"must be one of {', '.join(known)}")
    if not isinstance(declared.get("directed", False), bool):
        raise InvalidInput("directed", declared["directed"], "must be true or false")
    if not isinstance(declared.get("name", ""), str):
        raise InvalidInput("name", declared["name"], "must be text")
    stated = {key: value for key, value in declared.items() if key in _CHECKS and value is not None}
    checked = {key: _CHECKS[key](key, value) for key, value in stated.items()}
    if "found" in declared:
        checked["found"] = Undeclared.from_dict(declared["found"])
    return declared | checked


def as_number(field: str, value: Any) -> float:
    """A finite number, or the `Days` of a date or time, which may be text: 2024-01-31, 2024-01-31T08:00:00."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    elif isinstance(value, np.number):
        value = value.item()
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value) if re.match("[0-9]{4}-[0-9]{2}-", value) else float(value)
        except ValueError:
            raise InvalidInput(field, value, "must be a number, a date (2024-01-31) or a time") from None
    if isinstance(value, datetime):
        return Days((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() / _DAY - FIRST_DAY)
    if isinstance(value, date):
        return Days((value - date(1970, 1, 1)).days - FIRST_DAY)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInput(field, value, "must be a number, a date (2024-01-31) or a time")
    return value if isinstance(value, Days) else float(value)


def check_like(field: str, value: float, *, times: bool) -> None:
    """Refuse a number where a column holds times, and a date where it holds numbers.

    Args:
        field: What the value is declared for.
        value: As `as_number` gave it.
        times: Whether the column holds times.
    """
    if isinstance(value, Days) != times:
        why = "must be a date or a time, as its column holds" if times else "must be a number: its column has no times"
        raise InvalidInput(field, value, why)


def as_date(days: Days) -> str:
    """A date, or a time in UTC, as text that `as_number` understands."""
    time = datetime.fromtimestamp(0, UTC) + timedelta(days=float(days) + FIRST_DAY)
    return time.isoformat().removesuffix("T00:00:00+00:00")


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(field, value, "must be a name")
    return value


def _names(field: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, list | tuple):
        raise InvalidInput(field, values, "must be a list of column names")
    return tuple(_text(field, value) for value in values)


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(field, value, "must be true or false")
    return value


def _ranges(field: str, values: Any) -> dict[str, tuple[float, float]]:
    ranges = {}
    for name, pair in _by_column(field, values).items():
        if isinstance(pair, str) or not isinstance(pair, list | tuple) or len(pair) != 2:
            raise InvalidInput(f"{field} of column {name!r}", pair, "must be the least and the largest value")
        low, high = (as_number(f"{field} of column {name!r}", end) for end in pair)
        if not low < high:
            raise InvalidInput(f"{field} of column {name!r}", pair, "must be the least and the largest value")
        ranges[name] = (low, high)
    return ranges


def _constants(field: str, values: Any) -> dict[str, float]:
    return {name: as_number(f"{field} of column {name!r}", v) for name, v in _by_column(field, values).items()}


def _by_column(field: str, values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise InvalidInput(field, values, "must give a value for each column by its name")
    return values


def _scaling(field: str, value: Any) -> str:
    if value not in ("auto", "none"):
        raise InvalidInput(field, value, "must be auto or none")
    return str(value)


def _count(field: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise InvalidInput(field, value, "must be a positive whole number")
    return value


_CHECKS: dict[str, Any] = {
    **dict.fromkeys(("node_table", "edge_table", "id_column", "label_column", "split_column"), _text),
    **dict.fromkeys(("source_column", "target_column", "time_column", "weight_column", "relation_column"), _text),
    "max_weight": validate.scale,
    "relations": lambda field, values: relation_names(values),
    **dict.fromkeys(("feature_columns", "drop_columns"), _names),
    "classes": lambda field, values: class_list(values),
    "categories": lambda field, values: category_lists(dict(values) if isinstance(values, Mapping) else values),
    "ranges": _ranges,
    "missing": _constants,
    "scaling": _scaling,
    "max_categories": _count,
    **dict.fromkeys(("drop_self_loops", "merge_duplicates"), _flag),
    **dict.fromkeys(("train_before", "test_after"), as_number),
}
