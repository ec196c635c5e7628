"""The graphs of an experiment: which ones have their files here, and loading each once per process."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from graphveil.errors import InvalidInput
from graphveil.experiments.spec import GraphRef, Spec
from graphveil.graph import Graph, load_dataset, read_graph
from graphveil.graph.datasets import SOURCES, MissingData, canonical_name, find_raw_files
from graphveil.graph.io import is_path


def chosen_graphs(spec: Spec, names: list[str], root: str | None) -> Spec:
    """The experiment on the graphs that a user names.

    Args:
        spec: The experiment.
        names: Graphs of the experiment, datasets, or files.
        root: The folder of raw datasets.

    Returns:
        The experiment with these graphs.

    Raises:
        InvalidInput: If there is no such graph.
        MissingData: If the raw files of a dataset are missing.
    """
    own = {graph.name: graph for graph in spec.graphs}
    graphs = [own[name] if name in own else named_graph(name) for name in names]
    for graph in graphs:
        require(graph, root)
    return replace(spec, graphs=tuple(dict.fromkeys(graphs)))


def named_graph(word: str, folder: Path = Path()) -> GraphRef:
    """A file or folder, relative to `folder`, or a dataset."""
    if is_path(word, folder):
        return file_graph(folder / word)
    return GraphRef(canonical_name(word))


def file_graph(path: Path, name: str | None = None, directed: bool | None = None) -> GraphRef:
    """A user's own graph, named after its file unless it has another name."""
    if not path.exists():
        raise InvalidInput("graph", str(path), "there is no such file or folder")
    return GraphRef(name or path.stem, str(path.resolve()), directed, content_digest(path))


def graphs_at_hand(spec: Spec, root: str | None) -> tuple[Spec, list[str]]:
    """The experiment on those of its graphs whose files are there.

    Args:
        spec: The experiment.
        root: The folder of raw datasets.

    Returns:
        The experiment with the graphs that are there, stand-ins included, and a sentence about each other graph.
    """
    kept, notes = list[GraphRef](), list[str]()
    for graph in spec.graphs:
        try:
            require(graph, root)
            kept.append(graph)
        except MissingData as error:
            notes.append(f"left out, {error}")
            substitute = spec.stand_ins.get(graph.name)
            if substitute is None:
                continue
            try:
                require(GraphRef(substitute), root)
            except MissingData:
                continue
            notes[-1] = f"{graph.name} is not at hand: {substitute} stands in under its own name"
            kept.append(GraphRef(substitute))
    return replace(spec, graphs=tuple(dict.fromkeys(kept))), notes


def require(graph: GraphRef, root: str | None) -> None:
    """Raise `MissingData` if a dataset's raw files are not there."""
    name = graph.name
    if graph.path is None and not name.startswith("csbm"):
        find_raw_files(name, SOURCES[name], root, False)


def load(graph: GraphRef, seed: int, root: str | None) -> Graph:
    """The graph with the random split of this seed; a file that has its own split keeps it."""
    loaded = _load(graph, root)
    return loaded if graph.path is not None and loaded.has_split else loaded.with_split(seed)


# Runs are ordered by seed and graph, so two graphs at a time are enough.
@lru_cache(maxsize=2)
def _load(graph: GraphRef, root: str | None) -> Graph:
    if graph.path is not None:
        return read_graph(graph.path, directed=graph.directed, seed=None, name=graph.name)
    return load_dataset(graph.name, root)


def content_digest(path: Path) -> str:
    """A digest of a file, or of the names and bytes of all files in a folder."""
    digest = hashlib.blake2b(digest_size=16)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            while block := opened.read(2**20):
                digest.update(block)
    return digest.hexdigest()
