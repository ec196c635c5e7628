"""No file gives away what it must not."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import graphveil as gv
from graphveil.artifact.contents import read_manifest
from graphveil.artifact.saving import check_apart
from support.artifacts import GRAPH, SEED, fitted

A = GRAPH.reads("out").toarray().astype(np.float64)
X = GRAPH.features.numpy().astype(np.float64)
Y = GRAPH.labels.numpy()


def shows(tensor, private):
    """Whether each row of `private`, up to its place, scale and mean, is a row or column of the tensor."""
    rows = tensor.double().reshape(tensor.shape[0], -1).numpy() if tensor.ndim else np.zeros((1, 1))
    for table in (rows, rows.T):
        if table.shape == private.shape and abs(np.corrcoef(table.ravel(), private.ravel())[0, 1]) > 0.99:
            return True
    return False


def shows_labels(tensor):
    """Whether the label of a training node can be read off its row."""
    if tensor.ndim != 2 or tensor.shape[0] != len(Y):
        return False
    rows = tensor[GRAPH.train_mask].double().numpy()
    labels = Y[GRAPH.train_mask.numpy()]
    return len(np.unique(rows.round(6), axis=0)) == 2 and any(
        len({tuple(row) for row in rows[labels == y].round(6)}) == 1 for y in (0, 1)
    )


CASES = [
    ("mlp", gv.KNeighbor(1), {}),
    ("dpdgc", gv.KNeighbor(1), {}),
    ("dpdgc", gv.KNeighbor(1), {"table": "trained"}),
    ("dpdgc", gv.KNeighbor(1), {"table": "posteriors"}),
    ("dpdgc", gv.Node(40), {}),
    ("dpdgc", gv.Edge(), {}),
    ("dpdgc", gv.KNeighbor(1, attributes=False), {}),
    ("gap", gv.Node(40), {}),
    ("dp-sage", gv.Node(40), {}),
    ("randedge", gv.Edge(), {}),
    ("sage", gv.Public(), {}),
]


@pytest.mark.parametrize(("method", "level", "options"), CASES, ids=str)
def test_nothing_private(method, level, options, tmp_path):
    model = fitted(method, level, **options)
    model.save(tmp_path / "run")
    private_labels = not isinstance(level, gv.Public | gv.Edge) and level.attributes
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            assert str(SEED).encode() not in path.read_bytes()
        if path.suffix == ".safetensors":
            for name, tensor in load_file(path).items():
                assert not shows(tensor, A), name
                assert not shows(tensor, X), name
                assert not shows(tensor, model.predict_proba()) or path.parent.name == "owner"
                if private_labels or path.parent.name == "public":
                    assert not shows_labels(tensor), name
    # What is for anyone does not know how many entries the graph has, nor whether its features are mostly empty.
    config = json.loads((tmp_path / "run/public/config.json").read_text())
    assert set(config) == {"format", "method", "params", "budget", "naming"}
    assert "seed" not in config["params"]


def test_the_search_finds_what_is_there():
    assert shows(torch.from_numpy(A), A)
    assert shows(torch.from_numpy(3 * X.T), X)
    assert shows_labels(torch.eye(2)[GRAPH.labels])
    assert not shows_labels(torch.randn(120, 2))


@pytest.mark.parametrize("level", [gv.KNeighbor(1), gv.Edge(), gv.Public()], ids=str)
def test_who_may_see_what_is_stated(level, tmp_path):
    fitted("mlp", level).save(tmp_path / "run")
    files = read_manifest(tmp_path / "run").files
    card = (tmp_path / "run/public/model_card.md").read_text()
    for name, entry in files.items():
        assert f"| `{name}` |" in card
        inside = name.startswith(("public/", "certificate."))
        assert entry.audience == ("anyone" if inside and not isinstance(level, gv.Public) else "owner")
    assert ("**Nothing.**" in card) == isinstance(level, gv.Public)
    assert (tmp_path / "run/owner/weights.safetensors").exists() == isinstance(level, gv.Public)


@pytest.mark.parametrize("table", ["labels", "labels+attributes"])
def test_a_card_says_whether_a_file_holds_features(table, tmp_path):
    """Table "attributes" is made of the features, scaled, and new nodes need it."""
    fitted("dpdgc", gv.Edge(), table=table).save(tmp_path / "run")
    card = (tmp_path / "run/public/model_card.md").read_text()
    assert ("scaled features: the level treats them as public" in card) == (table != "labels")
    assert ("No file holds the graph, its features" in card) == (table == "labels")


def test_no_counts_of_readers(tmp_path):
    """A promise on degrees is kept by what is reserved, so nothing of private degrees has to be kept."""
    fitted("dpdgc", gv.Node(40)).save(tmp_path / "run")
    for path in (tmp_path / "run").rglob("*.safetensors"):
        assert "readers" not in load_file(path)


def test_run_and_checkpoint_lie_apart(tmp_path):
    check_apart(tmp_path / "run", tmp_path / "kept")
    with pytest.raises(gv.InvalidInput, match="is the same folder as out"):
        check_apart(tmp_path / "run", tmp_path / "other" / ".." / "run")
    for out, checkpoint in (("run", "run/kept"), ("kept/run", "kept")):
        with pytest.raises(gv.InvalidInput, match="lie in one another"):
            check_apart(tmp_path / out, tmp_path / checkpoint)
