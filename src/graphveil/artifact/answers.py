"""Answers to new nodes in an artifact: on disk before they are shown, whichever process asks."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from graphveil.artifact.manifest import JOURNAL, read_manifest, write_manifest
from graphveil.errors import InvalidInput
from graphveil.methods.answers import Answer, Answers
from graphveil.storage.decoding import check_declared, decoding
from graphveil.storage.files import append, locked


class FolderAnswers(Answers):
    """The journal of an artifact.

    Lines are appended and forced to disk, then the manifest states the journal's new length and checksum; only then is
    an answer shown. So a journal that is shorter than stated has lost answers that somebody has seen, and is an error.
    What follows the stated length was never shown, and is overwritten.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder.absolute()
        self._path = self.folder / JOURNAL
        self._length, self._hash = 0, hashlib.sha256()
        self._handle: int | None = None
        self._catch_up()

    @contextmanager
    def opened(self) -> Iterator[None]:
        with locked(self._path) as handle:
            self._catch_up()
            self._handle = handle
            try:
                yield
            finally:
                self._handle = None

    def add(self, answers: Sequence[Answer]) -> None:
        assert self._handle is not None, "answers are added within opened()"
        data = render(answers)
        try:
            append(self._handle, self._length, data)
            found = self._hash.copy()
            found.update(data)
            manifest = read_manifest(self.folder)
            length = self._length + len(data)
            entry = replace(manifest.files[JOURNAL], size=length, sha256=found.hexdigest())
            write_manifest(self.folder, manifest.with_files({JOURNAL: entry}))
        except OSError as error:
            raise InvalidInput("path", str(self._path), f"cannot be written: {error.strerror}") from None
        self._length, self._hash = length, found
        self._note(answers)

    def _catch_up(self) -> None:
        """Read what other processes have added."""
        entry = read_manifest(self.folder).files.get(JOURNAL)
        if entry is None:
            raise InvalidInput("file", str(self._path), "is not in the manifest")
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < entry.size:
                    raise InvalidInput("file", str(self._path), "is shorter than the manifest states: it was cut off")
                file.seek(self._length)
                data = file.read(max(entry.size - self._length, 0))
        except OSError as error:
            raise InvalidInput("file", str(self._path), f"cannot be read: {error.strerror}") from None
        found = self._hash.copy()
        found.update(data)
        if self._length + len(data) != entry.size or found.hexdigest() != entry.sha256:
            raise InvalidInput("file", str(self._path), "is not what the manifest states: it was changed")
        with decoding(self._path, "answers"):
            added = [_parse(line) for line in data.splitlines()]
        self._length, self._hash = entry.size, found
        self._note(added)


def render(answers: Sequence[Answer]) -> bytes:
    """One line for each answer."""
    return b"".join(json.dumps(asdict(answer), allow_nan=False).encode() + b"\n" for answer in answers)


def _parse(line: bytes) -> Answer:
    data = json.loads(line)
    found = Answer(**{**data, "probabilities": tuple(data["probabilities"]), "reads": tuple(data["reads"])})
    check_declared(found)
    if found.release < 0 or not all(0 <= value <= 1 for value in found.probabilities):
        raise InvalidInput("answer", found.node, "has the wrong form")
    if not all(node >= 0 for node in found.reads):
        raise InvalidInput("answer", found.node, "reads something that is no node")
    return found
