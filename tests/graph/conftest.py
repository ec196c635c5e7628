"""Where the raw graphs are, and a cache of their own for the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graphveil.graph import Graph


@pytest.fixture(scope="session")
def data_root() -> Path:
    root = Path(os.environ.get("GRAPHVEIL_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not root.is_dir():
        pytest.skip("no raw graphs: set GRAPHVEIL_DATA to the folder that holds them")
    return root


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("GRAPHVEIL_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def triangle() -> Graph:
    """An undirected triangle and a node apart, with a split."""
    return Graph.from_edge_index(
        [[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]],
        [[1.0, 0.0], [0.5, -1.0], [0.0, 2.0], [3.0, 0.25]],
        [0, 1, 1, -1],
        train_mask=[True, True, False, False],
        val_mask=[False, False, False, False],
        test_mask=[False, False, True, False],
        name="triangle",
    )
