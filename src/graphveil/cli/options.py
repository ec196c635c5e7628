"""Options that several commands share, and functions that turn the words of options into values.

Nothing here imports NumPy or PyTorch at the top: `graphveil --help` loads this module.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil.errors import InvalidInput
from graphveil.methods.registry import METHODS
from graphveil.privacy.levels import Level, make_level

if TYPE_CHECKING:
    from graphveil.graph import Graph

METHOD_NAMES = ", ".join(METHODS)

Method = Annotated[str | None, typer.Option(help=f"{METHOD_NAMES}; default auto, or dpdgc if --table is given.")]
LevelName = Annotated[str, typer.Option("--level", help="none, edge, k-neighbor or node.")]
K = Annotated[int | None, typer.Option(help="Neighbours that change together (level k-neighbor; default 1).")]
MaxDegree = Annotated[int | None, typer.Option(help="Promise: nobody is read by more nodes than this.")]
Unit = Annotated[str | None, typer.Option(help="undirected or directed (edge); replace or zero-out (others).")]
Attributes = Annotated[bool, typer.Option(help="Features and labels are private.")]
Delta = Annotated[str, typer.Option(help="A number, or auto: by the number of protected units.")]
PublicEdges = Annotated[
    int | None, typer.Option("--public-edges", "--edges", help="A declared bound on the number of stored edges.")
]
Shares = Annotated[list[str] | None, typer.Option("--share", help="NAME=PART: a mechanism's part of mu^2.")]
TableW = Annotated[
    str | None,
    typer.Option("--table", help="DPDGC's W: auto, trained, labels, readers, neighbors, posteriors; + joins."),
]
Steps = Annotated[int | None, typer.Option(help="Steps of each private training; by default by epsilon.")]
BatchSize = Annotated[int | None, typer.Option(help="Poisson batches of this expected size.")]

Root = Annotated[Path | None, typer.Option(help="Raw datasets; else GRAPHVEIL_DATA, else ./data.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch a dataset's missing raw files into the cache.")]
SplitSeed = Annotated[int, typer.Option(help="Seed of the random split.")]
Directed = Annotated[
    bool | None, typer.Option("--directed/--undirected", help="What the graph is, for files that do not say.")
]
Classes = Annotated[
    str | None, typer.Option(help="All classes in order, with commas between, for tables that do not say.")
]
Categories = Annotated[
    list[str] | None, typer.Option(help="COLUMN=A,B,C: all categories of a text column; repeat for others.")
]

Positive = Annotated[
    str | None, typer.Option(help="The class of interest, such as fraud; of two classes, by default the rarer.")
]
Threshold = Annotated[
    float | None, typer.Option(help="Predict the class of interest from this probability on; else the most probable.")
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


def parse_number(field: str, text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(field, text, "must be a number") from None


def parse_declared(classes: str | None, categories: list[str] | None) -> dict[str, Any]:
    """What `--classes` and `--categories` declare, as arguments of `read_graph`; quotes as in CSV keep a comma."""
    by_column: dict[str, list[str]] = {}
    for word in categories or []:
        name, equals, values = word.partition("=")
        if not name or not equals or name in by_column:
            raise InvalidInput("categories", word, "must be COLUMN=A,B,C, once for each column")
        by_column[name] = _listed("categories", values)
    return {"classes": None if classes is None else _listed("classes", classes), "categories": by_column or None}


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
    *,
    classes: Any = None,
    categories: Any = None,
) -> Graph:
    """A dataset by name, or a user's own file or folder; options that belong to the other kind are errors."""
    from graphveil.graph import load_dataset, read_graph
    from graphveil.graph.io import is_path

    path = Path(name)
    if (path / "part-00000").is_dir():
        raise InvalidInput("graph", name, "is divided into parts; start it with torchrun -m graphveil train")
    if is_path(name):
        return read_graph(path, directed=directed, seed=split_seed, mmap=mmap, classes=classes, categories=categories)
    place = None if mmap is None else str(mmap)
    for field, value in {"classes": classes, "categories": categories, "mmap": place}.items():
        if value is not None:
            raise InvalidInput(field, value, f"belongs to folders of tables; {name} is a dataset")
    if directed is not None:
        raise InvalidInput("directed", directed, f"belongs to files; the dataset {name} declares itself")
    return load_dataset(name, root=root, seed=split_seed)


def check_new_file(out: Path | None, run: Path) -> None:
    """Refuse an output file that exists, or that lies in the run, whose files are fixed."""
    if out is None:
        return
    if out.exists():
        raise InvalidInput("out", str(out), "exists already")
    if out.resolve().is_relative_to(run.resolve()):
        raise InvalidInput("out", str(out), "lies in the run, whose files are fixed; choose another place")
