import pytest

from graphveil.graph import csbm, write_graph

SPEC = """\
name = "small"
title = "A small experiment"
graphs = ["tiny.npz"]
seeds = 2

[options]
steps = 3
epochs = 3
hidden = 8

[[settings]]
level = "none"
methods = ["mlp"]

[[settings]]
level = "k-neighbor"
k = 1
epsilon = 8
methods = ["dpdgc", "mlp"]
"""


@pytest.fixture(scope="session")
def tiny():
    return csbm(0.5, n=200, f=6, seed=0)


@pytest.fixture
def spec_path(tiny, tmp_path):
    """A spec of 6 runs on a graph of 200 nodes, as a user writes it."""
    # Written without a split, so that seeds draw one.
    write_graph(tiny.replace(train_mask=None, val_mask=None, test_mask=None), tmp_path / "tiny.npz")
    path = tmp_path / "small.toml"
    path.write_text(SPEC)
    return path
