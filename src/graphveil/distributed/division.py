"""Divide tables that are longer than memory into parts (docs/scale.md).

    .OUT.unfinished/
      state.json      what is done: the tables and options, what was seen of the nodes, edges that were taken, parts
      ids.duckdb      the row of each id, where ids are not the numbers of rows
      split.npy       the set of each node, where it is drawn
      buckets/        the edges by target (`EdgeBuckets`)
      OUT/            the parts, until they are complete

A division that was ended goes on where it was, and ends with the same files.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphveil import validate
from graphveil.distributed.parts import (
    EDGES,
    NAMES,
    NODES,
    Described,
    edges_table,
    names_table,
    nodes_table,
    part_folder,
    sets_of,
)
from graphveil.distributed.shard import Layout
from graphveil.distributed.unfinished import EdgeBuckets, Memory, Progress, RowGroups, Unfinished, node_rows_at_once
from graphveil.errors import InvalidInput
from graphveil.graph.io.columns import DUPLICATE, SELF_LOOP
from graphveil.graph.io.declared import DECLARATIONS, Declared, TableOptions
from graphveil.graph.io.features import is_sparse
from graphveil.graph.io.ids import IdRows, numbered
from graphveil.graph.io.streams import BEGINNING, Chunk, Folder, LongTable, Place, Survey
from graphveil.graph.io.tables import NodeColumns
from graphveil.graph.splits import MASKS, random_split
from graphveil.graph.summary import ReadReport, scaled_by_fit
from graphveil.storage import put_in_place, unwritable


def divide_tables(
    address: str,
    out: Path,
    parts: int,
    memory: Memory,
    *,
    options: TableOptions,
    directed: bool | None = None,
    seed: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> ReadReport:
    """Divide a folder of tables into parts, with a stated memory.

    Args:
        address: A folder, or an address that fsspec understands, with tables as `LongTable` finds them.
        out: The folder to create; it appears complete or not at all.
        parts: How many parts.
        memory: How much memory the process may use.
        options: Which columns mean what, where the folder's graph.json does not say it.
        directed: The declaration of direction. None: what the folder declares, else undirected.
        seed: Draws a split where there is none.
        progress: Is told how far the work is.

    Returns:
        What was read, as for a whole graph.

    Raises:
        InvalidInput: A table cannot be read or is not a graph; the message names the file, the row and the value. Or
            the folder exists, cannot be written, or another division writes it.
    """
    validate.count("parts", parts)
    if os.path.lexists(out):
        raise InvalidInput("out", str(out), "exists already")
    folder = Folder(address)
    declared = _declared(folder, options)
    if directed is not None and declared.directed is not None and directed != declared.directed:
        raise InvalidInput("directed", directed, f"{folder.name} declares directed = {declared.directed}")
    options = declared.options
    for field in ("max_weight", "relation_column", "relations"):
        if getattr(options, field) is not None:
            raise InvalidInput(field, getattr(options, field), "weights and relations cannot be divided yet")
    nodes = LongTable(folder, "nodes", [options.id_column or ""], options.node_table)
    edges = LongTable(folder, "edges", [options.source_column or "", options.target_column or ""], options.edge_table)
    asked = {
        "tables": [folder.identity(name) for name in (*nodes.files, *edges.files)],
        "options": json.loads(json.dumps(asdict(declared), default=str)),
        **{"parts": parts, "memory": memory.total, "directed": directed, "seed": seed},
    }
    try:
        with Unfinished.opened(out, asked) as work:
            division = Division(work, nodes, edges, declared, bool(directed or declared.directed), memory, progress)
            try:
                return division.run(out, parts, seed)
            except InvalidInput:  # the tables have to be changed first
                shutil.rmtree(work.folder, ignore_errors=True)
                raise
    except OSError as error:
        raise unwritable(out, error, "out") from None


def _declared(folder: Folder, options: TableOptions) -> Declared:
    with tempfile.TemporaryDirectory() as copied:
        text = folder.text(DECLARATIONS)
        if text is not None:
            (Path(copied) / DECLARATIONS).write_text(text, encoding="utf-8")
        return Declared.of(Path(copied), options)


class Division:
    """The stages of one division: what all nodes have in common, their parts, the edges in buckets, their parts."""

    def __init__(
        self,
        work: Unfinished,
        nodes: LongTable,
        edges: LongTable,
        declared: Declared,
        directed: bool,
        memory: Memory,
        progress: Progress,
    ) -> None:
        self._work, self._nodes, self._edges = work, nodes, edges
        self._declared, self._options, self._directed = declared, declared.options, directed
        self._memory, self._progress = memory, progress
        self._id = self._options.id_column or ""
        self._ends = (self._options.source_column or "", self._options.target_column or "")

    def run(self, out: Path, parts: int, seed: int) -> ReadReport:
        fresh, state = self._work.folder / out.name, self._work.state
        fresh.mkdir(exist_ok=True)
        survey = self._surveyed()
        columns = NodeColumns.of(survey, self._declared)
        count = len(survey)
        starts = Layout.even(count, parts).starts
        split, origin = self._drawn_split(columns, count, seed)
        for part in range(state.get("node parts", 0), parts):
            self._write_nodes(fresh, part, starts, survey, columns, split)
            self._work.keep(**{"node parts": part + 1, "totals": self._totals})
        buckets = self._collected(starts)
        self._write_edges(fresh, buckets, starts)
        self._write_names(fresh)
        Described(
            name=self._declared.name or self._nodes.folder.name,
            directed=self._directed,
            class_names=_class_names(columns),
            num_classes=len(columns.classes or ()),
            starts=starts,
            sparse=is_sparse(columns.features, count),
            undeclared=columns.undeclared,
            numeric_columns=scaled_by_fit(columns.features),
        ).write(fresh)
        put_in_place(fresh, out)
        report = self._report(columns, count, origin)
        with suppress(OSError):
            shutil.rmtree(self._work.folder)
        return report

    def _surveyed(self) -> Survey:
        """What has to be known of all nodes; ids go into a database unless they are the numbers of the rows."""
        options = self._options
        survey = Survey(self._nodes, self._id, options.categories or (), options.max_categories or 0)
        if "survey" in self._work.state:
            self._numbered = self._work.state["numbered"]
            return survey.restore(self._work.state["survey"])
        database = self._work.folder / "ids.duckdb"
        for path in self._work.folder.glob("ids.duckdb*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._numbered = True

        def ids() -> Iterator[pa.Array]:
            asked = survey.asked(options.label_column or "label")
            for place, part in self._nodes.parts(asked, self._memory.nodes_at_once(len(asked))):
                self._progress("reading nodes", len(survey), self._nodes.rows)
                own = part.ids(self._id)
                first = len(survey)
                self._numbered = self._numbered and np.array_equal(numbered(own), np.arange(first, first + len(own)))
                survey.take(place.file, part)
                yield own

        rows = IdRows(database, self._memory.database)
        try:
            rows.fill(ids())
            if len(survey) == 0:
                raise survey.error("rows", 0, "a graph needs at least one node")
            repeat = None if self._numbered else rows.first_repeat()
        finally:
            rows.close()
        if self._numbered:
            database.unlink()
        if repeat is not None:
            again, earlier = (survey.place(row) for row in repeat)
            _, row = next(self._nodes.parts([self._id], 1, Place(*again)))
            raise row.cell_error(self._id, 0, f"this id was already given to row {self._nodes.row_in_words(*earlier)}")
        survey.finish()
        self._work.keep(survey=survey.to_dict(), numbered=self._numbered)
        return survey

    def _drawn_split(self, columns: NodeColumns, count: int, seed: int) -> tuple[np.ndarray | None, str]:
        """The set of each node where no column says it, and where sets come from."""
        named = columns.sets(self._options)
        if named is not None or columns.label is None:
            return None, named or "none"
        path = self._work.folder / "split.npy"
        if not self._work.state.get("split drawn"):
            if 40 * count > self._memory.free:
                why = f"there is no such column, and a random split of {count:,} nodes needs more than --memory"
                raise InvalidInput("split", None, f"{why}: add a column of train, val and test")
            labelled = [
                part.table.column(columns.label).combine_chunks().is_valid().to_numpy(zero_copy_only=False)
                for _, part in self._nodes.parts([columns.label], 2**20)
            ]
            known = np.concatenate(labelled)
            if not known.any():
                return None, "none"
            masks = random_split(known.astype(np.int8) - 1, seed=seed)
            np.save(path, sets_of({name: mask.numpy() for name, mask in zip(MASKS, masks, strict=True)}, count))
            self._work.keep(**{"split drawn": True})
        return np.load(path, mmap_mode="r"), f"random, seed {seed}"

    def _write_nodes(
        self, fresh: Path, part: int, starts: tuple[int, ...], survey: Survey, columns: NodeColumns, split: Any
    ) -> None:
        first, last = starts[part], starts[part + 1]
        totals, at = self._totals, first
        names = [name for name in self._nodes.schema.names if name not in (self._options.drop_columns or ())]
        at_once, place = self._memory.nodes_at_once(len(names)), Place(*survey.place(first))
        folder = part_folder(fresh, part)
        folder.mkdir(exist_ok=True)
        with RowGroups(folder / NODES, node_rows_at_once(sum(column.width for column in columns.features))) as writer:
            for _, rows in self._nodes.parts(names, at_once, place):
                rows.table = rows.table.slice(0, last - at)
                fields = columns.rows(rows, self._options, whole=False)
                y = fields.get("y", np.full(len(rows), -1))
                sets = sets_of(fields, len(rows)) if split is None else np.asarray(split[at : at + len(rows)])
                x = fields["x"] if isinstance(fields["x"], np.ndarray) else fields["x"].toarray()
                writer.add(nodes_table(at, y, sets, x, _class_names(columns)))
                totals["labelled"] += int((y >= 0).sum())
                for number, mask in enumerate(MASKS, start=1):
                    totals[mask] += int((sets == number).sum())
                at += len(rows)
                self._progress("writing nodes", at, starts[-1])
                if at == last:
                    break

    def _write_names(self, fresh: Path) -> None:
        if self._numbered:
            return
        at = 0
        with RowGroups(fresh / NAMES) as writer:
            for _, part in self._nodes.parts([self._id], 2**18):
                writer.add(names_table(at, part.ids(self._id)))
                at += len(part)

    @property
    def _totals(self) -> dict[str, int]:
        totals: dict[str, int] = self._work.state.setdefault("totals", dict.fromkeys(("labelled", *MASKS), 0))
        return totals

    def _collected(self, starts: tuple[int, ...]) -> EdgeBuckets:
        """All edges in the buckets of their targets."""
        state, nodes, both_ways = self._work.state, starts[-1], not self._directed
        if "buckets" not in state:
            self._work.keep(buckets=self._bucket_starts(starts, both_ways), edges=[0, 0, 0], sizes=None)
        buckets = EdgeBuckets(
            self._work.folder / "buckets",
            state["buckets"],
            both_ways=both_ways,
            at_once=self._memory.entries_at_once,
        )
        file, row, listed = state["edges"]
        buckets.cut(state["sizes"] or [0] * (len(state["buckets"]) - 1))
        if file == len(self._edges.files):
            return buckets
        with self._id_rows() as ids:
            for chunk in self._edges.chunks(self._ends, self._memory.edges_at_once, Place(file, row)):
                source, target = self._positions(chunk, ids, nodes)
                listed += len(source)
                loops = source == target
                if loops.any() and not self._options.drop_self_loops:
                    raise chunk.cell_error(self._ends[0], int(np.argmax(loops)), SELF_LOOP)
                buckets.add(source[~loops], target[~loops])
                file, row = chunk.end
                self._work.keep(edges=[file, row, listed], sizes=buckets.sizes())
                self._progress("reading edges", listed, self._edges.rows)
        self._work.keep(edges=[len(self._edges.files), 0, listed])
        return buckets

    def _bucket_starts(self, starts: tuple[int, ...], both_ways: bool) -> list[int]:
        """Buckets of a size that can be sorted, whole ones for each part."""
        # An edge of a CSV file takes eight bytes at least, unless ids are very short.
        listed = self._edges.rows if self._edges.rows is not None else self._edges.bytes() // 8
        expected = listed * (1 + both_ways) / (len(starts) - 1)
        each = max(1, min(-(-int(2 * expected) // self._memory.entries_at_once), 2**15 // (len(starts) - 1)))
        cuts = [np.linspace(low, high, each + 1).astype(np.int64)[:-1] for low, high in pairwise(starts)]
        return [*np.unique(np.concatenate(cuts)).tolist(), starts[-1]]

    def _positions(self, chunk: Chunk, ids: IdRows | None, nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the nodes of both ends."""
        found = []
        for column in self._ends:
            values = pa.concat_arrays([part.ids(column) for _, part in chunk.parts])
            rows = numbered(values) if ids is None else ids.of(values)
            unknown = (rows < 0) | (rows >= nodes)
            if unknown.any():
                raise chunk.cell_error(column, int(np.argmax(unknown)), "there is no node with this id")
            found.append(rows)
        return found[0], found[1]

    def _write_edges(self, fresh: Path, buckets: EdgeBuckets, starts: tuple[int, ...]) -> None:
        repeats: list[tuple[int, int]] = []
        first_of = np.searchsorted(self._work.state["buckets"], starts)
        for part in range(self._work.state.get("edge parts", 0), len(starts) - 1):
            stored = 0
            with RowGroups(part_folder(fresh, part) / EDGES) as writer:
                writer.add(edges_table(np.empty(0, np.int64), np.empty(0, np.int64)))
                for bucket in range(first_of[part], first_of[part + 1]):
                    for source, target in buckets.entries(bucket, repeats):
                        stored += len(source)
                        if not repeats or self._options.merge_duplicates:
                            writer.add(edges_table(source, target))
            if repeats and not self._options.merge_duplicates:
                continue  # look for others, of which one may have been listed earlier
            done = self._work.state.get("stored", 0) + stored
            self._work.keep(**{"edge parts": part + 1, "stored": done})
            self._progress("writing edges", part + 1, len(starts) - 1)
        if repeats and not self._options.merge_duplicates:
            raise self._repeated(set(repeats), starts[-1])

    def _repeated(self, repeats: set[tuple[int, int]], nodes: int) -> InvalidInput:
        """The error of the first edge that was listed before, of those that are listed more than once."""
        wanted = np.unique([source * nodes + target for source, target in repeats])
        seen: dict[int, str] = {}
        with self._id_rows() as ids:
            for chunk in self._edges.chunks(self._ends, self._memory.edges_at_once, BEGINNING):
                source, target = self._positions(chunk, ids, nodes)
                key = source * nodes + target
                for at in np.flatnonzero(np.isin(key, wanted)).tolist():
                    if int(key[at]) in seen:
                        return chunk.cell_error(self._ends[0], at, DUPLICATE.format(earlier=seen[int(key[at])]))
                    seen[int(key[at])] = self._edges.row_in_words(*chunk.place(at))
        raise AssertionError("an edge that was listed twice is gone")

    @contextmanager
    def _id_rows(self) -> Iterator[IdRows | None]:
        """The rows of ids; None where ids are the numbers of rows."""
        if self._numbered:
            yield None
            return
        ids = IdRows(self._work.folder / "ids.duckdb", self._memory.database)
        try:
            yield ids
        finally:
            ids.close()

    def _report(self, columns: NodeColumns, count: int, origin: str) -> ReadReport:
        totals, state = self._totals, self._work.state
        unused = (f"{self._edges.name}: column {n!r}" for n in self._edges.schema.names if n not in self._ends)
        return ReadReport(
            source=self._nodes.folder.name,
            nodes=count,
            edges_listed=state["edges"][2],
            edges_stored=state["stored"],
            directed=self._directed,
            columns=columns.features,
            features=sum(column.width for column in columns.features),
            classes=len(columns.classes or ()),
            labelled=totals["labelled"],
            train=totals["train_mask"],
            val=totals["val_mask"],
            test=totals["test_mask"],
            split=origin,
            public=columns.public(self._options),
            undeclared=columns.undeclared.facts(),
            labels_as=columns.labels_as,
            unused=(*columns.unused, *unused),
        )


def _class_names(columns: NodeColumns) -> tuple[str, ...] | None:
    return None if columns.class_names is None else tuple(map(str, columns.class_names))
