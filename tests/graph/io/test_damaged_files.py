"""Truncated, flipped and random bytes: an `InvalidInput` in one line, or a graph, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphveil.errors import InvalidInput
from graphveil.graph import Graph, read_graph, write_graph

FILES = ("graph.npz", "packed.npz", "graph.pt", "csv/nodes.csv", "csv/edges.csv", "csv/graph.json",
         "parquet/nodes.parquet", "parquet/edges.parquet")  # fmt: skip


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("intact")
    graph = Graph.from_edge_index(
        [[0, 1, 1, 2], [1, 0, 2, 1]], [[1.0, 0.5], [2.0, 1e-3], [3.0, 7.0]], [0, 1, 0], train_mask=[True, True, False]
    )
    write_graph(graph, folder / "graph.npz")
    write_graph(graph, folder / "packed.npz", compress=True)
    for ending in ("csv", "parquet"):
        write_graph(graph, folder / ending, ending=ending)
    torch.save(graph.to_pyg(), folder / "graph.pt")
    return folder


def read_damaged(path: Path, content: bytes) -> None:
    """By the usual reader and, tables of edges, by the one that reads them in parts."""
    original, said = path.read_bytes(), ""
    ways = [None, path.parent] if path.name == "edges.parquet" else [None]
    path.write_bytes(content)
    for mmap in ways:
        try:
            read_graph(path if path.suffix in (".npz", ".pt") else path.parent, mmap=mmap)
        except InvalidInput as error:
            said += str(error)
    path.write_bytes(original)
    assert "\n" not in said


@pytest.mark.parametrize("file", FILES)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_flipped_bytes(intact: Path, file: str, data: st.DataObject) -> None:
    content = bytearray((intact / file).read_bytes())
    for _ in range(data.draw(st.integers(1, 4), label="flips")):
        content[data.draw(st.integers(0, len(content) - 1), label="at")] = data.draw(st.integers(0, 255), label="byte")
    read_damaged(intact / file, bytes(content))


@pytest.mark.parametrize("file", FILES)
@given(keep=st.floats(0, 1), junk=st.binary(max_size=40))
@settings(max_examples=40, deadline=None)
def test_truncated_files_with_junk_at_the_end(intact: Path, file: str, keep: float, junk: bytes) -> None:
    content = (intact / file).read_bytes()
    read_damaged(intact / file, content[: int(keep * len(content))] + junk)


@pytest.mark.parametrize("file", FILES)
@given(content=st.binary(max_size=200))
@settings(max_examples=40, deadline=None)
def test_random_bytes(intact: Path, file: str, content: bytes) -> None:
    read_damaged(intact / file, content)
