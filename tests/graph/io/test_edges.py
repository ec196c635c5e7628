"""Tables read in parts, into mapped files: the same graph as ever, the same errors, and nothing left behind."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphveil.errors import InvalidInput
from graphveil.graph import Graph, csbm, read_graph, write_graph
from graphveil.graph.io import edges
from graphveil.graph.io.edges import EdgeStream, ScratchArray
from graphveil.methods import DPDGC, GAP
from graphveil.privacy.levels import KNeighbor
from support.graphs import assert_same_graph


@pytest.fixture(autouse=True)
def _small_parts() -> Iterator[None]:
    """Parts of so few rows that small tables have several, in uneven numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edges, "_ROWS_AT_ONCE", 3)
        patch.setattr(edges, "_EDGES_AT_ONCE", 4)
        patch.setattr(edges, "_ENTRIES_AT_ONCE", 5)
        yield


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write_graph(csbm(0.5, n=60, f=4, seed=0), tmp_path / "tables")
    return tmp_path / "tables"


def is_mapped(array: np.ndarray) -> bool:
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base  # type: ignore[assignment]
    return False


def assert_same(ours: Graph, usual: Graph) -> None:
    assert_same_graph(ours, usual)
    assert ours.counts == usual.counts
    for name in ("indptr", "indices"):
        mine, theirs = getattr(ours, name), getattr(usual, name)
        assert mine.dtype == theirs.dtype
        assert not mine.flags.writeable


def outcome(path: Path, **options: Any) -> Graph | str:
    try:
        return read_graph(path, **options)
    except InvalidInput as error:
        return str(error)


ids = st.integers(-2, 6)
kinds = st.sampled_from([pa.int64(), pa.int8(), pa.string(), pa.dictionary(pa.int32(), pa.string())])


def column(values: list[int | None], kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(kind):
        return pa.array(values, kind)
    return pa.array([None if value is None else str(value) for value in values], pa.string()).cast(kind)


@st.composite
def folders(draw: st.DrawFn) -> dict[str, pa.Table]:
    """Tables that may be broken in several ways at once: unknown and missing ids, loops, duplicates."""
    nodes = draw(st.lists(ids, min_size=1, max_size=7, unique=True))
    known = st.sampled_from(nodes)
    end = draw(st.sampled_from([known, known, known | ids, known | st.none(), known | ids | st.none()]))
    edges = draw(st.lists(st.tuples(end, end), max_size=14))
    if draw(st.booleans()):
        edges = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]]
    source, target = ([edge[side] for edge in edges] for side in (0, 1))
    labels = draw(st.lists(st.integers(0, 2) | st.none(), min_size=len(nodes), max_size=len(nodes)))
    return {
        "nodes": pa.table({"id": column(list(nodes), draw(kinds)), "label": pa.array(labels, pa.int64())}),
        "edges": pa.table({"source": column(source, draw(kinds)), "target": column(target, draw(kinds))}),
    }


repairs = st.fixed_dictionaries(
    {name: st.booleans() for name in ("drop_self_loops", "merge_duplicates", "symmetrize")}
    | {"directed": st.sampled_from([None, True, False])}
)


