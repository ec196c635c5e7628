"""A user's own experiment, written in TOML.

    name = "mine"                            # default: the file's name
    title = "Our network"                    # default: the name
    graphs = ["cora", "mine.npz", { path = "tables", name = "ours", directed = true }]
    seeds = 5                                # 0 .. 4; or a list of seeds
    axis = "graph"                           # the columns of the summary: graph, epsilon, k or phi
    metric = "average_precision"             # what is compared; default: "accuracy"

    [options]                                # for every method; see `graphveil train --help`
    steps = 50

    [[settings]]
    level = "k-neighbor"                     # none, edge, k-neighbor or node
    k = [1, 5]
    epsilon = [4, 16]
    methods = ["dpdgc", "gap", "mlp"]
    delta = 1e-5                             # default: "auto"; or "paper", the paper's rule, for public graphs
    options.gap = { max_degree = 100, cap_degrees = true }

Level `node` takes `max_degree`; `unit` is undirected or directed at level `edge`, replace or zero-out at the others, or
a list of them; `attributes = false` declares features and labels public. A method may be one of another package (see
examples/graphveil-votes). Paths are relative to the file. Every mistake is reported with its line.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.experiments.execution import file_graph, named_graph
from graphveil.experiments.spec import (
    AXES,
    MOST_SEEDS,
    Delta,
    GraphRef,
    Setting,
    Spec,
    check_method,
    check_metric,
    check_option,
)
from graphveil.methods import method_class
from graphveil.privacy.facts import check_delta
from graphveil.privacy.levels import Level, Public, make_level

Key = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")

_TOP = ("name", "title", "graphs", "seeds", "axis", "metric", "options", "settings")
_SETTING = ("level", "k", "max_degree", "unit", "attributes", "epsilon", "delta", "methods", "options")
_GRAPH = ("path", "name", "directed")

Options = tuple[dict[str, Any], dict[str, dict[str, Any]]]


def read_spec(path: str | Path) -> Spec:
    """Read a user's own experiment from a TOML file and check it.

    Args:
        path: The file. `graphveil.experiments.spec_file` shows what it may contain.

    Returns:
        The experiment.

    Raises:
        InvalidInput: If something in the file is wrong; the message names the file and the line.
    """
    path = Path(path)
    document = Document.read(path)
    data = document.data
    _check_keys(document, (), data, _TOP)
    tables = _listed(document, ("settings",), data.get("settings"), dict)
    shared = _options(document, ("options",), data.get("options", {}))
    name = _text(document, "name", path.stem)
    axis = data.get("axis", "graph")
    with document.at("axis"):
        if axis not in AXES:
            raise InvalidInput("axis", axis, f"must be one of {', '.join(AXES)}")
    metric = _text(document, "metric", "accuracy")
    with document.at("metric"):
        check_metric(metric)
    return Spec(
        name=name,
        title=_text(document, "title", name),
        graphs=_graphs(document, path.parent),
        settings=tuple(_setting(document, ("settings", index), table, shared) for index, table in enumerate(tables)),
        seeds=_seeds(document),
        axis=axis,
        metric=metric,
    )


def _text(document: Document, key: str, default: str) -> str:
    value = document.data.get(key, default)
    with document.at(key):
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(key, value, "must be a text that is not empty")
    return value


def _seeds(document: Document) -> tuple[int, ...]:
    value = document.data.get("seeds", 10)
    if not isinstance(value, list):
        with document.at("seeds"):
            return tuple(range(validate.count("seeds", value, most=MOST_SEEDS)))
    seeds = _listed(document, ("seeds",), value, object)
    for seed in seeds:
        with document.at("seeds", value=seed):
            validate.count("seeds", seed, least=0)
    return tuple(dict.fromkeys(seeds))


def _graphs(document: Document, folder: Path) -> tuple[GraphRef, ...]:
    graphs = list[GraphRef]()
    for item in _listed(document, ("graphs",), document.data.get("graphs"), object):
        written = item.get("path") if isinstance(item, dict) else item
        with document.at("graphs", value=written):
            graph = _graph(item, folder)
            if any(graph.name == other.name for other in graphs):
                raise InvalidInput("graphs", graph.name, "is there twice; give one of them another name")
            graphs.append(graph)
    return tuple(graphs)


def _graph(item: object, folder: Path) -> GraphRef:
    if isinstance(item, str):
        return named_graph(item, folder)
    if not isinstance(item, dict) or not isinstance(item.get("path"), str):
        raise InvalidInput("graphs", item, "must be a dataset's name, a path, or a table with a path")
    for key, kind in (("name", str), ("directed", bool)):
        if key in item and not isinstance(item[key], kind):
            raise InvalidInput(f"graphs {key}", item[key], f"must be {'text' if kind is str else 'true or false'}")
    for key in item:
        if key not in _GRAPH:
            raise InvalidInput(f"graphs {key}", item[key], f"is not known; there are {', '.join(_GRAPH)}")
    return file_graph(folder / item["path"], item.get("name"), item.get("directed"))


def _setting(document: Document, key: Key, table: dict[str, Any], shared: Options) -> Setting:
    _check_keys(document, key, table, _SETTING)
    for needed in ("level", "methods"):
        if needed not in table:
            with document.at(*key):
                raise InvalidInput(needed, None, "is missing from this setting")
    levels = _levels(document, key, table)
    own, by_method = _options(document, (*key, "options"), table.get("options", {}))
    merged = {name: {**shared[1].get(name, {}), **by_method.get(name, {})} for name in {**shared[1], **by_method}}
    setting = Setting(
        levels=levels,
        epsilons=_epsilons(document, key, table, levels),
        methods=_methods(document, key, table["methods"]),
        delta=_delta(document, key, table),
        options={**shared[0], **own},
        method_options=merged,
    )
    for method in setting.methods:
        options = setting.options_of(method)
        with document.at(*key, "methods", value=method):
            for level in levels:
                check_method(method, level, 1.0, options)
    return setting


def _levels(document: Document, key: Key, table: dict[str, Any]) -> tuple[Level, ...]:
    words: dict[str, Any] = {word: table[word] for word in ("max_degree", "attributes") if word in table}
    if "attributes" in words:
        with document.at(*key, "attributes"):
            if not isinstance(words["attributes"], bool):
                raise InvalidInput("attributes", words["attributes"], "must be true or false")
    swept = {word: _one_or_more(document, (*key, word), table[word]) for word in ("k", "unit") if word in table}
    levels = list[Level]()
    for values in product(*swept.values()):
        chosen = dict(zip(swept, values, strict=True))
        place = next(iter(chosen), "level")
        with document.at(*key, place, value=chosen.get(place)):
            levels.append(_level(document, key, table["level"], {**words, **chosen}))
    return tuple(levels)


def _level(document: Document, key: Key, name: str, words: dict[str, Any]) -> Level:
    try:
        return make_level(name, **words)
    except InvalidInput as error:
        with document.at(*key, error.field if error.field in (*words, "level") else "level"):
            raise


def _epsilons(
    document: Document, key: Key, table: dict[str, Any], levels: tuple[Level, ...]
) -> tuple[float | None, ...]:
    public = all(isinstance(level, Public) for level in levels)
    value = table.get("epsilon")
    with document.at(*key, "epsilon"):
        if public and value is not None:
            raise InvalidInput("epsilon", value, "level none has no budget")
        if public:
            return (None,)
        if value is None:
            raise InvalidInput("epsilon", value, "is missing from this setting")
    epsilons = list[float]()
    for epsilon in _one_or_more(document, (*key, "epsilon"), value):
        with document.at(*key, "epsilon", value=epsilon):
            epsilons.append(validate.positive("epsilon", epsilon))
    return tuple(epsilons)


def _delta(document: Document, key: Key, table: dict[str, Any]) -> Delta:
    value = table.get("delta", "auto")
    with document.at(*key, "delta"):
        if value == "auto":
            return "auto"
        if value == "paper":
            return "paper"
        if isinstance(value, str):
            raise InvalidInput("delta", value, 'must be a number, "auto" or "paper"')
        return check_delta(value)


def _methods(document: Document, key: Key, value: object) -> tuple[str, ...]:
    methods = _listed(document, (*key, "methods"), value, str)
    for method in methods:
        with document.at(*key, "methods", value=method):
            method_class(method)
    return tuple(dict.fromkeys(methods))


def _options(document: Document, key: Key, table: object) -> Options:
    """Options for every method, and tables of options named after one method."""
    for_all: dict[str, Any] = {}
    by_method: dict[str, dict[str, Any]] = {}
    with document.at(*key):
        if not isinstance(table, dict):
            raise InvalidInput("options", table, "must be a table")
    assert isinstance(table, dict)
    for name, value in table.items():
        with document.at(*key, name):
            if not isinstance(value, dict) or name == "shares":
                # Options that all methods have: those of MLP, which has no other ones.
                check_option("mlp", name, value)
                for_all[name] = value
                continue
            method_class(name)
        for option, given in value.items():
            with document.at(*key, name, option):
                check_option(name, option, given)
        by_method[name] = value
    return for_all, by_method


def _one_or_more(document: Document, key: Key, value: object) -> list[Any]:
    return _listed(document, key, value, object) if isinstance(value, list) else [value]


def _listed(document: Document, key: Key, value: object, kind: type) -> list[Any]:
    """A list that is not empty, of entries of this type."""
    name = str(key[-1])
    with document.at(*key):
        if value is None:
            raise InvalidInput(name, None, "is missing")
        if not isinstance(value, list) or not value:
            raise InvalidInput(name, value, "must be a list that is not empty")
    assert isinstance(value, list)
    for item in value:
        with document.at(*key, value=item):
            if not isinstance(item, kind):
                raise InvalidInput(name, item, f"must be {'text' if kind is str else 'a table'}")
    return value


def _check_keys(document: Document, key: Key, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            with document.at(*key, name):
                raise InvalidInput(name, table[name], f"is not known here; there are {', '.join(known)}")


class Document:
    """The values of a TOML file, and the line of each.

    The standard parser keeps no positions, so they are searched in the text: the line of an assignment, and within a
    list the line on which the value is written. A value inside an inline table has the line of its key.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines = text.splitlines()
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _not_toml(name, error, len(self._lines)) from None
        self._line_of = _positions(self._lines)

    @classmethod
    def read(cls, path: Path) -> Document:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:  # ValueError also for a name that no file can have
            why = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
            raise InvalidInput("experiment", str(path), why or "cannot be read") from None
        return cls(text, path.name)

    def line(self, *key: str | int, value: object = None) -> int:
        """The line of a key, or of the nearest key around it that has one; with a value, the value's line there."""
        while key and key not in self._line_of:
            key = key[:-1]
        first = self._line_of.get(key, 1)
        if value is None:
            return first
        last = min((line for line in self._line_of.values() if line > first), default=len(self._lines) + 1)
        written = str(value).lower() if isinstance(value, bool) else str(value)
        for number in range(first, last):
            if re.search(rf"(?<![\w.]){re.escape(written)}(?![\w.])", self._lines[number - 1]):
                return number
        return first

    @contextmanager
    def at(self, *key: str | int, value: object = None) -> Iterator[None]:
        """Adds the line of this key to errors that are raised inside."""
        try:
            yield
        except InvalidInput as error:
            if error.field.startswith(f"{self.name}, line "):
                raise
            place = f"{self.name}, line {self.line(*key, value=value)}: {error.field}"
            raise InvalidInput(place, error.value, error.why) from None


