"""Files that were changed, with checksums that fit: a model, or one line."""

import json
import random
import shutil

import pytest

import graphveil as gv
from graphveil.artifact.contents import JOURNAL, Manifest, read_manifest
from graphveil.auditing.verify import verify
from graphveil.checkpoint import Checkpoint
from graphveil.checkpoint.folder import FORMAT, STATE
from graphveil.privacy.certificate import Certificate
from graphveil.validate import render_checksummed
from support.artifacts import GRAPH, NEW, fitted, reseal

pytestmark = pytest.mark.slow

NASTY = [None, True, -1, 0, 3, 1e308, -0.5, float("nan"), float("inf"), 10**400, 2**70, "x", "", [], {}, [None]]
NASTY += [{"a": 1}, "\ud800"]
# The part of them that each place in a file takes.
FILES = {"certificate.json": 0.5, "public/config.json": 0.3, "owner/new_nodes.jsonl": 1.0, "owner/nodes.json": 0.5}


def places(value, at=()):
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, below in items:
        yield from places(below, (*at, key))


def changed(document, at, new):
    if not at:
        return new
    document = json.loads(json.dumps(document))
    inner = document
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = new
    return document


def check_one_line(what, look, *arguments):
    said = ""
    try:
        look(*arguments)
    except gv.GraphveilError as error:
        said = str(error)
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    assert "\n" not in said


def use(folder):
    """All that a run is used for before a question is asked."""
    model = gv.load(folder)
    model.predict_proba()
    str(model.certificate_)
    pytest.importorskip("fastapi")
    from graphveil.serve.app import app_of

    app_of(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resealed") / "run"
    model = fitted()
    model.save(folder)
    model.predict_new(**NEW)
    reseal(folder, "owner/nodes.json", json.dumps([f"node {number}" for number in range(120)]).encode())
    use(folder)
    assert verify(folder, audits=False).epsilon_spent is not None
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("file", FILES)
def test_every_field(whole, tmp_path, file):
    first, *rest = (whole / file).read_text().splitlines() if file.endswith("jsonl") else [(whole / file).read_text()]
    document, draw, tried = json.loads(first), random.Random(0), 0
    folder = shutil.copytree(whole, tmp_path / "run")
    for at in places(document):
        for new in NASTY:
            if draw.random() > FILES[file]:
                continue
            reseal(folder, file, ("\n".join([json.dumps(changed(document, at, new)), *rest]) + "\n").encode())
            for look in (use, lambda place: verify(place, audits=False)) if tried % 4 == 0 else (use,):
                check_one_line(f"{file}: {at} = {str(new)[:40]!r}", look, folder)
            tried += 1
    assert tried > 10


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("probabilities", [0.5, 0.25, 0.25], "does not fit this model"),
        ("probabilities", [1.5, -0.5], "has the wrong form"),
        ("release", -1, "has the wrong form"),
        ("reads", [120], "does not fit this model"),
        ("reads", [-1], "reads something that is no node"),
    ],
)
def test_answers_that_no_model_gave(whole, tmp_path, field, value, message):
    folder = shutil.copytree(whole, tmp_path / "run")
    answer = json.loads((folder / JOURNAL).read_text().splitlines()[0])
    reseal(folder, JOURNAL, json.dumps({**answer, field: value}).encode() + b"\n")
    with pytest.raises(gv.InvalidInput, match=message):
        gv.load(folder)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("owner/nodes.json", {"a": 1}, "must be a list of names"),
        ("owner/nodes.json", list(range(120)), "must be a list of names"),
        ("owner/nodes.json", ["a", "b"], "must be 120 different names"),
        ("owner/nodes.json", ["a"] * 120, "must be 120 different names"),
        ("owner/naming.json", [], "must have the keys classes and categories"),
        ("owner/naming.json", {"classes": None}, "must have the keys classes and categories"),
        ("owner/graph.json", {"salt": "a"}, "must have the keys salt and digest"),
    ],
)
def test_names_of_another_form(whole, tmp_path, file, content, message):
    folder = shutil.copytree(whole, tmp_path / "run")
    reseal(folder, file, json.dumps(content).encode())
    with pytest.raises(gv.InvalidInput, match=message):
        gv.load(folder)


