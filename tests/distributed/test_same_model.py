"""1, 2 and 3 processes give the model that one process gives without torchrun, bit for bit.

Only training that needs no protection adds in float32, and may differ in the last digits.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from graphveil.distributed import Group, Shard, fit
from graphveil.privacy.plan import Plan
from support.distributed_fits import CASES, FOLDS
from support.jobs import together

TRAINED_FREELY = {"edge", "public"}

# Made here once; calibration takes longer than these fits.
plan_of = cache(lambda name: (lambda graph, model: model.plan(graph))(*(CASES | FOLDS)[name]()))


def fitted(group: Group, plans: dict[str, Plan]) -> dict[str, dict[str, object]]:
    found = {}
    for name, plan in plans.items():
        graph, model = (CASES | FOLDS)[name]()
        shard = Shard.of(graph, group)
        assert shard.facts(group, edges=None) == plan.facts
        fit(model, shard, group, plan=plan)
        rows = {"logits": model.logits_, **({"table": model._table} if hasattr(model, "_table") else {})}
        whole = {key: group.gathered(tensor, shard.layout.counts).numpy() for key, tensor in rows.items()}
        found[name] = {**whole, "certificate": model.certificate_.to_json()}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "names"),
    [(1, ["trained", "tables"]), (2, ["trained", "tables", "sampled", "edge"]), (3, [*CASES.keys() - {"sampled"}])],
)
def test_as_without_torchrun(processes, names):
    plans = {name: plan_of(name) for name in names}
    found = together(processes, fitted, plans)[0]
    for name, plan in plans.items():
        graph, model = CASES[name]()
        model.execute(graph, plan)
        ours = {key: torch.from_numpy(value) for key, value in found[name].items() if key != "certificate"}
        assert found[name]["certificate"] == model.certificate_.to_json(), name
        if name not in TRAINED_FREELY:
            assert torch.equal(ours["logits"], model.logits_), name
            assert "table" not in ours or torch.equal(ours["table"], model._table), name
            continue
        torch.testing.assert_close(ours["logits"], model.logits_, rtol=1e-4, atol=1e-4)
        assert float((ours["logits"].argmax(1) == model.logits_.argmax(1)).float().mean()) >= 0.999, name


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES.keys() - TRAINED_FREELY))
def test_threads_do_not_change_a_fit(name):
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            graph, model = CASES[name]()
            found.append(model.execute(graph, plan_of(name)).logits_)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


@pytest.mark.slow
def test_folds_do_not_depend_on_the_number_of_processes():
    plans = {name: plan_of(name) for name in FOLDS}
    one, three = (together(processes, fitted, plans)[0]["folds"] for processes in (1, 3))
    assert one["certificate"] == three["certificate"]
    torch.testing.assert_close(*(torch.from_numpy(found["logits"]) for found in (one, three)), rtol=1e-3, atol=1e-3)
