"""1, 2 and 3 processes give the model that one process gives without torchrun, bit for bit, and the same names."""

from __future__ import annotations

import csv
from functools import cache

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.distributed import Group, Shard, fit, save
from graphveil.distributed.parts import read_part, write_parts
from graphveil.graph.report import Undeclared
from graphveil.privacy.plan import Plan
from support.distributed_fits import CASES, FOLDS, graph
from support.jobs import together

# Made here once; calibration takes longer than these fits.
plan_of = cache(lambda name: (lambda data, model: model.plan(data))(*(CASES | FOLDS)[name]()))


def fitted(group: Group, plans: dict[str, Plan]) -> dict[str, dict[str, object]]:
    results = {}
    for name, plan in plans.items():
        data, model = (CASES | FOLDS)[name]()
        shard = Shard.of(data, group)
        assert shard.facts(group, edges=None) == plan.facts
        fit(model, shard, group, plan=plan)
        rows = {"logits": model.logits_, **({"table": model._table} if hasattr(model, "_table") else {})}
        whole = {key: group.gathered(tensor, shard.layout.counts).numpy() for key, tensor in rows.items()}
        results[name] = {**whole, "certificate": model.certificate_.to_json()}
    return results


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "names"),
    [
        (1, ["trained", "tables", "public"]),
        (2, ["trained", "tables", "sampled", "edge", "public", "sparse"]),
        (3, [*CASES.keys() - {"sampled"}]),
    ],
)
def test_as_without_torchrun(processes, names):
    plans = {name: plan_of(name) for name in names}
    results = together(processes, fitted, plans)[0]
    for name, plan in plans.items():
        data, model = CASES[name]()
        model.execute(data, plan)
        ours = {key: torch.from_numpy(value) for key, value in results[name].items() if key != "certificate"}
        assert results[name]["certificate"] == model.certificate_.to_json(), name
        assert torch.equal(ours["logits"], model.logits_), name
        assert "table" not in ours or torch.equal(ours["table"], model._table), name


@pytest.mark.slow
def test_folds_do_not_depend_on_the_number_of_processes():
    plans = {name: plan_of(name) for name in FOLDS}
    one, *others = (together(processes, fitted, plans)[0] for processes in (1, 2, 3))
    for results in others:
        for name in FOLDS:
            assert results[name]["certificate"] == one[name]["certificate"]
            assert np.array_equal(results[name]["logits"], one[name]["logits"]), name
            assert np.array_equal(results[name]["table"], one[name]["table"]), name


def refused(group, seeds):
    model = gv.MLP(gv.KNeighbor(k=1), 8.0, seed=seeds[group.rank], steps=2)
    try:
        fit(model, Shard.of(graph(), group), group)
    except gv.GraphveilError as error:
        return str(error)


def test_other_options_than_those_of_the_first_process():
    first, second = together(2, refused, [0, 1])
    assert second == "seed = 1: is not what the first process was given"
    assert "another process of this job has ended" in first


def test_degrees_beyond_the_promise():
    one, level = Group(0, 1), gv.Node(max_degree=2)
    model = gv.DPDGC(level, 8.0, seed=0, steps=2, table="labels", cap_degrees=True)
    with pytest.raises(gv.InvalidInput, match="cap_degrees = True: does not run on several processes"):
        fit(model, Shard.of(graph(), one), one)
    with pytest.raises(gv.InvalidInput, match="max_degree = 2"):
        fit(model.set_params(cap_degrees=False), Shard.of(graph(), one), one)


def test_a_place_that_takes_no_folder(tmp_path):
    one, model = Group(0, 1), gv.MLP(gv.KNeighbor(k=1), 8.0, seed=0, steps=2)
    fit(model, Shard.of(graph(), one), one)
    (tmp_path / "file").touch()
    with pytest.raises(gv.InvalidInput, match=r"out = .*run': cannot be written"):
        save(model, tmp_path / "file" / "run", one, also={})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def named():
    ids = [f"p{i}" for i in range(502)]
    return graph().replace(node_ids=ids, class_names=["a, b", "node"], undeclared=Undeclared(classes=2))


def saved(group, folder, parts):
    model = gv.MLP(gv.KNeighbor(k=1), 8.0, seed=0, steps=2)
    fit(model, Shard.of(named(), group) if parts is None else read_part(parts, group), group)
    save(model, folder, group, also={})


@pytest.mark.slow
@pytest.mark.parametrize("divided", [False, True])
def test_predictions_are_by_name(tmp_path, divided):
    parts = tmp_path / "parts" if divided else None
    if divided:
        write_parts(named(), parts, 2)
    together(2, saved, tmp_path / "run", parts)
    with (tmp_path / "run/predictions.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["node", "prediction", "p(a, b)", "p(node)"]
    assert [row[0] for row in rows[1:]] == [f"p{i}" for i in range(502)]
    model = gv.load(tmp_path / "run")
    expected = model.predict_proba()
    assert [[float(p) for p in row[2:]] for row in rows[1:]] == pytest.approx(expected, abs=1e-7)
    assert [row[1] for row in rows[1:]] == [["a, b", "node"][best] for best in expected.argmax(1)]
    for name in ("certificate.json", "public/config.json", "public/model_card.md"):
        assert "a, b" not in (tmp_path / "run" / name).read_text()
    if divided:
        with pytest.raises(gv.InvalidInput, match="cannot be compared with the parts"):
            gv.load(tmp_path / "run", graph=named())
    else:
        assert gv.load(tmp_path / "run", graph=named()).score(named().test_mask) > 0
