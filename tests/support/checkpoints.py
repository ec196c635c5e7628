"""Small fits of every kind, and ways to end them early."""

import contextlib

import graphveil as gv
from graphveil.checkpoint import folder
from graphveil.graph import csbm
from graphveil.methods import method_class

SEED = 918273645
GRAPH = csbm(0.6, n=120, f=8, d=5, seed=1)

CASES = {
    "mlp": ("mlp", gv.KNeighbor(1), {}),
    "mlp in batches": ("mlp", gv.KNeighbor(1), {"batch_size": 20}),
    "dpdgc labels": ("dpdgc", gv.KNeighbor(1), {"table": "labels"}),
    "dpdgc trained": ("dpdgc", gv.KNeighbor(1), {"table": "trained"}),
    "dpdgc posteriors": ("dpdgc", gv.KNeighbor(1), {"table": "posteriors+degrees"}),
    "dpdgc readers": ("dpdgc", gv.KNeighbor(1), {"table": "readers+degrees"}),
    "dpdgc neighbors": ("dpdgc", gv.KNeighbor(2), {"table": "neighbors"}),
    "dpdgc at node level": ("dpdgc", gv.Node(3), {"cap_degrees": True}),
    "dpdgc at edge level": ("dpdgc", gv.Edge(), {"folds": 2}),
    "dpdgc with public attributes": ("dpdgc", gv.KNeighbor(1, attributes=False), {"folds": 2}),
    "dpdgc without protection": ("dpdgc", gv.Public(), {}),
    "auto that leaves the graph": ("auto", gv.KNeighbor(1), {}),
    "gap": ("gap", gv.Node(40), {}),
    "gap at edge level": ("gap", gv.Edge(), {}),
    "dp-sage": ("dp-sage", gv.Node(40), {}),
    "randedge": ("randedge", gv.Edge(), {}),
    "sage": ("sage", gv.Public(), {}),
}


def make(case, seed=SEED, **options):
    method, level, given = CASES[case]
    epsilon = None if isinstance(level, gv.Public) else 4.0
    words = {"level": level, "epsilon": epsilon, "seed": seed, "steps": 3, "epochs": 3, "hidden": 8, "dropout": 0.5}
    return method_class(method)(**{**words, **given, **options})


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it is run."""


@contextlib.contextmanager
def killed_at_write(monkeypatch, number, when="after"):
    """The process dies at this write of a file: before it, or after it is complete.

    Every checkpoint takes two, a stage and the state: before an even one a stage is left that no state remembers, after
    it a stage that the state has replaced.
    """
    made, replace = [0], folder.replace_file

    def counted(path, data):
        made[0] += 1
        if made[0] == number and when == "before":
            raise Killed
        replace(path, data)
        if made[0] == number and when == "after":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(folder, "replace_file", counted)
        yield


def fit_until_finished(monkeypatch, path, writes, make_model, graph=GRAPH, every=1, watch=lambda: None):
    """A fit that dies at the n-th write of each of its lives, until it lives on; returns the model and its lives."""
    resume = False
    for life in range(1, 200):
        number, when = writes(life)
        try:
            with killed_at_write(monkeypatch, number, when):
                return make_model().fit(graph, checkpoint=path, checkpoint_every=every, resume=resume), life
        except Killed:
            resume = (path / folder.STATE).exists()
            watch()
    raise AssertionError("never finished")
