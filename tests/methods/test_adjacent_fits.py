"""What a fit puts into the ledger, on adjacent graphs, with everything that the adversary saw held equal.

A fit is recorded on one graph and replayed on both: each mechanism may move by its sensitivity and no more. This goes
through the whole code of a method, so it also shows that an emptied node is what docs/theory.md, section 2.6, says.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.auditing.adjacent_fits import adjacent_graphs, small_part
from graphveil.auditing.canaries import hides_own_row
from graphveil.auditing.mistakes import UnboundedLayers
from graphveil.auditing.recording import ledger_on_branch, recorded_fit, replayed_fit
from graphveil.execution import Ledger
from graphveil.graph.splits import MASKS
from graphveil.privacy.levels import is_zero_out
from graphveil.privacy.mechanisms import Responses
from support.audits import GRAPH, maker

pytestmark = pytest.mark.slow

PART = small_part(GRAPH, 60, 0, most_links=7)
N_K, NODE = gv.KNeighbor(2), gv.Node(8)
CASES = [
    (method, level, options)
    for method, options in [
        ("mlp", {}),
        ("gap", {"max_degree": 8}),
        ("caribou", {"max_degree": 8}),
        ("progap", {"max_degree": 8}),
        ("dp-sage", {"max_degree": 8}),
        ("dpdgc", {"table": "trained"}),
        ("dpdgc", {"table": "labels+neighbors+posteriors"}),
    ]
    for level in (N_K, NODE)
] + [("auto", level, {"branch": branch}) for level in (N_K, NODE) for branch in ("features", "balanced", "graph")]


def moves(make, pair, make_ledger=Ledger):
    """Each draw's mechanism, and by how much its input differs between the two graphs, in what others may see."""
    recorder, _ = recorded_fit(make, pair.after, 5, make_ledger)
    heads, tails = (replayed_fit(make, graph, recorder, pair.own) for graph in (pair.after, pair.before))
    for entry, one, other in zip(recorder.entries, heads.given, tails.given, strict=True):
        mechanism = recorder.plan[entry.name]
        change = (one != other) if isinstance(mechanism, Responses) else one.double() - other.double()
        if len(change) == pair.before.num_nodes and hides_own_row(recorder.plan, entry.name):
            change = change[torch.from_numpy(pair.others)]
        yield mechanism, float(change.double().norm())


def makers(method, level, options):
    words = dict(options)
    branch = words.pop("branch", None)
    make_ledger = Ledger if branch is None else partial(ledger_on_branch, branch, Ledger)
    if isinstance(level, gv.Node):
        words.pop("max_degree", None)
    return maker(method, level, 8.0, delta=1e-3, clip=0.01, **words), make_ledger


@pytest.mark.parametrize("unit", ["replace", "zero-out"])
@pytest.mark.parametrize(("method", "level", "options"), CASES, ids=str)
def test_nothing_moves_by_more_than_its_sensitivity(method, level, options, unit):
    level = replace(level, unit=unit)
    make, make_ledger = makers(method, level, options)
    largest: dict[str, float] = {}
    for seed in range(3):
        for mechanism, moved in moves(make, adjacent_graphs(PART, level, seed), make_ledger):
            assert moved <= mechanism.sensitivity.of("training") * (1 + 1e-9), mechanism.name
            if mechanism.role in ("features", "encoder", "head") and not mechanism.name.endswith("weights"):
                largest[mechanism.name] = max(
                    largest.get(mechanism.name, 0), moved / mechanism.sensitivity.of("training")
                )
    near = 0.3 if unit == "replace" else 0.9  # a node whose features and label turn round moves its gradient by half
    assert all(share > near for share in largest.values()), f"the pair must come near the bounds: {largest}"