def test_files_that_belong_to_no_model(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    reseal(folder, "owner/notes.json", b"{}")
    with pytest.raises(gv.InvalidInput, match=r"notes\.json'?: does not belong to this model"):
        gv.load(folder)


def test_a_manifest_without_a_certificate(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "certificate.json").unlink()
    files = {name: entry for name, entry in read_manifest(folder).files.items() if name != "certificate.json"}
    (folder / "manifest.json").write_bytes(Manifest(files).render())
    with pytest.raises(gv.InvalidInput, match=r"certificate\.json'?: is not in the manifest"):
        gv.load(folder)


CHANGES = {"missing": lambda params: params.pop("steps"), "unknown": lambda params: params.update(more=1)}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_settings_that_are_missing_or_unknown(whole, tmp_path, change):
    folder = shutil.copytree(whole, tmp_path / "run")
    config = json.loads((folder / "public/config.json").read_text())
    change(config["params"])
    reseal(folder, "public/config.json", json.dumps(config).encode())
    with pytest.raises(gv.InvalidInput, match=r"params = .*: are missing or unknown"):
        gv.load(folder)


def k_of_five(certificate, config):
    certificate["level"]["k"] = config["params"]["level"]["k"] = 5


def small_release(certificate, config):
    release = next(m for m in certificate["mechanisms"] if m["name"] == "release")
    release["std"] /= 10
    release["sensitivity"] = {kind: value / 10 for kind, value in release["sensitivity"].items()}


FALSE = {
    "a k beyond its noise": (k_of_five, "sensitivity (training) of release is not 2.23607"),
    "a release that moves less": (small_release, "sensitivity (training) of release is not 1"),
    "longer rows": (lambda _, config: config["params"].update(row_norm=2.0), "sensitivity (training) of release"),
    "no assumptions": (lambda certificate, _: certificate.update(assumptions=[]), "assumptions are not those"),
    "no exceptions": (lambda certificate, _: certificate.update(not_protected=[]), "not_protected are not those"),
    "a warning": (lambda certificate, _: certificate.update(warnings=["no"]), "its warnings or its arithmetic"),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_claim_that_the_settings_do_not_give_is_a_problem(tmp_path, name):
    change, words = FALSE[name]
    folder = tmp_path / "run"
    fitted().save(folder)
    assert verify(folder, audits=False).ok
    files = {file: json.loads((folder / file).read_text()) for file in ("certificate.json", "public/config.json")}
    change(*files.values())
    for file, data in files.items():
        reseal(folder, file, json.dumps(data).encode())
    text = str(Certificate.from_json((folder / "certificate.json").read_text()))
    reseal(folder, "certificate.txt", text.encode())
    assert any(words in problem for problem in verify(folder, audits=False).problems)


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resealed") / "unfinished"
    with Checkpoint(folder) as kept:
        plain().fit(GRAPH, checkpoint=kept)
    return folder


def go_on(folder, resume):
    with Checkpoint(folder, resume=resume) as kept:
        plain().fit(GRAPH, checkpoint=kept)


def plain():
    return gv.MLP(level=gv.KNeighbor(1), epsilon=4.0, seed=1, steps=2, hidden=8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_field_of_a_checkpoint(unfinished, tmp_path):
    document = json.loads((unfinished / STATE).read_text())
    del document["format"], document["sha256"]
    draw = random.Random(0)
    for at in places(document):
        for new in draw.sample(NASTY, 3):
            folder = shutil.copytree(unfinished, tmp_path / "unfinished", dirs_exist_ok=True)
            try:
                data = render_checksummed(FORMAT, changed(document, at, new))
            except (ValueError, TypeError):  # no file holds this
                continue
            (folder / STATE).write_bytes(data)
            for resume in (True, False):
                check_one_line(f"{at} = {str(new)[:40]!r}", go_on, folder, resume)
