from __future__ import annotations

import pytest
import torch

from graphveil.graph import Graph


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
