"""Lines of JSON that survive a kill: appended one by one by a single writer, each on disk before the next.

A process that is killed while it writes leaves at most one torn line at the end, which the next writer cuts off.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from graphveil.errors import InvalidInput


class Journal:
    """The writer of one journal; a second one at the same time is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            # The lock goes with the process, however it ends.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise InvalidInput("out", str(path.parent), "another run is writing there") from None
        try:
            self.records, whole = _parse(path)
            # Bytes of a torn line: 0 unless the last writer was killed.
            self.dropped = path.stat().st_size - whole
            if self.dropped:
                os.ftruncate(self._file, whole)
                os.fsync(self._file)
        except OSError as error:
            os.close(self._file)
            raise self._unwritable(error) from None
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: dict[str, Any]) -> None:
        """Write one line and return when it is on disk."""
        data = json.dumps(record, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritable(error) from None
        self.records.append(record)

    def close(self) -> None:
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
