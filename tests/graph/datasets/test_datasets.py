"""The benchmark graphs: figures of the paper, names, splits, and where files are looked for and written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.graph import dataset_names, load_dataset, statistics
from graphveil.graph.datasets import MissingData, canonical_name, published, search_path
from graphveil.graph.datasets.paper import PAPER_TABLE_1


def load(name: str, root: Path, **options: Any) -> Any:
    try:
        return load_dataset(name, root, **options)
    except MissingData:
        pytest.skip(f"no raw files of {name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER_TABLE_1)
def test_table_1_of_the_paper(data_root: Path, name: str) -> None:
    assert statistics(load(name, data_root)).printed() == PAPER_TABLE_1[name].printed()


OTHERS = {
    "berkeley13": (18_939, 1_354_934, 437, 6, False),
    "wisconsin87": (17_667, 1_090_990, 613, 5, False),
    "citeseer": (3_327, 9_104, 3_703, 6, False),
    "actor": (7_600, 29_926, 932, 5, True),
    "tolokers": (11_758, 1_038_000, 10, 2, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_other_graphs(data_root: Path, name: str) -> None:
    graph = load(name, data_root)
    counts = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes, graph.directed)
    assert counts == OTHERS[name]


@pytest.mark.slow
def test_directed_graphs_are_declared_so(data_root: Path) -> None:
    for name, directed in {"squirrel": True, "chameleon": True, "cora": False, "pubmed": False, "photo": False}.items():
        assert load(name, data_root).directed is directed


def test_facebook_classes_are_years(data_root: Path) -> None:
    assert load("berkeley13", data_root).class_names == ("2004", "2005", "2006", "2007", "2008", "2009")


def test_split_follows_the_seed(data_root: Path) -> None:
    a, b, c = (load("cora", data_root, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(a.train_mask, b.train_mask)
    assert torch.equal(a.val_mask, b.val_mask)
    assert not torch.equal(a.train_mask, c.train_mask)
    assert [int(mask.sum()) for mask in (a.train_mask, a.val_mask, a.test_mask)] == [2031, 271, 406]


def test_the_root_is_only_read(data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = data_root / "Cora" / "raw"
    if not source.is_dir():
        pytest.skip("no raw files of cora")
    raw = tmp_path / "root" / "Cora" / "raw"
    raw.mkdir(parents=True)
    for path in source.iterdir():
        shutil.copy(path, raw)
    monkeypatch.setenv("GRAPHVEIL_CACHE", str(tmp_path / "cache"))
    before = sorted(tmp_path.joinpath("root").rglob("*"))
    cold = load_dataset("cora", tmp_path / "root")
    warm = load_dataset("cora", tmp_path / "root")
    assert sorted(tmp_path.joinpath("root").rglob("*")) == before
    assert (cold.features != warm.features).nnz == 0
    assert np.array_equal(cold.indices, warm.indices)
    (cached,) = (tmp_path / "cache" / "graphs").iterdir()
    cached.write_bytes(b"damaged")
    assert load_dataset("cora", tmp_path / "root").num_edges == cold.num_edges


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GRAPHVEIL_CACHE", str(tmp_path / "file"))
    assert load("cora", data_root).num_nodes == 2708


def test_missing_files_say_what_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHVEIL_DATA", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GRAPHVEIL_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InvalidInput, match=r"UIllinois20.mat not in") as caught:
        load_dataset("facebook", tmp_path / "here")
    for place in ("here", "elsewhere", "cache"):
        assert str(tmp_path / place) in str(caught.value)
    with pytest.raises(InvalidInput, match=r"ind.cora.x and 7 other files"):
        load_dataset("cora", tmp_path)


def test_a_download_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise OSError("no\nroute")

    monkeypatch.setenv("GRAPHVEIL_CACHE", str(tmp_path))
    monkeypatch.setattr("torch_geometric.data.download_url", unreachable)
    monkeypatch.delenv("GRAPHVEIL_DATA", raising=False)
    with pytest.raises(InvalidInput, match=r"facebook.*cannot be downloaded"):
        load_dataset("facebook", tmp_path, download=True)


def test_where_raw_files_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHVEIL_DATA", "env")
    monkeypatch.setenv("GRAPHVEIL_CACHE", "cache")
    assert search_path("given") == [Path("given"), Path("env"), Path("cache/raw")]
    assert search_path() == [Path("env"), Path("data"), Path("cache/raw")]
    monkeypatch.delenv("GRAPHVEIL_DATA")
    assert search_path() == [Path("data"), Path("cache/raw")]


def test_names() -> None:
    assert canonical_name("Cora") == "cora"
    assert canonical_name("facebook:Berkeley13") == canonical_name("BERKELEY13") == "berkeley13"
    assert canonical_name("facebook:Johns Hopkins55") == "johnshopkins55"
    assert canonical_name("uillinois20") == "facebook"
    assert len(set(published.SCHOOLS)) == 100
    for name in dataset_names():
        assert canonical_name(name) == name
    for wrong in ("cor", "facebook:Hogwarts", "csbm:high"):
        with pytest.raises(InvalidInput, match=f"dataset = '{wrong}'"):
            canonical_name(wrong)


def test_csbm_by_name_varies_only_the_split_with_the_seed() -> None:
    a, b = load_dataset("csbm:-0.5", seed=1), load_dataset("csbm:-0.5", seed=2)
    assert a.name == "csbm:-0.5"
    assert np.array_equal(a.indices, b.indices)
    assert torch.equal(a.features, b.features)
    assert not torch.equal(a.train_mask, b.train_mask)
    with pytest.raises(InvalidInput, match="phi = 2"):
        load_dataset("csbm:2")


def school_file(path: Path) -> Path:
    """Six people: status, gender, major, minor, housing, year, high school."""
    A = np.zeros((6, 6))
    for i, j in [(0, 1), (1, 2), (3, 3), (4, 5), (0, 4)]:
        A[i, j] = A[j, i] = 1
    people = [
        [1, 1, 9, 0, 4, 2004, 7],
        [1, 2, 9, 0, 4, 2005, 7],
        [2, 2, 8, 0, 0, 2004, 7],
        [1, 0, 8, 3, 4, 2005, 7],
        [1, 1, 8, 0, 4, 0, 7],
        [1, 1, 7, 0, 4, 1990, 7],
    ]
    path.parent.mkdir(parents=True)
    scipy.io.savemat(path, {"A": sp.csc_matrix(A), "local_info": np.array(people, dtype=np.uint16)})
    return path


def test_facebook_filtering_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "FACEBOOK_MIN_CLASS", 2)
    monkeypatch.setenv("GRAPHVEIL_CACHE", str(tmp_path / "cache"))
    school_file(tmp_path / "Reed98" / "raw" / "Reed98.mat")
    graph = load_dataset("reed98", tmp_path)
    # Node 4 has no year, node 5 is alone in its year, node 3 is then alone: its loop does not count.
    assert graph.reads("out").toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert graph.class_names == ("2004", "2005")
    assert graph.labels.tolist() == [0, 1, 0]
    # status 1 2 | gender 1 2 | major 7 8 9 | minor 3 | housing 4: codes of the whole file, 0 is "not given".
    assert graph.features.tolist() == [
        [1, 0, 1, 0, 0, 0, 1, 0, 1],
        [1, 0, 0, 1, 0, 0, 1, 0, 1],
        [0, 1, 0, 1, 0, 1, 0, 0, 0],
    ]


def test_the_papers_facebook_must_be_the_published_file(tmp_path: Path) -> None:
    school_file(tmp_path / "UIllinois20" / "raw" / "UIllinois20.mat")
    with pytest.raises(InvalidInput, match=r"is not the published UIllinois20.mat: git blob") as caught:
        load_dataset("facebook", tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_raw_files_that_are_garbage(tmp_path: Path) -> None:
    for place in ("Reed98/raw/Reed98.mat", "tolokers/raw/tolokers.npz"):
        path = tmp_path / place
        path.parent.mkdir(parents=True)
        path.write_bytes(b"garbage")
        with pytest.raises(InvalidInput, match="cannot be read as"):
            load_dataset(path.stem.lower(), tmp_path)


def test_a_word_does_not_download_anything():
    with pytest.raises(InvalidInput, match="download = 'no': must be True or False"):
        load_dataset("cora", download="no")
