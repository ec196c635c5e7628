"""Tables divided with little memory: the parts of the graph in memory, to the last byte, however often it is ended."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import graphveil as gv
from graphveil.distributed import Group
from graphveil.distributed.division import divide_tables
from graphveil.distributed.parts import read_part, write_parts
from graphveil.distributed.unfinished import EdgeBuckets, Memory, parse_memory
from graphveil.errors import InvalidInput
from graphveil.graph.io import table_options

NODES, LINKS = 400, 1500
LITTLE = parse_memory("470MiB")


def tables(ids="numbers", seed=0):
    rng = np.random.default_rng(seed)
    names = np.arange(NODES) if ids == "numbers" else rng.permutation(7 * NODES)[:NODES]
    named = pa.array([f"person {name}" for name in names]) if ids == "text" else pa.array(names)
    classes = np.array(["yes", "no", "perhaps"])[rng.integers(0, 3, NODES)]
    nodes = {
        "id": named,
        "age": rng.normal(size=NODES),
        "town": pa.array(rng.choice(["x", "y", "z"], NODES)),
        "member": rng.random(NODES) < 0.5,
        "count": rng.integers(0, 9, NODES),
        "label": pa.array(classes, mask=rng.random(NODES) < 0.1),
    }
    ends = np.unique(rng.integers(0, NODES, (2, LINKS)), axis=1)
    ends = ends[:, ends[0] != ends[1]][:, rng.permutation(int((ends[0] != ends[1]).sum()))]
    edges = {"source": named.take(pa.array(ends[0])), "target": named.take(pa.array(ends[1])), "since": ends[0]}
    return pa.table(nodes), pa.table(edges)


def written(folder, nodes, edges, ending="parquet", files=1, **declared):
    folder.mkdir(parents=True)
    write = pyarrow.parquet.write_table if ending == "parquet" else pyarrow.csv.write_csv
    for stem, table in (("nodes", nodes), ("edges", edges)):
        if files == 1:
            write(table, folder / f"{stem}.{ending}")
            continue
        (folder / stem).mkdir()
        rows = -(-len(table) // files)
        for file in range(files):
            write(table.slice(file * rows, rows), folder / stem / f"{file}.{ending}")
    (folder / "graph.json").write_text(json.dumps({"name": "mine", **declared}))
    return folder


def divided(folder, out, *, parts=3, memory=LITTLE, **options):
    return divide_tables(str(folder), out, parts, memory, options=table_options({}), **options)


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("files", [1, 4])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize(("ids", "directed"), [("numbers", False), ("integers", True), ("text", False)])
def test_as_the_graph_in_memory_is_divided(tmp_path, ids, directed, ending, files):
    nodes, edges = tables(ids)
    graph = gv.read_graph(written(tmp_path / "whole", nodes, edges, ending, directed=directed))
    write_parts(graph, tmp_path / "expected", 3)
    long = written(tmp_path / "long", nodes, edges, ending, files, directed=directed)
    counts = divided(long, tmp_path / "parts")
    assert content(tmp_path / "parts") == content(tmp_path / "expected")
    expected = str(graph.counts).replace("whole", "long").replace(f"edges.{ending}", counts.unused[0].split(":")[0])
    assert str(counts) == expected
    assert read_part(tmp_path / "parts", Group(0, 1)).numeric_columns == graph.numeric_columns
    assert sorted(path.name for path in tmp_path.iterdir()) == ["expected", "long", "parts", "whole"]


def test_a_split_column_and_times(tmp_path):
    nodes, edges = tables()
    sets = pa.array(
        np.random.default_rng(1).choice(["train", "val", "test"], NODES), mask=~nodes["label"].is_valid().to_numpy()
    )
    for name, more in {"split": {"split": sets}, "times": {"when": pa.array(np.arange(NODES)[::-1].copy())}}.items():
        table = pa.table({**dict(zip(nodes.column_names, nodes.columns, strict=True)), **more})
        options = {} if name == "split" else {"time_column": "when", "train_before": 200, "test_after": 300}
        folder = written(tmp_path / name, table, edges, **options)
        write_parts(gv.read_graph(folder), tmp_path / f"{name} expected", 3)
        divided(folder, tmp_path / f"{name} parts")
        assert content(tmp_path / f"{name} parts") == content(tmp_path / f"{name} expected")


def test_tables_and_columns_by_their_declared_names(tmp_path):
    nodes, edges = tables("text")
    renamed = (
        nodes.rename_columns({"id": "person", "label": "fraud"}),
        edges.rename_columns({"source": "a", "target": "b"}),
    )
    names = {"id_column": "person", "label_column": "fraud", "source_column": "a", "target_column": "b"}
    folder = written(tmp_path / "graph", *renamed, files=2, **names, node_table="people", edge_table="calls")
    (folder / "nodes").rename(folder / "people")
    (folder / "edges").rename(folder / "calls")
    divided(folder, tmp_path / "parts")
    plain = written(tmp_path / "plain", nodes, edges)
    divided(plain, tmp_path / "expected")
    ours, expected = content(tmp_path / "parts"), content(tmp_path / "expected")
    assert ours == expected
    for more, why in (
        ({"node_table": "persons"}, "node_table = 'persons': must be a .csv or .parquet file, or a folder of files"),
        ({"weight_column": "w", "max_weight": 2.0}, "max_weight = 2.0: weights and relations cannot be divided yet"),
    ):
        with pytest.raises(InvalidInput, match=why):
            divide_tables(str(folder), tmp_path / "no", 3, LITTLE, options=table_options(more))
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_of_amounts_is_no_label(tmp_path, ending):
    nodes, edges = tables("text")
    nodes = nodes.set_column(nodes.column_names.index("label"), "label", pa.array(np.arange(NODES) + 0.5))
    folder = written(tmp_path / "graph", nodes, edges, ending=ending)
    with pytest.raises(InvalidInput, match=f"'label' = {NODES}: distinct labels of {NODES} nodes"):
        divided(folder, tmp_path / "parts")


class Ended(BaseException):
    pass


@pytest.mark.slow
def test_a_division_that_is_ended_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(Memory, "edges_at_once", 300)
    folder = written(tmp_path / "graph", *tables("text"), files=2)
    divided(folder, tmp_path / "expected")
    for calls in range(1, 100):
        left = iter(range(calls - 1))

        def progress(what, done, total, left=left):
            if next(left, None) is None:
                raise Ended

        try:
            divided(folder, tmp_path / f"parts {calls}", progress=progress)
        except Ended:
            unfinished = tmp_path / f".parts {calls}.unfinished"
            for bucket in (unfinished / "buckets").glob("*"):
                bucket.write_bytes(bucket.read_bytes() + b"something that was not finished")
            divided(folder, tmp_path / f"parts {calls}")
            assert content(tmp_path / f"parts {calls}") == content(tmp_path / "expected")
            assert not unfinished.exists()
        else:
            break
    assert calls > 10


@pytest.mark.slow
def test_killed_at_random(tmp_path):
    folder = written(tmp_path / "graph", *tables("text"), files=2)
    divided(folder, tmp_path / "expected", parts=40)
    command = [sys.executable, "-m", "graphveil", "shard", str(folder), str(tmp_path / "parts"), "--parts", "40"]
    killed = 0
    for seed in range(12):
        process = subprocess.Popen([*command, "--memory", "470MiB"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and not (tmp_path / ".parts.unfinished").exists():
            time.sleep(0.005)
        time.sleep(random.Random(seed).uniform(0, 0.3))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        if (tmp_path / "parts").exists():
            break
    if not (tmp_path / "parts").exists():
        subprocess.run([*command, "--memory", "470MiB"], check=True, stdout=subprocess.DEVNULL)
    assert killed
    assert content(tmp_path / "parts") == content(tmp_path / "expected")


def changed(table, column, row, value):
    cells = table.column(column).to_pylist()
    cells[row] = value
    return table.set_column(table.column_names.index(column), column, pa.array(cells))


FAULTS = {
    "unknown id": lambda n, e: (n, changed(e, "source", 7, "nobody")),
    "missing id": lambda n, e: (n, changed(e, "target", 3, None)),
    "loop": lambda n, e: (n, changed(e, "source", 5, e["target"][5].as_py())),
    "repeated edge": lambda n, e: (n, pa.concat_tables([e, e.slice(4, 2), e.slice(9, 1)])),
    "repeated node": lambda n, e: (changed(changed(n, "id", 9, n["id"][2].as_py()), "id", 30, n["id"][4].as_py()), e),
    "missing node": lambda n, e: (changed(n, "id", 9, None), e),
    "no nodes": lambda n, e: (n.slice(0, 0), e),
    "no column": lambda n, e: (n, e.drop_columns(["target"])),
    "infinite": lambda n, e: (changed(n, "age", 11, 1e300), e),
    "too many names": lambda n, e: (n.append_column("name", n["id"]), e),
    "set without a label": lambda n, e: (n.append_column("split", pa.array(["train"] * NODES)), e),
    "no set": lambda n, e: (n.append_column("split", pa.array(["all"] * NODES)), e),
    "nested": lambda n, e: (n.append_column("list", pa.array([[1, 2]] * NODES)), e),
}
ONLY_CSV = {
    "a word among numbers": lambda n, e: (n.append_column("sum", pa.array([*["1"] * (NODES - 1), "one"])), e),
    "a word among labels": lambda n, e: (
        n.drop_columns(["label"]).append_column("label", pa.array([*["1", "0"] * (NODES // 2 - 1), "one", "1"])),
        e,
    ),
    "a line that is torn": None,
}


@pytest.mark.parametrize(
    ("fault", "ending"),
    [(fault, "parquet") for fault in FAULTS] + [(fault, "csv") for fault in [*FAULTS, *ONLY_CSV] if fault != "nested"],
)
def test_errors_are_those_of_a_graph_in_memory(tmp_path, fault, ending):
    edit = (FAULTS | ONLY_CSV)[fault] or (lambda n, e: (n, e))
    folder = written(tmp_path / "graph", *edit(*tables("text")), ending)
    if edit is not FAULTS.get(fault) and ONLY_CSV.get(fault) is None:
        with (folder / "edges.csv").open("a") as file:
            file.write("person 3\n")
    with pytest.raises(InvalidInput) as in_memory:
        gv.read_graph(folder)
    with pytest.raises(InvalidInput) as divided_so:
        divided(folder, tmp_path / "parts")
    # What is read some rows at a time does not always know the number of a line that is torn.
    expected, said = (re.sub(r"Row #\d+: ", "", str(each.value)) for each in (in_memory, divided_so))
    assert said == expected.replace(str(folder / "edges.csv"), "edges.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_repairs_that_are_declared(tmp_path):
    nodes, edges = tables()
    edges = changed(pa.concat_tables([edges, edges.slice(3, 4)]), "source", 5, edges["target"][5].as_py())
    folder = written(tmp_path / "graph", nodes, edges, drop_self_loops=True, merge_duplicates=True)
    write_parts(gv.read_graph(folder), tmp_path / "expected", 3)
    divided(folder, tmp_path / "parts")
    assert content(tmp_path / "parts") == content(tmp_path / "expected")


def test_files_of_one_table_must_have_the_same_columns(tmp_path):
    folder = written(tmp_path / "graph", *tables(), files=2)
    table = pyarrow.parquet.read_table(folder / "nodes/1.parquet")
    pyarrow.parquet.write_table(
        table.rename_columns(["id", "years", *table.column_names[2:]]), folder / "nodes/1.parquet"
    )
    with pytest.raises(InvalidInput, match=r"1\.parquet, column = 'years': is not as in nodes/0\.parquet"):
        divided(folder, tmp_path / "parts")


def test_rows_of_several_files_are_named_with_their_file(tmp_path):
    nodes, edges = tables("text")
    folder = written(tmp_path / "graph", nodes, pa.concat_tables([edges, edges.slice(4, 1)]), files=2)
    with pytest.raises(InvalidInput, match=r"1.parquet, row \d+, column 'source' = .* in row 5 of 0.parquet"):
        divided(folder, tmp_path / "parts")


def test_an_address(tmp_path):
    folder = written(tmp_path / "graph", *tables("text"), files=3)
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/bucket/graph", recursive=True)
    divided(folder, tmp_path / "expected")
    divided("memory://bucket/graph", tmp_path / "parts")
    assert content(tmp_path / "parts") == content(tmp_path / "expected")
    with pytest.raises(InvalidInput, match="nowhere"):
        divided("memory://bucket/nowhere", tmp_path / "other")
    with pytest.raises(InvalidInput, match="unknown"):
        divided("unknown://bucket/graph", tmp_path / "other")


def test_the_unfinished_division_of_other_tables(tmp_path):
    folder = written(tmp_path / "graph", *tables())

    def end(what, done, total):
        if what == "writing nodes":
            raise Ended

    with pytest.raises(Ended):
        divided(folder, tmp_path / "parts", progress=end)
    os.utime(folder / "edges.parquet", (0, 0))
    with pytest.raises(InvalidInput, match="is the unfinished division of other tables or with other options"):
        divided(folder, tmp_path / "parts")
    with pytest.raises(InvalidInput, match="exists already"):
        divided(folder, folder)


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 2**32), ("500MB", 500_000_000), ("1.5g", 3 * 2**29), ("2e9", 2 * 10**9)]
)
def test_memory_in_words(text, size):
    assert parse_memory(text).total == size


@pytest.mark.parametrize("text", ["", "much", "4XB", "-4GiB", "100MiB", "1e999"])
def test_memory_that_is_none(text):
    with pytest.raises(InvalidInput, match="memory"):
        parse_memory(text)


def test_a_bucket_that_is_too_large_is_divided(tmp_path):
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 1000, 5000), np.where(rng.random(5000) < 0.9, 3, rng.integers(0, 1000, 5000))
    buckets = EdgeBuckets(tmp_path / "buckets", [0, 500, 1000], both_ways=False, at_once=64)
    for first in range(0, 5000, 700):
        buckets.add(source[first : first + 700], target[first : first + 700])
    repeats: list[tuple[int, int]] = []
    entries = [np.stack(ends) for bucket in range(2) for ends in buckets.entries(bucket, repeats)]
    keys, counts = np.unique(target * 1000 + source, return_counts=True)
    ours = np.concatenate(entries, axis=1)
    assert np.array_equal(ours[1] * 1000 + ours[0], keys)
    assert {(t * 1000 + s) for s, t in repeats} == set(keys[counts > 1].tolist())
    assert len(list(Path(tmp_path / "buckets").iterdir())) == 2


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_labels_that_are_floats_are_the_integers_that_they_are(tmp_path, ending):
    nodes, edges = tables()
    labels = np.where(np.arange(NODES) % 5 == 0, np.nan, np.arange(NODES) % 3)
    written_so = pa.array(labels, from_pandas=True)
    if ending == "csv":
        written_so = pa.array([None if np.isnan(label) else f"{label:.1f}" for label in labels])
    nodes = nodes.set_column(nodes.column_names.index("label"), "label", written_so)
    for name, declared in (("found", {}), ("declared", {"classes": [0, 1, 2]})):
        folder = written(tmp_path / name, nodes, edges, ending, **declared)
        graph = gv.read_graph(folder)
        write_parts(graph, tmp_path / f"{name} expected", 3)
        counts = divided(folder, tmp_path / f"{name} parts")
        assert content(tmp_path / f"{name} parts") == content(tmp_path / f"{name} expected")
        assert str(counts) == str(graph.counts)
        assert counts.labels_as is not None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nodes.csv", "is a file; give the folder that it is in, {folder}"),
        (
            "people.csv",
            "is a file; give the folder that it is in, {folder}, and write its name as node_table into graph",
        ),
        ("graph.npz", "is a file, and tables that are read in parts (--memory) are in a folder"),
    ],
)
def test_a_file_in_place_of_the_folder(tmp_path, name, why):
    folder = written(tmp_path / "graph", *tables(), "csv")
    path = folder / name
    if not path.exists():
        path.touch()
    with pytest.raises(InvalidInput, match=re.escape(f"path = {str(path)!r}: {why.format(folder=folder)}")):
        divided(path, tmp_path / "parts")


def test_a_disk_that_is_full_is_one_line_and_keeps_what_is_done(tmp_path):
    given = written(tmp_path / "tables", *tables("text"))
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, most[1]))  # too little for the database of ids
    try:
        with pytest.raises(InvalidInput, match=r"out = .*cannot be written: .*File too large"):
            divided(given, tmp_path / "parts")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert (tmp_path / ".parts.unfinished").is_dir()
    assert not (tmp_path / "parts").exists()
    divided(given, tmp_path / "parts")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "tables"]
