"""Published file layouts, on small files of the same layout that the tests write."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from graphveil.cli import app
from graphveil.errors import InvalidInput
from graphveil.experiments import GraphRef
from graphveil.experiments.execution import load_graph
from graphveil.graph import Graph, dataset_names, load_dataset
from graphveil.graph.datasets import MissingData, canonical_name

NODES = 60
DRAWS = np.random.default_rng(0)
FEATURES = DRAWS.normal(size=(NODES, 4)).astype(np.float32)
PARTS = {"train": np.arange(0, 40), "valid": np.arange(40, 50), "test": np.arange(50, 60)}
RING = np.stack([np.arange(NODES), (np.arange(NODES) + 1) % NODES])


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHVEIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHVEIL_DATA", raising=False)


def csv_gz(path: Path, rows: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(",".join(f"{value:g}" for value in np.atleast_1d(row)) for row in rows)
    path.write_bytes(gzip.compress((lines + "\n").encode()))


def write_ogb(root: Path, name: str, split: str) -> None:
    folder = root / f"ogbn_{name}"
    csv_gz(
        folder / "raw" / "edge.csv.gz", np.concatenate([RING, [[3, 3, 7], [3, 9, 8]]], axis=1).T
    )  # a loop, and one twice
    csv_gz(folder / "raw" / "node-feat.csv.gz", FEATURES)
    csv_gz(folder / "raw" / "node-label.csv.gz", np.arange(NODES) % 40)
    csv_gz(folder / "raw" / "num-node-list.csv.gz", np.array([NODES]))
    for part, nodes in PARTS.items():
        csv_gz(folder / "split" / split / f"{part}.csv.gz", nodes)


def write_reddit(root: Path) -> None:
    folder = root / "Reddit" / "raw"
    folder.mkdir(parents=True)
    kinds = np.repeat([1, 2, 3], [40, 10, 10])
    np.savez(folder / "reddit_data.npz", feature=FEATURES, label=np.arange(NODES) % 41, node_types=kinds)
    links = sp.coo_matrix((np.ones(NODES), (RING[0], RING[1])), shape=(NODES, NODES))
    sp.save_npz(folder / "reddit_graph.npz", (links + links.T).tocoo())


def write_wikics(root: Path) -> None:
    folder = root / "WikiCS" / "raw"
    folder.mkdir(parents=True)
    links = [[int((node + 1) % NODES), node] for node in range(NODES)]
    data = {"features": FEATURES.tolist(), "labels": [node % 10 for node in range(NODES)], "links": links}
    (folder / "data.json").write_text(json.dumps(data))


def write_elliptic(root: Path) -> None:
    folder = root / "Elliptic" / "raw"
    folder.mkdir(parents=True)
    ids = 1000 + 7 * np.arange(NODES)
    times = np.repeat([1, 40], [40, 20])
    rows = [",".join(map(str, (ids[i], times[i], *FEATURES[i]))) for i in range(NODES)]
    (folder / "elliptic_txs_features.csv").write_text("\n".join(rows) + "\n")
    names = ["unknown" if i % 3 == 0 else str(1 + i % 2) for i in range(NODES)]
    classes = [f"{ids[i]},{names[i]}" for i in reversed(range(NODES))]  # in another order
    (folder / "elliptic_txs_classes.csv").write_text("\n".join(["txId,class", *classes]) + "\n")
    links = [f"{ids[a]},{ids[b]}" for a, b in RING.T]
    (folder / "elliptic_txs_edgelist.csv").write_text("\n".join(["txId1,txId2", *links]) + "\n")


def write_dgraphfin(root: Path) -> None:
    folder = root / "DGraphFin" / "raw"
    folder.mkdir(parents=True)
    names = {"train_mask": "train", "valid_mask": "valid", "test_mask": "test"}
    masks = {key: PARTS[part][PARTS[part] % 4 < 2] for key, part in names.items()}
    packed = io.BytesIO()
    np.savez(packed, x=FEATURES.astype(np.float64), y=np.arange(NODES) % 4, edge_index=RING.T, **masks)
    with zipfile.ZipFile(folder / "DGraphFin.zip", "w") as archive:
        archive.writestr("dgraphfin.npz", packed.getvalue())


def write_coauthor(root: Path) -> None:
    for name, file in {"CS": "ms_academic_cs", "Physics": "ms_academic_phy"}.items():
        folder = root / name / "raw"
        folder.mkdir(parents=True)
        links = sp.csr_matrix((np.ones(NODES), (RING[0], RING[1])), shape=(NODES, NODES))
        features = sp.csr_matrix(FEATURES)
        np.savez(
            folder / f"{file}.npz",
            adj_data=links.data,
            adj_indices=links.indices,
            adj_indptr=links.indptr,
            adj_shape=links.shape,
            attr_data=features.data,
            attr_indices=features.indices,
            attr_indptr=features.indptr,
            attr_shape=features.shape,
            labels=np.arange(NODES) % 5,
        )


WRITERS: dict[str, Callable[[Path], None]] = {
    "ogbn-arxiv": lambda root: write_ogb(root, "arxiv", "time"),
    "ogbn-products": lambda root: write_ogb(root, "products", "sales_ranking"),
    "reddit": write_reddit,
    "wikics": write_wikics,
    "elliptic": write_elliptic,
    "dgraphfin": write_dgraphfin,
    "coauthor-cs": write_coauthor,
    "coauthor-physics": write_coauthor,
}
# Directed, stored edges, classes: of a ring of 60, with one more edge in OGB's files.
SHAPES = {
    "ogbn-arxiv": (True, 61, 40),
    "ogbn-products": (False, 122, 47),
    "reddit": (False, 120, 41),
    "wikics": (False, 120, 10),
    "elliptic": (True, 60, 2),
    "dgraphfin": (True, 60, 2),
    "coauthor-cs": (False, 120, 5),
    "coauthor-physics": (False, 120, 5),
}
OWN_SPLIT = ("ogbn-arxiv", "ogbn-products", "reddit", "elliptic", "dgraphfin")


def written(tmp_path: Path, name: str) -> Graph:
    WRITERS[name](tmp_path / "data")
    return load_dataset(name, tmp_path / "data", seed=1)


@pytest.mark.parametrize("name", WRITERS)
def test_a_small_graph_of_the_same_layout(tmp_path: Path, name: str) -> None:
    before = written(tmp_path, name)
    assert (before.directed, before.num_edges, before.num_classes) == SHAPES[name]
    counts = name.startswith("coauthor")  # PyTorch Geometric reads them as words that are there or not
    expected = np.where(FEATURES > 0, 1.0, FEATURES) if counts else FEATURES
    assert np.allclose(before.features_torch().to_dense().numpy(), expected, atol=1e-4)
    assert before.name == name
    files = sorted((tmp_path / "data").rglob("*"))
    again = load_dataset(name.upper().replace("-", "_"), tmp_path / "data", seed=2)  # from the cache
    assert sorted((tmp_path / "data").rglob("*")) == files, "raw folders are only read"
    assert np.array_equal(again.labels, before.labels)
    assert np.array_equal(again.train_mask, before.train_mask) == (name in OWN_SPLIT)
    again.check_trainable()
    other = load_graph(GraphRef(name), 3, str(tmp_path / "data"))
    assert np.array_equal(other.train_mask, before.train_mask) == (name in OWN_SPLIT)


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-products", "reddit"])
def test_published_splits_are_kept(tmp_path: Path, name: str) -> None:
    graph = written(tmp_path, name)
    for mask, nodes in zip((graph.train_mask, graph.val_mask, graph.test_mask), PARTS.values(), strict=True):
        assert mask.nonzero()[:, 0].tolist() == nodes.tolist()


def test_elliptic_goes_by_ids_and_by_time(tmp_path: Path) -> None:
    graph = written(tmp_path, "elliptic")
    assert graph.class_names == ("licit", "illicit")
    assert graph.labels[:6].tolist() == [-1, 0, 1, -1, 1, 0]
    known = np.flatnonzero(graph.labels.numpy() >= 0)
    assert graph.train_mask.nonzero()[:, 0].tolist() == [node for node in known if node < 40]
    assert graph.test_mask.nonzero()[:, 0].tolist() == [node for node in known if node >= 40]


def test_people_without_a_label_are_background(tmp_path: Path) -> None:
    graph = written(tmp_path, "dgraphfin")
    assert graph.labels[:4].tolist() == [0, 1, -1, -1]
    assert int(graph.train_mask.sum()) == 20


@pytest.mark.parametrize("name", WRITERS)
def test_missing_files_are_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingData) as caught:
        load_dataset(name, tmp_path)
    assert "\n" not in str(caught.value)
    assert f"dataset = '{name}'" in str(caught.value)
    assert ("by hand from https://dgraph.xinye.com" in str(caught.value)) == (name == "dgraphfin")


def test_a_file_that_must_be_fetched_by_hand_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="by hand"):
        load_dataset("dgraphfin", tmp_path, download=True)


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("ogbn-arxiv", "ogbn_arxiv/raw/edge.csv.gz", gzip.compress(b"0,1\n1,99\n", mtime=0)),
        ("ogbn-arxiv", "ogbn_arxiv/raw/node-label.csv.gz", gzip.compress(b"0\n1\n", mtime=0)),
        ("ogbn-arxiv", "ogbn_arxiv/split/time/train.csv.gz", b"garbage"),
        ("reddit", "Reddit/raw/reddit_data.npz", b"garbage"),
        ("wikics", "WikiCS/raw/data.json", b'{"links": []}'),
        ("elliptic", "Elliptic/raw/elliptic_txs_edgelist.csv", b"txId1,txId2\n1000,5\n"),
        ("elliptic", "Elliptic/raw/elliptic_txs_classes.csv", b"txId,class\n1000,maybe\n"),
        ("dgraphfin", "DGraphFin/raw/DGraphFin.zip", b"garbage"),
    ],
)
def test_damaged_files_are_one_line(tmp_path: Path, name: str, file: str, content: bytes) -> None:
    WRITERS[name](tmp_path / "data")
    (tmp_path / "data" / file).write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        load_dataset(name, tmp_path / "data")
    assert "\n" not in str(caught.value)


def test_they_are_listed_and_the_list_does_not_fail(tmp_path: Path) -> None:
    assert set(WRITERS) <= set(dataset_names())
    for name in WRITERS:
        assert canonical_name(name) == name
    write_reddit(tmp_path / "data")
    done = CliRunner().invoke(app, ["datasets", "--root", str(tmp_path / "data"), "--json"])
    assert done.exit_code == 0
    assert {row["name"] for row in json.loads(done.stdout)} == {"csbm", "reddit"}
    assert "missing: dataset = 'ogbn-products'" in done.stderr
