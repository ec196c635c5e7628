"""Folders and files that are complete or not there, whatever fails."""

import errno
import os
import stat

import pytest

from graphveil.errors import InvalidInput
from graphveil.storage import files
from graphveil.storage.files import (
    Unwritable,
    append,
    check_folder,
    check_new_folder,
    lock_at_once,
    locked,
    replace_file,
    write_folder,
    written_beside,
)

CONTENT = {"a.txt": b"one", "below/b.txt": b"two"}


@pytest.fixture
def failing(monkeypatch):
    """The n-th file cannot be written."""

    def fail(number):
        write, seen = files._write, []

        def full(path, data):
            seen.append(path)
            if len(seen) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(path, data)

        monkeypatch.setattr(files, "_write", full)

    return fail


def test_a_folder_of_files(tmp_path):
    moved = tmp_path / "large"
    moved.write_bytes(b"three")
    write_folder(tmp_path / "new" / "run", {**CONTENT, "c.txt": moved})
    run = tmp_path / "new" / "run"
    assert {name: (run / name).read_bytes() for name in (*CONTENT, "c.txt")} == {**CONTENT, "c.txt": b"three"}
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]
    assert [path.name for path in run.parent.iterdir()] == ["run"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_folder_that_fails_leaves_nothing(tmp_path, failing, number):
    failing(number)
    with pytest.raises(Unwritable, match=r"path = .*run': cannot be written: No space left on device"):
        write_folder(tmp_path / "run", CONTENT)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_forced_to_disk_leaves_nothing(tmp_path, monkeypatch):
    force = files._force

    def fail(folder):
        if folder == tmp_path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        force(folder)

    monkeypatch.setattr(files, "_force", fail)
    with pytest.raises(Unwritable, match="Input/output error"):
        write_folder(tmp_path / "run", CONTENT)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_replaced(tmp_path):
    write_folder(tmp_path / "run", {"a": b"first"})
    with pytest.raises(Unwritable):
        write_folder(tmp_path / "run", {"a": b"second"})
    assert (tmp_path / "run" / "a").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_file_is_replaced_or_as_it_was(tmp_path, failing):
    path = tmp_path / "file"
    path.write_bytes(b"first")
    replace_file(path, b"second")
    assert path.read_bytes() == b"second"
    failing(1)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"third")
    assert path.read_bytes() == b"second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("fails", [False, True])
def test_written_beside(tmp_path, fails):
    path = tmp_path / "graph"
    path.mkdir()
    (path / "old").touch()

    def write():
        with written_beside(path, overwrite=True) as fresh:
            assert fresh.parent.parent == tmp_path
            fresh.mkdir()
            (fresh / "new").touch()
            assert (path / "old").exists()
            if fails:
                raise RuntimeError

    if fails:
        with pytest.raises(RuntimeError):
            write()
    else:
        write()
    assert [entry.name for entry in path.iterdir()] == ["old" if fails else "new"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph"]


def test_appending_overwrites_what_follows(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntorn")
    with locked(path) as handle:
        append(handle, 4, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_lock_has_one_holder(tmp_path):
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert lock_at_once(first)
    assert not lock_at_once(second)
    os.close(first)
    assert lock_at_once(second)
    os.close(second)


def test_trials_leave_nothing(tmp_path):
    check_new_folder("out", tmp_path / "a" / "b" / "run", "public/file")
    check_folder("out", tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"out = .*file': exists already"):
        check_new_folder("out", tmp_path / "file", "public/file")
    for check in (check_folder, lambda *given: check_new_folder(*given, "public/file")):
        with pytest.raises(Unwritable, match=r"out = .*cannot be written: Not a directory"):
            check("out", tmp_path / "file" / "run")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
