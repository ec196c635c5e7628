"""What a fit puts into the ledger, on adjacent graphs, with everything that the adversary saw held equal.

A fit is recorded on one graph and replayed on both: each mechanism may move by its sensitivity and no more. This goes
through the whole code of a method, so it also shows that an emptied node is what docs/theory.md, section 2.6, says.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

import graphveil as gv
from graphveil.auditing.adjacent import adjacent_graphs, small_part
from graphveil.auditing.canaries import hides_own_row
from graphveil.auditing.mistakes import UnboundedLayers
from graphveil.auditing.recording import ledger_on_branch, recorded_fit, replayed_fit
from graphveil.execution import Ledger
from graphveil.privacy.mechanisms import Responses
from support.audits import GRAPH, maker

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


def test_an_emptied_node_does_not_stop_a_fit():
    """All methods read a graph in which a training node has no label, as they read any other."""
    graph = PART.emptied(int(PART.train_mask.nonzero()[0]))
    for method, level, options in CASES:
        make, make_ledger = makers(method, replace(level, unit="zero-out"), options)
        assert make().execute(graph, None, make_ledger).certificate_.epsilon <= 8.0
