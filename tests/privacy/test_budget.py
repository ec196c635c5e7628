"""A budget over time: trainings are composed by their plans, written before they draw, and refused beyond the limit."""

import json
import math
import multiprocessing
from dataclasses import replace

import pytest

import graphveil as gv
from graphveil.accounting import compose, gaussian_epsilon
from graphveil.accounting.composition import RENYI_ORDERS
from graphveil.checkpoint import Checkpoint
from graphveil.graph import csbm
from graphveil.methods.spending import make_plan
from graphveil.privacy.budget import Account, BudgetLedger, Entry, covers

FACTS = gv.PublicFacts(nodes=1000, train_nodes=500, features=10, classes=2)
GRAPH = csbm(0.5, n=120, f=6, seed=0)


def plan(epsilon=1.0, method="mlp"):
    return make_plan(method, gv.KNeighbor(1), FACTS, epsilon=epsilon, delta=1e-5)


def account(*plans, sets=None, limit=None):
    entries = tuple(Entry(each, "", None if sets is None else sets[place]) for place, each in enumerate(plans))
    return replace(Account.opened(plans[0], limit), entries=entries)


def test_gaussian_plans_add_up_in_mu():
    first, second = plan(1.0), plan(2.0)
    mu = math.hypot(*(compose(each.losses("training")).mu for each in (first, second)))
    together = account(first, second, sets="aa")
    assert together.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-6)
    assert together.epsilon < first.epsilon + second.epsilon


def test_one_training_costs_no_more_than_its_certificate():
    for method in ("auto", "dpdgc", "mlp"):
        for epsilon in (1.0, 8.0):
            one = plan(epsilon, method=method)
            assert 0.9 * one.epsilon < account(one).epsilon <= one.epsilon * (1 + 1e-6)


def test_other_training_sets_may_only_cost_more():
    plans = [plan(1.0, method="auto"), plan(1.0, method="dpdgc")]
    same, unknown, other = (account(*plans, sets=sets).epsilon for sets in ("aa", (None, None), "ab"))
    assert same <= unknown == other


def test_branches_of_all_plans_count():
    """Whoever counts only the branch that was followed promises too much."""
    one = plan(2.0, method="auto")
    whole = account(one, one, sets="aa").epsilon
    for branch in one.branches:
        alone = compose([loss for _ in range(2) for loss in one.follow(branch.name).composition("training").losses])
        assert alone.epsilon(1e-5 - 1e-9) <= whole * (1 + 1e-6)


def test_the_limit_is_a_renyi_filter():
    """At the order that is settled, the admitted mu add up to no more than the limit allows, in any order."""
    limit = 3.0
    opened = account(plan(1.0), limit=limit)
    small = plan(0.5)
    while True:
        try:
            opened = opened.with_entry(Entry(small, ""))
        except gv.BudgetExceeded:
            break
    mu_squared = sum(compose(entry.plan.losses("training")).mu ** 2 for entry in opened.entries)
    rest = math.log(1 / (opened.order * 1e-5)) / (opened.order - 1) + math.log1p(-1 / opened.order)
    assert opened.order * mu_squared / 2 + rest <= limit
    assert opened.epsilon <= limit
    assert opened.used > 0.8
    # The order is near the best one: a Gaussian mechanism of the whole limit would fit nearly as well at any other.
    best = max(2 * (limit - math.log(1 / (a * 1e-5)) / (a - 1) - math.log1p(-1 / a)) / a for a in RENYI_ORDERS)
    assert 2 * (limit - rest) / opened.order == pytest.approx(best)
    assert 0 < opened.left < 0.5 or opened.left == 0


def test_a_first_training_may_use_the_whole_limit_and_then_nothing_more():
    opened = Account.opened(plan(2.0), 2.0).with_entry(Entry(plan(2.0), ""))
    assert opened.used > 1
    with pytest.raises(gv.BudgetExceeded, match="nothing was drawn"):
        opened.with_entry(Entry(plan(0.01), ""))


@pytest.mark.parametrize(
    ("level", "least", "expected"),
    [
        (gv.KNeighbor(5), gv.KNeighbor(1), True),
        (gv.KNeighbor(1), gv.KNeighbor(5), False),
        (gv.KNeighbor(5), gv.KNeighbor(1, attributes=False), False),
        (gv.Node(9), gv.Node(3), True),
        (gv.Node(3), gv.Node(9), False),
        (gv.Node(9), gv.KNeighbor(1), False),
        (gv.Edge("undirected"), gv.Edge("undirected"), True),
        (gv.Edge("undirected"), gv.Edge("directed"), False),
        (gv.KNeighbor(1), gv.Edge("undirected"), False),
    ],
)
def test_levels_that_cover_others(level, least, expected):
    assert covers(level, least) is expected


def model(epsilon=1.0, **options):
    return gv.MLP(level=gv.KNeighbor(1), epsilon=epsilon, seed=0, steps=3, **options)


