import json
import resource

import pytest

from graphveil.errors import InvalidInput
from graphveil.storage.journal import Journal, read_journal


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
