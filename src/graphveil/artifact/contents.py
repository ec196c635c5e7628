"""What an artifact contains: files, each with a checksum and who may see it, and the model as named tensors.

The manifest lists the files. Tensors are written and read back strictly: names, shapes, types and finite values.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import scipy.sparse as sp
import torch
from torch import nn

from graphveil.errors import InvalidInput
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseLinear
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.plan import Plan
from graphveil.storage import locked, replace_file
from graphveil.validate import check_rendered, decoding, parse_checksummed, render_checksummed

FORMAT = "graphveil-artifact/3"
MANIFEST = "manifest.json"
JOURNAL = "owner/new_nodes.jsonl"
TOKEN_SECRET = "owner/token_secret"

# Files that may be longer than memory: they are mapped, or read some bytes at a time.
_BY_NODE = (".safetensors", ".csv")
_BLOCK = 2**20

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
    data = bytearray()
    _check(folder / name, entry, data.extend)
    return bytes(data)


def check_file(folder: Path, name: str, entry: Entry) -> None:
    """Refuse a file that is not as a manifest lists it. It is read some bytes at a time."""
    _check(folder / name, entry, lambda block: None)


def _check(path: Path, entry: Entry, take: Callable[[bytes], None]) -> None:
    digest, left = hashlib.sha256(), entry.size
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise InvalidInput("file", str(path), "is not an ordinary file")
        if about.st_size < entry.size or (about.st_size > entry.size and entry.kind != "grows"):
            why = f"has {about.st_size} bytes instead of {entry.size}: it was cut off or changed"
            raise InvalidInput("file", str(path), why)
        with path.open("rb") as file:
            while left and (block := file.read(min(left, _BLOCK))):
                left -= len(block)
                digest.update(block)
                take(block)
    except FileNotFoundError:
        raise InvalidInput("file", str(path), "is missing") from None
    except OSError as error:
        raise InvalidInput("file", str(path), f"cannot be read: {error.strerror}") from None
    if digest.hexdigest() != entry.sha256:
        raise InvalidInput("file", str(path), "does not have the checksum that the manifest states: it was changed")


def read_files(folder: Path) -> tuple[set[str], dict[str, bytes]]:
    """Check all files that a model is loaded from; a file too many or too few is an error.

    Returns:
        Their names, and the content of those that do not have a row for each node.
    """
    manifest = read_manifest(folder)
    for name in _unlisted(folder, manifest):
        if not _DERIVED.fullmatch(name):
            raise InvalidInput("file", str(folder / name), "does not belong to this artifact")
    files = {name: entry for name, entry in manifest.files.items() if entry.kind != "derived"}
    for name, entry in files.items():
        if name.endswith(_BY_NODE):
            check_file(folder, name, entry)
    small = {name: entry for name, entry in files.items() if not name.endswith(_BY_NODE)}
    return set(files), {name: read_file(folder, name, entry) for name, entry in small.items()}


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
            check_file(folder, name, entry)
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


LOGITS, SPARSE = "logits", "sparse"
Parts = Mapping[str, nn.Module | torch.Tensor]


def weights_of(model: NodeClassifier) -> dict[str, torch.Tensor]:
    """The tensors that the certificate covers in full."""
    return _flat(model, weight_shapes(model, model.plan_, model.fitted_.sparse))


def rows_of(model: NodeClassifier) -> dict[str, torch.Tensor]:
    """The tensors for the owner of the data: rows of single nodes, and what else must not be published.

    Whether features are stored as sparse rows is a fact about private data, so it is here too.
    """
    rows = {LOGITS: model.logits_.contiguous(), **_flat(model, row_shapes(model, model.plan_))}
    rows[SPARSE] = torch.tensor([model.fitted_.sparse], dtype=torch.uint8)
    return rows


def restore(
    model: NodeClassifier,
    plan: Plan,
    weights: tuple[Path, Mapping[str, torch.Tensor]],
    rows: tuple[Path, Mapping[str, torch.Tensor]],
) -> tuple[torch.Tensor, bool]:
    """Fill a model from the tensors of two files.

    Args:
        model: The model, with its parameters.
        plan: Its executed plan.
        weights: The file of weights and its tensors.
        rows: The file of rows and its tensors.

    Returns:
        The logits, and whether features are read as sparse rows.

    Raises:
        InvalidInput: Names, shapes or types are not those of this model, or a value is not finite.
    """
    facts = plan.facts
    logits = torch.empty(facts.nodes, facts.classes, device="meta")
    expected: dict[str, nn.Module | torch.Tensor] = {LOGITS: logits, **row_shapes(model, plan)}
    plain = {name: tensor for name, tensor in rows[1].items() if name != SPARSE}
    extra = {name: tensor for name, tensor in rows[1].items() if name == SPARSE}
    _check_same(rows[0], {n: (t.dtype, tuple(t.shape)) for n, t in extra.items()}, {SPARSE: (torch.uint8, (1,))})
    _fill(model, expected, rows[0], plain)
    sparse = bool(extra[SPARSE].item())
    for field in ("folds", "hops"):
        value = getattr(model, field, 0)
        if value > len(weights[1]) + 1:  # no file of this size can hold so many
            raise InvalidInput(field, value, f"does not fit the {len(weights[1])} tensors in {weights[0].name}")
    _fill(model, weight_shapes(model, plan, sparse), weights[0], weights[1])
    return plain[LOGITS], sparse


def weight_shapes(model: NodeClassifier, plan: Plan, sparse: bool) -> Parts:
    """Names and shapes of the file of weights, for a model with this plan: tensors without memory."""
    width = plan.facts.features
    like: Rows = CsrRows(sp.csr_array((0, width))) if sparse else torch.empty(0, width, device="meta")
    with torch.device("meta"):
        scales = {"scales": torch.empty(plan.facts.numeric_columns, 5)} if plan.facts.numeric_columns else {}
        return {**model.covered_parts(plan, like), **scales}


def row_shapes(model: NodeClassifier, plan: Plan) -> dict[str, torch.Tensor]:
    """Names and shapes of the file of rows, except for the logits: tensors without memory."""
    with torch.device("meta"):
        return model.owner_parts(plan)


def _flat(model: NodeClassifier, parts: Parts) -> dict[str, torch.Tensor]:
    tensors = {}
    for name in parts:
        value = model.part(name)
        if isinstance(value, nn.Module):
            for key, tensor in _in_file_form(value, value.state_dict()).items():
                tensors[f"{name}.{key}"] = tensor
        else:
            tensors[name] = value
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _fill(model: NodeClassifier, parts: Parts, path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    wanted = {}
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            for key, tensor in _in_file_form(part, part.state_dict()).items():
                wanted[f"{name}.{key}"] = tuple(tensor.shape)
        else:
            wanted[name] = tuple(part.shape)
    given = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    _check_same(path, given, {name: (torch.float32, shape) for name, shape in wanted.items()})
    for name, tensor in tensors.items():
        if not all(bool(torch.isfinite(some).all()) for some in tensor.reshape(-1).split(_BLOCK)):
            raise InvalidInput("file", str(path), f"{name} holds values that are not finite")
    for name, part in parts.items():
        prefix = f"{name}."
        if isinstance(part, nn.Module):
            own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            part.load_state_dict(_in_file_form(part, own), strict=True, assign=True)
            model.set_part(name, part.to(model.device).eval())
        elif name != LOGITS:
            model.set_part(name, tensors[name].to(model.device))


def _in_file_form(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of a module with the weights of sparse layers transposed: from memory to a file, or back.

    A sparse layer keeps its weight as (inputs, outputs). Files have (outputs, inputs) for every layer, so that a shape
    does not tell whether private features are mostly zero.
    """
    sparse = {
        f"{place}.weight" if place else "weight"
        for place, layer in module.named_modules()
        if isinstance(layer, SparseLinear)
    }
    return {key: tensor.T.contiguous() if key in sparse else tensor for key, tensor in tensors.items()}


def _check_same(path: Path, given: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    for name in sorted({*given, *wanted}):
        if name not in wanted:
            raise InvalidInput("file", str(path), f"holds {name}, which is no part of this model")
        if name not in given:
            raise InvalidInput("file", str(path), f"does not hold {name}")
        if given[name] != wanted[name]:
            raise InvalidInput("file", str(path), f"{name} is {given[name]}, must be {wanted[name]}")
