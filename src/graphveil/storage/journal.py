"""Lines of JSON that survive a kill: appended one by one by a single writer, each on disk before the next.

A process that is killed while it writes leaves at most one torn line at the end, which the next writer cuts off.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from graphveil.errors import InvalidInput
from graphveil.storage.files import append, lock_at_once


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