@pytest.mark.parametrize("level", [N_K, NODE], ids=str)
def test_an_emptied_node_that_keeps_a_label_is_caught(level):
    """The broken twin: "no label" read as a class, so that an emptied row still adds a gradient."""
    level = replace(level, unit="zero-out")
    pair = adjacent_graphs(PART, level, 1)
    labels = pair.before.labels.clone()
    labels[pair.own] = 1 - int(pair.after.labels[pair.own])
    broken = replace(pair, before=pair.before.replace(labels=labels))
    make, _ = makers("mlp", level, {})
    assert all(moved <= mechanism.sensitivity.worst for mechanism, moved in moves(make, pair))
    assert any(moved > 1.2 * mechanism.sensitivity.worst for mechanism, moved in moves(make, broken))


def test_layers_without_a_bound_are_caught():
    """The broken twin of CARIBOU: its second hop sums rows as long as the sums of the first."""
    level = gv.Edge("undirected")

    def make(cls):
        return lambda: cls(
            level=level, epsilon=8.0, delta=1e-3, seed=0, steps=3, epochs=3, hidden=8, show_progress=False
        )

    pairs = [adjacent_graphs(PART, level, seed) for seed in range(3)]
    for pair in pairs:
        assert all(moved <= m.sensitivity.worst * (1 + 1e-9) for m, moved in moves(make(gv.Caribou), pair))
    broken = [moved / m.sensitivity.worst for pair in pairs for m, moved in moves(make(UnboundedLayers), pair)]
    assert max(broken) > 1.5


def test_stages_without_a_bound_are_caught():
    """A broken twin of ProGAP: a stage's rows are summed as long as they are."""
    level = gv.Edge("undirected")

    def said(self, stage, rows):
        return torch.selu(self._frozen[stage](rows)).detach()

    def summed(self, adjacency, rows):
        return self.arithmetic.product(adjacency, self.arithmetic.table(rows, 2.0**10, PART.num_nodes))

    broken = type("ProGAP", (gv.ProGAP,), {"_said": said, "_summed": summed})

    def make(cls):
        return lambda: cls(level=level, epsilon=8.0, delta=1e-3, seed=0, epochs=30, hidden=8, show_progress=False)

    pair = adjacent_graphs(PART, level, 0)
    assert all(moved <= m.sensitivity.worst * (1 + 1e-9) for m, moved in moves(make(gv.ProGAP), pair))
    assert max(moved / m.sensitivity.worst for m, moved in moves(make(broken), pair)) > 1.5


def test_an_emptied_node_does_not_stop_a_fit():
    """All methods read a graph in which a training node has no label, as they read any other."""
    graph = PART.emptied(int(PART.train_mask.nonzero()[0]))
    for method, level, options in CASES:
        make, make_ledger = makers(method, replace(level, unit="zero-out"), options)
        assert make().execute(graph, None, make_ledger).certificate_.epsilon <= 8.0


MOST = 10.0
READING = [case for case in CASES if case[0] != "mlp"] + [
    ("dpdgc", gv.KNeighbor(2), {"table": "readers"}),
    ("dpdgc", gv.KNeighbor(1, attributes=False), {}),
    ("gap", gv.Edge("undirected"), {}),
    ("progap", gv.Edge("undirected"), {}),
    ("dpdgc", gv.Edge("undirected"), {"table": "neighbors"}),
]


