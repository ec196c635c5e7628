"""Predictions: as lines of CSV, for new nodes in a file, and the journal of answers that new nodes were given."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil.artifact.contents import JOURNAL, read_manifest, write_manifest
from graphveil.errors import InvalidInput
from graphveil.graph.summary import FeatureColumn, Naming
from graphveil.methods.new_nodes import Answer, Answers
from graphveil.methods.predictions import column_names
from graphveil.privacy.plan import PublicFacts
from graphveil.storage import append, locked
from graphveil.validate import check_declared, decoding

if TYPE_CHECKING:
    import torch

    from graphveil.graph.io.columns import Table

# Columns of a table of new nodes.
ID, NEIGHBORS = "id", "neighbors"


class Probabilities:
    """Class probabilities of all nodes, computed for the rows that are asked for: logits may be a mapped file.

    Args:
        logits: A row for each node of the training graph.
        of_logits: Makes probabilities of rows of logits.
        new: Probabilities of new nodes, which are below them.
    """

    def __init__(
        self,
        logits: torch.Tensor,
        of_logits: Callable[[torch.Tensor], torch.Tensor],
        new: Sequence[Sequence[float]] = (),
    ) -> None:
        self._logits, self._of_logits = logits, of_logits
        self._new = np.array(new, dtype=np.float32).reshape(len(new), logits.shape[1])
        self.shape = (len(logits) + len(new), int(logits.shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last, _ = rows.indices(len(self))
        old = len(self._logits)
        known = self._of_logits(self._logits[min(first, old) : min(last, old)]).numpy()
        return np.concatenate([known, self._new[max(0, first - old) : max(0, last - old)]])


def best_classes(naming: Naming, probabilities: np.ndarray) -> list[str]:
    """The most probable class of each row, by name."""
    return [naming.class_name(number) for number in probabilities.argmax(axis=1).tolist()]


def csv_head(naming: Naming, classes: int) -> bytes:
    """The header as a line of CSV."""
    return _csv([column_names(naming, classes)])


def csv_rows(naming: Naming, nodes: Sequence[str], probabilities: np.ndarray) -> bytes:
    """Rows of these nodes, without a header; probabilities with as many digits as float32 has."""
    best = best_classes(naming, probabilities)
    return _csv([node, name, *map(str, row)] for node, name, row in zip(nodes, best, probabilities, strict=True))


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


@dataclass(frozen=True)
class NewNodes:
    """Arguments of `predict_new`."""

    ids: list[str]
    features: np.ndarray
    neighbors: list[list[int]]


def read_new_nodes(path: Path, naming: Naming, facts: PublicFacts, id_column: str = ID) -> NewNodes:
    """Read new nodes from a table.

    Columns: `id`, or `id_column`; `neighbors`, names of nodes of the training graph, separated by spaces (in Parquet
    also as a list); and features. If the training graph came from tables, features are taken by their column names, and
    text is turned into the categories that were known then; otherwise all other columns are features, in their order.

    Args:
        path: A CSV or Parquet file.
        naming: Names of the training graph's nodes and columns.
        facts: Public facts about the training graph.
        id_column: The column of ids.

    Returns:
        The arguments of `predict_new`.

    Raises:
        InvalidInput: The table cannot be read; the message names the row and the column.
    """
    from graphveil.graph.io.columns import Table  # Arrow, which a server does without
    from graphveil.graph.io.sources import FORMATS

    if path.suffix[1:] not in FORMATS:
        raise InvalidInput("new", str(path), f"must end in {' or '.join('.' + ending for ending in FORMATS)}")
    if not path.is_file():
        raise InvalidInput("new", str(path), "there is no such file")
    table = Table(path, [id_column, NEIGHBORS], text=[column.name for column in naming.columns if column.categories])
    return NewNodes(
        ids=[str(name) for name in table.ids(id_column).to_pylist()],
        features=_features(table, naming.columns, facts.features, (id_column, NEIGHBORS)),
        neighbors=[naming.places(NEIGHBORS, names, facts.nodes) for names in _neighbors(table)],
    )


def _neighbors(table: Table) -> list[list[str]]:
    rows = table.table.column(NEIGHBORS).to_pylist()
    neighbors = []
    for number, row in enumerate(rows):
        if row is None or isinstance(row, str):
            neighbors.append((row or "").split())
        elif isinstance(row, list) and all(isinstance(name, str | int) for name in row):
            neighbors.append([str(name) for name in row])
        else:
            raise table.cell_error(NEIGHBORS, number, "must be names of nodes: text with spaces between, or a list")
    return neighbors


def _features(table: Table, columns: tuple[FeatureColumn, ...], width: int, others: tuple[str, ...]) -> np.ndarray:
    from graphveil.graph.io.features import encoded

    given = [name for name in table.table.column_names if name not in others]
    if not columns:
        columns = tuple(FeatureColumn(name, "numeric") for name in given)
        if len(columns) != width:
            raise table.error("columns", len(columns), f"must be {width} features beside {' and '.join(others)}")
    for name in given:
        if name not in {column.name for column in columns}:
            raise table.error("columns", name, "is no feature of this model")
    for column in columns:
        table.require(column.name)
    x = encoded(table, columns)
    return x if isinstance(x, np.ndarray) else x.toarray()


class FolderAnswers(Answers):
    """The answers that new nodes were given, in the journal of an artifact: on disk before they are shown.

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

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy reads and writes the same journal: no answer is given twice."""
        return FolderAnswers, (self.folder,)

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
            digest = self._hash.copy()
            digest.update(data)
            manifest = read_manifest(self.folder)
            length = self._length + len(data)
            entry = replace(manifest.files[JOURNAL], size=length, sha256=digest.hexdigest())
            write_manifest(self.folder, manifest.with_files({JOURNAL: entry}))
        except OSError as error:
            raise InvalidInput("path", str(self._path), f"cannot be written: {error.strerror}") from None
        self._length, self._hash = length, digest
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
        digest = self._hash.copy()
        digest.update(data)
        if self._length + len(data) != entry.size or digest.hexdigest() != entry.sha256:
            raise InvalidInput("file", str(self._path), "is not what the manifest states: it was changed")
        with decoding(self._path, "answers"):
            added = [_parse(line) for line in data.splitlines()]
        self._length, self._hash = entry.size, digest
        self._note(added)


def render(answers: Sequence[Answer]) -> bytes:
    """One line for each answer."""
    return b"".join(json.dumps(asdict(answer), allow_nan=False).encode() + b"\n" for answer in answers)


def _parse(line: bytes) -> Answer:
    data = json.loads(line)
    answer = Answer(**{**data, "probabilities": tuple(data["probabilities"]), "reads": tuple(data["reads"])})
    check_declared(answer)
    if answer.release < 0 or not all(0 <= value <= 1 for value in answer.probabilities):
        raise InvalidInput("answer", answer.node, "has the wrong form")
    if not all(node >= 0 for node in answer.reads):
        raise InvalidInput("answer", answer.node, "reads something that is no node")
    return answer
