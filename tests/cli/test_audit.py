"""`graphveil audit` and `graphveil verify` from the outside."""

import json
import shutil
from dataclasses import replace
from inspect import isfunction

import pytest
from typer.testing import CliRunner

import graphveil as gv
from graphveil.auditing import AuditReport, audit, picture
from graphveil.auditing.verify import check_certificate, verify
from graphveil.cli import app
from graphveil.errors import InvalidInput
from graphveil.graph import csbm, write_graph
from graphveil.methods import method_class
from graphveil.methods.spending import make_plan
from graphveil.privacy.certificate import Certificate

RUNNER = CliRunner()
GRAPH = csbm(0.5, n=200, f=6, d=4, seed=2)


def call(*words):
    return RUNNER.invoke(app, list(map(str, words)))


def test_audit_is_a_function_whatever_was_imported():
    assert isfunction(gv.audit)
    assert gv.audit is audit


def test_audit_prints_json():
    found = call("audit", "--method", "dpdgc", "--level", "k-neighbor", "--k", 1, "--epsilon", 4, "--seed", 1,
                 "--attack", "release", "--attack", "joint", "--trials", 20000, "--steps", 10, "--json")  # fmt: skip
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    assert data["claimed_epsilon"] == 4.0
    assert 3.0 < data["lower_bound"] <= 4.0
    assert data["confidence"] == 0.95
    assert data["verdict"] == "consistent"
    assert [attack["attack"] for attack in data["attacks"]] == ["release", "joint"]


def test_audit_of_a_twin_ends_with_code_1_and_leaves_files(tmp_path):
    out = tmp_path / "audit"
    found = call("audit", "--twin", "halved-noise", "--attack", "joint", "--trials", 5000, "--steps", 5, "--seed", 1,
                 "--out", out)  # fmt: skip
    assert found.exit_code == 1
    assert "VIOLATED" in found.stdout
    data = json.loads((out / "audit.json").read_text())
    assert data["verdict"] == "violated"
    assert "verdict violated" in data["picture"]
    assert "VIOLATED" in (out / "audit.txt").read_text()


def test_pictures_have_words(tmp_path):
    pytest.importorskip("matplotlib")
    report = gv.audit("mlp", gv.KNeighbor(1), 4.0, graph=GRAPH, attacks=["gradient"], trials=1000, seed=1, steps=5)
    svg, png = picture.draw(report, tmp_path)
    assert "<desc" in svg.read_text()
    assert png.stat().st_size > 1000
    assert "ROC" in picture.text_of(report)


def test_audit_of_an_estimator_and_of_ones_own_graph(tmp_path):
    model = gv.MLP(level=gv.KNeighbor(1), epsilon=2.0, steps=5)
    report = gv.audit(model, graph=GRAPH, attacks=["gradient"], trials=500, seed=1)
    assert isinstance(report, AuditReport)
    assert report.claimed_epsilon == 2.0
    write_graph(GRAPH, tmp_path / "mine.npz")
    # With a seed: at 95 % one sound run in twenty is called violated.
    words = ("--method", "mlp", "--attack", "gradient", "--trials", 500, "--seed", 1, "--json")
    found = call("audit", tmp_path / "mine.npz", *words)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["delta"] == 1e-4


@pytest.mark.parametrize(
    "words",
    [
        ["--attack", "nonsense"],
        ["--twin", "nonsense"],
        ["--method", "nonsense"],
        ["--level", "nonsense"],
        ["--trials", "3"],
        ["--confidence", "2"],
    ],
    ids=" ".join,
)
def test_bad_words_are_refused(words):
    with pytest.raises(InvalidInput):
        RUNNER.invoke(app, ["audit", *words], catch_exceptions=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    write_graph(GRAPH, folder / "mine.npz")
    runs = {}
    for name, words in {
        "dpdgc": ["--table", "trained", "--level", "k-neighbor", "--k", 1],
        "auto": ["--level", "k-neighbor", "--k", 1],
        "gap": ["--method", "gap", "--level", "edge"],
        "open": ["--method", "mlp", "--level", "none"],
    }.items():
        runs[name] = folder / name
        done = call("train", folder / "mine.npz", *words, "--steps", 3, "--seed", 1, "--out", runs[name])
        assert done.exit_code == 0, done.output
    return runs


@pytest.mark.parametrize("name", ["dpdgc", "auto", "gap", "open"])
def test_what_train_writes_is_verified(trained, name):
    found = call("verify", trained[name], "--json")
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    assert data["ok"] is True
    assert data["problems"] == []


@pytest.mark.parametrize(
    ("method", "level", "options"),
    [
        ("dpdgc", gv.Edge("undirected"), {"table": "labels+neighbors"}),
        ("dpdgc", gv.KNeighbor(3), {"table": "labels+neighbors", "tau": 1.5}),
        ("dpdgc", gv.KNeighbor(0), {}),
        ("dpdgc", gv.KNeighbor(1, attributes=False), {}),
        ("dpdgc", gv.Node(9), {"row_norm": 0.5}),
        ("dpdgc", gv.KNeighbor(2), {"table": "readers+posteriors"}),
        ("dpdgc", gv.KNeighbor(2), {"table": "neighbors+degrees"}),
        ("dpdgc", gv.Node(9), {"table": "degrees"}),
        ("dpdgc", gv.Edge("undirected"), {"table": "degrees"}),
        ("auto", gv.Edge("undirected"), {}),
        ("auto", gv.KNeighbor(25), {}),
        ("auto", gv.Node(9), {}),
        ("gap", gv.KNeighbor(2), {"max_degree": 9, "hops": 3}),
        ("gap", gv.Node(9), {}),
        ("gap", gv.Edge("directed"), {}),
        ("dp-sage", gv.Node(9), {}),
        ("mlp", gv.KNeighbor(1), {"batch_size": 30}),
        ("mlp", gv.Edge("undirected"), {}),
        ("randedge", gv.Edge("undirected"), {}),
    ],
    ids=str,
)
def test_every_methods_own_certificate_is_in_order(method, level, options):
    plan = method_class(method)(level=level, epsilon=3.0, **options).plan(GRAPH)
    certificate = Certificate.of(plan, "test", False)
    assert check_certificate(certificate) == []


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 8.0])
def test_so_is_each_branch_of_auto(directed, epsilon):
    facts = replace(gv.Auto(level=gv.KNeighbor(1), epsilon=epsilon).plan(GRAPH).facts, directed=directed)
    plan = make_plan("auto", gv.KNeighbor(1), facts, epsilon=epsilon)
    assert bool(plan.branches) == (epsilon > 1)
    for outcome in plan.outcomes():
        assert check_certificate(Certificate.of(outcome, "test", False)) == []


