"""A search: what it releases, what it costs, and what its certificate says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier

import graphveil as gv
from graphveil.accounting import Composition
from graphveil.auditing.adjacent_fits import AdjacentGraphs, small_part
from graphveil.auditing.recording import Replay, recorded_fit
from graphveil.auditing.verify import check_certificate, verify
from graphveil.execution import Ledger
from graphveil.graph import cap_degree as cut
from graphveil.graph import csbm
from graphveil.methods.search import held_out_counts
from graphveil.methods.spending import choice_plan
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.plan import plan_from_dict, plan_to_dict
from graphveil.privacy.sensitivity import held_out_counts as bound_of
from support.audits import GRAPH, maker

pytestmark = pytest.mark.slow

K1 = gv.KNeighbor(1)
CLIPS = {"clip": [0.1, 1.0, 3.0]}


@pytest.fixture(scope="module")
def graph():
    return csbm(0.5, n=400, f=8, d=6, seed=4)


def search(level=K1, epsilon=6.0, grid=None, **options):
    return gv.PrivateSearch(
        gv.MLP(level, steps=4, epochs=3), CLIPS if grid is None else grid, epsilon=epsilon, **options
    )


@pytest.fixture(scope="module")
def fitted(graph):
    return search(seed=1).fit(graph)


def test_one_certificate_for_all_candidates_and_the_choice(graph, fitted, tmp_path):
    certificate = fitted.certificate_
    assert 5.9 < certificate.epsilon <= 6.0
    assert [plan.method for plan in certificate.beside] == ["mlp", "mlp", "search"]
    plan = certificate.plan()
    for kind in ("training", "unlabelled"):
        paid = [m.loss(kind) for each in (plan, *plan.beside) for m in each.all_mechanisms]
        together = Composition(tuple(loss for loss in paid if loss is not None))
        assert certificate.epsilon_by_kind[kind] == pytest.approx(together.epsilon(certificate.delta), rel=1e-9)
    assert fitted.candidate_epsilon_ < 6.0 / 3**0.5 * 1.05
    assert "for all 3 candidates of a search and the choice among them; this one was chosen" in str(certificate)
    assert "3 of 3: the choice" in str(certificate)
    assert Certificate.from_json(certificate.to_json()) == certificate
    assert plan_from_dict(plan_to_dict(fitted.plan_)) == fitted.plan_
    assert check_certificate(certificate) == []
    fitted.save(tmp_path / "run")
    assert verify(tmp_path / "run").problems == ()
    again = gv.load(tmp_path / "run", graph=graph)
    assert again.certificate_ == certificate
    assert np.array_equal(again.predict(), fitted.predict())
    assert again.epsilon_spent == certificate.epsilon == again.budget_


def test_what_was_chosen(graph, fitted):
    assert fitted.best_params_ == {"clip": CLIPS["clip"][fitted.best_index_]}
    assert fitted.best_estimator_.clip == fitted.best_params_["clip"]
    assert len(fitted.scores_) == 3
    assert fitted.scores_.argmax() == fitted.best_index_
    assert fitted.score(graph.val_mask) == pytest.approx(fitted.scores_[fitted.best_index_], abs=0.25)
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.predict_proba([3]).shape == (1, 2)


def test_a_clear_difference_is_found(graph):
    """Labels are in the features; a candidate that always answers with one class does not see them."""
    signal = (2 * graph.labels - 1).float()[:, None].repeat(1, 8)
    told = graph.replace(features=signal)
    good, bad = gv.MLP(K1, steps=40), gv.MLP(K1, steps=40, class_prior={0: 1 - 1e-12, 1: 1e-12})
    chosen = [gv.PrivateSearch([bad, good, bad], epsilon=8.0, seed=seed).fit(told) for seed in range(3)]
    assert [each.best_index_ for each in chosen] == [1, 1, 1]
    assert all(each.score(told.test_mask) > 0.9 for each in chosen)


def answers_on(pair, options):
    """Candidates fitted on one graph, and the same on the adjacent one, with all that the adversary saw held equal."""
    models: tuple[list, list] = ([], [])
    for method, words in options:
        make = maker(method, gv.KNeighbor(2), 8.0, delta=1e-3, **words)
        recorder, _ = recorded_fit(make, pair.after, 5)
        for graph, made in zip((pair.after, pair.before), models, strict=True):
            model = make()
            model.execute(graph, recorder.planned, lambda *_, recorder=recorder: Replay(recorder, pair.own))
            made.append(model)
    return models


CANDIDATES = [("mlp", {}), ("mlp", {"clip": 0.1}), ("dpdgc", {}), ("auto", {}), ("gap", {"max_degree": 8})]


@pytest.mark.slow
def test_a_held_out_node_moves_the_counts_by_the_bound_and_no_more():
    part = small_part(GRAPH, 60, 0, most_links=7)
    bounds = {by_class: bound_of(gv.KNeighbor(2), len(CANDIDATES), by_class=by_class) for by_class in (False, True)}
    largest = dict.fromkeys(bounds, 0.0)
    for own in part.val_mask.nonzero().squeeze(1).tolist()[:4]:
        labels = part.labels.clone()
        labels[own] = 1 - labels[own]
        features = _turned(part.features.clone(), own) if own % 2 else part.features
        changed = part.replace(labels=labels, features=features)
        after, before = answers_on(AdjacentGraphs(part, changed, own), CANDIDATES)
        for by_class, bound in bounds.items():
            counts = held_out_counts(after, part, by_class=by_class)
            moved = float((counts - held_out_counts(before, changed, by_class=by_class)).norm())
            assert moved <= bound * (1 + 1e-12)
            largest[by_class] = max(largest[by_class], moved)
    assert largest[False] == pytest.approx(len(CANDIDATES) ** 0.5), "one that forgets the candidates would be caught"
    assert largest[True] > (len(CANDIDATES) + 1) ** 0.5, "as would one that forgets that it enters another class"


def _turned(features, own):
    features[own] *= -1
    return features


def test_nobody_else_moves_the_counts():
    """A training node, or one outside of all sets, has no answer that counts."""
    part = small_part(GRAPH, 60, 0, most_links=7)
    for mask in (part.train_mask, part.test_mask):
        own = int(mask.nonzero()[0])
        changed = part.replace(features=_turned(part.features.clone(), own))
        after, before = answers_on(AdjacentGraphs(part, changed, own), CANDIDATES)
        assert torch.equal(held_out_counts(after, part), held_out_counts(before, changed))


def coupled_counts(models, graph):
    """The broken twin: an answer counts if most held-out nodes of its class are answered rightly, which one can tip."""
    held = graph.val_mask.nonzero().squeeze(1)
    labels = graph.labels[held]
    right = torch.stack([torch.from_numpy(model.predict_proba(held).argmax(1)) == labels for model in models]).double()
    share = torch.stack([right[:, labels == c].mean(1) for c in labels.unique()], dim=1)
    return (share >= share.median()).double().sum(1, keepdim=True) * len(held)


def test_counts_that_couple_nodes_are_caught():
    part = small_part(GRAPH, 60, 0, most_links=7)
    moved = []
    for own in part.val_mask.nonzero().squeeze(1).tolist():
        labels = part.labels.clone()
        labels[own] = 1 - labels[own]
        changed = part.replace(labels=labels)
        after, before = answers_on(AdjacentGraphs(part, changed, own), CANDIDATES[:2])
        moved.append(float((coupled_counts(after, part) - coupled_counts(before, changed)).norm()))
    assert max(moved) > bound_of(gv.KNeighbor(2), 2)


def test_the_choice_has_the_noise_that_is_planned(graph):
    plan = search().plan(graph)
    (counts,) = plan.beside[-1].shared
    mechanism = choice_plan(plan.level, plan.facts, plan.delta, 3, "accuracy", 1.0).shared[0]
    assert counts.sensitivity == mechanism.sensitivity
    assert counts.sensitivity.unlabelled == pytest.approx(3**0.5)
    assert counts.sensitivity.training == 0
    many = [NoiseSource(seed) for seed in range(200)]
    draws = torch.stack([Ledger(plan.beside[-1], each).release("choice", torch.zeros(3, 1).double()) for each in many])
    assert float(draws.std()) == pytest.approx(counts.std, rel=0.1)


@pytest.mark.parametrize("change", ["a candidate is left out", "the choice is left out", "a smaller sensitivity"])
def test_a_certificate_that_hides_a_part_of_a_search_is_caught(fitted, change):
    plan = fitted.plan_
    *others, choice = plan.beside
    if change == "a candidate is left out":
        hidden = replace(plan, beside=(others[0], choice))
    elif change == "the choice is left out":
        hidden = replace(plan, beside=tuple(others))
    else:
        small = replace(choice.shared[0], sensitivity=replace(choice.shared[0].sensitivity, unlabelled=1.0))
        hidden = replace(plan, beside=(*others, replace(choice, shared=(small,))))
    problems = check_certificate(Certificate.of(hidden, "test", False))
    assert len(problems) == 1
    assert "choice" in problems[0]


def test_a_claim_of_the_chosen_candidate_alone_is_caught(fitted):
    cheap = replace(fitted.certificate_, epsilon=fitted.certificate_.plan().alone.epsilon)
    assert any("epsilon is stated as" in problem for problem in check_certificate(cheap))


@pytest.mark.slow
def test_candidates_with_branches(graph):
    found = gv.PrivateSearch([gv.Auto(K1, steps=4), gv.MLP(K1, steps=4)], epsilon=8.0, seed=0).fit(graph)
    assert 7.8 < found.certificate_.epsilon <= 8.0
    assert check_certificate(found.certificate_) == []
    auto = next(p for p in (found.plan_, *found.plan_.beside) if p.method == "auto")
    assert auto.followed in ("features", "balanced", "graph")


def test_levels_without_private_answers(graph):
    edge = search(gv.Edge(), 2.0, seed=0).fit(graph)
    assert edge.certificate_.epsilon == 0, "the perceptron reads no links, and its answers are public"
    links = gv.PrivateSearch([gv.DPDGC(gv.Edge(), epochs=2), gv.GAP(gv.Edge(), epochs=2)], epsilon=2.0, seed=0)
    assert 1.95 < links.fit(graph).certificate_.epsilon <= 2.0
    assert links.plan_.beside[-1].shared[0].std == 0
    free = search(gv.Public(), None, seed=0).fit(graph)
    assert free.certificate_.epsilon == float("inf")


def test_balanced_accuracy_finds_the_rare_class():
    draw = np.random.default_rng(0)
    graph = csbm(0.0, n=1500, f=4, seed=3)
    labels = torch.from_numpy((draw.random(1500) < 0.1).astype(np.int64))
    features = torch.from_numpy(draw.normal(size=(1500, 4)).astype(np.float32)) + labels[:, None]
    rare = graph.replace(labels=labels, features=features)
    grid = {"class_weight": [None, {0: 1, 1: 9}]}
    by_metric = {
        metric: gv.PrivateSearch(gv.MLP(K1, steps=40), grid, epsilon=16.0, metric=metric, seed=0).fit(rare)
        for metric in ("accuracy", "balanced_accuracy")
    }
    assert by_metric["accuracy"].best_index_ == 0
    assert by_metric["balanced_accuracy"].best_index_ == 1
    counts = by_metric["balanced_accuracy"].plan_.beside[-1].shared[0]
    assert counts.sensitivity.unlabelled == pytest.approx(6**0.5)
    assert check_certificate(by_metric["balanced_accuracy"].certificate_) == []


def test_one_entry_in_the_ledger_of_these_people(graph, tmp_path):
    ledger = gv.BudgetLedger(tmp_path / "people.json", limit=7.0)
    found = search(seed=0).fit(graph, ledger=ledger)
    account = ledger.account
    assert len(account.entries) == 1
    assert account.entries[0].finished
    assert "search among 3 candidates: epsilon" in str(account)
    assert account.epsilon == pytest.approx(found.certificate_.epsilon, rel=1e-6)
    with pytest.raises(gv.BudgetExceeded, match="nothing was drawn"):
        search(seed=0).fit(graph, ledger=ledger)
    assert len(ledger.account.entries) == 1


def test_in_the_way_of_scikit_learn(fitted):
    assert is_classifier(fitted)
    copy = clone(search())
    assert copy.grid == CLIPS
    assert copy.set_params(metric="balanced_accuracy").metric == "balanced_accuracy"
    with pytest.raises(gv.InvalidInput, match="parameter = 'cv'"):
        copy.set_params(cv=5)
    with pytest.raises(gv.InvalidInput, match="is not fitted yet"):
        copy.predict()


def test_the_seed_of_each_candidate_is_its_own(graph):
    same = gv.PrivateSearch([gv.MLP(K1, steps=4)] * 2, epsilon=6.0, seed=0)
    first, second = same._models(3.0, 1e-4)
    assert first.seed != second.seed
    assert search(seed=None).fit(graph).certificate_.secure
    assert not search(seed=1).fit(graph).certificate_.secure


def test_all_candidates_read_the_same_cut_of_the_graph(graph, monkeypatch):
    cuts = []
    keep = lambda *given, **how: cuts.append(how["seed"]) or cut(*given, **how)  # noqa: E731
    monkeypatch.setattr("graphveil.methods.estimator.cap_degree", keep)
    for seed in (None, 1):
        gv.PrivateSearch(
            gv.GAP(K1, max_degree=2, cap_degrees=True, steps=2, epochs=2), {"clip": [0.1, 1.0]}, epsilon=6.0, seed=seed
        ).fit(graph)
    assert len(cuts) == 4
    assert cuts[0] == cuts[1] != cuts[2] == cuts[3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gv.PrivateSearch([gv.MLP(K1)], epsilon=4.0), "candidates = 1: must be 2 to 100"),
        (lambda: gv.PrivateSearch("mlp", epsilon=4.0), "candidates = 'mlp': must be an estimator"),
        (lambda: search(epsilon=None), "epsilon = None: is missing: the budget of the whole search"),
        (lambda: search(epsilon=-1.0), "epsilon = -1"),
        (lambda: search(metric="auc"), "metric = 'auc': must be one of accuracy, balanced_accuracy"),
        (lambda: search(grid={"clips": [1.0, 2.0]}), "clips"),
        (lambda: search(grid={"clip": 1.0}), "grid"),
        (lambda: search(grid={"epsilon": [1.0, 2.0]}), "epsilon of a candidate = 1.0: belongs to the search"),
        (lambda: search(grid={"clip": [0.0, 2.0]}), "clip"),
        (lambda: search(grid={"clip": [2.0, -1.0]}), "^clip = -1.0: must be greater than 0"),
        (lambda: gv.PrivateSearch([gv.MLP(K1), gv.MLP(gv.KNeighbor(2))], epsilon=4.0), "level of candidates"),
        (lambda: gv.PrivateSearch([gv.MLP(K1, seed=3)] * 2, epsilon=4.0), "seed of a candidate = 3"),
        (lambda: gv.PrivateSearch([gv.GAP(K1, max_degree=2)] * 2, epsilon=4.0), "the graph breaks this promise"),
        (
            lambda: gv.PrivateSearch(gv.GAP(K1, cap_degrees=True), {"max_degree": [2, 3]}, epsilon=4.0),
            "max_degree of candidates = '2, 3': must be the same",
        ),
        (
            lambda: gv.PrivateSearch([gv.GAP(K1, cap_degrees=True, max_degree=2), gv.DPDGC(K1)], epsilon=9.0),
            "max_degree of candidates = '2, None': must be the same",
        ),
        (
            lambda: gv.PrivateSearch([gv.DPDGC(K1, table="labels", response_epsilon=3.0)] * 5, epsilon=4.0),
            "too small for 5 candidates",
        ),
    ],
)
def test_what_cannot_be_searched_is_one_line_before_anything_is_drawn(graph, tmp_path, make, message):
    with pytest.raises(gv.InvalidInput, match=message) as error:
        make().fit(graph, ledger=tmp_path / "people.json")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "people.json").exists()


def test_without_validation_nodes_there_is_nothing_to_choose_by(graph):
    nobody = graph.replace(val_mask=torch.zeros(400, dtype=torch.bool))
    with pytest.raises(gv.InvalidInput, match="val_mask = None: a search compares its candidates on validation nodes"):
        search().fit(nobody)
    with pytest.raises(gv.InvalidInput, match="labels are in the graph"):
        search().fit(graph, graph.labels)
