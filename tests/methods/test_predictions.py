"""Predictions with the names of nodes and classes."""

import copy
import pickle

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.csv
import pytest

import graphveil as gv
from graphveil.errors import InvalidInput

IDS = {"text": [f"p{i}" for i in range(40)], "numbers": list(range(100, 140)), "zeros": [f"{i:03d}" for i in range(40)]}


def fitted(ids):
    nodes = {"id": ids, "label": ["no", "yes"] * 20, "v": np.arange(40.0)}
    graph = gv.Graph.from_tables(nodes, {"source": ids[:-1], "target": ids[1:]})
    return gv.MLP(level=gv.KNeighbor(1), epsilon=8.0, steps=2, seed=0).fit(graph)


@pytest.mark.parametrize("kind", IDS)
def test_a_table_has_ids_and_names_of_classes(kind, tmp_path):
    ids, model = IDS[kind], fitted(IDS[kind])
    table = model.predict_table()
    assert table.column_names == ["node", "prediction", "p(no)", "p(yes)"]
    assert table["node"].to_pylist() == ids
    assert table["prediction"].to_pylist() == model.predict().tolist()
    assert np.array_equal(np.stack([table["p(no)"], table["p(yes)"]], axis=1), model.predict_proba())
    model.save(tmp_path / "run")
    assert gv.load(tmp_path / "run").predict_table().equals(table)
    frame = pandas.DataFrame({"node": ids}).merge(table.to_pandas(), on="node")
    assert len(frame) == 40, "ids keep their type, so tables can be joined"
    assert polars.from_arrow(table)["node"].to_list() == ids
    pyarrow.csv.write_csv(table, tmp_path / "p.csv")
    assert pa.csv.read_csv(tmp_path / "p.csv").num_rows == 40


def test_ids_come_in_columns_of_any_library():
    model = fitted(IDS["text"])
    wanted = model.predict(["p3", "p5"]).tolist()
    for column in (pa.array, pandas.Series, polars.Series, np.array, lambda ids: pa.table({"id": ids})["id"]):
        assert model.predict(column(["p3", "p5"])).tolist() == wanted


def test_a_copy_of_a_saved_model_answers_from_the_same_folder(tmp_path):
    model = fitted(IDS["text"])
    model.save(tmp_path / "run")
    for one in (model, gv.load(tmp_path / "run")):
        for again in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert again.predict().tolist() == model.predict().tolist()
            assert again.fitted_.answers.folder == tmp_path / "run"
    first, other = gv.load(tmp_path / "run"), pickle.loads(pickle.dumps(gv.load(tmp_path / "run")))
    x = np.zeros((1, model.plan_.facts.features))
    first.predict_new(["new"], x, [[0]])
    with pytest.raises(InvalidInput, match="was answered before with other data"):
        other.predict_new(["new"], x + 1, [[0]])


def test_some_nodes_and_a_threshold():
    model = fitted(IDS["text"])
    table = model.predict_table(["p3", "p17"], threshold=0.0)
    assert table["node"].to_pylist() == ["p3", "p17"]
    assert table["prediction"].to_pylist() == ["yes", "yes"]
    with pytest.raises(InvalidInput, match="is not a node of this run"):
        model.predict_table(["p99"])
