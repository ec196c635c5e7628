"""Files and folders that are on disk completely, or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from graphveil.errors import InvalidInput


class Unwritable(InvalidInput):
    """A place that does not take what is written to it: no space, no permission, no such disk."""


def write_folder(folder: Path, files: Mapping[str, bytes | Path]) -> None:
    """Make a new folder of these files: filled beside its place, forced to disk, and moved there when complete.

    A path is a finished file on the same disk, which is moved.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise unwritable(folder, error) from None
    try:
        for name, data in files.items():
            path = beside / name
            path.parent.mkdir(exist_ok=True)
            if isinstance(data, Path):
                os.rename(data, path)
            else:
                _write(path, data)
        for part in {beside, *((beside / name).parent for name in files)}:
            _force(part)
        os.rename(beside, folder)
        beside = folder
        _force(folder.parent)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise unwritable(folder, error) from None
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file by a new version of it; whoever reads it sees one of the two."""
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    try:
        _write(Path(beside), data)
        os.replace(beside, path)
        _force(path.parent)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def append(handle: int, at: int, data: bytes) -> None:
    """Write behind the first `at` bytes of an open file, in place of whatever is there, and force it to disk."""
    os.ftruncate(handle, at)
    while data:
        written = os.pwrite(handle, data, at)
        at, data = at + written, data[written:]
    os.fsync(handle)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """A file opened for writing that no other process and no other thread holds; the lock ends with its holder."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _force(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError, field: str = "path") -> Unwritable:
    return Unwritable(field, str(path), f"cannot be written: {error.strerror or error}")
