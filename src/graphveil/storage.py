"""Files and folders that are on disk completely or not at all, locks on them, and journals.

A journal is lines of JSON that survive a kill: appended one by one by a single writer, each on disk before the next. A
process that is killed while it writes leaves at most one torn line at the end, which the next writer cuts off.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from graphveil.errors import InvalidInput


class Unwritable(InvalidInput):
    """A place that does not take what is written to it: no space, no permission, no such disk."""


def unwritable(path: Path, error: OSError, field: str = "path") -> Unwritable:
    """The error of a place that cannot be written, with what the system says."""
    return Unwritable(field, str(path), f"cannot be written: {error.strerror or error}")


@contextmanager
def written_beside(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Write a file or folder beside its place, and move it there when it is complete.

    Args:
        path: Where the file or folder is to be; the folder above it exists.
        overwrite: Whether a folder that is there already is replaced. A file always is.

    Yields:
        Where to write it. If the block ends with an error, nothing of it is left, and `path` is as it was.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent, ignore_cleanup_errors=True) as scratch:
        fresh = Path(scratch) / path.name
        yield fresh
        if overwrite and path.is_dir():
            os.rename(path, Path(scratch) / "replaced")
        os.replace(fresh, path)


def write_folder(folder: Path, files: Mapping[str, bytes | Path]) -> None:
    """Make a new folder of these files, forced to disk: it is there complete or not at all.

    Args:
        folder: The folder, which only its owner can read.
        files: Contents by relative path. A `Path` is a finished file on the same disk, which is moved.

    Raises:
        Unwritable: The disk does not take it. Nothing is left.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with written_beside(folder) as fresh:
            fresh.mkdir(mode=0o700)
            for name, data in files.items():
                path = fresh / name
                path.parent.mkdir(exist_ok=True)
                if isinstance(data, Path):
                    os.rename(data, path)
                else:
                    _write(path, data)
            for part in {fresh, *((fresh / name).parent for name in files)}:
                _force(part)
        try:
            _force(folder.parent)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        raise unwritable(folder, error) from None


def replace_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace a file by a new version of it, forced to disk; whoever reads it sees one of the two.

    Args:
        path: The file.
        data: Its content, whole or in pieces.
    """
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    try:
        _write(Path(beside), data)
        os.replace(beside, path)
        _force(path.parent)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def put_in_place(finished: Path, path: Path) -> None:
    """Move a finished file or folder to its place on the same disk; it and the move are on disk afterwards."""
    _force(finished)
    os.replace(finished, path)
    _force(path.parent)


def write_files(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Put files into a folder, each complete the moment it is there, and none unless all could be written.

    Args:
        folder: Made if it is not there.
        files: Their contents by name.

    Returns:
        The paths of the files.

    Raises:
        InvalidInput: If the folder or a file cannot be written, or a folder or device has a file's name.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".report-", dir=folder))
    except OSError as error:
        raise InvalidInput("out", str(folder), f"cannot be written to: {error.strerror}") from None
    try:
        for name, data in files.items():
            if (folder / name).is_dir():
                raise InvalidInput("out", str(folder / name), "is a folder")
            if (folder / name).exists() and not (folder / name).is_file():
                raise InvalidInput("out", str(folder / name), "is not an ordinary file, and would be replaced by one")
            (beside / name).write_bytes(data)
        for name in files:
            os.replace(beside / name, folder / name)
    except OSError as error:
        raise InvalidInput("out", str(folder), f"cannot be written to: {error.strerror}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return [folder / name for name in files]


def append(handle: int, at: int, data: bytes) -> None:
    """Write behind the first `at` bytes of an open file, in place of whatever is there, and force it to disk."""
    os.ftruncate(handle, at)
    while data:
        written = os.pwrite(handle, data, at)
        at, data = at + written, data[written:]
    os.fsync(handle)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """A file opened for writing that no other process and no other thread holds; waits until it is free."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


