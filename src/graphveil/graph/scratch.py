"""Arrays that live in files without a name.

Such a file is gone with the last array that is mapped to it, however the process ends: nothing half-written is ever
found, nothing stale can be used again, and nothing of a private graph is left behind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from graphveil.errors import InvalidInput


class ScratchArray:
    """One-dimensional numbers in a nameless file in `folder`: written once, then mapped.

    They are written as a file, not through the map: on a full disk the first is an error, the second ends the process.
    """

    def __init__(self, folder: Path, dtype: Any) -> None:
        self._folder, self.dtype = folder, np.dtype(dtype)
        with _using(folder):
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (`mapped` closes it)

    def append(self, values: np.ndarray) -> None:
        with _using(self._folder):
            self._file.write(np.ascontiguousarray(values, self.dtype).data)

    def put(self, place: int, values: np.ndarray) -> None:
        """Write `values` from `place` on."""
        with _using(self._folder):
            self._file.seek(place * self.dtype.itemsize)
        self.append(values)

    def read(self, start: int, stop: int) -> np.ndarray:
        """A part as an ordinary array: what is read once need not count as this process's memory for longer."""
        with _using(self._folder):
            self._file.seek(start * self.dtype.itemsize)
            found = np.empty(stop - start, self.dtype)
            if self._file.readinto(found.data) < found.nbytes:
                raise OSError("what was written there is gone")
        return found

    def mapped(self) -> np.ndarray:
        """All that was written, read-only; nothing can be written from now on."""
        with _using(self._folder):
            self._file.flush()
            self._file.seek(0, 2)
            empty = self._file.tell() == 0  # which cannot be mapped
            array = np.empty(0, self.dtype) if empty else np.asarray(np.memmap(self._file, self.dtype, "r"))
            self._file.close()  # the map keeps it
        array.flags.writeable = False
        return array


def check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidInput("mmap", str(folder), "there is no such folder")
    ScratchArray(folder, np.int8).mapped()


@contextmanager
def _using(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput("mmap", str(folder), f"cannot be used: {error.strerror or error}") from None
