"""A job of several processes names nodes and classes as one process does."""

from __future__ import annotations

import csv

import pytest

import graphveil as gv
from graphveil.distributed import Shard, fit, save
from graphveil.distributed.parts import read_part, write_parts
from graphveil.graph.report import Undeclared
from support.distributed_fits import graph
from support.jobs import together


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
