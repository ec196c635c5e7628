"""Methods at levels that are audited: a plan for each, and models for fits that take little time."""

import numpy as np

import graphveil as gv
from graphveil.auditing.mechanisms import Subject
from graphveil.graph import csbm
from graphveil.methods import method_class
from graphveil.methods.spending import Settings, make_plan
from graphveil.privacy.facts import PublicFacts

GRAPH = csbm(0.5, n=300, f=6, d=4, seed=2)
FACTS = PublicFacts(nodes=1000, train_nodes=750, features=20, classes=3)
DIRECTED = PublicFacts(nodes=1000, train_nodes=750, features=20, classes=3, directed=True)
CASES = [
    ("dpdgc", gv.KNeighbor(1), {}),
    ("dpdgc", gv.KNeighbor(5), {}),
    ("dpdgc", gv.KNeighbor(1, attributes=False), {}),
    ("dpdgc", gv.KNeighbor(3, attributes=False), {}),
    ("dpdgc", gv.Edge("undirected"), {}),
    ("dpdgc", gv.Edge("directed"), {}),
    ("dpdgc", gv.Node(8), {}),
    ("dpdgc", gv.KNeighbor(3), {"table": "labels+neighbors"}),
    ("dpdgc", gv.Node(4), {"table": "neighbors"}),
    ("dpdgc", gv.Edge("undirected"), {"table": "neighbors"}),
    ("gap", gv.KNeighbor(3), {"max_degree": 10}),
    ("dpdgc", gv.KNeighbor(2), {"table": "readers"}),
    ("dpdgc", gv.KNeighbor(1), {"table": "posteriors"}),
    ("dpdgc", gv.Edge("undirected"), {"table": "attributes"}),
    ("gap", gv.Edge("undirected"), {}),
    ("gap", gv.Node(10), {}),
    ("dp-sage", gv.Node(5), {}),
    ("caribou", gv.KNeighbor(2), {"max_degree": 10}),
    ("progap", gv.KNeighbor(2), {"max_degree": 10}),
    ("progap", gv.Node(10, unit="zero-out"), {}),
    ("mlp", gv.KNeighbor(1), {}),
    ("randedge", gv.Edge("undirected"), {}),
    ("dpdgc", gv.KNeighbor(3, unit="zero-out"), {"table": "labels+neighbors"}),
    ("dpdgc", gv.Node(8, unit="zero-out"), {}),
    ("gap", gv.Node(10, unit="zero-out"), {}),
    ("dp-sage", gv.Node(5, unit="zero-out"), {}),
]


def subject_of(method, level, options, epsilon=4.0, facts=FACTS):
    """A sound method at a level, with few steps."""
    settings = Settings(**({"steps": 10} | options))
    return Subject.sound(make_plan(method, level, facts, epsilon=epsilon, delta=1e-5, settings=settings))


def maker(method, level, epsilon=4.0, **options):
    """Makes models with few steps, all with the same initial weights."""
    fixed = {"seed": 0, "steps": 3, "epochs": 10, "hidden": 8, "show_progress": False}
    return lambda: method_class(method)(level=level, epsilon=epsilon, **(fixed | options))


def directed_graph():
    """GRAPH with a part of its entries, each by itself."""
    entries = GRAPH.to_scipy().tocoo()
    kept = np.random.default_rng(0).random(entries.nnz) < 0.7
    masks = {name: getattr(GRAPH, name) for name in ("train_mask", "val_mask", "test_mask")}
    edges = np.stack([entries.coords[0][kept], entries.coords[1][kept]])
    return gv.Graph.from_edge_index(edges, x=GRAPH.features, y=GRAPH.labels, directed=True, **masks)