@contextmanager
def locked_whole(path: Path) -> Iterator[bytes]:
    """The content of a file that is replaced as a whole (`replace_file`), which nobody else changes in this block.

    Args:
        path: The file. If there is none, the content is empty, and none is left unless the block wrote it.

    Raises:
        Unwritable: It cannot be opened for writing, or it is not an ordinary file.
    """
    try:
        handle = _locked_latest(path)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        yield path.read_bytes()
    finally:
        if path.stat().st_size == 0:
            path.unlink()
        os.close(handle)


def _locked_latest(path: Path) -> int:
    """The file at this path, opened and locked; whoever held the lock before may have replaced or removed it."""
    while True:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is not an ordinary file")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)


def lock_at_once(handle: int) -> bool:
    """Lock an open file or folder without waiting; False if somebody else holds it. The lock ends with the process."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def check_new_folder(field: str, folder: Path, longest: str) -> None:
    """Refuse a folder that exists or that could not be written; nothing is left of the trial.

    Args:
        field: The argument that names the folder, for the message.
        folder: The folder.
        longest: The longest path that will be written in it.

    Raises:
        InvalidInput: The folder exists.
        Unwritable: It cannot be made.
    """
    with _one_line(field, folder):
        if os.path.lexists(folder) or os.path.lexists(os.path.realpath(folder)):
            raise InvalidInput(field, str(folder), "exists already; a run is never overwritten")
        with _made(folder.parent), tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            trial = Path(beside) / longest
            trial.parent.mkdir()
            trial.write_bytes(b"trial")


def check_folder(field: str, folder: Path) -> None:
    """Refuse a folder, new or not, that no file could be put into; nothing is left of the trial.

    Args:
        field: The argument that names the folder, for the message.
        folder: The folder.

    Raises:
        Unwritable: No file can be put into it.
    """
    with _one_line(field, folder), _made(folder):
        write_trial(folder)


def write_trial(folder: Path, prefix: str = ".trial-") -> None:
    """Write a file into a folder and remove it; an `OSError` says why that does not work."""
    with tempfile.NamedTemporaryFile(prefix=prefix, dir=folder) as trial:
        trial.write(b"trial")


@contextmanager
def _one_line(field: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(folder, error, field) from None


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; those that were not there before are removed at the end."""
    made = []
    try:
        for place in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
            place.mkdir()
            made.append(place)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        yield
    finally:
        for place in reversed(made):
            with suppress(OSError):  # other files may have come into it
                place.rmdir()


def _write(path: Path, data: bytes | Iterable[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)
        file.flush()
        os.fsync(file.fileno())


def _force(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Journal:
    """The writer of one journal.

    Args:
        path: The file, which is made if it is not there.

    Raises:
        InvalidInput: Another process or thread writes it, it cannot be written, or a line is not a record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unwritable(error) from None
        if not lock_at_once(self._file):
            os.close(self._file)
            raise InvalidInput("out", str(path.parent), "another run is writing there")
        try:
            self.records, self._length = _parse(path)
            # Bytes of a torn line: 0 unless the last writer was killed.
            self.dropped = path.stat().st_size - self._length
            if self.dropped:
                append(self._file, self._length, b"")
        except OSError as error:
            os.close(self._file)
            raise self._unwritable(error) from None
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: dict[str, Any]) -> None:
        """Write one line and return when it is on disk."""
        data = json.dumps(record, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        try:
            append(self._file, self._length, data)
        except OSError as error:
            raise self._unwritable(error) from None
        self._length += len(data)
        self.records.append(record)

    def close(self) -> None:
        """End writing, so that others can."""
        os.close(self._file)

    def _unwritable(self, error: OSError) -> InvalidInput:
        return InvalidInput("out", str(self.path.parent), f"{self.path.name} cannot be written: {error.strerror}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a journal, while it is being written too; none if there is no such file."""
    return _parse(path)[0] if path.exists() else []


def _parse(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records, and the number of bytes that they take up: what follows is torn."""
    records, whole = list[dict[str, Any]](), 0
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif number < len(lines):
            raise InvalidInput(f"{path.name}, line {number}", line[:40].decode(errors="replace"), "is not a record")
        else:
            break
        whole += len(line)
    return records, whole
