"""The manifest: every file of an artifact with its checksum, and who may see it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from graphveil.errors import InvalidInput
from graphveil.storage.decoding import check_rendered, decoding, parse_checksummed, render_checksummed
from graphveil.storage.files import locked, replace_file

FORMAT = "graphveil-artifact/3"
MANIFEST = "manifest.json"
JOURNAL = "owner/new_nodes.jsonl"
TOKEN_SECRET = "owner/token_secret"

Audience = Literal["anyone", "owner"]
Kind = Literal["fixed", "grows", "derived"]
_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/){0,2}[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Files that `graphveil report` and `graphveil tokens` add later. An artifact stays valid if it has such a file and its
# manifest does not list it yet.
_DERIVED = re.compile(rf"report\.html|report\.md|figures/.*|{TOKEN_SECRET}")


@dataclass(frozen=True)
class Entry:
    """One file.

    Args:
        size: The number of bytes that the checksum is about.
        sha256: The checksum of the first `size` bytes.
        audience: Who may see the file.
        kind: "fixed"; "grows" for a journal, which may have more bytes; "derived" if it can be made again.
    """

    size: int
    sha256: str
    audience: Audience
    kind: Kind = "fixed"

    @classmethod
    def of(cls, data: bytes | Path, audience: Audience, kind: Kind = "fixed") -> Entry:
        """The entry of a file with this content, given as bytes or as a path to read."""
        if isinstance(data, Path):
            with data.open("rb") as file:
                return cls(data.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest(), audience, kind)
        return cls(len(data), hashlib.sha256(data).hexdigest(), audience, kind)


@dataclass(frozen=True)
class Manifest:
    """All files of an artifact by path."""

    files: Mapping[str, Entry]

    def render(self) -> bytes:
        """The content of the manifest's file."""
        files = {name: asdict(entry) for name, entry in sorted(self.files.items())}
        return render_checksummed(FORMAT, {"files": files})

    def with_files(self, files: Mapping[str, Entry]) -> Manifest:
        """A manifest that lists these files too, in place of earlier entries of the same name."""
        return Manifest({**self.files, **files})

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """The manifest that `render` wrote, to the last byte."""
        body = parse_checksummed(FORMAT, data)
        manifest = cls({name: _entry(name, values) for name, values in body["files"].items()})
        check_rendered(manifest.render(), data)
        return manifest


def _entry(name: str, values: Mapping[str, Any]) -> Entry:
    entry = Entry(**values)
    known = entry.audience in ("anyone", "owner") and entry.kind in ("fixed", "grows", "derived")
    if not _NAME.fullmatch(name) or not known or type(entry.size) is not int or entry.size < 0:
        raise InvalidInput("files", name, "is not an entry of a manifest")
    return entry


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an artifact; an error if there is none or it is damaged."""
    if not folder.is_dir():
        raise InvalidInput("run", str(folder), "is not a folder")
    path = folder / MANIFEST
    if not path.is_file():
        raise InvalidInput("run", str(folder), f"is not an artifact: there is no {MANIFEST}")
    with decoding(path, "a manifest"):
        try:
            return Manifest.parse(path.read_bytes())
        except InvalidInput as error:
            raise InvalidInput("file", str(path), f"is damaged: {error}") from None


def read_file(folder: Path, name: str, entry: Entry) -> bytes:
    """The bytes that a manifest lists, or an error that names the file."""
    path = folder / name
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise InvalidInput("file", str(path), "is not an ordinary file")
        if about.st_size < entry.size or (about.st_size > entry.size and entry.kind != "grows"):
            why = f"has {about.st_size} bytes instead of {entry.size}: it was cut off or changed"
            raise InvalidInput("file", str(path), why)
        with path.open("rb") as file:
            data = file.read(entry.size)
    except FileNotFoundError:
        raise InvalidInput("file", str(path), "is missing") from None
    except OSError as error:
        raise InvalidInput("file", str(path), f"cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise InvalidInput("file", str(path), "does not have the checksum that the manifest states: it was changed")
    return data


def read_files(folder: Path) -> dict[str, bytes]:
    """Every file that a model is loaded from, checked; a file too many or too few is an error."""
    manifest = read_manifest(folder)
    for name in _unlisted(folder, manifest):
        if not _DERIVED.fullmatch(name):
            raise InvalidInput("file", str(folder / name), "does not belong to this artifact")
    listed = manifest.files.items()
    return {name: read_file(folder, name, entry) for name, entry in listed if entry.kind != "derived"}


def problems(folder: Path) -> Iterator[str]:
    """What is wrong with a folder, compared with its manifest: one line for each file."""
    try:
        manifest = read_manifest(folder)
    except InvalidInput as error:
        yield f"{MANIFEST}: {error.why}"
        return
    for name in _unlisted(folder, manifest):
        yield f"{name}: does not belong to this run"
    for name, entry in manifest.files.items():
        try:
            read_file(folder, name, entry)
        except InvalidInput as error:
            maker = "tokens --renew" if name == TOKEN_SECRET else "report"
            hint = f"; graphveil {maker} writes it anew" if entry.kind == "derived" else ""
            yield f"{name}: {error.why}{hint}"


def list_derived(folder: Path, paths: list[Path]) -> None:
    """Add files that were made after an artifact was saved to its manifest; files outside of it are left out."""
    if not (folder / MANIFEST).is_file():
        return
    inside = [path for path in paths if path.resolve().is_relative_to(folder.resolve())]
    with locked(folder / JOURNAL):
        manifest = read_manifest(folder)
        names = {path.resolve().relative_to(folder.resolve()).as_posix(): path.read_bytes() for path in inside}
        made = {name: Entry.of(data, "owner", "derived") for name, data in names.items()}
        write_manifest(folder, manifest.with_files(made))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest; only for the holder of the journal's lock."""
    replace_file(folder / MANIFEST, manifest.render())


def _unlisted(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Files, and links to folders, that are not in the manifest.

    Names that start with a dot do not count: they are left from a write that was killed.
    """
    for place, below, files in os.walk(folder):
        links = [name for name in below if (Path(place) / name).is_symlink()]
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(files + links):
            path = (Path(place) / name).relative_to(folder).as_posix()
            if path != MANIFEST and path not in manifest.files and not name.startswith("."):
                yield path
