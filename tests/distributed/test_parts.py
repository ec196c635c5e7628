"""A graph in parts: each process reads its own, and what is wrong is one line."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import graphveil as gv
from graphveil.distributed import Group, Shard, check_supported
from graphveil.distributed.parts import read_part, write_parts
from graphveil.distributed.shard import Layout
from graphveil.errors import InvalidInput
from graphveil.graph.summary import Undeclared
from support.distributed_fits import directed, graph
from support.jobs import together

pytestmark = pytest.mark.slow

FIELDS = ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    path = tmp_path_factory.mktemp("parts") / "graph"
    write_parts(graph(), path, 2)
    return path


def test_a_part_is_what_of_gives(parts):
    shard, expected = read_part(parts, Group(0, 1)), Shard.of(graph(), Group(0, 1))
    for field in FIELDS:
        assert np.array_equal(np.asarray(getattr(shard, field)), np.asarray(getattr(expected, field))), field
    assert (shard.name, shard.directed, shard.num_classes) == (expected.name, False, 2)


def own_rows(group, paths):
    shard = read_part(paths[group.rank], group)
    return shard.span.first, shard.span.count, int(shard.train_mask.sum()), len(shard.indices)


def test_each_process_reads_its_own_part_and_no_other(parts, tmp_path):
    paths = [tmp_path / "0", tmp_path / "1"]
    for mine, path in enumerate(paths):
        shutil.copytree(parts, path)
        shutil.rmtree(path / f"part-{1 - mine:05d}")
    rows = together(2, own_rows, paths)
    whole = graph()
    assert [first for first, *_ in rows] == [0, 251]
    totals = [sum(column) for column in zip(*rows, strict=True)][1:]
    assert totals == [502, int(whole.train_mask.sum()), whole.num_edges]


def columns_read(group, path, direction):
    shard = read_part(path, group, direction)
    expected = Shard.of(directed(), group, direction)
    return all(np.array_equal(getattr(shard, field), getattr(expected, field)) for field in ("indptr", "indices"))


@pytest.mark.parametrize("direction", ["in", "out"])
def test_either_end_of_an_edge_may_be_the_reader(tmp_path, direction):
    write_parts(directed(), tmp_path / "graph", 3)
    assert together(3, columns_read, tmp_path / "graph", direction) == [True] * 3


def facts_of(group, bound):
    shard = Shard.of(graph(), group)
    try:
        return shard.facts(group, edges=bound).edges
    except InvalidInput as error:
        return str(error)


def test_declared_edges_bound_those_of_all_parts_together():
    stored = graph().num_edges
    assert together(2, facts_of, None) == [None, None]
    assert together(2, facts_of, stored + 5) == [stored + 5] * 2
    refused = f"public_edges = {stored - 1}: the graph has more stored edges than this declared bound"
    assert together(2, facts_of, stored - 1) == [refused] * 2


def changed(parts, tmp_path, edit):
    path = shutil.copytree(parts, tmp_path / "graph")
    edit(path)
    with pytest.raises(InvalidInput) as caught:
        read_part(path, Group(0, 1))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _edges(path, change):
    file = path / "part-00000" / "edges.parquet"
    table = pyarrow.parquet.read_table(file)
    ends = {name: table.column(name).to_numpy().copy() for name in ("source", "target")}
    pyarrow.parquet.write_table(pa.table(change(ends)), file)


def _declare(path, **fields):
    file = path / "graph.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda p: _edges(p, lambda e: {k: v[1:] for k, v in e.items()}), "some edge has no way back"),
        (lambda p: _edges(p, lambda e: {k: np.append(v, v[:2]) for k, v in e.items()}), "no way back"),
        (lambda p: _edges(p, lambda e: {"source": e["target"], "target": e["target"]}), "back"),
        (lambda p: _edges(p, lambda e: {**e, "source": e["source"] + 502}), "source"),
        (lambda p: _edges(p, lambda e: {**e, "target": e["target"] + 251}), "must lie in 0 .. 250 in this part"),
        (lambda p: _declare(p, starts=[0, 300, 502]), "must be the numbers 0 .. 299 in order"),
        (lambda p: _declare(p, starts=[0, 0]), "starts"),
        (lambda p: _declare(p, format="other"), "format = 'other'"),
        (lambda p: _declare(p, classes=[5, 6]), "is not one of the declared classes"),
        (lambda p: (p / "part-00001" / "edges.parquet").write_bytes(b"PAR1"), "edges.parquet"),
        (lambda p: (p / "part-00001" / "nodes.parquet").unlink(), "nodes.parquet"),
        (lambda p: _edges(p, lambda e: {**e, "source": [None, *e["source"][1:]]}), "source = None: is missing"),
        (lambda p: _nodes(p, 0, _words), "column 'x0' = 'text': features of parts must be numbers"),
        (lambda p: _name(p, np.arange(1, 503)), "must be the numbers 0 .. 501 in order"),
    ],
)
def test_what_is_wrong_is_one_line(parts, tmp_path, edit, message):
    assert message in changed(parts, tmp_path, edit)


def test_duplicates_and_loops_of_directed_parts(parts, tmp_path):
    def twice(path):
        _declare(path, directed=True)
        _edges(path, lambda e: {k: np.append(v, v[:1]) for k, v in e.items()})

    def loop(path):
        _declare(path, directed=True)
        _edges(path, lambda e: {name: np.append(ends, e["target"][:1]) for name, ends in e.items()})

    assert "listed more than once" in changed(parts, tmp_path / "twice", twice)
    assert "leads back to its own node" in changed(parts, tmp_path / "loop", loop)


def refused(group, path):
    try:
        read_part(path, group)
    except InvalidInput as error:
        return str(error), error.everywhere


def test_more_processes_than_parts_or_nodes(parts):
    first, *others = together(3, refused, parts)
    assert others == [first] * 2
    assert first == (f"processes = 3: are more than the 2 parts of {parts.name}", True)
    with pytest.raises(InvalidInput, match="processes = 3: are more than there are nodes, 2"):
        Layout.even(2, 3)


def test_what_one_process_finds_is_said_by_all(parts, tmp_path):
    """A part that does not belong: the second process alone reads it."""
    shutil.copytree(parts, tmp_path / "graph")
    shutil.copy(parts / "part-00000" / "nodes.parquet", tmp_path / "graph" / "part-00001")
    first, second = together(2, refused, tmp_path / "graph")
    assert first == second
    assert "part-00001: nodes.parquet, column 'id' = " in first[0], first
    names = pa.table({"id": np.arange(502), "name": [f"p{i % 501}" for i in range(502)]})
    pyarrow.parquet.write_table(names, parts / "names.parquet")
    first, second = together(2, refused, parts)
    (parts / "names.parquet").unlink()
    assert first == second == ("names = 'names.parquet': gives the same name to two nodes", True)


def test_a_folder_is_not_overwritten(parts):
    with pytest.raises(InvalidInput, match=r"out = .*: exists already"):
        write_parts(graph(), parts, 2)


def test_a_graph_without_a_training_set():
    whole = graph().replace(train_mask=None, val_mask=None, test_mask=None)
    with pytest.raises(InvalidInput, match="the graph has no training set"):
        Shard.of(whole, Group(0, 1)).facts(Group(0, 1), edges=None)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (gv.SAGE(level=gv.Public()), "method = 'sage': does not run on several processes"),
        (gv.ProGAP(level=gv.KNeighbor(1), epsilon=1.0), "method = 'progap'"),
    ],
)
def test_what_does_not_run_on_several_processes(model, message):
    with pytest.raises(InvalidInput, match=message):
        check_supported(model)


def _nodes(path, part, change):
    file = path / f"part-{part:05d}" / "nodes.parquet"
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(file)), file)


def _words(table):
    return table.set_column(3, "x0", pa.array(["word"] * len(table)))


def _name(path, ids):
    pyarrow.parquet.write_table(pa.table({"id": ids, "name": [f"p{i}" for i in ids]}), path / "names.parquet")


def _swapped(table):
    names = table.column_names
    return table.select([*names[:3], names[4], names[3], *names[5:]])


COLUMNS = {
    "reordered": (_swapped, "feature column 1 = 'x1': in the first part it is 'x0'"),
    "renamed": (lambda t: t.rename_columns([*t.column_names[:3], "age", *t.column_names[4:]]), "'age': in the first"),
    "left out": (lambda t: t.drop_columns([t.column_names[-1]]), "= None: in the first part it is"),
    "added": (lambda t: t.append_column("more", t.column("x0")), "'more': the first part has no such column"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_the_same_in_the_same_order(parts, tmp_path, name):
    change, message = COLUMNS[name]
    assert message in changed(parts, tmp_path, lambda path: _nodes(path, 1, change))


def refusal(group, path):
    try:
        read_part(path, group)
    except InvalidInput as error:
        return str(error)
    except Exception as error:
        return type(error).__name__


def test_columns_are_compared_across_processes(parts, tmp_path):
    path = shutil.copytree(parts, tmp_path / "graph")
    _nodes(path, 1, _swapped)
    said = together(2, refusal, path)
    assert "part-00001: nodes.parquet, feature column 1 = 'x1': in the first part it is 'x0'" in said[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clases": [0, 1]}, "key = 'clases': must be one of format, name, directed, classes, starts"),
        ({"directed": "yes"}, "directed = 'yes'"),
        ({"name": 5}, "name = 5: must be text"),
        ({"sparse": 1}, "sparse = 1: must be true or false"),
        ({"classes": [0, "0", 1]}, "must be values of one type"),
        ({"classes": [0, 1, 1]}, "is listed twice"),
    ],
)
def test_declarations_are_strict(parts, tmp_path, fields, message):
    assert message in changed(parts, tmp_path, lambda path: _declare(path, **fields))


def test_a_declaration_that_is_missing(parts, tmp_path):
    def without(path):
        file = path / "graph.json"
        file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "directed"}))

    assert "key = 'directed': is missing" in changed(parts, tmp_path, without)


def test_names_and_undeclared_facts_travel_with_the_parts(tmp_path):
    whole = graph()
    undeclared = Undeclared(classes=2, categories=(("town", 3),))
    named = whole.replace(node_ids=[f"p{i}" for i in range(502)], class_names=["no", "yes"], undeclared=undeclared)
    write_parts(named, tmp_path / "graph", 2)
    shard = read_part(tmp_path / "graph", Group(0, 1))
    assert shard.node_ids.tolist() == named.node_ids.tolist()
    assert (shard.undeclared, shard.class_names) == (undeclared, ("no", "yes"))
    assert shard.facts(Group(0, 1), edges=None).undeclared == undeclared.facts()
    names = pa.table({"id": np.arange(502), "name": ["p"] * 502})
    pyarrow.parquet.write_table(names, tmp_path / "graph" / "names.parquet")
    with pytest.raises(InvalidInput, match="this id is given to more than one node"):
        read_part(tmp_path / "graph", Group(0, 1))
