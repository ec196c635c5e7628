"""What is not as it was written is one line that names the file."""

import hashlib
import json
import os
import random
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensor_bytes

import graphveil as gv
from graphveil.artifact import problems
from graphveil.artifact.contents import Entry, Manifest, read_manifest
from support.artifacts import reseal

FILES = [
    "manifest.json",
    "certificate.json",
    "certificate.txt",
    "public/model_card.md",
    "public/config.json",
    "public/weights.safetensors",
    "owner/state.safetensors",
    "owner/naming.json",
    "owner/graph.json",
    "owner/new_nodes.jsonl",
]


def refused(folder, file):
    with pytest.raises(gv.InvalidInput) as caught:
        gv.load(folder)
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)
    assert any(problem.startswith(file) for problem in problems(folder))


def test_all_files_are_tried(saved):
    assert {p.relative_to(saved).as_posix() for p in saved.rglob("*") if p.is_file()} == set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_truncated(folder, file):
    path = folder / file
    whole = path.read_bytes()
    draw = random.Random(file)
    for length in [0, 1, 7, len(whole) // 2, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(5))]:
        path.write_bytes(whole[:length])
        refused(folder, file)


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit(folder, file):
    path = folder / file
    whole = path.read_bytes()
    draw = random.Random(file)
    for _ in range(15):
        changed = bytearray(whole)
        changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        refused(folder, file)


@pytest.mark.parametrize("file", FILES[1:])
def test_missing(folder, file):
    (folder / file).unlink()
    refused(folder, file)


def test_no_manifest(folder):
    (folder / "manifest.json").unlink()
    with pytest.raises(gv.InvalidInput, match=r"is not an artifact: there is no manifest\.json"):
        gv.load(folder)
    with pytest.raises(gv.InvalidInput, match="is not a folder"):
        gv.load(folder / "nowhere")


def test_a_file_too_many(folder):
    (folder / "owner" / "pickle.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    refused(folder, "owner/pickle.pkl")


def test_a_link_in_place_of_a_file(folder, tmp_path):
    path = folder / "owner" / "state.safetensors"
    shutil.move(path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    refused(folder, "owner/state.safetensors")
    with pytest.raises(gv.InvalidInput, match="is not an ordinary file"):
        gv.load(folder)


def test_reports_do_not_matter(folder):
    (folder / "report.html").write_text("half a pa")
    gv.load(folder)
    assert list(problems(folder)) == ["report.html: does not belong to this run"]


def config_with(folder, **changes):
    config = json.loads((folder / "public/config.json").read_text())
    for name, value in changes.items():
        (config["params"] if name in config["params"] else config)[name] = value
    return json.dumps(config).encode()


WRONG_SETTINGS = [
    ({"format": "graphveil-model/3"}, "another version of graphveil"),
    ({"method": "gap"}, "the certificate is about dpdgc"),
    ({"hidden": 9}, r"weights\.safetensors.* must be .*9"),
    ({"hidden": 10**12}, "cannot be read as a configuration of this model"),
    ({"hidden": "8"}, "hidden = '8': must be a whole number"),
    ({"table": "trained"}, r"state\.safetensors.* must be .*8"),
    ({"table": "nonsense"}, "table = 'nonsense'"),
    ({"folds": 10**9}, "does not fit the . tensors"),
    ({"level": {"name": "edge", "unit": None}}, "is not the certificate's"),
    ({"level": 7}, "cannot be read as a configuration"),
    ({"more": 1}, "are not those of a configuration"),
    ({"naming": {"classes": ["a"], "columns": []}}, "must be 2 names"),
    ({"naming": None}, "cannot be read as a configuration"),
    ({"budget": "much"}, "budget = 'much': must be a finite number"),
    ({"params": {}}, "params = .*: are missing or unknown"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_SETTINGS, ids=str)
def test_a_configuration_that_does_not_fit(folder, changes, message):
    reseal(folder, "public/config.json", config_with(folder, **changes))
    with pytest.raises(gv.InvalidInput, match=message):
        gv.load(folder)


def more(tensors):
    return {**tensors, "more": torch.zeros(1)}


def fewer(tensors):
    return dict(list(tensors.items())[1:])


def longer(tensors):
    return {name: torch.cat([tensor, tensor]) for name, tensor in tensors.items()}


def wider(tensors):
    return {name: tensor.double() for name, tensor in tensors.items()}


def infinite(tensors):
    return {n: t if t.dtype == torch.uint8 else torch.full_like(t, torch.inf) for n, t in tensors.items()}


@pytest.mark.parametrize("file", ["public/weights.safetensors", "owner/state.safetensors"])
@pytest.mark.parametrize("change", [more, fewer, longer, wider, infinite])
def test_tensors_that_do_not_fit(folder, file, change):
    reseal(folder, file, tensor_bytes(change(read_tensors((folder / file).read_bytes()))))
    with pytest.raises(gv.InvalidInput, match=file):
        gv.load(folder)


@pytest.mark.parametrize("format", ["graphveil-artifact/3", None, 7])
def test_another_version(folder, format):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": format}))
    refused(folder, "manifest.json")


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "owner/../../outside", "a/b/c/d", ".hidden", ""])
def test_paths_stay_inside(folder, name):
    manifest = Manifest({**read_manifest(folder).files, name: Entry.of(b"", "owner")})
    (folder / "manifest.json").write_bytes(manifest.render())
    refused(folder, "manifest.json")


@pytest.mark.parametrize("file", [*FILES[1:], "owner/nodes.json"])
@settings(max_examples=8, deadline=None)
@given(data=st.binary(max_size=200), at=st.floats(0, 1))
def test_bytes_of_an_attacker(saved, tmp_path_factory, file, data, at):
    """With checksums that fit: still never anything but a model or one line."""
    folder = shutil.copytree(saved, tmp_path_factory.mktemp("attacked") / "run")
    path = folder / file
    old = path.read_bytes() if path.exists() else b""
    place = int(at * len(old))
    content = old[:place] + data + old[place + len(data) :]
    path.write_bytes(content)
    kind = "grows" if file.endswith("jsonl") else "fixed"
    changed = read_manifest(folder).with_files(
        {file: Entry(len(content), hashlib.sha256(content).hexdigest(), "owner", kind)}
    )
    (folder / "manifest.json").write_bytes(changed.render())
    said = ""
    try:
        gv.load(folder).predict_proba()
    except gv.GraphveilError as error:
        said = str(error)
    shutil.rmtree(folder.parent)
    assert "\n" not in said
