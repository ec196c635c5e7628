"""Class weights, declared or paid for, and declared class priors."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.auditing.adjacent_fits import adjacent_graphs, small_part
from graphveil.auditing.recording import recorded_fit, replayed_fit
from graphveil.auditing.verify import verify
from graphveil.execution.gradients import ClippedSums
from graphveil.graph import csbm
from graphveil.methods.training import Target
from graphveil.privacy.sensitivity import class_counts
from support.audits import GRAPH, maker

K1 = gv.KNeighbor(1)
RARE = 0.1


@pytest.fixture(scope="module")
def rare():
    """A graph whose second class is rare, and hard to tell from the first."""
    graph = csbm(0.0, n=1500, f=4, seed=3)
    draw = np.random.default_rng(0)
    labels = torch.from_numpy((draw.random(1500) < RARE).astype(np.int64))
    features = torch.from_numpy(draw.normal(size=(1500, 4)).astype(np.float32)) + labels[:, None]
    return graph.replace(labels=labels, features=features, class_names=("ok", "fraud"))


def fitted(graph, **options):
    return gv.MLP(K1, 8.0, seed=1, steps=60, **options).fit(graph)


def test_weights_move_the_decision_and_cost_nothing(rare):
    plain, weighted = fitted(rare), fitted(rare, class_weight={"ok": 1, "fraud": 9})
    assert weighted.plan_ == plain.plan_, "declared numbers are public"
    recalls = [model.score(rare.test_mask, "recall", positive="fraud") for model in (plain, weighted)]
    assert recalls[1] > recalls[0] + 0.3
    same = fitted(rare, class_weight={"ok": 10, "fraud": 90})
    assert torch.allclose(same.logits_, weighted.logits_, atol=1e-5), "only ratios matter"
    assert torch.equal(fitted(rare, class_weight={"ok": 2, "fraud": 2}).logits_, plain.logits_)


def test_balanced_weights_are_paid_for(rare, tmp_path):
    model = fitted(rare, class_weight="balanced")
    (counted,) = model.plan_.with_role("classes")
    assert counted.sensitivity.training == pytest.approx(2**0.5)
    assert counted.sensitivity.unlabelled == 0
    assert model.certificate_.epsilon <= 8.0
    assert "classes (gaussian release)" in str(model.certificate_)
    assert model.score(rare.test_mask, "balanced_accuracy") > fitted(rare).score(rare.test_mask, "balanced_accuracy")
    model.save(tmp_path / "run")
    assert verify(tmp_path / "run", audits=False).ok
    assert gv.load(tmp_path / "run").class_weight == "balanced"
    public = gv.MLP(gv.Edge(), 1.0, class_weight="balanced", epochs=3, seed=0).fit(rare)
    assert not public.plan_.mechanisms, "where labels are public, counting them costs nothing"


@pytest.mark.parametrize(
    ("method", "level"),
    [
        *((method, level) for method in ("mlp", "dpdgc") for level in (K1, gv.KNeighbor(1, unit="zero-out"))),
        ("mlp", gv.Node(8)),
        pytest.param("auto", K1, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_nothing_moves_by_more_than_its_sensitivity(method, level):
    """A whole fit is recorded on one graph and replayed on an adjacent one."""
    part = small_part(GRAPH, 60, 0, most_links=7)
    make = maker(method, level, 8.0, delta=1e-3, clip=0.01, class_weight="balanced")
    reached = 0.0
    for seed in range(3):
        pair = adjacent_graphs(part, level, seed)
        recorder, _ = recorded_fit(make, pair.after, 5)
        heads, tails = (replayed_fit(make, graph, recorder, pair.own) for graph in (pair.after, pair.before))
        for entry, one, other in zip(recorder.entries, heads.given, tails.given, strict=True):
            mechanism = recorder.plan[entry.name]
            if mechanism.role in ("classes", "features", "head"):
                moved = float((one.double() - other.double()).norm())
                assert moved <= mechanism.sensitivity.of("training") * (1 + 1e-9)
                reached = max(reached, moved / class_counts(level) * (mechanism.role == "classes"))
    assert reached == pytest.approx(1), "the pair must reach the bound"


def largest_clipped_sum(weights, clipped=ClippedSums):
    """The norm of the sum over one row, which is what a row can add."""
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    torch.nn.init.zeros_(model.weight)  # so that nobody is sure yet, and every gradient is long
    rows, labels = 40 * torch.randn(30, 5), torch.randint(3, (30,))
    target = Target(labels, torch.arange(30), torch.arange(0), weights=weights)
    norms = []
    for row in range(30):
        index = torch.tensor([row])

        def losses(index=index):
            return target.losses(model(rows[index]), index)

        sums = clipped(model, 0.5, 30).of(losses, target.row_weights(index))
        norms.append((float(torch.cat([part.flatten() for part in sums]).norm()), int(labels[row])))
    return norms


class WeighsFreely(ClippedSums):
    """The broken twin: a weight above 1 makes a clipped gradient longer."""

    def _clipped(self, row_losses, weights):
        parts = super()._clipped(row_losses, None)
        rounding = [replace(out.rounding, factors=out.rounding.factors * weights) for *_, out in parts]
        return [
            (call, taken, replace(out, rounding=how)) for (call, taken, out), how in zip(parts, rounding, strict=True)
        ]


def test_no_weight_lifts_a_row_above_the_clipping_norm():
    for weights in (torch.tensor([1.0, 0.25, 0.0]), torch.tensor([7.0, 1e6, 0.5])):
        for norm, label in largest_clipped_sum(weights):
            bound = 0.5 * min(1.0, float(weights[label]))
            assert norm <= bound
            assert norm >= 0.99 * bound, "these rows are clipped, so each is as long as its weight allows"
    assert max(norm for norm, _ in largest_clipped_sum(torch.tensor([7.0, 3.0, 0.5]), WeighsFreely)) > 1.5


def test_a_prior_shifts_predictions_alone(rare, tmp_path):
    prior = {"ok": 1 - RARE, "fraud": RARE}
    plain, shifted = (fitted(rare, class_weight="balanced", class_prior=each) for each in (None, prior))
    assert torch.equal(plain.logits_, shifted.logits_)
    odds = [model.predict_proba([5, 6])[:, 1] / model.predict_proba([5, 6])[:, 0] for model in (plain, shifted)]
    assert odds[1] == pytest.approx(odds[0] * RARE / (1 - RARE), rel=1e-4)
    said = [model.predict_proba(rare.test_mask)[:, 1].mean() for model in (plain, shifted)]
    assert RARE < said[1] < said[0] - 0.1, "probabilities of balanced training are too large"
    new = [np.zeros((1, 4), np.float32)], [[]]
    asked = [model.predict_new(["a"], new[0][0], new[1])[0] for model in (plain, shifted)]
    assert asked[1][1] / asked[1][0] == pytest.approx(asked[0][1] / asked[0][0] * RARE / (1 - RARE), rel=1e-4)
    shifted.save(tmp_path / "run")
    assert np.array_equal(gv.load(tmp_path / "run").predict_proba(), shifted.predict_proba())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_weight": {"ok": 1}}, r"class_weight = \{'ok': 1\}: has no number for fraud"),
        ({"class_weight": {"ok": 1, "fruad": 9}}, "class_weight = 'fruad': is not a class; they are ok, fraud"),
        ({"class_weight": {"ok": 1, "fraud": -1}}, "class_weight of fraud = -1"),
        ({"class_weight": {"ok": 0, "fraud": 0}}, "must be positive for a class at least"),
        ({"class_weight": {"ok": 1, "fraud": 1e9}}, "must be at most 1e"),
        ({"class_weight": "even"}, "class_weight = 'even': must be"),
        ({"class_weight": [1, 9]}, r"class_weight = \[1, 9\]: must be"),
        ({"class_prior": {"ok": 0.5, "fraud": 0.6}}, "must be positive shares that add up to 1"),
        ({"class_prior": {"ok": 1.0, "fraud": 0.0}}, "must be positive shares that add up to 1"),
        ({"class_prior": "natural"}, "class_prior = 'natural': must give a number for each class"),
    ],
)
def test_bad_weights_are_refused_before_anything_is_spent(rare, tmp_path, options, message):
    model = gv.MLP(K1, 8.0, **options)
    with pytest.raises(gv.InvalidInput, match=message) as error:
        model.fit(rare, ledger=tmp_path / "people.json")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "people.json").exists()


def test_classes_without_names_go_by_number(rare):
    plain = rare.replace(class_names=None)
    by_number = fitted(plain, class_weight={0: 1, 1: 9})
    assert torch.equal(by_number.logits_, fitted(rare, class_weight={"ok": 1, "fraud": 9}).logits_)
