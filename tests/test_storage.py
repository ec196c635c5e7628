"""Folders and files that are complete or not there, whatever fails."""

import errno
import json
import os
import resource
import stat
import threading

import pytest

from graphveil import storage
from graphveil.errors import InvalidInput
from graphveil.storage import (
    Journal,
    Unwritable,
    append,
    check_folder,
    check_new_folder,
    lock_at_once,
    locked,
    locked_whole,
    put_in_place,
    read_journal,
    replace_file,
    write_folder,
    written_beside,
)

CONTENT = {"a.txt": b"one", "below/b.txt": b"two"}


@pytest.fixture
def failing(monkeypatch):
    """The n-th file cannot be written."""

    def fail(number):
        write, seen = storage._write, []

        def full(path, data):
            seen.append(path)
            if len(seen) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(path, data)

        monkeypatch.setattr(storage, "_write", full)

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
    force = storage._force

    def fail(folder):
        if folder == tmp_path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        force(folder)

    monkeypatch.setattr(storage, "_force", fail)
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


def test_lines_are_there_as_soon_as_they_are_appended(tmp_path):
    path = tmp_path / "new" / "runs.jsonl"
    with Journal(path) as journal:
        for number in range(3):
            journal.append({"key": number, "text": "ε\n"})
            assert len(path.read_text().splitlines()) == number + 1
    assert [record["key"] for record in read_journal(path)] == [0, 1, 2]
    assert read_journal(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("torn", ['{"key": 2, "tex', '{"key": 2}', '{"key": 2, "tex\n', "\0\0\0", "7\n"])
def test_a_torn_last_line_is_dropped(tmp_path, torn):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"key": 0}\n{"key": 1}\n' + torn)
    assert [record["key"] for record in read_journal(path)] == [0, 1]
    with Journal(path) as journal:
        assert journal.dropped == len(torn)
        assert journal.records == [{"key": 0}, {"key": 1}]
        journal.append({"key": 3})
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == [0, 1, 3]


def test_damage_in_the_middle_is_no_torn_line(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"key": 0}\n{"key": \n{"key": 2}\n')
    with pytest.raises(InvalidInput, match=r"runs.jsonl, line 2"):
        Journal(path)
    with pytest.raises(InvalidInput, match=r"runs.jsonl, line 2"):
        Journal(path)  # and not: another run is writing there


def test_one_writer_at_a_time(tmp_path):
    path = tmp_path / "runs.jsonl"
    with Journal(path), pytest.raises(InvalidInput, match="another run is writing there"):
        Journal(path)
    Journal(path).close()


@pytest.fixture
def small_files():
    """The system itself refuses to write files of more than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_is_one_line_and_loses_nothing(tmp_path, small_files):
    path = tmp_path / "runs.jsonl"
    with Journal(path) as journal:
        journal.append({"key": 0})
        small_files(30)
        with pytest.raises(InvalidInput, match=r"runs\.jsonl cannot be written: File too large"):
            journal.append({"key": 1, "text": "x" * 100})
        small_files(2**20)
    with Journal(path) as journal:
        assert journal.records == [{"key": 0}]
        journal.append({"key": 1})


@pytest.mark.parametrize("folder", ["/proc/x", "/sys/x", "file/x", "y" * 300])
def test_a_place_that_takes_no_files(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"out = .* cannot be written"):
        Journal(tmp_path / folder / "runs.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_is_replaced_as_a_whole_is_locked_in_its_latest_version(tmp_path):
    path = tmp_path / "file"
    with locked_whole(path) as data:
        assert data == b""
    assert not path.exists()
    with locked_whole(path):
        replace_file(path, b"one")
    seen = []

    def change():
        with locked_whole(path) as data:
            seen.append(data)
            replace_file(path, data + b"+")

    with locked_whole(path):
        threads = [threading.Thread(target=change) for _ in range(4)]
        for thread in threads:
            thread.start()
        replace_file(path, b"two")
        assert seen == []
    for thread in threads:
        thread.join(10)
    assert sorted(seen) == [b"two", b"two+", b"two++", b"two+++"]
    with pytest.raises(Unwritable), locked_whole(tmp_path):
        pass


@pytest.mark.parametrize("folder", [False, True])
def test_what_is_finished_is_forced_to_disk_before_and_after_the_move(tmp_path, monkeypatch, folder):
    finished, place = tmp_path / "unfinished" / "a", tmp_path / "out" / "a"
    (finished if folder else finished.parent).mkdir(parents=True)
    place.parent.mkdir()
    content = finished / "one" if folder else finished
    content.write_text("1")
    forced, force = [], storage._force

    def seen(path):
        forced.append((path, place.exists()))
        force(path)

    monkeypatch.setattr(storage, "_force", seen)
    put_in_place(finished, place)
    assert forced == [(finished, False), (place.parent, True)]
    assert not finished.exists()
    assert (place / "one" if folder else place).read_text() == "1"
