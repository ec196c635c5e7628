"""Options that several commands share, and functions that turn the words of options into values.

Nothing here imports NumPy or PyTorch at the top: `graphveil --help` loads this module.
"""

from __future__ import annotations

import csv
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from graphveil.errors import InvalidInput
from graphveil.methods import METHODS
from graphveil.privacy.levels import Level, make_level

if TYPE_CHECKING:
    from graphveil.graph import Graph
    from graphveil.privacy.budget import BudgetLedger

METHOD_NAMES = ", ".join(METHODS)

Method = Annotated[
    str | None, typer.Option(help=f"{METHOD_NAMES}; default auto, or dpdgc if --table is given. Packages may add some.")
]
LevelName = Annotated[str, typer.Option("--level", help="none, edge, k-neighbor or node.")]
K = Annotated[int | None, typer.Option(help="Neighbours that change together (level k-neighbor; default 1).")]
MaxDegree = Annotated[int | None, typer.Option(help="Promise: nobody is read by more nodes than this.")]
Unit = Annotated[str | None, typer.Option(help="undirected or directed (edge); replace or zero-out (others).")]
Attributes = Annotated[bool, typer.Option(help="Features and labels are private.")]
Delta = Annotated[str, typer.Option(help="A number, or auto: by the number of protected units.")]
Shares = Annotated[list[str] | None, typer.Option("--share", help="NAME=PART: a mechanism's part of mu^2.")]
TableW = Annotated[
    str | None,
    typer.Option(
        "--table",
        help="DPDGC's W: auto, trained, labels, readers, neighbors, posteriors, degrees, attributes; + joins.",
    ),
]
Steps = Annotated[int | None, typer.Option(help="Steps of each private training; by default by epsilon.")]
BatchSize = Annotated[int | None, typer.Option(help="Poisson batches of this expected size.")]

Root = Annotated[Path | None, typer.Option(help="Raw datasets; else GRAPHVEIL_DATA, else ./data.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch a dataset's missing raw files into the cache.")]
SplitSeed = Annotated[int, typer.Option(help="Seed of the random split.")]
Directed = Annotated[
    bool | None, typer.Option("--directed/--undirected", help="What the graph is, for files that do not say.")
]
Positive = Annotated[
    str | None, typer.Option(help="The class of interest, such as fraud; of two classes, by default the rarer.")
]
Threshold = Annotated[
    float | None, typer.Option(help="Predict the class of interest from this probability on; else the most probable.")
]

ClassWeight = Annotated[
    list[str] | None,
    typer.Option(
        help="CLASS=NUMBER for each class: how much its training nodes count; or balanced, which is paid for."
    ),
]
ClassPrior = Annotated[
    list[str] | None, typer.Option(help="CLASS=SHARE for each class: declared shares where predictions are used.")
]

LedgerPath = Annotated[
    Path | None, typer.Option("--ledger", help="File that adds up all trainings on these people (graphveil ledger).")
]
LedgerLimit = Annotated[
    float | None, typer.Option(help="With --ledger: epsilon that all trainings together may cost; else no limit.")
]

