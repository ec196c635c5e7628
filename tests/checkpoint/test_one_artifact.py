"""One fit gives one artifact: a second one would draw noise for new nodes a second time."""

import json
import multiprocessing
import os
import shutil
import signal

import pytest

import graphveil as gv
from graphveil.artifact import saving
from graphveil.checkpoint import AlreadySaved, Checkpoint
from graphveil.checkpoint.folder import ARTIFACT, STATE
from graphveil.storage import Unwritable
from support.checkpoints import GRAPH, make

pytestmark = pytest.mark.usefixtures("quick_disk")
FORK = multiprocessing.get_context("fork")


def fit_and_save(folder, out, at):
    """A process that dies in the middle of saving: before the artifact is there, or right after."""

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    write = saving.write_folder
    saving.write_folder = die if at == "before" else lambda *given: (write(*given), die())
    with Checkpoint(folder) as kept:
        make("dpdgc labels", seed=None).fit(GRAPH, checkpoint=kept).save(out)


def killed(folder, out, at):
    process = FORK.Process(target=fit_and_save, args=(folder, out, at))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (folder / STATE).exists()
    assert json.loads((folder / ARTIFACT).read_text())["folder"] == str(out)


def resumed(folder):
    return Checkpoint(folder, resume=True)


def test_killed_after_the_artifact_was_written(folder, tmp_path):
    killed(folder, tmp_path / "run", "after")
    with pytest.raises(AlreadySaved, match=r"saved in .*run; the checkpoint is removed") as caught, resumed(folder):
        pass
    assert caught.value.artifact == tmp_path / "run"
    assert not folder.exists()
    gv.load(caught.value.artifact)


def test_fit_says_the_same(folder, tmp_path):
    killed(folder, tmp_path / "run", "after")
    with pytest.raises(AlreadySaved):
        make("dpdgc labels", seed=None).fit(GRAPH, checkpoint=folder, resume=True)


@pytest.mark.parametrize("out", ["run", "elsewhere"])
def test_killed_before_it_was_written(folder, tmp_path, out):
    killed(folder, tmp_path / "run", "before")
    with resumed(folder) as kept:
        make("dpdgc labels", seed=None).fit(GRAPH, checkpoint=kept).save(tmp_path / out)
        assert json.loads((folder / ARTIFACT).read_text())["folder"] == str(tmp_path / out)
        kept.discard()
    assert not folder.exists()
    gv.load(tmp_path / out)


def test_by_a_link(folder, tmp_path):
    """The artifact is found under the place that it has, whatever it was called."""
    (tmp_path / "link").symlink_to(tmp_path)
    with Checkpoint(folder) as kept:
        make("mlp").fit(GRAPH, checkpoint=kept).save(tmp_path / "link" / "run")
    (tmp_path / "link").unlink()
    with pytest.raises(AlreadySaved), resumed(folder):
        pass


def test_a_second_save(folder, tmp_path):
    with Checkpoint(folder) as kept:
        model = make("dpdgc labels").fit(GRAPH, checkpoint=kept)
        model.save(tmp_path / "run")
        with pytest.raises(gv.InvalidInput, match="a second folder would draw noise"):
            model.save(tmp_path / "second")
        with pytest.raises(AlreadySaved, match=r"is saved in .*run already; a second artifact would draw noise"):
            kept.goes_to(tmp_path / "second", "another checksum")
    assert not (tmp_path / "second").exists()


def test_a_model_is_saved_while_its_checkpoint_is_open(folder, tmp_path):
    with Checkpoint(folder) as kept:
        model = make("dpdgc labels").fit(GRAPH, checkpoint=kept)
    with pytest.raises(gv.InvalidInput, match="is closed: save the model before"):
        model.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with resumed(folder) as kept:
        model = make("dpdgc labels").fit(GRAPH, checkpoint=kept)
        kept.discard()
    model.save(tmp_path / "run")


def test_a_save_that_failed(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with Checkpoint(folder) as kept:
        model = make("dpdgc labels").fit(GRAPH, checkpoint=kept)
        with pytest.raises(Unwritable):
            model.save(tmp_path / "file" / "run")
        model.save(tmp_path / "run")
    with pytest.raises(AlreadySaved), resumed(folder):
        pass


def test_what_cannot_be_read_in_its_place(folder, tmp_path):
    killed(folder, tmp_path / "run", "after")
    shutil.rmtree(tmp_path / "run" / "owner")
    with pytest.raises(gv.InvalidInput, match="if it is something else, move it away"), resumed(folder):
        pass
    assert (folder / STATE).exists()


@pytest.mark.parametrize("text", ["", "{}", "null", '{"format": "graphveil-checkpoint-artifact/1"}'])
def test_a_damaged_record(folder, tmp_path, text):
    killed(folder, tmp_path / "run", "before")
    (folder / ARTIFACT).write_text(text)
    with pytest.raises(gv.InvalidInput), resumed(folder):
        pass


def test_what_is_left_of_a_discarded_checkpoint_is_no_hindrance(folder, tmp_path):
    killed(folder, tmp_path / "run", "before")
    (folder / STATE).unlink()  # killed in the middle of `discard`
    make("mlp").fit(GRAPH, checkpoint=folder)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_drawn(folder, tmp_path, monkeypatch):
    killed(folder, tmp_path / "run", "before")

    def refuse(*_, **__):
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr("graphveil.storage.tempfile.NamedTemporaryFile", refuse)
    with pytest.raises(gv.InvalidInput, match="cannot be written: Read-only file system"), resumed(folder):
        pass