@pytest.mark.slow
@given(tables=folders(), options=repairs, csv=st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_same_graph_or_the_same_error(tables: dict[str, pa.Table], options: dict[str, Any], csv: bool) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path, files = Path(scratch) / "graph", Path(scratch) / "files"
        path.mkdir()
        files.mkdir()
        for stem, table in tables.items():
            if csv:
                plain = pa.table({name: table[name].cast(pa.string()) for name in table.column_names})
                pyarrow.csv.write_csv(plain, path / f"{stem}.csv")
            else:
                pyarrow.parquet.write_table(table, path / f"{stem}.parquet", row_group_size=4)
        usual, ours = outcome(path, **options), outcome(path, mmap=files, **options)
        if isinstance(usual, Graph):
            assert isinstance(ours, Graph), ours
            assert_same(ours, usual)
            Graph(ours.indptr, ours.indices, directed=ours.directed)  # checks all that the reader answers for
        else:
            assert ours == usual
        assert list(files.iterdir()) == []


WRONG_EDGES = {
    "an unknown id": ([0, 1, 2, 9], [1, 2, 0, 1], "row 4, column 'source' = 9: there is no node"),
    "a missing id": ([0, 9, 2, None], [1, 2, 0, 1], "row 4, column 'source' = None: an id is missing"),
    "a loop": ([0, 1, 2, 2], [1, 2, 0, 2], "row 4, column 'source' = 2: .*its own node"),
    "a duplicate": ([0, 1, 2, 1], [1, 2, 0, 2], "row 4, column 'source' = 1: .* already listed in row 2"),
}


@pytest.mark.parametrize(("source", "target", "message"), WRONG_EDGES.values(), ids=WRONG_EDGES.keys())
def test_errors_in_later_parts(tmp_path: Path, source: list[Any], target: list[Any], message: str) -> None:
    pyarrow.parquet.write_table(pa.table({"id": [0, 1, 2]}), tmp_path / "nodes.parquet")
    edges = pa.table({"source": pa.array(source, pa.int64()), "target": target})
    pyarrow.parquet.write_table(edges, tmp_path / "edges.parquet")
    with pytest.raises(InvalidInput, match=message):
        read_graph(tmp_path, mmap=tmp_path)


def test_columns_of_different_lengths(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = EdgeStream.parts

    def cut(self: EdgeStream, column: str) -> Iterator[Any]:
        parts = list(whole(self, column))
        yield from parts[:-1] if column == "target" else parts

    monkeypatch.setattr(EdgeStream, "parts", cut)
    with pytest.raises(InvalidInput, match="its columns differ in length"):
        read_graph(tables, mmap=tmp_path)


@pytest.mark.parametrize("kind", [pa.float64(), pa.date32(), pa.null()])
@pytest.mark.parametrize("values", [[], [None], [1, None]])
def test_columns_that_hold_no_ids(tmp_path: Path, kind: pa.DataType, values: list[int | None]) -> None:
    if pa.types.is_null(kind):
        values = [None for _ in values]
    pyarrow.parquet.write_table(pa.table({"id": [1, 2]}), tmp_path / "nodes.parquet")
    edges = pa.table({"source": pa.array(values, kind), "target": pa.array([1] * len(values), pa.int64())})
    pyarrow.parquet.write_table(edges, tmp_path / "edges.parquet")
    usual, ours = outcome(tmp_path), outcome(tmp_path, mmap=tmp_path)
    assert repr(ours) == repr(usual)


def test_columns_that_are_not_there(tables: Path) -> None:
    for options in ({"source_column": "from"}, {"target_column": "to"}, {"id_column": "who"}):
        assert outcome(tables, mmap=tables, **options) == outcome(tables, **options)


def test_the_adjacency_stays_in_files(tables: Path, tmp_path: Path) -> None:
    graph = read_graph(tables, mmap=tmp_path)
    A = graph.with_split(3).reads("out")
    for array in (graph.indptr, graph.indices, A.indptr, A.indices):
        assert is_mapped(array)
    assert A.data.strides == (0,)
    assert A.indices.ctypes.data == graph.indices.ctypes.data


def test_a_users_own_map_is_not_copied(tables: Path, tmp_path: Path) -> None:
    usual = read_graph(tables)
    for name in ("indptr", "indices"):
        getattr(usual, name).tofile(tmp_path / name)
    indptr, indices = (np.memmap(tmp_path / name, np.int32, "r") for name in ("indptr", "indices"))
    graph = Graph(indptr, indices)
    for ours, theirs in ((graph.indptr, indptr), (graph.indices, indices), (graph.reads("in").indices, indices)):
        assert np.shares_memory(ours, theirs)


N_1 = KNeighbor(1)


@pytest.mark.parametrize("model", [DPDGC(N_1, table="trained"), DPDGC(N_1), GAP(N_1, max_degree=30, cap_degrees=True)])
def test_the_same_model(tables: Path, tmp_path: Path, model: DPDGC | GAP) -> None:
    model.set_params(epsilon=8.0, seed=0, steps=3)
    usual = model.fit(read_graph(tables)).logits_
    assert torch.equal(model.fit(read_graph(tables, mmap=tmp_path)).logits_, usual)


def test_a_table_that_changes_is_read_anew(tables: Path, tmp_path: Path) -> None:
    before = read_graph(tables, mmap=tmp_path)
    write_graph(csbm(0.5, n=60, f=4, seed=1), tables, overwrite=True)
    assert_same(read_graph(tables, mmap=tmp_path), read_graph(tables))
    assert is_mapped(before.indices)


def test_folders_that_cannot_be_used(tables: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(InvalidInput, match=f"mmap = '.*{name}': there is no such folder"):
            read_graph(tables, mmap=tmp_path / name)
    write_graph(read_graph(tables), tmp_path / "graph.npz")
    with pytest.raises(InvalidInput, match=r"mmap = .*: belongs to folders of tables, and graph.npz is none"):
        read_graph(tmp_path / "graph.npz", mmap=tmp_path)


def test_a_full_disk_is_one_line(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def seek(self, _: int) -> None:
            pass

        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    files = tmp_path / "files"
    files.mkdir()
    made = ScratchArray.__init__

    def full(self: ScratchArray, folder: Path, dtype: Any) -> None:
        made(self, folder, dtype)
        if self.dtype == np.int64:  # the keys that are sorted
            self._file = Full()  # type: ignore[assignment]

    monkeypatch.setattr(ScratchArray, "__init__", full)
    with pytest.raises(InvalidInput, match=r"^mmap = .*: cannot be used: No space left on device$"):
        read_graph(tables, mmap=files)
    assert list(files.iterdir()) == []


@pytest.mark.parametrize("form", ["in memory", "mapped", "with weights"])
@pytest.mark.parametrize("directed", [False, True])
def test_an_edge_to_itself_that_is_left_out_may_be_listed_twice(tmp_path: Path, form: str, directed: bool) -> None:
    pyarrow.parquet.write_table(pa.table({"id": [0, 1, 2]}), tmp_path / "nodes.parquet")
    weighted = {"weight_column": "w", "max_weight": 1.0} if form == "with weights" else {}
    options = {**weighted, **({"mmap": tmp_path} if form == "mapped" else {}), "drop_self_loops": True}
    pairs = [(1, 1), (0, 1), (1, 1), (2, 2), (1, 2)]
    for more, row in (([], 0), ([(2, 2), (0, 1)], 7)):
        source, target = zip(*pairs, *more, strict=True)
        edges = pa.table({"source": source, "target": target, "w": [1.0] * len(source)})
        pyarrow.parquet.write_table(edges, tmp_path / "edges.parquet")
        if row:
            with pytest.raises(InvalidInput, match=f"row {row}, column 'source' = 0: .* already listed in row 2"):
                read_graph(tmp_path, directed=directed, **options)
        else:
            expected = [[0, 1, 0], [0, 0, 1], [0, 0, 0]] if directed else [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
            assert read_graph(tmp_path, directed=directed, **options).reads("out").toarray().tolist() == expected
