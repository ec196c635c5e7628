"""The head of the default: what it reads, what it starts from, and how far one row moves its gradients."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional

import graphveil as gv
from graphveil.execution.gradients import ClippedSums
from graphveil.execution.sparse_rows import CsrRows
from graphveil.methods import defaults, neighbor_head
from graphveil.methods.class_sums import SumsClassifier, Tempered
from graphveil.methods.expectation import GraphBranch
from graphveil.methods.linear_features import with_products
from graphveil.methods.neighbor_head import NeighborHead
from graphveil.methods.spending import make_plan
from graphveil.privacy.facts import PublicFacts

BRANCH = GraphBranch(np.array([[6.0, 1, 1], [1, 6, 1], [1, 1, 6]]), 1.0, 0.9)


def head(like, branch="balanced", random=False):
    """A head on a branch of the default, for three classes; with weights that are not small where `random`."""
    plan = make_plan("auto", gv.KNeighbor(1), PublicFacts(4000, 3000, int(like.shape[1]), 3), epsilon=8.0)
    torch.manual_seed(0)
    sums = SumsClassifier(like, 3)
    for buffer in sums.buffers():
        buffer.normal_(std=0.2)
    made = NeighborHead(sums, BRANCH if branch in ("balanced", "joint", "graph") else None, plan.follow(branch), like)
    if random:
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    return made


def rows(count, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator), torch.randn(count, 3, generator=generator)


@pytest.mark.parametrize(
    ("branch", "width"),
    [*itertools.product(("sums", "balanced", "graph"), (0, 5, 40)), ("joint", 40)],
)
def test_it_starts_as_a_weighted_sum(branch, width):
    x, z = rows(20, width)
    made = head(x, branch)
    own, neighbors = defaults.FIRST_WEIGHTS
    with torch.no_grad():
        logits = made.features(x)
        evidence = made.evidence(logits, z)
        expected = own * (logits - logits.mean(1, keepdim=True))
        if branch != "sums":
            expected = expected + neighbors * evidence[:, 3:6]
            assert evidence[:, 3:6].abs().max() > 0.1
        torch.testing.assert_close(made(x, z), expected)
    assert list(made.features.parameters()) == [], "class sums stay as they were released"


def test_without_a_head_in_the_plan_it_is_the_classifier_of_features():
    x, z = rows(20, 5)
    made = head(x, "features")
    assert list(made.parameters()) == []
    assert torch.equal(made(x, z), made.features(x))


@pytest.mark.parametrize(
    ("branch", "width"), [("sums", 5), ("balanced", 5), ("sums", 40), ("balanced", 40), ("joint", 40)]
)
@pytest.mark.parametrize("sparse", [True, False])
def test_a_row_does_not_depend_on_the_other_rows(branch, width, sparse, monkeypatch):
    monkeypatch.setattr(neighbor_head, "ROWS_AT_ONCE", 64)
    x, z = rows(500, width)
    given = CsrRows(sp.csr_array(x.numpy())) if sparse else x
    made = head(given, branch, random=True)
    some = torch.tensor([0, 17, 63, 64, 65, 300, 499])
    with torch.no_grad():
        torch.testing.assert_close(made(given, z)[some], made(given[some], z[some]), rtol=1e-5, atol=1e-5)
        other, z_other = x.clone(), z.clone()
        other[0], z_other[0] = 1e10, -1e10
        other = CsrRows(sp.csr_array(other.numpy())) if sparse else other
        assert torch.equal(made(given, z)[1:], made(other, z_other)[1:])


CLIP = 1e-3


def moved(x, other, z, labels, branch, sparse, together):
    """By how much a sum of clipped gradients of a head moves where the first row is replaced, in units of the clip.

    `together`: all that it learns is clipped as one, as it is trained; otherwise each part on its own.
    """

    def sums_of(x, labels):
        x = CsrRows(sp.csr_array(x.numpy())) if sparse else x
        made = head(x, branch, random=True)
        with torch.no_grad():
            evidence = made.evidence(made.features(x), z)
        parts = [made] if together else [made.out, made.linear]
        found = []
        for part in parts:
            for parameter in made.parameters():
                parameter.requires_grad_(any(parameter is own for own in part.parameters()))

            def losses():
                logits = made.out(evidence) + made.linear.out(with_products(x))
                return functional.cross_entropy(logits, labels, reduction="none")

            found += ClippedSums(part, CLIP, len(labels)).of(losses)
        return torch.cat([each.reshape(-1) for each in found])

    changed, turned = x.clone(), labels.clone()
    changed[0], turned[0] = other, (labels[0] + 1) % 3
    return float((sums_of(x, labels) - sums_of(changed, turned)).norm()) / CLIP


@pytest.mark.parametrize(
    ("branch", "width", "sparse"),
    [
        *itertools.product(("sums", "balanced"), (1, 3, 32), (False, True)),
        ("joint", 40, False),
        ("joint", 40, True),
    ],
)
def test_one_row_moves_all_that_it_learns_within_one_clip(branch, width, sparse):
    """What it learns of evidence and of features shares a clip. The twin clips each alone."""
    x, z = rows(20, width, seed=1)
    labels = torch.randint(3, (20,), generator=torch.Generator().manual_seed(1))
    largest = {True: 0.0, False: 0.0}
    for size in (0.0, 1e-38, 1.0, 100.0, 1e19, 3e38):
        for sign in (-1.0, 1.0):
            # With the same features and another label, gradients nearly turn round.
            other = sign * size * torch.ones(width) if size else x[0]
            for together in largest:
                largest[together] = max(largest[together], moved(x, other, z, labels, branch, sparse, together))
    assert 1.2 < largest[True] <= 2 < largest[False]


def test_many_features_are_read_by_the_head_in_one_branch_alone():
    most = defaults.NARROW_FEATURES
    for width, reads in ((0, False), (1, True), (most, True), (most + 1, False)):
        assert (head(torch.zeros(4, width)).linear is not None) == reads
    assert head(torch.zeros(4, most + 1), "joint").linear is not None


def test_beside_tables_scores_have_the_weight_that_they_have_in_the_head():
    x, _ = rows(20, 5)
    sums = head(x).features
    assert torch.equal(Tempered(sums)(x), defaults.FIRST_WEIGHTS[0] * sums(x))
