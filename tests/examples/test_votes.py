"""examples/graphveil-votes, a method in a package of its own, takes part in everything without a change here."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import graphveil as gv
from graphveil.auditing import survey
from graphveil.auditing.adjacent_fits import adjacent_graphs, small_part
from graphveil.auditing.twins import Twin
from graphveil.cli import main
from graphveil.experiments import builtin_spec, read_results
from graphveil.graph import csbm, write_graph
from graphveil.methods import METHODS, method_class, method_named, other_names
from graphveil.storage import read_journal
from methods.test_adjacent_fits import moves
from support.audits import GRAPH, maker
from support.method_levels import LEVELS
from support.specs import tiny_graph
from support.votes import PACKAGE, installed, write_entry_points

PART = small_part(GRAPH, 60, 0, most_links=7)


@pytest.fixture(scope="module", autouse=True)
def votes(tmp_path_factory):
    with installed(tmp_path_factory.mktemp("site")):
        yield method_class("votes")


@pytest.fixture
def run(capsys, monkeypatch):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["graphveil", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return out

    return run


def test_it_is_found_beside_graphveils_own(votes):
    assert other_names() == ("votes",)
    assert method_named("votes").spend is votes.spend
    with pytest.raises(gv.InvalidInput, match=r"must be one of dpdgc, .*, votes"):
        method_class("vote")


def test_plan(run):
    facts = ("--nodes", 7535, "--train-nodes", 5651, "--classes", 8)
    plan = json.loads(run("plan", "--method", "votes", "--level", "k-neighbor", "--k", 4, *facts, "--json"))
    responses, release = plan["mechanisms"]
    assert (responses["role"], responses["changed"]) == ("responses", {"training": 1, "unlabelled": 0})
    assert release["sensitivity"]["training"] == 2.0
    assert plan["epsilon"] <= 8.0


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_it_fits_at_every_level(votes, level):
    model = votes(level=level, epsilon=None if isinstance(level, gv.Public) else 8.0, seed=0).fit(PART)
    assert model.predict_proba().shape == (60, 2)
    assert isinstance(level, gv.Public) or model.certificate_.epsilon <= 8.0


@pytest.mark.parametrize("unit", ["replace", "zero-out"])
@pytest.mark.parametrize("level", [gv.KNeighbor(2), gv.Node(8)], ids=str)
def test_nothing_moves_by_more_than_its_sensitivity(level, unit):
    """The lemmas of its README on adjacent graphs, through its own code."""
    level, largest = replace(level, unit=unit), {}
    for seed in range(5):
        for mechanism, moved in moves(maker("votes", level, 8.0, delta=1e-3), adjacent_graphs(PART, level, seed)):
            bound = mechanism.sensitivity.of("training")
            assert moved <= bound * (1 + 1e-9), mechanism.name
            largest[mechanism.name] = max(largest.get(mechanism.name, 0.0), moved / bound)
    assert all(share > 0.6 for share in largest.values()), f"the pairs must come near the bounds: {largest}"


def test_a_twin_that_counts_labels_instead_of_responses_is_caught(votes):
    """The most plausible mistake: the ballots are answered, and the labels are counted."""

    def count_labels(self, data, ledger):
        table = votes._cast(self, data, ledger)
        known = data.target.train[data.target.labels[data.target.train] >= 0]
        return table.zero_().index_put((known, data.target.labels[known]), torch.tensor(1.0))

    broken = type("Votes", (votes,), {"_cast": count_labels})

    def make():
        return broken(level=gv.KNeighbor(2), epsilon=8.0, delta=1e-3, seed=0, show_progress=False)

    degrees = torch.from_numpy(PART.to_scipy().sum(axis=1)) * PART.train_mask
    labels, own = PART.labels.clone(), int(degrees.argmax())
    labels[own] = 1 - labels[own]
    pair = adjacent_graphs(PART, gv.KNeighbor(2), 0)
    pair = replace(pair, before=PART, after=PART.replace(labels=labels), own=own)
    sound = maker("votes", gv.KNeighbor(2), 8.0, delta=1e-3)
    assert all(moved <= m.sensitivity.worst for m, moved in moves(sound, pair))
    assert any(moved > 1.5 * m.sensitivity.worst for m, moved in moves(make, pair))


def test_train_verify_predict_and_report(run, tmp_path):
    write_graph(csbm(0.8, n=400, f=4, seed=0), tmp_path / "graph.npz")
    words = ("--method", "votes", "--level", "k-neighbor", "--k", 1, "--epsilon", 8, "--seed", 1)
    trained = json.loads(run("train", tmp_path / "graph.npz", *words, "--out", tmp_path / "run", "--json"))
    assert trained["test_accuracy"] > trained["majority_accuracy"]
    assert trained["graph_used"]
    assert "8" in run("predict", tmp_path / "run", "--nodes", "8")
    verified = json.loads(run("verify", tmp_path / "run", "--json"))
    assert verified["ok"], verified["problems"]
    assert {audit["attack"] for audit in verified["audits"]} == {"response", "release", "joint"}
    run("report", tmp_path / "run")
    assert "votes on" in (tmp_path / "run" / "report.html").read_text()
    loaded = gv.load(tmp_path / "run")
    answer = loaded.predict_new(["new"], torch.zeros(1, 4), [[1, 2, 3]], from_graph=False)
    assert answer.shape == (1, 2)


def test_verify_finds_a_changed_sensitivity(run, tmp_path, votes):
    from graphveil.auditing.verify import check_certificate

    certificate = votes(level=gv.KNeighbor(4), epsilon=8.0, seed=0).fit(PART).certificate_
    assert check_certificate(certificate) == []
    data = json.loads(certificate.to_json())
    (release,) = [each for each in data["mechanisms"] if each["role"] == "release"]
    release["sensitivity"] = {"training": 1.0, "unlabelled": 1.0}
    changed = gv.Certificate.from_json(json.dumps(data))
    assert any("release has sensitivity 1; at this level it is 2" in each for each in check_certificate(changed))


def test_audit(run):
    words = ("--method", "votes", "--level", "k-neighbor", "--epsilon", 4, "--seed", 1, "--trials", 5000, "--json")
    report = json.loads(run("audit", *words, "--attack", "response", "--attack", "release", "--attack", "joint"))
    assert report["verdict"] == "consistent"
    assert report["lower_bound"] > 1.0
    whole = json.loads(run("audit", *words[:-1], "--fits", 40, "--json"))  # as README.md has it: every attack
    assert {each["attack"] for each in whole["attacks"]} == {"response", "release", "joint", "one-run", "end-to-end"}
    assert [each["attack"] for each in whole["black_box"]] == ["membership"]
    assert whole["verdict"] == "consistent"
    half = Twin("halved", "half the noise", "release", gv.KNeighbor(1), 4.0, method="votes", options=(), executed=_half)
    assert gv.audit("votes", attacks=["release"], trials=20_000, twin=half, seed=1).verdict == "violated"


def _half(plan):
    return replace(plan, shared=tuple(each.scaled(0.5) for each in plan.shared))


def test_the_long_audit_has_its_rows():
    rows = [row for row in survey.rows("csbm", 13) if row.method == "votes"]
    assert len(rows) == 5
    assert len({row.key for row in rows}) == 5


def test_the_field_has_it_at_every_level_and_its_page_shows_it(run, tmp_path):
    spec = builtin_spec("field")
    assert {method for setting in spec.settings for method in setting.methods} == {*METHODS, "votes"} - {"sage"}
    own = {level for setting in spec.settings if "votes" in setting.methods for level in setting.levels}
    assert own == {level for setting in spec.settings for level in setting.levels}
    write_graph(tiny_graph().replace(train_mask=None, val_mask=None, test_mask=None), tmp_path / "tiny.npz")
    words = ("--graphs", tmp_path / "tiny.npz", "--methods", "votes", "--levels", "edge,N_1", "--seeds", 2)
    where = ("--jobs", 1, "--threads", 1, "--out", tmp_path / "results")
    assert "votes" in run("bench", "field", *words, *where)
    keys = [record["key"] for record in read_journal(tmp_path / "results" / "runs.jsonl")]
    run("bench", "field", *words, *where)
    assert [record["key"] for record in read_journal(tmp_path / "results" / "runs.jsonl")] == keys
    assert not read_results(tmp_path / "results")[0].failed
    run("report", tmp_path / "results")
    assert "votes" in (tmp_path / "results" / "report.html").read_text()


def test_its_own_experiment(run, tmp_path):
    """The spec of the package names the method, its option and graphveil's own methods side by side."""
    text = (PACKAGE / "field.toml").read_text()
    (tmp_path / "field.toml").write_text(text.replace('graphs = ["cora", "photo"]', 'graphs = ["tiny.npz"]'))
    write_graph(tiny_graph().replace(train_mask=None, val_mask=None, test_mask=None), tmp_path / "tiny.npz")
    where = ("--jobs", 1, "--threads", 1, "--out", tmp_path / "results")
    run("bench", tmp_path / "field.toml", "--seeds", 1, "--levels", "edge", "--methods", "votes,mlp", *where)
    (results,) = read_results(tmp_path / "results")
    assert {record["run"]["method"] for record in results.records if record["status"] == "done"} == {"votes", "mlp"}


def test_a_plan_loads_no_torch(tmp_path):
    write_entry_points(tmp_path)
    code = "import sys; from graphveil.methods import method_named; method_named('votes').spend; "
    code += "sys.exit('torch' in sys.modules)"
    places = os.pathsep.join([str(tmp_path), str(PACKAGE / "src"), *sys.path])
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": places}).returncode == 0


@pytest.mark.slow
def test_pip_installs_it(tmp_path):
    pytest.importorskip("setuptools")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    source = tmp_path / "source"
    subprocess.run(["cp", "-r", str(PACKAGE), str(source)], check=True)  # a build writes beside the code
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(source)], check=True)
    words = ["plan", "--method", "votes", "--nodes", "100", "--train-nodes", "70", "--classes", "2", "--json"]
    places = os.pathsep.join([str(tmp_path / "site"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "graphveil", *words], env={**os.environ, "PYTHONPATH": places}, capture_output=True
    )
    assert json.loads(done.stdout)["method"] == "votes"
