"""Class sums: how far one node moves them, on the real path, and the classifier that follows from them."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

import graphveil as gv
from graphveil.execution.exact import EXACT
from graphveil.execution.gradients import ClippedSums
from graphveil.execution.sparse_rows import CsrRows
from graphveil.graph import csbm
from graphveil.methods import defaults
from graphveil.methods.class_sums import ClassSums, NetworkBesideSums, SumsClassifier, class_sums, without_signs
from graphveil.methods.inputs import Inputs
from graphveil.methods.training import NO_LABEL, label_rows
from graphveil.privacy import sensitivity

NORM = defaults.CLASS_SUMS_NORM
REPLACE, ZERO_OUT = (gv.KNeighbor(1, unit=unit) for unit in ("replace", "zero-out"))


def inputs(features, labels, sparse=False, classes=3):
    """A graph of training nodes without links."""
    count = len(labels)
    everybody, nobody = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
    masks = {"train_mask": everybody, "val_mask": nobody, "test_mask": nobody}
    given = np.maximum(labels, 0)
    links = sp.csr_array((count, count), dtype=np.float32)
    graph = gv.Graph.from_scipy(links, features, given, directed=False, num_classes=classes, **masks)
    for node in np.flatnonzero(np.asarray(labels) == NO_LABEL):
        graph = graph.emptied(int(node), keep_links=True)
    return Inputs(graph, graph.to_scipy(), "cpu", sparse, defaults.FEATURE_NORM)


def signed_sums(data):
    """The broken twin: features enter with their signs."""
    known = label_rows(data.target.labels[data.target.train], data.classes).double()
    return known.T @ data.features_of(data.target.train).double()


SIZES = (0.0, 1e-38, 1e-3, 1.0, 1e3, 1e19)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    width=st.sampled_from([1, 3, 40]),
    sparse=st.booleans(),
    size=st.sampled_from(SIZES),
    other_size=st.sampled_from(SIZES),
    label=st.integers(NO_LABEL, 2),
    opposite=st.booleans(),
)
def test_one_node_moves_them_within_their_sensitivity(seed, width, sparse, size, other_size, label, opposite):
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=(50, width)), rng.integers(3, size=50)
    features[0] *= size
    other, turned = features.copy(), labels.copy()
    other[0] = -features[0] if opposite else other_size * rng.normal(size=width)
    turned[0] = label
    sums = [class_sums(inputs(x, y, sparse), EXACT) for x, y in ((features, labels), (other, turned))]
    level = ZERO_OUT if label == NO_LABEL else REPLACE
    assert float((sums[0] - sums[1]).norm()) <= sensitivity.class_sums(level, NORM)


def test_the_bound_is_attained_and_signs_would_break_it():
    row = np.zeros((2, 40))
    row[0, 0] = row[1, 1] = 1.0
    before, left, opposite = (inputs(x, np.array([0])) for x in (row[:1], row[1:], -row[:1]))
    others = (left, inputs(row[1:], np.array([1])), opposite)
    bound = sensitivity.class_sums(REPLACE, NORM)
    moved = [float((class_sums(before, EXACT) - class_sums(each, EXACT)).norm()) for each in others]
    assert moved == pytest.approx([math.sqrt(2) * 5, bound, math.sqrt(2) * 5], rel=1e-5)
    assert max(moved) <= bound
    assert float((signed_sums(before) - signed_sums(opposite)).norm()) > 1.38 * bound
    emptied = inputs(row[:1], np.array([NO_LABEL]))
    vanished = float((class_sums(before, EXACT) - class_sums(emptied, EXACT)).norm())
    assert vanished == pytest.approx(sensitivity.class_sums(ZERO_OUT, NORM), rel=1e-5)
    assert vanished <= sensitivity.class_sums(ZERO_OUT, NORM)


def test_no_pair_of_a_grid_moves_them_farther():
    points = [np.array(each, dtype=float) for each in itertools.product((-1, 0, 1), repeat=3)]
    sums = [class_sums(inputs(x[None], np.array([y])), EXACT) for x in points for y in (0, 1)]
    farthest = max(float((a - b).norm()) for a, b in itertools.combinations(sums, 2))
    assert 0.99 * sensitivity.class_sums(REPLACE, NORM) < farthest <= sensitivity.class_sums(REPLACE, NORM)


def test_where_attributes_are_public_they_move_nothing():
    assert sensitivity.class_sums(gv.KNeighbor(3, attributes=False), NORM) == 0
    assert sensitivity.class_sums(gv.Node(4, unit="zero-out"), NORM) == NORM


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("width", [4, 40])
def test_they_are_exact_sums_whatever_the_order(width, sparse):
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(40_000, width)), rng.integers(3, size=40_000)
    features[0], labels[1] = 1e30, NO_LABEL
    data, order = inputs(features, labels, sparse), rng.permutation(40_000)
    sums = class_sums(data, EXACT)
    assert torch.equal(sums, class_sums(inputs(features[order], labels[order], sparse), EXACT))
    rows = without_signs(data.features)
    rows = torch.from_numpy(rows.matrix.toarray()) if sparse and width > defaults.NARROW_FEATURES else rows
    plain = label_rows(torch.from_numpy(labels), 3).double().T @ rows.double()
    assert torch.allclose(sums[:, :-1], plain, rtol=1e-4, atol=0.5)
    assert sums[:, -1].tolist() == pytest.approx([(labels == c).sum() for c in range(3)], rel=1e-5)


def test_a_node_with_features_that_are_not_finite_adds_nothing():
    features = np.ones((3, 2))
    data, without = inputs(features, np.array([0, 1, 2])), inputs(features[:2], np.array([0, 1]))
    data.features[2] = float("nan")
    assert torch.equal(class_sums(data, EXACT), class_sums(without, EXACT))


@pytest.mark.parametrize("sparse", [True, False])
def test_signs_are_kept_apart_row_by_row(sparse):
    x = torch.randn(20, 40, generator=torch.Generator().manual_seed(0))
    data = inputs(x.numpy(), np.zeros(20, dtype=int), sparse)
    rows = without_signs(data.features)
    parts = torch.from_numpy(rows.matrix.toarray()) if sparse else rows
    assert (parts >= 0).all()
    whole = torch.from_numpy(data.features.matrix.toarray()) if sparse else data.features
    assert torch.equal(parts[:, :40] - parts[:, 40:], whole)
    assert not (parts[:, :40] * parts[:, 40:]).any()


def released(data, noise, seed=0):
    sums = class_sums(data, EXACT)
    noisy = sums + noise * torch.randn(sums.shape, generator=torch.Generator().manual_seed(seed)).double()
    return ClassSums.of(noisy, noise)


def words(count=3000, width=200, classes=3, seed=0):
    """Nodes of words, some of which are more frequent in one class, and one that all of them have."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    usual = rng.uniform(0.01, 0.1, size=(1, width)) * np.exp(0.5 * rng.normal(size=(classes, width)))
    features = (rng.random((count, width)) < usual[labels]).astype(float)
    features[:, 0] = 1
    return features, labels


