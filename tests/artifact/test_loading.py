"""Every method at every level comes back as it was."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

import graphveil as gv
from graphveil.artifact.saving import NOT_KEPT
from graphveil.graph import write_graph
from graphveil.graph.summary import Naming
from graphveil.methods import method_class
from support.artifacts import GRAPH, NEW, fitted

LEVELS = [gv.Public(), gv.Edge(), gv.KNeighbor(1), gv.KNeighbor(1, attributes=False), gv.Node(40)]
TABLES = ["trained", "labels", "posteriors", "readers", "neighbors", "labels+neighbors"]
CASES = [
    ("sage", gv.Public(), {}),
    ("randedge", gv.Public(), {}),
    ("randedge", gv.Edge(), {}),
    *(("mlp", level, {}) for level in LEVELS),
    *(("gap", level, {"max_degree": 40}) for level in LEVELS),
    *(("dp-sage", level, {"max_degree": 40}) for level in LEVELS if level != gv.Edge()),
    ("dpdgc", gv.Public(), {}),
    *(
        ("dpdgc", level, {"table": table})
        for level in LEVELS[1:]
        for table in TABLES
        if not (level == gv.Node(40) and table == "readers")
    ),
]


@pytest.mark.parametrize(("method", "level", "options"), CASES, ids=str)
def test_the_same_predictions(method, level, options, tmp_path):
    model = fitted(method, level, **options)
    before, elsewhere = model.predict_proba(), model.predict_on(GRAPH)
    model.save(tmp_path / "run")
    again = gv.load(tmp_path / "run", graph=GRAPH)
    assert type(again) is method_class(method)
    assert np.array_equal(again.predict_proba(), before)
    assert np.array_equal(again.predict_on(GRAPH), elsewhere)
    assert again.score(GRAPH.test_mask) == model.score(GRAPH.test_mask)
    assert again.certificate_ == model.certificate_
    kept = {field.name for field in dataclasses.fields(model)} - NOT_KEPT
    assert {name: again.get_params()[name] for name in kept} == {name: model.get_params()[name] for name in kept}
    assert again.seed is None
    if method == "randedge" and level == gv.Edge():
        with pytest.raises(gv.InvalidInput, match="cannot protect"):
            again.predict_new(**NEW)
    else:
        # Saved and loaded models answer from the same folder.
        assert np.array_equal(again.predict_new(**NEW), model.predict_new(**NEW))


def test_sparse_features_and_names(tmp_path):
    wide = sp.random_array((120, 60), density=0.05, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    graph = GRAPH.replace(features=wide, node_ids=[f"p{i}" for i in range(120)], class_names=["north", "south"])
    for method in ("mlp", "dpdgc", "gap"):
        model = method_class(method)(level=gv.Edge(), epsilon=4.0, epochs=2, hidden=8).fit(graph)
        assert model.fitted_.sparse
        elsewhere = model.predict_on(graph)
        model.save(tmp_path / method)
        again = gv.load(tmp_path / method)
        assert np.array_equal(again.predict_on(graph), elsewhere)
        assert again.fitted_.naming == model.fitted_.naming
        assert again.fitted_.naming.places("nodes", ["p7"], 120) == [7]


def test_names_that_do_not_fit_the_graph_are_left_out(tmp_path):
    write_graph(GRAPH, tmp_path / "tables")
    graph = gv.read_graph(tmp_path / "tables")
    assert len(Naming.of(graph).columns) == 8
    changed = graph.replace(features=graph.features[:, :3], node_ids=None)
    assert Naming.of(changed).columns == ()
    with pytest.raises(gv.InvalidInput, match="node_ids = '1': this id is given to more than one node"):
        graph.replace(node_ids=np.array([1, "1", *range(2, 120)], dtype=object))
    gv.MLP(level=gv.KNeighbor(1), epsilon=4.0, steps=2).fit(changed).save(tmp_path / "run")
    assert gv.load(tmp_path / "run").plan_.facts.features == 3


def test_answers_given_before_saving_are_kept(tmp_path):
    model = fitted()
    first = model.predict_new(**NEW)
    model.save(tmp_path / "run")
    assert np.array_equal(gv.load(tmp_path / "run").predict_new(**NEW), first)


def test_a_graph_that_is_another_one_is_refused(saved):
    with pytest.raises(gv.InvalidInput, match="not the graph"):
        gv.load(saved, graph=GRAPH.with_split(seed=3, fractions=(0.5, 0.2, 0.3)))


def test_without_the_graph_some_things_cannot_be_asked(tmp_path):
    fitted("gap", max_degree=40).save(tmp_path / "run")
    with pytest.raises(gv.InvalidInput, match="graph = None"):
        gv.load(tmp_path / "run").predict_new(**NEW)
    with pytest.raises(gv.InvalidInput, match="without labels"):
        gv.load(tmp_path / "run").score([1])


def test_refusals_of_save(tmp_path):
    with pytest.raises(gv.InvalidInput, match="not fitted"):
        gv.MLP(gv.Public()).save(tmp_path / "run")
    model = fitted()
    with pytest.raises(gv.InvalidInput, match=r"budget = 1\.0"):
        model.save(tmp_path / "run", budget=1.0)
    assert list(tmp_path.iterdir()) == []
    model.save(tmp_path / "run")
    with pytest.raises(gv.InvalidInput, match="exists already"):
        model.save(tmp_path / "run")
    with pytest.raises(gv.InvalidInput, match="a second time"):
        model.save(tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
