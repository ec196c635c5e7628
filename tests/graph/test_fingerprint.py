"""A fingerprint tells one graph from every other one, and two fingerprints of it from each other."""

from __future__ import annotations

from typing import Any

import pytest
import scipy.sparse as sp

from graphveil.errors import InvalidInput
from graphveil.graph import Fingerprint, Graph

CHANGES: dict[str, dict[str, Any]] = {
    "another link": {"indptr": [0, 2, 4, 5, 7], "indices": [1, 2, 0, 2, 3, 0, 2], "directed": True},
    "a feature": {"features": [[1.0, 0.0], [0.5, -1.0], [0.0, 2.0], [3.0, 0.5]]},
    "a label": {"labels": [0, 1, 0, -1]},
    "the training set": {"train_mask": [True, False, False, False]},
    "the validation set": {"val_mask": [False, False, False, False], "test_mask": [False, False, False, False]},
}


def with_validation(graph: Graph) -> Graph:
    return graph.replace(val_mask=graph.test_mask, test_mask=None)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_shows(triangle: Graph, change: dict[str, Any]) -> None:
    graph = with_validation(triangle)
    fingerprint = Fingerprint.of(graph)
    assert fingerprint.is_of(with_validation(triangle))
    assert not fingerprint.is_of(graph.replace(**change))


def test_names_and_test_set_do_not_count(triangle: Graph) -> None:
    other = triangle.replace(name="other", class_names=["no", "yes"], test_mask=None)
    assert Fingerprint.of(triangle).is_of(other)


def test_sparse_features_are_another_form(triangle: Graph) -> None:
    sparse = triangle.replace(features=sp.csr_array(triangle.features.numpy()))
    assert Fingerprint.of(sparse).is_of(sparse)
    assert not Fingerprint.of(triangle).is_of(sparse)


def test_two_fingerprints_of_a_graph_differ(triangle: Graph) -> None:
    first, second = Fingerprint.of(triangle), Fingerprint.of(triangle)
    assert first.digest != second.digest
    assert Fingerprint.of(triangle, first.salt) == first


def test_what_was_written_is_read_strictly(triangle: Graph) -> None:
    fingerprint = Fingerprint.of(triangle)
    assert Fingerprint.from_dict(fingerprint.to_dict()) == fingerprint
    for wrong in ([], {}, {"salt": "a"}, {"salt": "a", "digest": "b", "more": "c"}):
        with pytest.raises(InvalidInput, match="must have the keys salt and digest"):
            Fingerprint.from_dict(wrong)
    for wrong in ({"salt": "", "digest": "b"}, {"salt": "a", "digest": 7}, {"salt": "a", "digest": "b" * 65}):
        with pytest.raises(InvalidInput, match="must be short texts"):
            Fingerprint.from_dict(wrong)
