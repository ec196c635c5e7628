import json

import pytest
import torch

from graphveil.errors import BudgetExceeded, InvalidInput
from graphveil.execution import Ledger
from graphveil.methods.spending import Settings, make_plan
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import SCHEMA, Certificate
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import Edge, KNeighbor, Node, Public

FACTS = PublicFacts(nodes=200, train_nodes=150, features=4, classes=3)


def execute(plan, seed=0, branch=None):
    """Draw everything that a plan allows in a branch, the first unless another is named, on nothing."""
    book = Ledger(plan, NoiseSource(seed=seed))
    for first in plan.branches[:1]:
        book.follow(branch or first.name)
    for mechanism in book.plan.mechanisms:
        for _ in range(mechanism.uses):
            if mechanism.type == "gaussian release":
                book.release(mechanism.name, torch.zeros(3).double())
            elif mechanism.type == "clipped gradients":
                book.noisy_sum(mechanism.name, [torch.zeros(3).double()])
            else:
                book.respond(mechanism.name, torch.zeros(3, dtype=torch.long))
    return book.certificate()


CASES = [
    ("dpdgc", KNeighbor(5)),
    ("dpdgc", KNeighbor(1, attributes=False)),
    ("gap", Node(20)),
    ("dpdgc", Edge("undirected")),
    ("randedge", Edge("undirected")),
    ("mlp", Edge("directed")),
    ("dp-sage", Node(3)),
    ("auto", KNeighbor(1)),
    ("dpdgc", Public()),
]


@pytest.mark.parametrize(("method", "level"), CASES, ids=str)
def test_json_is_read_back(method, level):
    certificate = execute(make_plan(method, level, FACTS, epsilon=None if level == Public() else 4.0))
    data = json.loads(certificate.to_json())
    assert data["schema"] == SCHEMA
    assert Certificate.from_json(certificate.to_json()) == certificate


@pytest.mark.parametrize(("method", "level"), CASES[:-1], ids=str)
def test_the_claim_can_be_recomputed_from_the_file(method, level):
    certificate = Certificate.from_json(execute(make_plan(method, level, FACTS, epsilon=4.0)).to_json())
    assert certificate.plan().epsilon == pytest.approx(certificate.epsilon, rel=1e-12)
    assert certificate.plan().rdp_epsilon == pytest.approx(certificate.rdp_epsilon, rel=1e-12)
    assert certificate.epsilon <= 4.0


def test_the_text_says_what_is_and_what_is_not_protected():
    text = str(execute(make_plan("dpdgc", KNeighbor(5), FACTS, epsilon=4.0)))
    assert "features and label" in text
    assert "any 5 of the nodes" in text
    assert "A node's own published prediction" in text
    assert "a known set" in text
    assert "experiments only" in text
    for name in ("embedding", "release", "head"):
        assert name in text


def test_the_directed_unit_on_an_undirected_graph_is_flagged():
    weak = execute(make_plan("dpdgc", Edge("directed"), FACTS, epsilon=1.0))
    assert any("both directions" in line for line in weak.not_protected)
    directed = PublicFacts(200, 150, 4, 3, directed=True)
    fine = execute(make_plan("dpdgc", Edge("directed"), directed, epsilon=1.0))
    assert not any("both directions" in line for line in fine.not_protected)


def test_no_sentence_claims_what_the_method_does_not_do():
    answered = execute(make_plan("randedge", Edge("directed"), FACTS, epsilon=1.0))  # one answer for both directions
    unread = execute(make_plan("mlp", Edge("directed"), FACTS, epsilon=1.0))
    assert not any("both directions" in line for line in answered.not_protected + unread.not_protected)
    free = execute(make_plan("mlp", KNeighbor(1, attributes=False), FACTS, epsilon=1.0))
    assert not any("own published prediction" in line for line in free.not_protected)


def test_links_beyond_k_are_not_protected():
    some, none = (execute(make_plan("mlp", KNeighbor(k), FACTS, epsilon=4.0)) for k in (5, 0))
    assert any(line.startswith("More than 5 of the nodes that a node reads") for line in some.not_protected)
    assert any("number of edges is not assumed" in line for line in some.assumptions)
    assert "Who is connected to whom." in none.not_protected
    assert not any("number of edges" in line for line in none.assumptions)


def test_degree_promise_and_capping_are_assumptions():
    promised = execute(make_plan("gap", Node(20), FACTS, epsilon=4.0))
    assert any("Promised: no node is read by more than 20" in line for line in promised.assumptions)
    capped = execute(make_plan("gap", KNeighbor(2), FACTS, epsilon=4.0, settings=Settings(max_degree=9, capped=True)))
    assert any("differ after the capping" in line and "all beyond 9 are" in line for line in capped.assumptions)
    settings = Settings(capped=True, reserved_readers=3)
    reserved = execute(make_plan("gap", Node(20), FACTS, epsilon=4.0, settings=settings))
    assert any("all beyond 17 are" in line for line in reserved.assumptions)


