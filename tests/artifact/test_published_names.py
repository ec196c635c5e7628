"""What is for anyone holds nothing that was found in private tables."""

import csv
import json
import random

import pytest
from typer.testing import CliRunner

import graphveil as gv
from graphveil.artifact.contents import read_manifest
from graphveil.cli import app

RUNNER = CliRunner()


def tables(path, *, rare="haemophilia", label="ill", **declared):
    """60 people, of whom one has a rare disease; `label` is the name of the second class."""
    draw = random.Random(0)
    path.mkdir()
    with (path / "nodes.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "label", "age", "disease"])
        for i in range(60):
            disease = rare if i == 7 else draw.choice(["asthma", "flu"])
            rows.writerow([f"p{i}", draw.choice(["healthy", label]), draw.randrange(20, 60), disease])
    with (path / "edges.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["source", "target"])
        rows.writerows((f"p{i}", f"p{(i + step) % 60}") for i in range(60) for step in (1, 7))
    if declared:
        (path / "graph.json").write_text(json.dumps(declared))
    return path


def call(*words):
    return RUNNER.invoke(app, [str(word) for word in words])


def train(path, out, *words, method="mlp"):
    done = call("train", path, "--method", method, "--steps", 3, "--seed", 5, "--out", out, *words)
    assert done.exit_code == 0, done.exception
    return out


def for_anyone(run):
    files = read_manifest(run).files
    return {name: (run / name).read_bytes() for name, entry in files.items() if entry.audience == "anyone"}


@pytest.mark.parametrize("method", ["mlp", "dpdgc"])
def test_one_persons_rare_value_leaves_no_byte_different(tmp_path, method):
    runs = []
    for rare, label in (("haemophilia", "ill"), ("porphyria", "sick")):
        path = tables(tmp_path / f"{rare}-tables", rare=rare, label=label)
        runs.append(train(path, tmp_path / rare, method=method))
    first, second = map(for_anyone, runs)
    assert set(first) == {"certificate.json", "certificate.txt"} | {
        f"public/{name}" for name in ("config.json", "model_card.md", "weights.safetensors")
    }
    assert first == second
    for word in (b"haemophilia", b"flu", b"asthma", b'ill"', b"healthy", b"p7"):
        assert not any(word in data for data in first.values()), word
    # The owner has them, and every answer is by name.
    owner = json.loads((runs[0] / "owner/naming.json").read_text())
    assert owner == {"classes": ["healthy", "ill"], "categories": {"disease": ["asthma", "flu", "haemophilia"]}}
    assert gv.load(runs[1]).fitted_.naming.columns[1].categories == ("asthma", "flu", "porphyria")


def test_what_was_found_is_an_assumption_of_the_certificate(tmp_path):
    run = train(tables(tmp_path / "tables"), tmp_path / "run")
    listed = gv.load(run).certificate_.assumptions
    for fact in ("the number of classes (2)", "the number of categories of column 'disease' (3)"):
        assert sum(fact in line and "read from the data and not declared" in line for line in listed) == 1
    assert "column 'disease' (3)" in (run / "certificate.txt").read_text()
    assert call("verify", run, "--no-audits").exit_code == 0


@pytest.mark.parametrize("how", ["graph.json", "options"])
def test_what_was_declared_may_be_published(tmp_path, how):
    declared = {"classes": ["ill", "healthy"], "categories": {"disease": ["flu", "asthma", "haemophilia", "gout"]}}
    words = ["--classes", "ill,healthy", "--categories", "disease=flu,asthma, haemophilia,gout"]
    path = tables(tmp_path / "tables", **(declared if how == "graph.json" else {}))
    run = train(path, tmp_path / "run", *(words if how == "options" else []))
    naming = json.loads((run / "public/config.json").read_text())["naming"]
    assert naming["classes"] == declared["classes"]
    assert naming["columns"][1]["categories"] == declared["categories"]["disease"]
    assert json.loads((run / "owner/naming.json").read_text()) == {"classes": None, "categories": {}}
    model = gv.load(run)
    assert model.plan_.facts.features == 6
    assert model.plan_.facts.undeclared == ()
    assert not any("not declared" in line for line in model.certificate_.assumptions)


def test_python_declares_too(tmp_path):
    path = tables(tmp_path / "tables")
    graph = gv.read_graph(path, classes=["ill", "healthy"], categories={"disease": ["flu", "asthma", "haemophilia"]})
    assert graph.undeclared.facts() == ()
    assert graph.class_names == ("ill", "healthy")
    assert graph.counts.columns[1].declared
    with pytest.raises(gv.InvalidInput, match=r"row 8, column 'disease' = 'haemophilia': is not one of the declared"):
        gv.read_graph(path, categories={"disease": ["flu", "asthma"]})
    with pytest.raises(gv.InvalidInput, match="'colour', no feature"):
        gv.read_graph(path, categories={"colour": ["red"]})


def test_names_that_were_found_stay_found_in_other_files(tmp_path):
    """Writing a graph declares nothing."""
    from graphveil.graph import write_graph

    graph = gv.read_graph(tables(tmp_path / "tables"))
    for name in ("mine.npz", "mine"):
        write_graph(graph, tmp_path / name)
        again = gv.read_graph(tmp_path / name)
        assert again.undeclared == graph.undeclared
        gv.MLP(level=gv.KNeighbor(1), epsilon=4.0, steps=2, seed=0).fit(again).save(tmp_path / f"run-{name}")
        assert not any(b"healthy" in data for data in for_anyone(tmp_path / f"run-{name}").values())
        assert gv.load(tmp_path / f"run-{name}").fitted_.naming.classes == ("healthy", "ill")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--classes", "healthy"], "two at least"),
        (["--classes", "healthy,,ill"], "names with commas between"),
        (["--classes", "healthy,healthy"], "is listed twice"),
        (["--classes", "healthy,well"], "column 'label' = 'ill': is not one of the declared classes"),
        (["--categories", "disease"], "must be COLUMN=A,B,C"),
        (["--categories", "disease=flu", "--categories", "disease=asthma"], "once for each column"),
        (["--categories", "disease=flu"], "is not one of the declared categories"),
    ],
)
def test_declarations_that_are_none(tmp_path, words, message):
    done = call("train", tables(tmp_path / "tables"), "--out", tmp_path / "run", *words)
    assert isinstance(done.exception, gv.InvalidInput)
    assert message in str(done.exception)
    assert not (tmp_path / "run").exists()


