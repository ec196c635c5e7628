"""A small experiment as a user writes it: a spec of 6 runs on a graph of 200 nodes."""

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


def tiny_graph():
    return csbm(0.5, n=200, f=6, seed=0)


def write_spec(folder):
    # Written without a split, so that seeds draw one.
    write_graph(tiny_graph().replace(train_mask=None, val_mask=None, test_mask=None), folder / "tiny.npz")
    path = folder / "small.toml"
    path.write_text(SPEC)
    return path