def test_whichever_branch_was_taken_all_are_certified():
    plan = make_plan("auto", KNeighbor(1), FACTS, epsilon=8.0, settings=Settings(steps=3))
    stayed, left = execute(plan, branch="graph"), execute(plan, branch="features")
    assert (stayed.followed, left.followed) == ("graph", "features")
    shared = ["statistics", "class sums", "first features", "expectation"]
    assert [m.name for m in left.mechanisms] == [*shared, "more features"]
    balanced = [f"balanced {part}" for part in ("sums", "responses", "release", "head")]
    graph = [f"graph {part}" for part in ("responses", "release", "head")]
    others = [[m.name for m in branch.mechanisms] for branch in left.not_followed]
    assert others == [["more class sums", "sums head"], balanced, graph]
    assert stayed.epsilon_by_kind == left.epsilon_by_kind == plan.epsilon_by_kind()
    assert left.epsilon_by_kind["unlabelled"] > 1, "the branch that was left would have cost them that"
    assert stayed.rdp_epsilon == left.rdp_epsilon == plan.rdp_epsilon
    again = Certificate.from_json(left.to_json())
    assert again == left
    assert again.plan().epsilon_by_kind() == plan.epsilon_by_kind()
    assert again.plan().rdp_epsilon == plan.rdp_epsilon
    data = json.loads(left.to_json())
    assert data["followed"] == "features"
    assert [m["branch"] for m in data["mechanisms"]] == [None] * 4 + ["features"]
    assert [m["name"] for m in data["not_executed"]] == ["more class sums", "sums head", *balanced, *graph]
    text = str(left)
    assert "led to the branch features" in text
    places = [
        text.index(part) for part in ("more features (", "What the branch graph would have used", "graph responses (")
    ]
    assert places == sorted(places)


def test_declared_edges_are_a_bound():
    facts = PublicFacts(200, 150, 4, 3, edges=1000)
    assert "Declared: at most 1000 stored edges." in execute(make_plan("gap", Edge(), facts, epsilon=1.0)).assumptions


def test_a_large_delta_is_a_warning():
    certificate = execute(make_plan("mlp", KNeighbor(1), FACTS, epsilon=4.0, delta=1e-2))
    assert "WARNING: delta 0.01 is more than 1 / 200" in str(certificate)
    assert certificate.to_dict()["warnings"] == list(certificate.warnings) != []
    for delta in ("auto", 1 / 200):
        quiet = execute(make_plan("mlp", KNeighbor(1), FACTS, epsilon=4.0, delta=delta))
        assert "WARNING" not in str(quiet)
        assert quiet.to_dict()["warnings"] == []


def test_the_public_level_claims_nothing():
    certificate = execute(make_plan("mlp", Public(), FACTS))
    assert json.loads(certificate.to_json())["epsilon"] is None
    assert "no guarantee" in str(certificate)


def test_random_source_is_recorded():
    plan = make_plan("mlp", KNeighbor(1), FACTS, epsilon=4.0)
    assert not execute(plan).secure
    assert execute(plan, seed=None).secure


def test_an_unfinished_plan_has_no_certificate():
    plan = make_plan("dpdgc", KNeighbor(5), FACTS, epsilon=4.0)
    book = Ledger(plan, NoiseSource(seed=0))
    with pytest.raises(BudgetExceeded, match="embedding 0 of 200"):
        book.certificate()


def test_only_planned_mechanisms_can_be_drawn():
    book = Ledger(make_plan("dpdgc", KNeighbor(5), FACTS, epsilon=4.0), NoiseSource(seed=0))
    with pytest.raises(InvalidInput, match="mechanism = 'extra'"):
        book.release("extra", torch.zeros(2).double())
    with pytest.raises(InvalidInput, match="is a clipped gradients, not a gaussian release"):
        book.release("head", torch.zeros(2).double())
    assert book.used == {"embedding": 0, "release": 0, "head": 0}


def test_a_failed_draw_is_still_booked():
    book = Ledger(make_plan("dpdgc", KNeighbor(5), FACTS, epsilon=4.0), NoiseSource(seed=0))
    with pytest.raises(InvalidInput):
        book.release("release", torch.tensor([float("nan")]).double())
    assert book.used["release"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:50], "is not JSON"),
        (lambda text: text.replace(SCHEMA, "graphveil-certificate/99"), "certificate schema"),
        (lambda text: "[]", "certificate schema"),
        (lambda text: text.replace('"delta"', '"gamma"', 1), "certificate"),
        (lambda text: text.replace('"gaussian release"', '"magic"'), "mechanism type"),
        (lambda text: text.replace('"std"', '"stdev"'), "has wrong fields"),
        (lambda text: text.replace('"nodes": 200', '"nodes": -1'), "nodes = -1"),
    ],
)
def test_damaged_files_are_refused_in_one_line(change, message):
    text = execute(make_plan("dpdgc", KNeighbor(5), FACTS, epsilon=4.0)).to_json()
    with pytest.raises(InvalidInput, match=message) as error:
        Certificate.from_json(change(text))
    assert "\n" not in str(error.value)
