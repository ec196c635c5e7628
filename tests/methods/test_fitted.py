"""What a fit tells about itself, in `history_` and in the log, is the same on adjacent graphs."""

import logging
from dataclasses import replace
from functools import partial

import pytest

import graphveil as gv
from graphveil.auditing.adjacent_fits import adjacent_graphs, small_part
from graphveil.auditing.recording import ledger_on_branch
from graphveil.execution import Ledger
from support.audits import GRAPH, maker

PART = small_part(GRAPH, 60, 0, most_links=7)
LEVEL = gv.KNeighbor(2)
CASES = [
    ("mlp", {}, None),
    ("gap", {"max_degree": 8}, None),
    ("dpdgc", {"table": "labels+neighbors+posteriors"}, None),
    ("auto", {"class_weight": "balanced"}, "features"),
    ("auto", {}, "graph"),
]


def told(method, options, branch, graph, caplog):
    """The history and the log of a fit."""
    make_ledger = Ledger if branch is None else partial(ledger_on_branch, branch, Ledger)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="graphveil"):
        model = maker(method, LEVEL, 8.0, delta=1e-3, **options)().execute(graph, None, make_ledger)
    return model, [record.getMessage() for record in caplog.records if record.name == "graphveil"]


@pytest.mark.parametrize(("method", "options", "branch"), CASES, ids=str)
def test_nothing_in_it_depends_on_private_data(method, options, branch, caplog):
    pair = adjacent_graphs(PART, LEVEL, 1)
    (one, said), (other, said_other) = (
        told(method, options, branch, each, caplog) for each in (pair.before, pair.after)
    )
    without_time = [[replace(stage, seconds=0.0) for stage in model.history_] for model in (one, other)]
    assert without_time[0] == without_time[1]
    assert said == said_other
    assert len(said) == 2 + len(one.history_)
    executed = {mechanism.name: mechanism for mechanism in one.plan_.mechanisms}
    assert set(executed) <= {stage.name for stage in one.history_}, "every mechanism is a stage"
    for stage in one.history_:
        assert stage.name in executed
        assert stage.what == executed[stage.name].type
        assert stage.noise == executed[stage.name].noise
        assert stage.seconds >= 0
        if stage.what == "clipped gradients":
            assert stage.steps == executed[stage.name].steps
            assert stage.learning_rate > 0


def test_a_second_fit_and_a_loaded_model(tmp_path):
    model = gv.MLP(gv.Edge(), 1.0, epochs=3, seed=0).fit(PART)
    (only,) = model.history_
    assert (only.name, only.what, only.steps, only.noise) == ("head", "training without noise", 3, None)
    assert len(model.fit(PART).history_) == 1
    model.save(tmp_path / "run")
    assert gv.load(tmp_path / "run").history_ == ()
    with pytest.raises(gv.InvalidInput, match="is not fitted yet"):
        _ = gv.MLP(gv.Edge(), 1.0).history_


def test_a_fit_with_a_checkpoint_has_all_of_its_stages(tmp_path):
    model = maker("dpdgc", LEVEL, 8.0, delta=1e-3, table="labels")()
    names = [stage.name for stage in model.fit(PART, checkpoint=tmp_path / "kept", checkpoint_every=1).history_]
    assert names == ["features", "labels", "release", "head"]


def test_the_log_is_silent_unless_asked(capfd):
    gv.MLP(LEVEL, 4.0, steps=2, seed=0).fit(PART)
    assert capfd.readouterr() == ("", "")
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("graphveil").handlers)


def test_no_message_has_counts_of_private_data(caplog):
    model, said = told("dpdgc", {}, None, PART, caplog)
    text = "\n".join([*said, str(model.history_)])
    assert "epsilon" in said[-1]
    assert str(PART.num_edges) not in text
    assert "accuracy" not in text
