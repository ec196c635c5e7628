"""(l) A whole fit of the default, beside the baseline that somebody would use in its place."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

import torch

import graphveil as gv
from benchmarks.graphs import benchmark_graph
from benchmarks.result import Result, Section
from graphveil.graph.datasets import MissingData
from graphveil.privacy import plan

_GRAPHS = ("citeseer", "acm", "twitch_de", "dblp", "bu10", "tolokers")
_NODE = {"level": gv.Node(max_degree=100), "cap_degrees": True}
# What is compared, with what, at which epsilons, and the largest multiple of its time.
_LEVELS = (
    ("N_1", {"level": gv.KNeighbor(1)}, gv.MLP, (4.0, 8.0, 16.0), 1.5),
    ("node", _NODE, gv.MLP, (4.0, 8.0, 16.0), 1.5),
    ("edge", {"level": gv.Edge()}, gv.GAP, (1.0,), 1.0),
)


def run(quick: bool) -> Section:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results, followed = [], []
    for name, graph in _graphs(1 if quick else len(_GRAPHS)):
        for level, options, peer, epsilons, most in _LEVELS:
            for epsilon in epsilons[-1:] if quick else epsilons:
                ours, theirs, branch = _side_by_side(graph, {**options, "epsilon": epsilon}, peer, 1 if quick else 3)
                title = f"{name}, {level}, epsilon {epsilon:g}, beside {peer.__name__}"
                results.append(Result(title, ours, theirs, "s", target=1 / most))
                followed.append(f"{title}: {branch}")
    torch.set_num_threads(threads)
    return Section(
        "(l) Time of the default",
        results,
        [
            "`gv.DPDGC` with the table 'auto' beside `gv.MLP` (DP-MLP), and beside `gv.GAP` at edge level: `fit` with "
            "the same number of steps, the plan's calibration included (nothing is kept from an earlier one), on one "
            "thread, in one process, in turns; medians of processor time. A ratio of 0.667 is 1.5 times the time. "
            "Graphs whose files are not at hand are left out.",
            "Branches that were followed: " + "; ".join(followed) + ".",
        ],
    )


def _graphs(most: int) -> list[tuple[str, gv.Graph]]:
    """Those of the graphs whose files are in the folder that `GRAPHVEIL_DATA` names; else one of Photo's shape."""
    found = []
    root = Path(os.environ.get("GRAPHVEIL_DATA", "data"))
    for name in _GRAPHS:
        file = root / "dev" / f"{name}.npz"
        if file.exists():
            found.append((name, gv.read_graph(file)))
        elif root.is_dir() and name in ("citeseer", "bu10", "tolokers"):
            try:
                found.append((name, gv.load_dataset(name, root=root, seed=0)))
            except MissingData:
                continue
    if not found:
        graph, name = benchmark_graph("photo")
        found = [(name, graph)]
    return [(name, graph if graph.train_mask is not None else graph.with_split(0)) for name, graph in found[:most]]


def _side_by_side(graph: gv.Graph, options: dict, peer: type, rounds: int) -> tuple[float, float, str]:
    """Seconds of both, and which branches were followed."""
    seconds: tuple[list[float], list[float]] = ([], [])
    branches = set()
    for turn in range(rounds):
        for side, method in enumerate((gv.DPDGC, peer)):
            _forget_plans()
            model = method(**options, seed=turn, show_progress=False)
            start = time.process_time()
            model.fit(graph)
            seconds[side].append(time.process_time() - start)
            if side == 0:
                branches.add(model.certificate_.followed or "the only one")
    return median(seconds[0]), median(seconds[1]), " or ".join(sorted(branches))


def _forget_plans() -> None:
    for kept in (plan._epsilon, plan._least_factor, plan._least_factor_beside):
        kept.cache_clear()