@pytest.mark.parametrize("followed", ["graph", "features"])
def test_auto_cannot_hide_the_branch_that_it_did_not_take(followed):
    plan = gv.Auto(level=gv.KNeighbor(1), epsilon=8.0).plan(GRAPH).follow(followed)
    alone = replace(plan, branches=(plan.branch(followed),))
    hidden = check_certificate(Certificate.of(alone, "test", False))
    assert ["then by branch" in problem for problem in hidden] == [True]
    one, other = plan.branches
    exchanged = replace(plan, branches=(replace(one, name=other.name), replace(other, name=one.name)))
    mislabelled = check_certificate(Certificate.of(exchanged, "test", False))
    assert ["then by branch" in problem for problem in mislabelled] == [True]


def test_the_branch_that_was_not_taken_cannot_be_made_cheap():
    plan = gv.Auto(level=gv.KNeighbor(1), epsilon=8.0).plan(GRAPH).follow("features")
    own = {m.name for m in plan.branch("graph").mechanisms}
    quiet = plan.changed(lambda m: m.scaled(50.0) if m.name in own else m)
    assert "budgets of their own" in check_certificate(Certificate.of(quiet, "test", False))[0]


def test_auto_cannot_hide_that_it_looked_at_the_graph():
    plan = gv.Auto(level=gv.KNeighbor(1), epsilon=8.0).plan(GRAPH)
    hidden = replace(plan, shared=plan.shared[:1], branches=())
    assert "lists the mechanisms features;" in check_certificate(Certificate.of(hidden, "test", False))[0]


def change_certificate(folder, change):
    path = folder / "certificate.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=2) + "\n")


def cheaper(data):
    data["epsilon"] = data["accountants"]["pld"] = 1.0


def quieter(data):
    data["mechanisms"][1]["std"] *= 0.5


def smaller_group(data):
    data["mechanisms"][0]["group"]["training"] = 1


def forgotten(data):
    del data["mechanisms"][1]


def garbled(text):
    return text.replace("epsilon", "upsilon")


TAMPERED = {
    "a smaller epsilon": ("certificate.json", cheaper, "epsilon is stated as 1"),
    "less noise": ("certificate.json", quieter, "its mechanisms give"),
    "a smaller group": ("certificate.json", smaller_group, "sensitivity"),
    "a mechanism left out": ("certificate.json", forgotten, "lists the mechanisms"),
    "another text": ("certificate.txt", garbled, "certificate.txt"),
    "other metrics": ("metrics.json", lambda text: text.replace('"secure": false', '"secure": true'), "metrics.json"),
    "no metrics": ("metrics.json", None, "metrics.json: is missing"),
    "metrics that are no JSON": ("metrics.json", lambda text: text[:50], "not JSON"),
    "a prediction left out": ("predictions.csv", lambda text: text.rsplit("\n", 2)[0] + "\n", "199 nodes"),
    "a prediction that is none": ("predictions.csv", lambda text: text.replace("\n7,", "\n7,9", 1), "row 7"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_a_problem(trained, tmp_path, name):
    file, change, words = TAMPERED[name]
    folder = tmp_path / "run"
    shutil.copytree(trained["dpdgc"], folder)
    if change is None:
        (folder / file).unlink()
    elif file == "certificate.json":
        change_certificate(folder, change)
    else:
        (folder / file).write_text(change((folder / file).read_text()))
    found = call("verify", folder)
    assert found.exit_code == 1
    assert words in found.stdout


def test_what_cannot_be_read_is_an_error(trained, tmp_path):
    with pytest.raises(InvalidInput, match="not a folder"):
        verify(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidInput, match="cannot be read"):
        verify(empty)
    (empty / "certificate.json").write_text("{")
    with pytest.raises(InvalidInput, match="not JSON"):
        verify(empty)