def test_fits_are_entered(tmp_path):
    path = tmp_path / "people.json"
    assert BudgetLedger(path).account is None
    first = model().fit(GRAPH, ledger=path)
    gv.DPDGC(level=gv.KNeighbor(2), epsilon=2.0, seed=0, steps=3).fit(GRAPH, ledger=path)
    there = BudgetLedger(path).account
    assert [entry.plan.method for entry in there.entries] == ["mlp", "dpdgc"]
    assert all(entry.finished for entry in there.entries)
    assert there.level == gv.KNeighbor(1)
    assert 2.0 < there.epsilon < 3.0
    assert (there.limit, there.left) == (None, None)
    assert "added up they would be" in str(there)
    assert json.loads(path.read_text())["format"] == "graphveil-ledger/1"
    with pytest.raises(gv.InvalidInput, match="would not be in the ledger"):
        first.save(tmp_path / "run", budget=3.0)


def test_a_training_beyond_the_limit_draws_nothing(tmp_path):
    ledger = BudgetLedger(tmp_path / "people.json", limit=1.5)
    model().fit(GRAPH, ledger=ledger)
    before = ledger.path.read_bytes()
    refused = model(3.0)
    with pytest.raises(gv.BudgetExceeded, match=r"ledger: .* of the limit, epsilon 1\.5"):
        refused.fit(GRAPH, ledger=ledger)
    assert not hasattr(refused, "fitted_")
    assert ledger.path.read_bytes() == before
    with pytest.raises(gv.InvalidInput, match="to raise it: graphveil ledger"):
        BudgetLedger(ledger.path, limit=9.0)
    ledger.set_limit(9.0)
    with pytest.raises(gv.BudgetExceeded):  # this object was opened with the smaller one
        refused.fit(GRAPH, ledger=ledger)
    refused.fit(GRAPH, ledger=ledger.path)
    with pytest.raises(gv.InvalidInput, match="less than what was spent"):
        ledger.set_limit(1.0)


def test_what_fails_before_the_first_draw_is_not_entered(tmp_path):
    path = tmp_path / "people.json"
    with pytest.raises(gv.InvalidInput, match="max_degree"):
        gv.DPDGC(level=gv.Node(1), epsilon=1.0, seed=0, steps=3).fit(GRAPH, ledger=path)
    with pytest.raises(gv.InvalidInput, match="protects nothing"):
        gv.MLP(level="none").fit(GRAPH, ledger=path)
    assert not path.exists()


class Killed(BaseException):
    """Stands for SIGKILL."""


def test_a_killed_training_counts_in_full_and_is_not_counted_twice(tmp_path, monkeypatch):
    from graphveil.execution import Ledger

    path, folder = tmp_path / "people.json", tmp_path / "kept"
    draw = Ledger.noisy_sum

    def die(self, name, sums):
        if self.used[name] == 2:
            raise Killed
        return draw(self, name, sums)

    monkeypatch.setattr(Ledger, "noisy_sum", die)
    with pytest.raises(Killed), Checkpoint(folder, every=1) as kept:
        model().fit(GRAPH, ledger=path, checkpoint=kept)
    there = BudgetLedger(path).account
    assert [entry.finished for entry in there.entries] == [False]
    assert there.epsilon == pytest.approx(1.0, rel=1e-2)
    assert "not finished (counted in full)" in str(there)
    monkeypatch.undo()
    model().fit(GRAPH, ledger=path, checkpoint=folder, resume=True)
    assert [entry.finished for entry in BudgetLedger(path).account.entries] == [True]
    # Without the checkpoint the same training is another one.
    model().fit(GRAPH, ledger=path)
    assert len(BudgetLedger(path).account.entries) == 2


def test_the_entry_is_on_disk_before_anything_is_drawn(tmp_path, monkeypatch):
    from graphveil import execution

    path, seen = tmp_path / "people.json", []

    def watching(values, std, source):
        seen.append(len(BudgetLedger(path).account.entries))
        return

    monkeypatch.setattr(execution, "add_gaussian_", watching)
    model().fit(GRAPH, ledger=path)
    assert seen == [1, 1, 1]


def _spend(path):
    BudgetLedger(path).spend(plan(0.1))


def test_processes_take_turns(tmp_path):
    path = tmp_path / "people.json"
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_spend, [path] * 12)
    assert len(BudgetLedger(path).account.entries) == 12


def test_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "people.json"
    BudgetLedger(path).spend(plan())
    text = path.read_text()
    for damaged in (text.replace('"noise_multiplier": ', '"noise_multiplier": 1'), text[:-20], "[]", "{}"):
        path.write_text(damaged)
        with pytest.raises(gv.InvalidInput, match=r"people\.json|format|sha256"):
            BudgetLedger(path).spend(plan())
        assert path.read_text() == damaged