def test_declarations_belong_to_tables():
    done = call("train", "csbm", "--classes", "a,b")
    assert "classes = ['a', 'b']: belongs to tables" in str(done.exception)


def test_predictions_name_people_and_classes(tmp_path):
    path = tables(tmp_path / "tables", label='node, "odd"')
    run = train(path, tmp_path / "run")
    with (run / "predictions.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["node", "prediction", "p(healthy)", 'p(node, "odd")']
    assert [row[0] for row in rows[1:]] == [f"p{i}" for i in range(60)]
    model = gv.load(run)
    expected = model.predict_proba()
    names = ["healthy", 'node, "odd"']
    assert [row[1] for row in rows[1:]] == [names[best] for best in expected.argmax(1)]
    assert [[float(p) for p in row[2:]] for row in rows[1:]] == pytest.approx(expected, abs=1e-7)
    assert call("verify", run, "--no-audits").exit_code == 0
    asked = call("predict", run, "--all")
    assert asked.stdout.encode() == (run / "predictions.csv").read_bytes()


def test_new_nodes_use_the_owners_categories(tmp_path):
    run = train(tables(tmp_path / "tables"), tmp_path / "run")
    (tmp_path / "new.csv").write_text("id,neighbors,age,disease\n anna ,p1 p2,30,flu\n")
    done = call("predict", run, "--new", tmp_path / "new.csv")
    assert done.exit_code == 0, done.exception
    assert done.stdout.splitlines()[1].startswith("anna,")


def test_another_graph_of_the_same_size_is_refused(tmp_path):
    """With declared categories in another order than the sorted one, the run itself says how to read its graph."""
    declared = {"categories": {"disease": ["haemophilia", "flu", "asthma"]}}
    path = tables(tmp_path / "tables")
    words = ["--method", "gap", "--level", "node", "--max-degree", 9, "--reserve-readers", 2, "--steps", 2, "--seed", 1]
    text = "disease=" + ",".join(declared["categories"]["disease"])
    done = call("train", path, *words, "--categories", text, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.exception
    (tmp_path / "new.csv").write_text("id,neighbors,age,disease\nanna,p1 p2,30,flu\n")
    asked = ["predict", tmp_path / "run", "--new", tmp_path / "new.csv", "--graph"]
    assert call(*asked, path).exit_code == 0
    other = tables(tmp_path / "other")
    text = (other / "edges.csv").read_text()
    assert "\np0,p1\n" in text
    (other / "edges.csv").write_text(text.replace("\np0,p1\n", "\np0,p2\n"))
    done = call(*asked, other)
    assert "is not the graph that this model was trained on" in str(done.exception)


def test_class_weights_do_not_publish_names_that_were_found(tmp_path):
    words = ["--class-weight", "healthy=1", "--class-weight", "ill=3", "--class-prior", "healthy=0.4", "--class-prior"]
    run = train(tables(tmp_path / "tables"), tmp_path / "run", *words, "ill=0.6")
    assert not [name for name, data in for_anyone(run).items() if b"healthy" in data]
    loaded = gv.load(run)
    assert loaded.class_weight == {"healthy": 1.0, "ill": 3.0}
    assert loaded.class_prior == {"healthy": 0.4, "ill": 0.6}
    assert loaded.predict_proba().shape == (60, 2)
