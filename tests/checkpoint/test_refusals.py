"""Whatever is not the fit that was begun is one line, and draws nothing."""

import errno
import json
import os
import random
import shutil
import signal
import stat

import pytest
import torch

import graphveil as gv
from graphveil import checkpoint
from graphveil.checkpoint import Checkpoint
from graphveil.checkpoint.folder import STATE, Stage, State
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from support.checkpoints import GRAPH, SEED, Killed, killed_at_write, make

pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture
def begun(folder, monkeypatch):
    """A checkpoint in the middle of a training, after one release."""
    with killed_at_write(monkeypatch, 14), pytest.raises(Killed):
        make("dpdgc labels").fit(GRAPH, checkpoint=folder, checkpoint_every=1)
    return folder


def resume(folder, graph=GRAPH, **options):
    return make("dpdgc labels", **options).fit(graph, checkpoint=folder, resume=True)


@pytest.fixture
def no_draws(monkeypatch):
    def refuse(*_):
        raise AssertionError("drew")

    monkeypatch.setattr(Ledger, "_book", refuse)


def test_a_fit_is_not_begun_over_another(begun, no_draws):
    with pytest.raises(InvalidInput, match=r"has spent epsilon [\d.]+ of [\d.]+ .*release 1 of 1, head 1 of 3.*delete"):
        make("dpdgc labels").fit(GRAPH, checkpoint=begun)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "is not the seed"),
        ({"seed": None}, "made with a seed"),
        ({"epsilon": 8.0}, "epsilon = 8.0: this checkpoint has 4.0"),
        ({"hidden": 9}, "hidden = 9"),
        ({"level": gv.KNeighbor(2)}, "level = "),
        ({"graph": GRAPH.replace(labels=1 - GRAPH.labels)}, "is not the graph"),
        ({"graph": GRAPH.replace(features=GRAPH.features + 1)}, "is not the graph"),
        ({"graph": GRAPH.subgraph(torch.arange(120).numpy() < 110)}, "is not the graph"),
    ],
    ids=str,
)
def test_another_fit(begun, no_draws, change, message):
    before = (begun / STATE).read_bytes()
    with pytest.raises(InvalidInput, match=message):
        resume(begun, **change)
    assert (begun / STATE).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "message"), [("code_digest", "version of graphveil"), ("library_versions", "libraries")]
)
def test_other_code(begun, no_draws, monkeypatch, name, message):
    monkeypatch.setattr(checkpoint, name, lambda: "another")
    with pytest.raises(InvalidInput, match=message):
        resume(begun)


def test_another_method(begun, no_draws):
    with pytest.raises(InvalidInput, match="method = 'mlp'"):
        make("mlp").fit(GRAPH, checkpoint=begun, resume=True)


