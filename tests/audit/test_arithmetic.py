"""The attack on the arithmetic of released sums: its pairs are adjacent, it drives rounding, and it flags a mistake."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import graphveil as gv
from graphveil.auditing import Movement, Twin, audit
from graphveil.auditing.arithmetic import NODES, Target, _Shape, attack, cycle_labels
from graphveil.auditing.hubs import chosen_readers
from graphveil.cli import app
from graphveil.errors import InvalidInput
from graphveil.methods import method_class

LEVEL = gv.KNeighbor(1)
CASES = [
    ("dpdgc", gv.KNeighbor(1)),
    ("dpdgc", gv.KNeighbor(60, attributes=False)),
    ("dpdgc", gv.Edge("undirected")),
    ("dpdgc", gv.Edge("directed")),
    ("dpdgc", gv.Node(25)),
    ("auto", gv.KNeighbor(3)),
    ("auto", gv.Node(8)),
    ("gap", gv.KNeighbor(2)),
    ("gap", gv.Node(1)),
    ("dp-sage", gv.Node(8)),
]


def target(method, level, **options):
    return Target(method_class(method), level, 4.0, options)


@pytest.mark.parametrize(("method", "level"), CASES, ids=str)
def test_pairs_are_adjacent(method, level):
    aimed = target(method, level)
    for directed in aimed.directions():
        for written in (False, True) if level == gv.Edge("directed") else (False,):
            shape = _Shape(aimed, directed, 400, {}, written=written)
            labels = cycle_labels(shape.nodes)
            pair = shape.pair(labels, np.ones((shape.nodes, 2)), shape.crowd)
            A, B = (graph.reads(aimed.cls.direction).toarray() for graph in (pair.before, pair.after))
            rows, columns = np.nonzero(A != B)
            assert not A.diagonal().any()
            if isinstance(level, gv.Edge):
                assert pair.own is None
                assert len(rows) == (1 if directed else 2)
                continue
            assert pair.own == 0
            assert ((rows == 0) | (columns == 0)).all()
            others = np.arange(shape.nodes) > 0
            assert (pair.before.labels == pair.after.labels).numpy()[others].all()
            assert (pair.before.features == pair.after.features).all(1).numpy()[others].all()
            assert bool(pair.before.labels[0] == pair.after.labels[0]) == (not level.attributes)
            if isinstance(level, gv.KNeighbor):
                assert max((rows == 0).sum(), (columns == 0).sum()) <= level.k
            else:
                assert max(A.sum(0).max(), B.sum(0).max()) <= level.max_degree
            if not directed:
                assert (A == A.T).all()
                assert (B == B.T).all()


def test_chosen_rows_drive_float32_sums_apart():
    """Rows of three classes that cancel: added one after the other, one row more moves the sum by several times it."""
    labels = cycle_labels(NODES)
    assert np.bincount(labels).tolist() == [14_733, 14_781, 14_685]
    # One column of the table that DPDGC makes of these labels.
    table = np.array([0.81516826, -0.40758377, -0.4075842], np.float32)[labels][:, None].astype(float)
    read = chosen_readers(table[1:], np.zeros(1), table[0])
    assert (np.diff(read) > 0).all()
    moved = {}
    for kind in (np.float32, np.float64):
        sums = [np.cumsum(np.r_[start, table[1:][read][:, 0]], dtype=kind)[-1] for start in (0.0, table[0, 0])]
        moved[kind] = float(sums[1]) - float(sums[0])
    assert moved[np.float32] > 3 * table[0, 0]
    assert moved[np.float64] == pytest.approx(table[0, 0], rel=1e-9)


def test_rows_of_one_sign_are_all_read():
    assert len(chosen_readers(np.ones((50, 1)), np.zeros(1), np.ones(1))) == 50


def test_values_that_are_all_different_are_driven_apart_too():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 1))
    rows[:5000] = np.abs(rows[:5000])
    read = chosen_readers(rows, np.zeros(1), np.ones(1))
    sums = [np.cumsum(np.r_[start, rows[read, 0]], dtype=np.float32)[-1] for start in (0.0, 1.0)]
    assert float(sums[1]) - float(sums[0]) > 1.05


def test_movements_are_compared_with_claims():
    within = Movement("release", "random", 1.0, 1.0 + 1e-10, 10, 20)
    beyond = Movement("release", "random", 1.0, 1.0 + 1e-8, 10, 20)
    stopped = Movement("the fit", "not finite", 0.0, math.inf, 10, 20)
    apart = Movement("release", "same graph", None, 0.5, 10, 20)
    assert [each.verdict for each in (within, beyond, stopped, apart)] == [
        "consistent", "violated", "violated", "consistent",
    ]  # fmt: skip
    assert stopped.to_dict()["ratio"] is None
    assert Movement("head", "random", 0.0, 0.0, 10, 20).verdict == "consistent"


def centred(self, like, classes, dropout=0.0):
    """The broken twin: features are centred over all nodes, so that one node moves every row's gradient."""
    model = gv.DPDGC._opinion(self, like, classes, dropout)

    def centre(module, inputs):
        return (inputs[0] - inputs[0].mean(0),) if isinstance(inputs[0], torch.Tensor) else inputs

    model.register_forward_pre_hook(centre)
    return model


CENTRED = Twin("centred", "features are centred", "arithmetic", LEVEL, 4.0, replaces=(("_opinion", centred),))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpdgc", "auto"])
def test_a_twin_replaces_an_attribute_of_any_method_and_is_flagged(method):
    options = {"table": "labels"} if method == "dpdgc" else {}
    report = audit(method, LEVEL, 4.0, twin=CENTRED, attacks=["arithmetic"], scale=0.01, seed=1, **options)
    assert report.verdict == "violated"
    assert report.method == method
    found = {movement.mechanism: movement for movement in report.movements if movement.family == "cancelling"}
    assert found["features"].verdict == "violated"
    assert found["features"].ratio > 1.2
    assert "VIOLATED" in str(report)
    data = json.loads(report.to_json())
    assert {"mechanism", "family", "claimed_sensitivity", "moved", "ratio", "verdict"} <= set(data["arithmetic"][0])


@pytest.mark.slow
def test_a_branch_that_is_not_taken_is_attacked_too():
    found = {movement.mechanism for movement in attack(target("auto", LEVEL), 1, scale=0.01)}
    assert {"features", "choice", "labels", "release", "head", "more features", "neighbors"} <= found


def test_where_nothing_is_released_nothing_is_attacked():
    assert attack(target("mlp", gv.Edge("undirected")), 1, scale=0.01) == []
    with pytest.raises(InvalidInput, match="mlp releases nothing"):
        audit("mlp", gv.Edge("undirected"), 4.0, attacks=["arithmetic"])
    with pytest.raises(InvalidInput, match="scale"):
        audit("mlp", LEVEL, 4.0, attacks=["arithmetic"], scale=0.0)


@pytest.mark.parametrize("level", [gv.Edge("undirected"), gv.Edge("directed")], ids=str)
def test_randomised_edges_change_as_many_bits_as_claimed(level):
    (found,) = attack(target("randedge", level), 1)
    assert found.moved == found.claimed == 1


def test_the_attack_on_the_command_line(tmp_path):
    words = ["audit", "--attack", "arithmetic", "--method", "randedge", "--level", "edge", "--seed", "1"]
    found = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "audit")])
    assert found.exit_code == 0, found.output
    assert "CONSISTENT" in found.stdout
    assert "epsilon is at least" not in found.stdout
    data = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert data["arithmetic"][0]["claimed_sensitivity"] == 1
    assert "edges" in data["picture"]