def accuracy(classifier, data):
    with torch.no_grad():
        return float((classifier(data.features).argmax(1) == data.target.labels).float().mean())


def test_the_classifier_is_good_and_worse_with_more_noise():
    features, labels = words(6000)
    data, other = inputs(features[:3000], labels[:3000]), inputs(features[3000:], labels[3000:])
    reached = []
    for noise in (1e-3, 20.0, 1e6):
        classifier = SumsClassifier(data.features, 3)
        classifier.learn(released(data, noise))
        reached.append(accuracy(classifier, other))
    assert reached[0] > 0.75
    assert 0.5 < reached[1] < reached[0]
    assert reached[2] < 0.5


def test_noise_in_a_column_that_all_nodes_have_turns_nobody():
    features, labels = words()
    data = inputs(features, labels)
    sums = released(data, 1e-3)
    classifier, shifted = (SumsClassifier(data.features, 3) for _ in range(2))
    classifier.learn(sums)
    sums.values[0, 0] += 100.0  # the word that all nodes have seems to be much more frequent in the first class
    shifted.learn(sums)
    assert accuracy(shifted, data) > accuracy(classifier, data) - 0.03


def test_a_training_node_is_judged_without_itself():
    features, labels = words(400)
    data = inputs(features, labels)
    classifier = SumsClassifier(data.features, 3)
    own = classifier.learn(released(data, 1e-3))
    with torch.no_grad():
        plain = classifier(data.features)
    less = classifier.without(data.features, own, data.target.labels)
    moved = (less - plain)[torch.arange(400), data.target.labels]
    assert (moved < 0).all()
    other = inputs(*words(400, seed=1))
    assert accuracy(classifier, data) > float((less.argmax(1) == data.target.labels).float().mean())
    assert other.classes == 3