def test_no_checkpoint(tmp_path, no_draws):
    with pytest.raises(InvalidInput, match="no such folder"):
        resume(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="holds no checkpoint"):
        resume(tmp_path)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInput, match=r"other files in it, such as letter.txt"):
        make("mlp").fit(GRAPH, checkpoint=tmp_path)
    assert (tmp_path / "letter.txt").exists()
    with pytest.raises(InvalidInput, match="checkpoint_every = 0"):
        make("mlp").fit(GRAPH, checkpoint=tmp_path / "new", checkpoint_every=0)
    with pytest.raises(InvalidInput, match=r"epsilon = -1"):
        make("mlp", epsilon=-1.0).fit(GRAPH, checkpoint=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_one_process_at_a_time(begun):
    with Checkpoint(begun, resume=True), pytest.raises(InvalidInput, match="another process is using it"):
        resume(begun)
    resume(begun)


def test_one_fit_at_a_time(folder):
    with Checkpoint(folder) as kept:
        first = make("mlp").fit(GRAPH, checkpoint=kept)
        with pytest.raises(InvalidInput, match="keeps one fit"):
            make("mlp").fit(GRAPH, checkpoint=kept)
    again = make("mlp").fit(GRAPH, checkpoint=folder, resume=True)
    assert torch.equal(again.logits_, first.logits_)
    assert not folder.exists()


def test_a_disk_that_is_full(begun, monkeypatch):
    expected = make("dpdgc labels").fit(GRAPH)

    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("graphveil.checkpoint.folder.replace_file", full)
        with pytest.raises(InvalidInput, match="cannot be written: No space left"):
            resume(begun)
    assert torch.equal(resume(begun).logits_, expected.logits_)


def test_damaged_files(begun, tmp_path, no_draws):
    for number, name in enumerate(sorted(os.listdir(begun))):
        for kind in ("cut off", "changed", "gone"):
            folder = tmp_path / f"{number} {kind}"
            shutil.copytree(begun, folder)
            path = folder / name
            data = bytearray(path.read_bytes())
            if kind == "gone":
                path.unlink()
            else:
                data[len(data) // 2] ^= 1
                path.write_bytes(data if kind == "changed" else data[: len(data) // 2])
            with pytest.raises(InvalidInput):
                resume(folder)


def test_bytes_that_somebody_wrote(begun, no_draws):
    draw, whole = random.Random(0), (begun / STATE).read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        (begun / STATE).write_bytes(data)
        if data != whole:
            with pytest.raises(InvalidInput), Checkpoint(begun, resume=True):
                pass


CONTRADICTIONS = [
    (lambda body: body.update(stages=[]), "do not follow one another"),
    (lambda body: body["ledger"].update(features=4), "'features': 4.* does not belong to this plan"),
    (lambda body: body["ledger"].update(features="3"), "'features': '3'.* does not belong to this plan"),
    (lambda body: body.update(ledger=[]), "does not belong to this plan"),
    (lambda body: body.update(position=-1), "position = -1"),
    (lambda body: body.update(position="x"), "position = 'x'"),
    (lambda body: body["stages"][0].update(name="end"), "end is in the place of start"),
    (lambda body: body["stages"][1].update(steps=1), "do not follow one another"),
    (lambda body: body["stages"][-1].update(of=7), "head has 7 steps in it instead of 3"),
    (lambda body: body["stages"][-2].update(steps=2, of=2), r"stage-003-2\.safetensors.* is missing"),
    (lambda body: body["stages"][-1].update(size="x"), "cannot be read as safetensors"),
    (lambda body: body["stages"].insert(1, body["stages"][0]), "start is in the place of features"),
    (lambda body: body["fit"].pop("graph"), "cannot be read as a checkpoint"),
]


@pytest.mark.parametrize(("change", "message"), CONTRADICTIONS, ids=[message for _, message in CONTRADICTIONS])
def test_contradictions_with_a_right_checksum(begun, no_draws, change, message):
    body = json.loads((begun / STATE).read_text())
    change(body)
    del body["sha256"], body["format"]
    stages = tuple(Stage(**stage) for stage in body.pop("stages"))
    (begun / STATE).write_bytes(State(**body, stages=stages).render())
    with pytest.raises(InvalidInput, match=message):
        resume(begun)


WRONG_VALUES = {
    "a row too few": lambda value: {"value": value[:-1]},
    "another name": lambda value: {"other": value},
    "a second tensor": lambda value: {"value": value, "other": value},
}


@pytest.mark.parametrize("change", WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_values_that_no_draw_can_have_given(begun, no_draws, monkeypatch, change):
    whole = Checkpoint._reach

    def reach(self, name):
        kept = whole(self, name)
        return (kept[0], change(kept[1]["value"])) if kept and "value" in kept[1] else kept

    monkeypatch.setattr(Checkpoint, "_reach", reach)
    with pytest.raises(InvalidInput, match="cannot have given what it holds"):
        resume(begun)


def test_owner_alone_and_no_seed(begun):
    assert stat.S_IMODE(begun.stat().st_mode) == 0o700
    for path in begun.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        data = path.read_bytes()
        assert str(SEED).encode() not in data
        assert SEED.to_bytes(4, "little") not in data
        assert SEED.to_bytes(4, "big") not in data


@pytest.fixture
def listening():
    """Jobs in the background of a shell start with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_leaves_a_last_checkpoint(folder, monkeypatch):
    expected = make("dpdgc labels").fit(GRAPH)
    noisy_sum, drawn = Ledger.noisy_sum, []

    def pressed(self, name, sums):
        drawn.append(name)
        if len(drawn) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return noisy_sum(self, name, sums)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "noisy_sum", pressed)
        with pytest.raises(KeyboardInterrupt):
            make("dpdgc labels").fit(GRAPH, checkpoint=folder)
    assert signal.getsignal(signal.SIGINT) is before
    assert sum(json.loads((folder / STATE).read_text())["ledger"][name] for name in ("features", "head")) == 5
    assert torch.equal(resume(folder).logits_, expected.logits_)