def with_weights(pair, level, relations, seed, measured=False):
    """The pair with raw weights of up to three times the declared maximum, and with several relations.

    A link that one of the two graphs does not have may stay there with another weight. `measured` divides by the
    largest weight of each graph, which nobody declared: the broken twin.
    """
    rng = np.random.default_rng(seed)
    nodes = pair.before.num_nodes
    one, other = (MOST * rng.choice([0.05, 0.5, 1.0, 3.0], size=(nodes, nodes)) for _ in range(2))
    kinds = rng.integers(relations, size=(nodes, nodes))
    linked = [graph.to_scipy().toarray() > 0 for graph in (pair.before, pair.after)]
    if measured:
        one = np.where(linked[0] != linked[1], 30 * MOST, one)
    stays = rng.random((nodes, nodes)) < (0 if isinstance(level, gv.Node) or is_zero_out(level) else 0.5)

    def weighted(graph, own, links):
        raw = np.where(links, one, 0) + (other * 0.2) * (own & ~links)
        i, j = np.nonzero(raw if graph.directed else np.triu(raw))
        raw, kind = raw[i, j], kinds[i, j]
        if not graph.directed:
            i, j, raw, kind = (np.concatenate(ends) for ends in ([i, j], [j, i], [raw] * 2, [kind] * 2))
        words = {"edge_weight": raw / (raw.max() / MOST if measured else 1), "max_weight": MOST, "edge_relation": kind}
        kept = {name: getattr(graph, name) for name in ("num_classes", "directed", *MASKS)}
        names = [f"kind {t}" for t in range(relations)]
        return gv.Graph.from_edge_index([i, j], graph.features, graph.labels, relations=names, **words, **kept)

    changed = (linked[0] != linked[1]) & stays
    after = weighted(pair.after, changed, linked[1])
    if is_zero_out(level) and level.attributes:
        return replace(pair, before=after.emptied(pair.own), after=after)
    return replace(pair, before=weighted(pair.before, changed, linked[0]), after=after)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["replace", "zero-out"])
@pytest.mark.parametrize(("method", "level", "options"), READING, ids=str)
def test_weights_and_relations_move_nothing_by_more(method, level, options, unit):
    """docs/theory.md, section 2.7: the same sensitivities, for every method that reads weights."""
    if isinstance(level, gv.Edge) and unit == "zero-out":
        pytest.skip("an edge has no other unit")
    level = level if isinstance(level, gv.Edge) else replace(level, unit=unit)
    make, make_ledger = makers(method, level, options)
    moved_at_all = 0.0
    for seed in range(2):
        pair = with_weights(adjacent_graphs(PART, level, seed), level, 1 + seed, seed)
        for mechanism, moved in moves(make, pair, make_ledger):
            assert moved <= mechanism.sensitivity.worst * (1 + 1e-9), mechanism.name
            if mechanism.role in ("release", "aggregation", "table", "statistics", "embedding", "gradient"):
                moved_at_all = max(moved_at_all, moved / mechanism.sensitivity.worst)
    if options.get("branch") != "features":
        assert moved_at_all > 0.2


@pytest.mark.parametrize(("method", "options"), [("auto", {}), ("dpdgc", {}), ("dpdgc", {"table": "readers"})])
def test_weights_of_directed_graphs(method, options):
    """Groups of nodes that read the same, and tables of directed graphs."""
    rows = PART.to_scipy().tocoo()
    kept = np.random.default_rng(0).random(rows.nnz) < 0.6
    edges = np.stack(rows.coords)[:, kept]
    fields = {name: getattr(PART, name) for name in ("num_classes", *MASKS)}
    part = gv.Graph.from_edge_index(edges, PART.features, PART.labels, directed=True, **fields)
    make, make_ledger = makers(method, N_K, options)
    moved_at_all = 0.0
    for seed in range(2):
        pair = with_weights(adjacent_graphs(part, N_K, seed), N_K, 1 + seed, seed)
        for mechanism, moved in moves(make, pair, make_ledger):
            assert moved <= mechanism.sensitivity.worst * (1 + 1e-9), mechanism.name
            moved_at_all = max(moved_at_all, moved / mechanism.sensitivity.worst)
    assert moved_at_all > 0.3


@pytest.mark.parametrize(("method", "options"), [("gap", {"max_degree": 8}), ("dpdgc", {"table": "labels"})])
def test_a_maximum_that_was_measured_is_caught(method, options):
    """One heavier link changes the weights of all others, and with them rows that have nothing to do with it."""
    level = gv.KNeighbor(1, attributes=False)
    make, make_ledger = makers(method, level, options)
    worst = 0.0
    for seed in range(4):
        pair = adjacent_graphs(PART, level, seed)
        heavier = with_weights(pair, level, 1, seed, measured=True)
        for mechanism, moved in moves(make, heavier, make_ledger):
            if mechanism.role in ("release", "aggregation"):
                worst = max(worst, moved / mechanism.sensitivity.worst)
    assert worst > 1.2