def test_scores_are_finite_and_no_longer_than_said():
    features, labels = words(200)
    features[0], features[1] = 0, 1e30
    data = inputs(features, labels)
    classifier = SumsClassifier(data.features, 3)
    classifier.learn(released(data, 1e-3))
    with torch.no_grad():
        scores = classifier(torch.cat([data.features, torch.full((1, 200), float("nan"))])) - classifier.bias
    assert scores.isfinite().all()
    assert (scores.norm(dim=1) <= defaults.LONGEST_SCORES * 1.0001).all()


def test_two_releases_are_joined_by_their_noise():
    values, counts = np.ones((2, 5)), np.full(2, 10.0)
    both = ClassSums(values, 1.0, counts).joined(ClassSums(3 * values, 0.5, counts))
    assert both.values == pytest.approx((1 * 1 + 3 * 4) / 5 * values)
    assert both.noise == pytest.approx(1 / math.sqrt(5))
    less = both.with_less_budget(0)
    assert less.noise == pytest.approx(both.noise * math.sqrt(2))
    assert np.array_equal(less.values, both.with_less_budget(0).values)
    assert not np.array_equal(less.values, both.with_less_budget(1).values)


def test_shares_of_classes_follow_from_counts():
    sums = ClassSums(np.ones((3, 5)), 1.0, np.array([10.0, 30.0, 60.0]))
    assert sums.priors == pytest.approx([0.1, 0.3, 0.6])
    other = ClassSums(np.ones((3, 5)), 1.0, np.array([60.0, 30.0, 10.0]))
    assert sums.joined(other).priors == pytest.approx(sums.priors)
    assert sums.with_less_budget(0).priors == pytest.approx(sums.priors)


def test_shares_of_classes_are_positive_whatever_noise_makes_of_their_numbers():
    noisy = torch.tensor([[0.0, 0.0, -50.0], [0.0, 0.0, 99.0], [0.0, 0.0, 0.0]]).double()
    priors = ClassSums.of(noisy, 20.0).priors
    assert priors == pytest.approx([1 / 101, 99 / 101, 1 / 101])
    known = ClassSums.of(noisy, 20.0, counts=np.array([25.0, 50.0, 25.0])).priors
    assert known == pytest.approx([0.25, 0.5, 0.25])


def test_class_weights_enter_the_scores_of_classes():
    features, labels = words(300)
    data = inputs(features, labels)
    plain, weighted = (SumsClassifier(data.features, 3) for _ in range(2))
    plain.learn(released(data, 1e-3))
    weighted.learn(released(data, 1e-3), torch.tensor([1.0, 0.5, 0.1]))
    assert torch.allclose(weighted.bias - plain.bias, torch.tensor([1.0, 0.5, 0.1]).log())


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("width", [5, 40])
def test_a_row_of_scores_does_not_depend_on_the_other_rows(sparse, width):
    rng = np.random.default_rng(0)
    data = inputs(rng.normal(size=(20_000, width)), rng.integers(3, size=20_000), sparse)
    classifier = SumsClassifier(data.features, 3)
    classifier.learn(released(data, 1.0))
    some = torch.arange(16_380, 16_400)
    with torch.no_grad():
        assert torch.equal(classifier(data.features)[some], classifier(data.features[some]))


def test_a_graph_without_features_is_classified_by_its_links():
    graph = csbm(0.5, n=400, f=3, seed=0)
    model = gv.Auto(gv.KNeighbor(1), 16.0, seed=0, steps=3).fit(graph.replace(features=torch.zeros(400, 0)))
    assert model.logits_.isfinite().all()


