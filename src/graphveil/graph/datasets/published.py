"""Graphs whose published files are read as they are: Facebook100, OGB, Reddit, WikiCS, Elliptic, DGraphFin.

Each reader takes the folder that holds the files and returns a graph without filtering, except for self-loops and equal
edges. Those with a published split keep it. Layouts are those of `ogb` and of PyTorch Geometric's classes; neither of
them is needed to read them, nor is pandas.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphveil.errors import InvalidInput
from graphveil.graph.graph import Graph
from graphveil.graph.splits import MASKS, time_split
from graphveil.validate import decoding

OGB_ADDRESS = "http://snap.stanford.edu/ogb/data/nodeproppred"
REDDIT_ADDRESS = "https://data.dgl.ai/dataset/reddit.zip"
WIKICS_ADDRESS = "https://github.com/pmernyei/wiki-cs-dataset/raw/master/dataset/data.json"
ELLIPTIC_ADDRESS = "https://data.pyg.org/datasets/elliptic"
DGRAPHFIN_ADDRESS = "https://dgraph.xinye.com"

FACEBOOK_ADDRESS = "https://github.com/sisaman/pyg-datasets/raw/main/datasets/facebook100"
FACEBOOK_COLUMNS = ("status", "gender", "major", "minor", "housing", "year")
FACEBOOK_MIN_CLASS = 1000

SCHOOLS = tuple(
    """
    American75 Amherst41 Auburn71 BC17 BU10 Baylor93 Berkeley13 Bingham82 Bowdoin47 Brandeis99 Brown11 Bucknell39 Cal65
    Caltech36 Carnegie49 Colgate88 Columbia2 Cornell5 Dartmouth6 Duke14 Emory27 FSU53 GWU54 Georgetown15 Hamilton46
    Harvard1 Haverford76 Howard90 Indiana69 JMU79 JohnsHopkins55 Lehigh96 MIT8 MSU24 MU78 Maine59 Maryland58 Mich67
    Michigan23 Middlebury45 Mississippi66 NYU9 Northeastern19 Northwestern25 NotreDame57 Oberlin44 Oklahoma97 Penn94
    Pepperdine86 Princeton12 Reed98 Rice31 Rochester38 Rutgers89 Santa74 Simmons81 Smith60 Stanford3 Swarthmore42
    Syracuse56 Temple83 Tennessee95 Texas80 Texas84 Trinity100 Tufts18 Tulane29 UC33 UC61 UC64 UCF52 UCLA26 UCSB37
    UCSC68 UCSD34 UChicago30 UConn91 UF21 UGA50 UIllinois20 UMass92 UNC28 UPenn7 USC35 USF51 USFCA72 UVA16 Vanderbilt48
    Vassar85 Vermont70 Villanova62 Virginia63 Wake73 WashU32 Wellesley22 Wesleyan43 William77 Williams40 Wisconsin87
    Yale4
    """.split()  # noqa: SIM905
)

# The file that the paper's figures are about.
GIT_BLOBS = {"UIllinois20": "140f9c6e2f4bf041abe5c7cdf838f92786420b3a"}

# By the name of an OGB graph: its classes, whether links have a direction, and the folder of its published split.
OGB = {"arxiv": (40, True, "time"), "products": (47, False, "sales_ranking")}
ELLIPTIC_FILES = tuple(f"elliptic_txs_{part}.csv" for part in ("features", "edgelist", "classes"))
# The first time step of Elliptic's published test set.
ELLIPTIC_TEST_FROM = 35


@dataclass(frozen=True)
class Source:
    """Where a graph comes from.

    Args:
        folder: The folder under the root.
        files: Its raw files, below the folder.
        load: Makes a graph of them, from the root.
        download: Fetches them into a root; None if that has to be done by hand.
        address: Where to fetch them by hand.
        has_split: Whether the graph has a published split, which is kept.
    """

    folder: str
    files: tuple[str, ...]
    load: Callable[[Path], Graph]
    download: Callable[[Path], Any] | None
    address: str = ""
    has_split: bool = False


def ogb_files(name: str) -> tuple[str, ...]:
    """The files of an OGB graph, below its folder."""
    raw = (f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "num-node-list"))
    return (*raw, *(f"split/{OGB[name][2]}/{part}.csv.gz" for part in ("train", "valid", "test")))


def load_ogb(folder: Path, name: str) -> Graph:
    """ogbn-arxiv or ogbn-products; undirected graphs are stored with one entry for each edge."""
    classes, directed, split = OGB[name]
    (count,) = _numbers(folder / "raw" / "num-node-list.csv.gz", np.int64)[:, 0]
    features = _numbers(folder / "raw" / "node-feat.csv.gz", np.float32)
    labels = _numbers(folder / "raw" / "node-label.csv.gz", np.float64)
    edges = _numbers(folder / "raw" / "edge.csv.gz", np.int64)
    if not len(features) == len(labels) == count or labels.shape[1] != 1 or edges.shape[1] != 2:
        shapes = f"{features.shape} features, {labels.shape} labels, {edges.shape} edges for {count} nodes"
        raise InvalidInput("path", str(folder), f"does not fit together: {shapes}")
    parts = (folder / "split" / split / f"{part}.csv.gz" for part in ("train", "valid", "test"))
    masks = {mask: _mask(_numbers(part, np.int64)[:, 0], count) for mask, part in zip(MASKS, parts, strict=True)}
    return _graph(
        edges.T,
        features,
        np.where(np.isnan(labels[:, 0]), -1, labels[:, 0]).astype(np.int64),
        name=f"ogbn-{name}",
        num_classes=classes,
        directed=directed,
        symmetrize=not directed,
        **masks,
    )


def load_reddit(folder: Path) -> Graph:
    """Posts of September 2014, linked where one person wrote comments on both; the class is the community."""
    import scipy.sparse as sp

    with np.load(folder / "reddit_data.npz") as data:
        features, labels, kinds = (data[key] for key in ("feature", "label", "node_types"))
    links = sp.coo_array(sp.load_npz(folder / "reddit_graph.npz"))
    masks = {mask: kinds == kind for kind, mask in enumerate(MASKS, start=1)}
    ends = np.stack([links.row, links.col])
    return _graph(ends, features, labels, name="reddit", num_classes=41, directed=False, **masks)


def load_wikics(folder: Path) -> Graph:
    """Articles on computer science and the links between them, taken as undirected, as PyTorch Geometric does."""
    data = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    lengths = [len(targets) for targets in data["links"]]
    ends = np.array([target for targets in data["links"] for target in targets], dtype=np.int64)
    sources = np.repeat(np.arange(len(lengths)), lengths)
    features = np.array(data["features"], dtype=np.float32)
    edges = np.stack([sources, ends])
    return _graph(edges, features, data["labels"], name="wikics", num_classes=10, directed=False, symmetrize=True)


def load_elliptic(folder: Path) -> Graph:
    """Bitcoin transactions and payments between them; licit, illicit or not known, in 49 steps of time."""
    features, links, classes = (folder / file for file in ELLIPTIC_FILES)
    table = _numbers(features, np.float64)
    ids, times = table[:, 0].astype(np.int64), table[:, 1]
    place = {number: index for index, number in enumerate(ids.tolist())}
    codes = {"2": 0, "1": 1, "unknown": -1}
    labels = np.full(len(ids), -1)
    for number, code in _rows(classes, "txId", "class"):
        labels[_looked_up(place, int(number), classes)] = _looked_up(codes, code, classes)
    ends = [[_looked_up(place, int(end), links) for end in pair] for pair in _rows(links, "txId1", "txId2")]
    return _graph(
        np.array(ends, dtype=np.int64).reshape(-1, 2).T,
        table[:, 2:].astype(np.float32),
        labels,
        name="elliptic",
        class_names=("licit", "illicit"),
        directed=True,
        **time_split(times, labels, ELLIPTIC_TEST_FROM),
    )


def load_dgraphfin(folder: Path) -> Graph:
    """People of a lender and whom they name as contacts; fraud or not, and many without a label (codes 2 and 3)."""
    with zipfile.ZipFile(folder / "DGraphFin.zip") as archive, archive.open("dgraphfin.npz") as file:
        data = np.load(file)
        features, codes, edges = (data[key] for key in ("x", "y", "edge_index"))
        parts = {mask: data[key] for mask, key in zip(MASKS, ("train_mask", "valid_mask", "test_mask"), strict=True)}
    return _graph(
        edges.T,
        features.astype(np.float32),
        np.where(codes <= 1, codes, -1),
        name="dgraphfin",
        class_names=("normal", "fraud"),
        directed=True,
        **{mask: _mask(nodes, len(codes)) for mask, nodes in parts.items()},
    )


def git_blob_id(content: bytes) -> str:
    """The name git gives to a file with this content.

    Example:
        >>> git_blob_id(b"hello\\n")
        'ce013625030ba8dba906f756967f9e9ca394464a'
    """
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def load_school(path: Path, school: str) -> Graph:
    """Facebook100: friendships within one school in September 2005, before filtering, without a split.

    A node is a person; the target is the class year. Features are the one-hot codes of status, gender, major, minor and
    housing, 0 meaning "not given". Filtering is that of GAP (https://arxiv.org/abs/2203.00949): people without a year
    and years with fewer than 1,000 people are left out, then people without friends.
    """
    from scipy.io import loadmat

    expected = GIT_BLOBS.get(school)
    if expected is not None and (blob := git_blob_id(path.read_bytes())) != expected:
        raise InvalidInput("path", str(path), f"is not the published {school}.mat: git blob {blob}, not {expected}")
    with decoding(path, "a Facebook100 .mat file"):
        content = loadmat(path, variable_names=["A", "local_info"])
        people = dict(zip(FACEBOOK_COLUMNS, content["local_info"].T.astype(np.int64), strict=False))
        years = np.unique(people["year"][people["year"] > 0])
        return Graph.from_scipy(
            content["A"],
            np.concatenate([_one_hot(people[column]) for column in FACEBOOK_COLUMNS[:-1]], axis=1),
            np.where(people["year"] > 0, np.searchsorted(years, people["year"]), -1),
            directed=False,
            class_names=years.tolist(),
            name=school.lower(),
            drop_self_loops=True,
        )


def _one_hot(codes: np.ndarray) -> np.ndarray:
    """One column per code that occurs in the whole file; 0, "not given", has none."""
    values = np.unique(codes[codes > 0])
    return (codes[:, None] == values).astype(np.float32)


def download_school(school: str, folder: Path) -> None:
    """Fetch the `.mat` file from its public address into `folder`."""
    fetch(f"{FACEBOOK_ADDRESS}/{school}.mat", folder, unpack=False)


def fetch(address: str, folder: Path, unpack: bool) -> None:
    """Fetch a file of a public address into a folder, and unpack it there if it is an archive."""
    from torch_geometric.data import download_url, extract_zip

    path = download_url(address, str(folder), log=False)
    if unpack:
        extract_zip(path, str(folder), log=False)
        Path(path).unlink()


def fetch_ogb(root: Path, name: str) -> None:
    """Fetch an OGB graph; its archive has a folder without the prefix."""
    fetch(f"{OGB_ADDRESS}/{name}.zip", root, unpack=True)
    (root / name).rename(root / f"ogbn_{name}")


def fetch_elliptic(folder: Path) -> None:
    """Fetch the three tables of Elliptic."""
    for file in ELLIPTIC_FILES:
        fetch(f"{ELLIPTIC_ADDRESS}/{file}.zip", folder, unpack=True)


def _graph(edges: np.ndarray, features: Any, labels: Any, **fields: Any) -> Graph:
    return Graph.from_edge_index(edges, features, labels, drop_self_loops=True, merge_duplicates=True, **fields)


def _numbers(path: Path, kind: type) -> np.ndarray:
    """A table of numbers without a head, by rows; an empty cell is not a number."""
    from pyarrow import csv

    table = csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=True))
    columns = [column.to_numpy().astype(kind, copy=False) for column in table.columns]
    return np.stack(columns, axis=1)


def _rows(path: Path, *columns: str) -> list[tuple[str, ...]]:
    """These columns of a table with a head, as text."""
    import pyarrow as pa
    from pyarrow import csv

    types = {column: pa.string() for column in columns}
    table = csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=columns, column_types=types))
    return list(zip(*(table[column].to_pylist() for column in columns), strict=True))


def _looked_up(places: dict[Any, int], key: Any, path: Path) -> int:
    if key not in places:
        raise InvalidInput("path", str(path), f"has {key!r}, which is not in the other tables")
    return places[key]


def _mask(nodes: np.ndarray, count: int) -> np.ndarray:
    mask = np.zeros(count, dtype=bool)
    mask[nodes] = True
    return mask


def _own_layout(
    folder: str,
    files: tuple[str, ...],
    load: Callable[[Path], Graph],
    download: Callable[[Path], Any] | None,
    *,
    address: str = "",
    has_split: bool = True,
) -> Source:
    """A dataset whose files are read by a function of this module."""
    return Source(folder, files, lambda root: load(root / folder), download, address, has_split)


def _ogb(name: str) -> Source:
    read, get = partial(load_ogb, name=name), partial(fetch_ogb, name=name)
    return _own_layout(f"ogbn_{name}", ogb_files(name), read, get)


SOURCES = {
    "ogbn-arxiv": _ogb("arxiv"),
    "ogbn-products": _ogb("products"),
    "wikics": _own_layout(
        "WikiCS/raw",
        ("data.json",),
        load_wikics,
        lambda root: fetch(WIKICS_ADDRESS, root / "WikiCS" / "raw", unpack=False),
        has_split=False,
    ),
    "reddit": _own_layout(
        "Reddit/raw",
        ("reddit_data.npz", "reddit_graph.npz"),
        load_reddit,
        lambda root: fetch(REDDIT_ADDRESS, root / "Reddit" / "raw", unpack=True),
    ),
    "elliptic": _own_layout(
        "Elliptic/raw",
        ELLIPTIC_FILES,
        load_elliptic,
        lambda root: fetch_elliptic(root / "Elliptic" / "raw"),
    ),
    "dgraphfin": _own_layout("DGraphFin/raw", ("DGraphFin.zip",), load_dgraphfin, None, address=DGRAPHFIN_ADDRESS),
}
