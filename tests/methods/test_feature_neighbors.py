"""Votes of training nodes with similar features: as defined, in blocks, and never where attributes are private."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.execution.sparse_rows import CsrRows
from graphveil.graph import csbm
from graphveil.methods import inputs
from graphveil.methods.inputs import Inputs, votes_of_feature_neighbors
from graphveil.methods.training import Target

CLASSES = 3


@pytest.fixture
def nodes() -> tuple[np.ndarray, torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(5)
    x = random.normal(size=(40, 12)) * (random.random((40, 12)) < 0.3)
    x[7] = 0
    return x.astype(np.float32), torch.from_numpy(random.integers(0, CLASSES, 40)), torch.arange(0, 40, 2)


def target(labels: torch.Tensor, train: torch.Tensor) -> Target:
    return Target(labels, train, validation=train[:0])


def by_the_book(x: np.ndarray, labels: torch.Tensor, train: torch.Tensor, *, about_itself: bool = False) -> np.ndarray:
    weighted = x * (1 + np.log(len(x) / np.maximum(1, (x != 0).sum(0))))
    unit = weighted / np.maximum(1e-12, np.linalg.norm(weighted, axis=1, keepdims=True))
    found = np.zeros((len(x), CLASSES))
    for i in range(len(x)):
        for j in train.tolist():
            if i != j or about_itself:
                found[i, labels[j]] += max(0.0, unit[i] @ unit[j]) ** 2
    usual = np.bincount(labels[train], minlength=CLASSES) / len(train)
    found += 1e-4 * usual
    return np.log(np.maximum(1e-6, found / found.sum(1, keepdims=True))) - np.log(usual)


@pytest.mark.parametrize("sparse", [False, True])
def test_votes_are_what_they_are_said_to_be(nodes, sparse):
    x, labels, train = nodes
    rows = CsrRows(sp.csr_array(x)) if sparse else torch.from_numpy(x)
    found = votes_of_feature_neighbors(rows, target(labels, train), CLASSES).numpy()
    np.testing.assert_allclose(found, by_the_book(x, labels, train), atol=1e-4)
    assert not np.allclose(found, by_the_book(x, labels, train, about_itself=True), atol=1e-2)


def test_who_resembles_nobody_gets_no_opinion(nodes):
    x, labels, train = nodes
    assert votes_of_feature_neighbors(torch.from_numpy(x), target(labels, train), CLASSES)[7].abs().max() < 1e-5


def test_a_label_says_nothing_about_its_own_node(nodes):
    x, labels, train = nodes
    other = labels.clone()
    other[0] = (labels[0] + 1) % CLASSES
    before, after = (
        votes_of_feature_neighbors(torch.from_numpy(x), target(y, train), CLASSES) for y in (labels, other)
    )
    usual = torch.stack([torch.bincount(y[train], minlength=CLASSES).log() for y in (labels, other)])
    shares = before + usual[0], after + usual[1]
    assert torch.allclose(shares[0][0], shares[1][0], atol=1e-2)
    assert not torch.allclose(shares[0], shares[1], atol=1e-1)


def test_blocks_change_nothing(nodes, monkeypatch):
    x, labels, train = nodes
    whole = votes_of_feature_neighbors(torch.from_numpy(x), target(labels, train), CLASSES)
    monkeypatch.setattr(inputs, "_ROWS", 7)
    monkeypatch.setattr(inputs, "_VOTERS", 3)
    in_blocks = votes_of_feature_neighbors(torch.from_numpy(x), target(labels, train), CLASSES)
    assert torch.allclose(in_blocks, whole, atol=1e-5)


def test_on_large_graphs_some_vote_for_all(nodes, monkeypatch):
    x, labels, train = nodes
    monkeypatch.setattr(inputs, "_PAIRS", 40 * 10)
    found = votes_of_feature_neighbors(torch.from_numpy(x), target(labels, train), CLASSES)
    fewer = votes_of_feature_neighbors(torch.from_numpy(x), target(labels, train[::2]), CLASSES)
    assert torch.equal(found, fewer)


@pytest.mark.parametrize(
    ("level", "asked"),
    [
        (gv.Edge(), True),
        (gv.KNeighbor(1, attributes=False), True),
        (gv.KNeighbor(1), False),
        (gv.Node(40), False),
    ],
)
def test_asked_only_where_attributes_are_public(level, asked, monkeypatch):
    calls = []
    votes = Inputs.feature_neighbors
    monkeypatch.setattr(Inputs, "feature_neighbors", lambda data: calls.append(data) or votes(data))
    graph = csbm(0.5, n=120, f=6, seed=0)
    gv.DPDGC(level, 4.0, seed=0, steps=3, epochs=3, folds=2, cap_degrees=isinstance(level, gv.Node)).fit(graph)
    assert bool(calls) == asked
