"""What of a graph was found in its data because nobody declared it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from graphveil.errors import InvalidInput


@dataclass(frozen=True)
class Found:
    """Numbers of classes (None: declared) and of categories by column; never the values themselves.

    They fix the shape of the weights, so every guarantee treats them as public. Names of classes and categories that
    were found stay with the owner of the data.
    """

    classes: int | None = None
    categories: tuple[tuple[str, int], ...] = ()

    def facts(self) -> tuple[str, ...]:
        """In words, without any value of the data."""
        classes = () if self.classes is None else (f"the number of classes ({self.classes}) and their order",)
        columns = (f"the number of categories of column {name!r} ({n}) and their order" for name, n in self.categories)
        return (*classes, *columns)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"categories": dict(self.categories)}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What `to_dict` wrote; strict about its form."""
        counted = isinstance(data, dict) and set(data) == {"classes", "categories"}
        if not counted or not isinstance(data["categories"], dict):
            raise InvalidInput("found", data, "must have the keys classes and categories, as graphveil writes them")
        for value in (*([] if data["classes"] is None else [data["classes"]]), *data["categories"].values()):
            if type(value) is not int or value < 0:
                raise InvalidInput("found", value, "must be a number of classes or categories")
        return cls(data["classes"], tuple(data["categories"].items()))


def class_list(values: Any) -> tuple[Any, ...]:
    """All classes in order, as somebody declared them: two or more, of one type, and different as text."""
    listed = _one_type("classes", values)
    if len(listed) < 2:
        raise InvalidInput("classes", list(listed), "must list all classes, two at least")
    return listed


def category_lists(values: Any) -> dict[str, tuple[str, ...]]:
    """The declared categories of each column, as text."""
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InvalidInput("categories", values, "must give a list of values for each column by its name")
    found = {}
    for name, listed in values.items():
        found[name] = tuple(map(str, _one_type(f"categories of column {name!r}", listed)))
        if not found[name]:
            raise InvalidInput(f"categories of column {name!r}", listed, "must list one value at least")
    return found


def _one_type(field: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidInput(field, values, "must be a list")
    kinds = {type(value) for value in values}
    if len(kinds) > 1 or not kinds <= {str, int, float, bool}:
        raise InvalidInput(field, list(values), "must be values of one type: all text, or all numbers")
    texts = [str(value) for value in values]
    for place, text in enumerate(texts):
        if text in texts[:place]:
            raise InvalidInput(field, values[place], "is listed twice")
    return tuple(values)