def _not_toml(name: str, error: tomllib.TOMLDecodeError, lines: int) -> InvalidInput:
    place = re.search(r"\s*\((?:at line (\d+), column \d+|at end of document)\)$", str(error))
    line = place[1] if place and place[1] else str(max(lines, 1))
    why = str(error)[: place.start()] if place else str(error)
    return InvalidInput(f"{name}, line {line}: text", name, f"is not TOML: {why}")


def _positions(lines: list[str]) -> dict[Key, int]:
    """The line of every table header and assignment; entries of an array of tables are numbered as they come."""
    line_of: dict[Key, int] = {}
    counts: Counter[Key] = Counter()
    table: Key = ()
    for number, line in enumerate(lines, start=1):
        if header := _HEADER.match(line):
            table = _table(_parts(header[2]), header[1] == "[[", counts)
            line_of.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            line_of.setdefault((*table, *_parts(assignment[1])), number)
    return line_of


def _table(names: tuple[str, ...], array: bool, counts: Counter[Key]) -> Key:
    """The key of a table: below an array of tables, a header means its latest entry."""
    key: Key = ()
    for depth, name in enumerate(names, start=1):
        key = (*key, name)
        if array and depth == len(names):
            counts[key] += 1
        if counts[key]:
            key = (*key, counts[key] - 1)
    return key


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