def beside(data, hidden=8, seed=0):
    """A network with weights that are not small, beside class sums."""
    sums = SumsClassifier(data.features, 3)
    sums.learn(released(data, 1.0))
    torch.manual_seed(seed)
    made = NetworkBesideSums(sums, data.features, hidden, 3)
    for parameter in made.network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("width", [5, 40])
def test_a_network_stands_beside_scores_that_stay_as_they_are(sparse, width):
    rng = np.random.default_rng(0)
    data = inputs(rng.normal(size=(300, width)), rng.integers(3, size=300), sparse)
    model = beside(data)
    with torch.no_grad():
        fixed = defaults.SUMS_BESIDE_NETWORK * model.sums(data.features)
        torch.testing.assert_close(model(data.features), model.network(data.features) + fixed)
    assert list(model.sums.parameters()) == []
    kept = {name: value.clone() for name, value in model.sums.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    functional.cross_entropy(model(data.features), data.target.labels).backward()
    optimizer.step()
    assert all(torch.equal(kept[name], value) for name, value in model.sums.state_dict().items())
    assert set(model.state_dict()) > {f"sums.{name}" for name in kept}, "a saved model has them"


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("width", [5, 40])
def test_a_row_of_a_network_beside_sums_does_not_depend_on_the_other_rows(sparse, width):
    rng = np.random.default_rng(0)
    data = inputs(rng.normal(size=(20_000, width)), rng.integers(3, size=20_000), sparse)
    model, some = beside(data), torch.arange(16_380, 16_400)
    with torch.no_grad():
        torch.testing.assert_close(model(data.features)[some], model(data.features[some]), rtol=1e-5, atol=1e-5)
        rows = data.features if not sparse else torch.from_numpy(data.features.matrix.toarray())
        changed = rows.clone()
        changed[0] = 1e10
        changed = CsrRows(sp.csr_array(changed.numpy())) if sparse else changed
        assert torch.equal(model(data.features)[1:], model(changed)[1:])


CLIP = 1e-3


def moved_gradients(data, other, label, clip_layers_together):
    """By how much a sum of clipped gradients of the network moves where the first row is replaced, in units of the
    clip. The scores of class sums are fixed numbers of each row, as they are in training."""

    def sums_of(features, labels):
        model = beside(data)
        fixed = defaults.SUMS_BESIDE_NETWORK * model.sums(features)
        parts = [model.network] if clip_layers_together else [model.network.first, *model.network.rest]
        found = []
        for part in parts:
            for parameter in model.parameters():
                parameter.requires_grad_(any(parameter is own for own in part.parameters()))
            clipped = ClippedSums(part, CLIP, len(labels))
            found += clipped.of(
                lambda: functional.cross_entropy(model.network(features) + fixed, labels, reduction="none")
            )
        return torch.cat([each.reshape(-1) for each in found])

    sparse = isinstance(data.features, CsrRows)
    rows = torch.from_numpy(data.features.matrix.toarray()) if sparse else data.features.clone()
    labels = data.target.labels.clone()
    rows[0], labels[0] = other, label
    changed = CsrRows(sp.csr_array(rows.numpy())) if sparse else rows
    return float((sums_of(data.features, data.target.labels) - sums_of(changed, labels)).norm()) / CLIP


@pytest.mark.parametrize(("width", "sparse"), [(1, False), (3, False), (40, False), (40, True)])
def test_one_row_moves_the_gradients_of_a_network_beside_sums_within_one_clip(width, sparse):
    """The twin clips each layer alone."""
    rng = np.random.default_rng(1)
    features, labels = rng.normal(size=(20, width)), rng.integers(3, size=20)
    data = inputs(features, labels, sparse)
    largest = {True: 0.0, False: 0.0}
    for size in (0.0, 1e-38, 1.0, 100.0, 1e19, 3e38):
        for sign in (-1.0, 1.0):
            # With the same features and another label, gradients nearly turn round.
            same = torch.from_numpy(features[0]).float()
            other = sign * size * torch.ones(width) if size else same
            for together in largest:
                moved = moved_gradients(data, other, (int(labels[0]) + 1) % 3, together)
                largest[together] = max(largest[together], moved)
    assert 1.2 < largest[True] <= 2 < largest[False]