RunPath = Annotated[Path, typer.Argument(help="A folder that `train --out` or `model.save` wrote.")]
Nodes = Annotated[str | None, typer.Option(help="Nodes with commas between, or a file of them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_Name = str | None
_Flag = bool | None
_Several = list[str] | None
# What can be said about tables, by the name of an argument of `read_graph` (graph.io.declared.TableOptions).
_ABOUT_TABLES: dict[str, Any] = {
    "edge_table": Annotated[_Name, typer.Option("--edges", help="Table of edges; else edges.csv beside the nodes.")],
    "id_column": Annotated[_Name, typer.Option(help="Column of the nodes' ids (default id).")],
    "label_column": Annotated[_Name, typer.Option(help="Column of the classes (default label).")],
    "split_column": Annotated[_Name, typer.Option(help="Column of train, val and test (default split).")],
    "source_column": Annotated[_Name, typer.Option(help="Of the edges: where one begins (default source).")],
    "target_column": Annotated[_Name, typer.Option(help="Of the edges: where it ends (default target).")],
    "feature_columns": Annotated[_Name, typer.Option(help="A,B: the columns that are features; else all others.")],
    "drop_columns": Annotated[_Name, typer.Option(help="A,B: columns that are not read.")],
    "classes": Annotated[_Name, typer.Option(help="All classes in order, with commas between.")],
    "categories": Annotated[_Several, typer.Option(help="COLUMN=A,B,C: all values of a text column; may be repeated.")],
    "ranges": Annotated[
        _Several, typer.Option("--range", help="COLUMN=LEAST,LARGEST: of numbers or times; may be repeated.")
    ],
    "missing": Annotated[_Several, typer.Option(help="COLUMN=VALUE: what a missing value counts as; may be repeated.")],
    "scaling": Annotated[_Name, typer.Option(help="auto: the fit scales numbers without a range; none: as they are.")],
    "max_categories": Annotated[int | None, typer.Option(help="Text with more values is refused (default 1000).")],
    "drop_self_loops": Annotated[
        _Flag, typer.Option("--drop-self-loops/--keep-self-loops", help="Leave out edges from a node to itself.")
    ],
    "merge_duplicates": Annotated[
        _Flag, typer.Option("--merge-duplicates/--keep-duplicates", help="Make one of edges that are listed again.")
    ],
    "weight_column": Annotated[_Name, typer.Option(help="Of the edges: how much a link counts; needs --max-weight.")],
    "max_weight": Annotated[float | None, typer.Option(help="From this weight on a link counts fully. It is public.")],
    "relation_column": Annotated[_Name, typer.Option(help="Of the edges: the relation; needs --relations.")],
    "relations": Annotated[_Name, typer.Option(help="A,B: the names of all relations. They are public.")],
    "time_column": Annotated[_Name, typer.Option(help="Divides the nodes by time; needs --train-before.")],
    "train_before": Annotated[_Name, typer.Option(help="Nodes before this date, time or number are for training.")],
    "test_after": Annotated[_Name, typer.Option(help="Nodes from here on are for the test; those between for val.")],
}


def about_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options about tables. It gets them as one argument `tables`, for `load_graph`."""
    hints = {**get_type_hints(command, include_extras=True), **_ABOUT_TABLES}
    own = [each for name, each in inspect.signature(command).parameters.items() if name != "tables"]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _ABOUT_TABLES]
    parameters = [each.replace(annotation=hints[each.name]) for each in (*own, *added)]

    @wraps(command)
    def with_options(**given: Any) -> None:
        others = {name: value for name, value in given.items() if name not in _ABOUT_TABLES}
        command(**others, tables=parse_tables(given))

    # The parser of options reads both.
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options


def parse_tables(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `read_graph` from the words of options about tables; None where nothing was said."""
    tables: dict[str, Any] = {name: given.get(name) for name in _ABOUT_TABLES}
    for name in ("classes", "relations", "feature_columns", "drop_columns"):
        if tables[name] is not None:
            tables[name] = _listed(name, tables[name])
    if (tables["edge_table"] or "").isdecimal():
        why = "must be a table of edges; a bound on their number is --public-edges"
        raise InvalidInput("edges", tables["edge_table"], why)
    tables["categories"] = _by_column("categories", tables["categories"], "A,B,C")
    tables["ranges"] = _by_column("ranges", tables["ranges"], "LEAST,LARGEST")
    constants = _by_column("missing", tables["missing"], "VALUE")
    tables["missing"] = constants and {column: ",".join(values) for column, values in constants.items()}
    return tables


def _by_column(field: str, words: list[str] | None, form: str) -> dict[str, list[str]] | None:
    """Lists by the name of a column, from words of the form COLUMN=A,B; quotes as in CSV keep a comma."""
    by_column: dict[str, list[str]] = {}
    for word in words or []:
        name, equals, values = word.partition("=")
        if not name or not equals or name in by_column:
            raise InvalidInput(field, word, f"must be COLUMN={form}, once for each column")
        by_column[name] = _listed(field, values)
    return by_column or None


def seen_from_here(tables: Mapping[str, Any]) -> dict[str, Any]:
    """What was said about tables. The table of edges is looked for here, and else beside the nodes."""
    given = {name: value for name, value in tables.items() if value is not None}
    if "edge_table" in given and Path(given["edge_table"]).is_file():
        given["edge_table"] = str(Path(given["edge_table"]).resolve())
    return given


def default_method(table: str | None) -> str:
    """The method of `graphveil plan` and `graphveil train` where none is given."""
    return "auto" if table is None else "dpdgc"


def default_epsilon(level: str) -> float | None:
    """The budget of `graphveil plan` and `graphveil train` where none is given."""
    return {"none": None, "edge": 1.0}.get(level, 8.0)


def chosen_level(name: str, k: int | None, max_degree: int | None, unit: str | None, attributes: bool) -> Level:
    """The level that the options name. At other levels than node, `max_degree` is a promise to the method."""
    if name == "k-neighbor" and k is None:
        k = 1
    if name == "node" and max_degree is None:
        raise InvalidInput("max_degree", None, "level node needs a promise on the degree: --max-degree")
    promised = max_degree if name == "node" else None
    return make_level(name, k=k, max_degree=promised, unit=unit, attributes=attributes)


def parse_delta(text: str) -> float | str:
    """The word auto, or a number."""
    return text if text == "auto" else parse_number("delta", text)


def parse_named(field: str, values: list[str] | None) -> dict[str, float]:
    """Numbers by name, from words of the form NAME=VALUE."""
    named = {}
    for value in values or []:
        name, separator, number = value.partition("=")
        if not separator:
            raise InvalidInput(field, value, "must have the form NAME=VALUE")
        named[name] = parse_number(f"{field} {name}", number)
    return named


def parse_class_words(weight: list[str] | None, prior: list[str] | None) -> dict[str, Any]:
    """What `--class-weight` and `--class-prior` say, as arguments of an estimator."""
    weights = "balanced" if weight == ["balanced"] else parse_named("class_weight", weight)
    return {"class_weight": weights or None, "class_prior": parse_named("class_prior", prior) or None}


def parse_number(field: str, text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(field, text, "must be a number") from None


def parse_every(text: str) -> float:
    """How often a checkpoint is made: steps as an int, seconds as a float."""
    number = text.removesuffix("s")
    try:
        return int(number) if number == text else float(number)
    except ValueError:
        raise InvalidInput("checkpoint_every", text, "must be a number of steps, or of seconds: 60s") from None


def _listed(field: str, text: str) -> list[str]:
    values = [value.strip() for line in csv.reader([text], skipinitialspace=True) for value in line]
    if not values or not all(values):
        raise InvalidInput(field, text, "must be names with commas between")
    return values


def read_names(text: str) -> list[str]:
    """Nodes of a list, or of a file with one name in each line or with commas between them."""
    path = Path(text)
    try:
        if path.is_file():
            text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput("nodes", str(path), f"cannot be read: {error}") from None
    names = [name.strip() for line in text.splitlines() for name in line.split(",")]
    names = [name for name in names if name]
    if not names:
        raise InvalidInput("nodes", text, "names no node")
    return names


def fetch(name: str, root: Path | None) -> None:
    """Fetch the raw files of a dataset that are missing; they go to the cache, where `load_dataset` looks too."""
    from graphveil.graph.datasets import SOURCES, canonical_name, find_raw_files
    from graphveil.graph.io import is_path

    if is_path(name):
        raise InvalidInput("download", True, f"fetches datasets; {name} is a file or folder of yours")
    key = canonical_name(name)
    if not key.startswith("csbm"):
        find_raw_files(key, SOURCES[key], root, download=True)


def load_graph(
    name: str,
    root: Path | None,
    split_seed: int,
    directed: bool | None = None,
    mmap: Path | None = None,
    tables: Mapping[str, Any] | None = None,
) -> Graph:
    """A dataset by name, or a user's own file or folder; options that belong to the other kind are errors."""
    from graphveil.graph import load_dataset, read_graph
    from graphveil.graph.io import is_path

    path = Path(name)
    given = seen_from_here(tables or {})
    check_whole(name)
    if is_path(name):
        return read_graph(path, directed=directed, seed=split_seed, mmap=mmap, **given)
    if mmap is not None:
        given["mmap"] = str(mmap)
    for field, value in given.items():
        raise InvalidInput(field, value, f"belongs to tables; {name} is a dataset")
    if directed is not None:
        raise InvalidInput("directed", directed, f"belongs to files; the dataset {name} declares itself")
    return load_dataset(name, root=root, seed=split_seed)


def check_whole(name: str) -> None:
    """Refuse a graph that is divided into parts."""
    if (Path(name) / "part-00000").is_dir():
        raise InvalidInput("graph", name, "is divided into parts; start it with torchrun -m graphveil train")


def named_ledger(path: Path | None, limit: float | None, budget: float | None) -> BudgetLedger | None:
    """The ledger of these people, if one is named."""
    if path is None:
        if limit is not None:
            raise InvalidInput("ledger_limit", limit, "name the file that it is the limit of: --ledger")
        return None
    if budget is not None:
        raise InvalidInput("budget", budget, "is for later releases, which are not in the --ledger; leave one out")
    from graphveil.privacy.budget import BudgetLedger

    return BudgetLedger(path, limit=limit)


def check_new_file(out: Path | None, run: Path) -> None:
    """Refuse an output file that exists, or that lies in the run, whose files are fixed."""
    if out is None:
        return
    if out.exists():
        raise InvalidInput("out", str(out), "exists already")
    if out.resolve().is_relative_to(run.resolve()):
        raise InvalidInput("out", str(out), "lies in the run, whose files are fixed; choose another place")


def command_line() -> str:
    """The command that was given, without the seed."""
    return shlex.join(["graphveil", *without_seed(sys.argv[1:])])


def without_seed(words: list[str]) -> list[str]:
    """The words of the command without the seed: whoever knows it can subtract the noise."""
    words = [re.sub("^--seed=.*", "--seed=SEED", word) for word in words]
    return ["SEED" if before == "--seed" else word for before, word in zip(["", *words], words, strict=False)]
