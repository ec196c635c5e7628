"""The predictions and the tokens of a run, without a server."""

import json
import shutil

import numpy as np
import pytest

import graphveil as gv
from graphveil.artifact.contents import TOKEN_SECRET
from graphveil.graph.summary import Naming
from graphveil.serve import Predictions, Tokens, tokens_of
from support.artifacts import reseal

ROWS = np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]], dtype=np.float32)


def test_old_and_new_nodes_by_name():
    predictions = Predictions(Naming(("anna", "ben"), ("no", "yes")), ROWS, new=("cyd",))
    assert [predictions.place(name) for name in ("anna", "ben", "cyd", "dee", "0")] == [0, 1, 2, None, None]
    assert [predictions.name(place) for place in range(3)] == ["anna", "ben", "cyd"]
    answer = json.loads(predictions.as_json(0))
    assert answer == {"node": "anna", "prediction": "yes", "classes": ["no", "yes"], "probabilities": [0.25, 0.75]}


def test_names_that_were_not_declared_are_for_the_owner():
    predictions = Predictions(Naming(("anna", "ben", "cyd"), ("no", "yes"), declared_classes=False), ROWS)
    assert json.loads(predictions.as_json(0))["classes"] == ["0", "1"]
    assert json.loads(predictions.as_json(0, owner=True))["classes"] == ["no", "yes"]


@pytest.mark.parametrize("name", ["", " anna", "x" * 1025, "\ud800"])
def test_names_that_no_request_can_hold(name):
    with pytest.raises(gv.InvalidInput, match="node = "):
        Predictions(Naming((name, "ben", "cyd")), ROWS)
    with pytest.raises(gv.InvalidInput, match="node = "):
        Predictions(Naming(("anna", "ben")), ROWS, new=(name,))


def test_tokens_of_one_secret():
    tokens, others = Tokens(b"a" * 32), Tokens(b"b" * 32)
    token = tokens.of_node("anna").encode()
    assert tokens.is_of_node(token, "anna")
    assert not tokens.is_of_node(token, "ben")
    assert not tokens.is_of_operator(token)
    assert not others.is_of_node(token, "anna")
    assert tokens.is_of_operator(tokens.of_operator().encode())
    assert not tokens.is_of_node(tokens.of_operator().encode(), "operator")


def test_a_secret_of_another_length(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    reseal(folder, TOKEN_SECRET, b"x" * 31)
    with pytest.raises(gv.InvalidInput, match="must hold 32 bytes"):
        tokens_of(folder)
