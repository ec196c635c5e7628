"""`.npz` and PyG `.pt` files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data, InMemoryDataset

from graphveil.errors import InvalidInput
from graphveil.graph import Graph, csbm, read_graph, write_graph
from support.graphs import assert_same_graph


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_npz_there_and_back(tmp_path: Path, triangle: Graph, sparse: bool, compress: bool) -> None:
    graph = triangle.replace(node_ids=["a", "b", "c", "d"], class_names=["no", "yes"])
    if sparse:
        graph = graph.replace(features=sp.csr_array(triangle.features.numpy()))
    write_graph(graph, tmp_path / "g.npz", compress=compress)
    back = read_graph(tmp_path / "g.npz")
    assert_same_graph(back, graph)
    assert sp.issparse(back.features) == sparse


def test_a_directed_graph_without_labels_survives(tmp_path: Path) -> None:
    graph = Graph.from_edge_index([[0], [1]], num_nodes=3, directed=True, name="bare")
    write_graph(graph, tmp_path / "g.npz")
    assert_same_graph(read_graph(tmp_path / "g.npz"), graph)


def test_the_direction_in_the_file_cannot_be_contradicted(tmp_path: Path, triangle: Graph) -> None:
    write_graph(triangle, tmp_path / "g.npz")
    with pytest.raises(InvalidInput, match=r"directed = True: g.npz declares directed = False"):
        read_graph(tmp_path / "g.npz", directed=True)


def test_counts(tmp_path: Path, triangle: Graph) -> None:
    write_graph(triangle, tmp_path / "g.npz")
    counts = read_graph(tmp_path / "g.npz").counts
    assert counts is not None
    assert (counts.nodes, counts.edges_listed, counts.edges_stored, counts.labelled) == (4, 6, 6, 3)
    assert (counts.train, counts.val, counts.test, counts.split) == (2, 0, 1, "masks in the file")
    assert "3 of 4 nodes, 2 classes" in str(counts)


def test_a_file_without_a_split_gets_a_random_one_with_the_seed(tmp_path: Path) -> None:
    graph = csbm(n=200, f=3).replace(train_mask=None, val_mask=None, test_mask=None)
    write_graph(graph, tmp_path / "g.npz")
    a, b, c = (read_graph(tmp_path / "g.npz", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a.train_mask, b.train_mask)
    assert not torch.equal(a.train_mask, c.train_mask)
    assert a.counts is not None
    assert a.counts.split == "random, seed 1"
    assert not read_graph(tmp_path / "g.npz", seed=None).has_split


def save_npz(path: Path, **changes: Any) -> Path:
    arrays = {"adj_indptr": [0, 1, 2], "adj_indices": [1, 0], "features": np.zeros((2, 1)), "labels": [0, 1]} | changes
    given: dict[str, Any] = {key: np.asarray(value) for key, value in arrays.items() if value is not None}
    np.savez(path, **given)
    return path


NPZ_ERRORS = {
    "NaN": ({"features": [[0.0], [np.nan]]}, r"g.npz: features\[1, 0\] = nan"),
    "label": ({"labels": [0, -5]}, r"g.npz: labels\[1\] = -5"),
    "weight": ({"adj_data": [1, 2]}, r"g.npz: adj_data\[1\] = 2: must be 1"),
    "no adjacency": ({"adj_indptr": None}, "adj_indptr and adj_indices are needed"),
    "index": ({"adj_indices": [1, 7]}, r"g.npz: edge_index\[1, 1\] = 7"),
    "pointers": ({"adj_indptr": [0, 2, 1]}, "g.npz: indptr"),
    "flat features": ({"features": [1.0, 2.0]}, r"g.npz: features = \(2,\)"),
    "text labels": ({"labels": ["a", "b"]}, "g.npz: labels = '<U1': must be numbers"),
    "objects": ({"labels": np.array([{}, {}], dtype=object)}, "Object arrays cannot be loaded"),
    "half of a sparse matrix": ({"features": None, "attr_indptr": [0, 1, 1]}, "attr_data"),
    "sparse features out of range": (
        {"features": None, "attr_indptr": [0, 1, 1], "attr_indices": [9], "attr_data": [1.0], "attr_shape": [2, 1]},
        "features",
    ),
}


@pytest.mark.parametrize(("changes", "message"), NPZ_ERRORS.values(), ids=NPZ_ERRORS.keys())
def test_npz_errors_name_the_file(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_graph(save_npz(tmp_path / "g.npz", **changes))


def test_a_single_array_is_no_archive(tmp_path: Path) -> None:
    with (tmp_path / "g.npz").open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(InvalidInput, match=r"is a single array, not an \.npz archive"):
        read_graph(tmp_path / "g.npz")


def test_scipy_and_gnn_benchmark_keys(tmp_path: Path) -> None:
    np.savez(tmp_path / "bare.npz", indptr=[0, 1, 2], indices=[1, 0])
    assert read_graph(tmp_path / "bare.npz").num_edges == 2
    sp.save_npz(tmp_path / "scipy.npz", sp.csr_array([[0, 1], [1, 0]]))
    assert read_graph(tmp_path / "scipy.npz").num_edges == 2


def test_raw_photo_needs_the_repairs_that_pyg_makes(data_root: Path) -> None:
    path = data_root / "Photo" / "raw" / "amazon_electronics_photo.npz"
    with pytest.raises(InvalidInput, match=r"has no way back|edge to itself"):
        read_graph(path)
    graph = read_graph(path, symmetrize=True, drop_self_loops=True)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (7650, 238_162, 745, 8)
    assert graph.class_names is not None


def test_topology_of_the_web(data_root: Path) -> None:
    path = data_root / "web_Google" / "web_Google_csr.npz"
    if not path.is_file():
        pytest.skip("no web_Google_csr.npz under the data root")
    graph = read_graph(path, directed=True, drop_self_loops=True)
    assert (graph.num_nodes, graph.num_edges) == (875_713, 5_105_039)
    assert graph.reads("in").sum() == graph.reads("out").sum() == graph.num_edges


def test_writing_does_not_overwrite_unasked(tmp_path: Path, triangle: Graph) -> None:
    for target in (tmp_path / "g.npz", tmp_path / "g"):
        write_graph(triangle, target)
        with pytest.raises(InvalidInput, match="exists"):
            write_graph(triangle, target)
        write_graph(triangle.replace(name="second"), target, overwrite=True)
        assert read_graph(target).name == "second"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "g.npz"]
    with pytest.raises(InvalidInput, match=r"must end in .npz"):
        write_graph(triangle, tmp_path / "g.zip")
    with pytest.raises(InvalidInput, match=r"ending = 'xlsx': must be one of parquet, csv"):
        write_graph(triangle, tmp_path / "tables", ending="xlsx")
    with pytest.raises(InvalidInput, match="does not exist"):
        write_graph(triangle, tmp_path / "missing" / "g.npz")


def pyg_data() -> Data:
    return Data(
        x=torch.tensor([[1.0], [2.0], [3.0]]),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        y=torch.tensor([0, 1, 0]),
        train_mask=torch.tensor([[True, False], [False, True], [False, False]]),
    )


class OneGraph(InMemoryDataset):
    """Only its `save` is used."""


def test_pt_files_in_three_shapes(tmp_path: Path) -> None:
    torch.save(pyg_data(), tmp_path / "data.pt")
    torch.save(pyg_data().to_dict(), tmp_path / "dict.pt")
    OneGraph.save([pyg_data()], str(tmp_path / "dataset.pt"))
    for name in ("data.pt", "dict.pt", "dataset.pt"):
        graph = read_graph(tmp_path / name, split=1)
        assert (graph.num_nodes, graph.num_edges, graph.name) == (3, 2, name.removesuffix(".pt"))
        assert graph.train_mask.tolist() == [False, True, False]
    OneGraph.save([pyg_data(), pyg_data()], str(tmp_path / "two.pt"))
    with pytest.raises(InvalidInput, match="more than one graph"):
        read_graph(tmp_path / "two.pt")


def test_reading_leaves_the_safe_classes_of_torch_as_they_were(tmp_path: Path) -> None:
    torch.save(pyg_data(), tmp_path / "data.pt")
    before = set(torch.serialization.get_safe_globals())
    read_graph(tmp_path / "data.pt")
    assert set(torch.serialization.get_safe_globals()) == before


class Evil:
    def __reduce__(self) -> Any:
        return (Path("/nonexistent/marker").touch, ())


def test_pt_files_cannot_run_code(tmp_path: Path) -> None:
    torch.save({"edge_index": torch.zeros(2, 0), "x": Evil()}, tmp_path / "evil.pt")
    (tmp_path / "pickled.pt").write_bytes(pickle.dumps(Evil()))
    for name in ("evil.pt", "pickled.pt"):
        with pytest.raises(InvalidInput, match="loading those could run code"):
            read_graph(tmp_path / name)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InvalidInput, match="'list': is not a PyG Data"):
        read_graph(tmp_path / "list.pt")


def test_arguments_about_tables_do_not_apply_to_other_files(tmp_path: Path, triangle: Graph) -> None:
    write_graph(triangle, tmp_path / "g.npz")
    with pytest.raises(InvalidInput, match="is no folder of tables"):
        read_graph(tmp_path / "g.npz", label_column="kind")


def test_paths_that_are_no_graph(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file or folder"):
        read_graph(tmp_path / "missing.npz")
    (tmp_path / "graph.txt").write_text("0 1")
    with pytest.raises(InvalidInput, match=r"must be an .npz file"):
        read_graph(tmp_path / "graph.txt")


STRICT: dict[str, tuple[dict[str, Any], str]] = {
    "directed is 2": ({"directed": 2}, "directed = 2: must be a single boolean"),
    "directed is a word": ({"directed": "yes"}, "directed = 'yes': must be a single boolean"),
    "two directions": ({"directed": [False, True]}, r"directed = \[False, True\]: must be a single boolean"),
    "fractional classes": ({"num_classes": 2.5}, "num_classes = 2.5: must be a single whole number"),
    "a number for a name": ({"name": 5}, "name = 5: must be a single text"),
    "a class twice": ({"class_names": ["no", "no"]}, "classes = 'no': is listed twice"),
    "what was found is no JSON": ({"found": "[1]"}, r"found = \[1\]: must have the keys"),
}


@pytest.mark.parametrize(("arrays", "message"), STRICT.values(), ids=STRICT.keys())
def test_declarations_in_a_file_are_strict(
    tmp_path: Path, triangle: Graph, arrays: dict[str, Any], message: str
) -> None:
    write_graph(triangle, tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as file:
        content = {key: file[key] for key in file.files}
    np.savez(tmp_path / "g.npz", **(content | {key: np.array(value) for key, value in arrays.items()}))
    with pytest.raises(InvalidInput, match=f"g.npz: {message}"):
        read_graph(tmp_path / "g.npz")


def test_arrays_that_are_not_used_are_named_and_not_read(tmp_path: Path, triangle: Graph) -> None:
    write_graph(triangle, tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as file:
        content = {key: file[key] for key in file.files}
    # An array of Python objects cannot even be read without running code.
    np.savez(tmp_path / "g.npz", **content, embedding=np.zeros((4, 9)), notes=np.array([{}], dtype=object))
    graph = read_graph(tmp_path / "g.npz")
    assert graph.counts is not None
    assert graph.counts.unused == ("array 'embedding'", "array 'notes'")
    assert "unused    array 'embedding'" in str(graph.counts)


def test_attributes_that_are_not_used_are_named(tmp_path: Path) -> None:
    data = Data(x=torch.zeros(3, 2), edge_index=torch.tensor([[0, 1], [1, 0]]), edge_attr=torch.zeros(2, 1))
    torch.save(data, tmp_path / "g.pt")
    counts = read_graph(tmp_path / "g.pt").counts
    assert counts is not None
    assert counts.unused == ("attribute 'edge_attr'",)


@pytest.mark.parametrize("name", ["compress", "overwrite"])
def test_a_word_is_no_truth_value(tmp_path, name):
    with pytest.raises(InvalidInput, match=f"{name} = 'no': must be True or False"):
        write_graph(csbm(n=20, f=2), tmp_path / "mine.npz", **{name: "no"})
    assert not list(tmp_path.iterdir())
