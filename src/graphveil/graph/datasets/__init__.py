"""The benchmark graphs of the paper and a few more, by name."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.graph.datasets import published
from graphveil.graph.datasets.paper import csbm
from graphveil.graph.datasets.published import Source
from graphveil.graph.graph import Graph
from graphveil.graph.io import read_graph, write_graph
from graphveil.graph.splits import MASKS
from graphveil.validate import decoding

# Raise this when filtering or conversion changes: cached graphs of another format are not looked at.
_CACHE_FORMAT = 3
# The share of nonzero features up to which a sparse product is faster than a dense one.
_MOSTLY_EMPTY = 0.15
# Entries from which on a cached graph is not compressed: reading it would take longer than reading the raw files.
_WORTH_COMPRESSING = 10**8


class MissingData(InvalidInput):
    """The raw files of a dataset are in none of the folders that are searched."""


def load_dataset(name: str, root: str | Path | None = None, seed: int = 0, *, download: bool = False) -> Graph:
    """A benchmark graph with the paper's filtering and a random 75/10/15 split.

    Filtering (paper, appendix; docs/theory.md, section 7.2): classes with fewer than 50 nodes (Facebook100: 1,000),
    self-loops and isolated nodes are removed. Graphs that are not in the paper (below berkeley13 and wisconsin87) only
    lose self-loops, and equal edges become one.

    ogbn-arxiv, ogbn-products, reddit, elliptic and dgraphfin keep their published split, whatever the seed is.

    ========================= ====== ========= ======== ======= ========== ====================================
    name                      nodes  edges     features classes            from
    ========================= ====== ========= ======== ======= ========== ====================================
    squirrel                  5,201  216,933   2,089    5       directed   https://arxiv.org/abs/1909.13021
    chameleon                 2,277  36,051    2,325    5       directed   https://arxiv.org/abs/1909.13021
    facebook (UIllinois20)    26,406 2,117,924 501      6       undirected https://arxiv.org/abs/1102.2166
    pubmed                    19,717 88,648    500      3       undirected https://arxiv.org/abs/1603.08861
    computers                 13,471 491,722   767      10      undirected https://arxiv.org/abs/1811.05868
    cora                      2,708  10,556    1,433    7       undirected https://arxiv.org/abs/1603.08861
    photo                     7,535  238,162   745      8       undirected https://arxiv.org/abs/1811.05868
    berkeley13                18,939 1,354,934 437      6       undirected https://arxiv.org/abs/1102.2166
    wisconsin87               17,667 1,090,990 613      5       undirected https://arxiv.org/abs/1102.2166
    citeseer                  3,327  9,104     3,703    6       undirected https://arxiv.org/abs/1603.08861
    actor                     7,600  29,926    932      5       directed   https://arxiv.org/abs/2002.05287
    tolokers                  11,758 1,038,000 10       2       undirected https://arxiv.org/abs/2302.11640
    coauthor-cs               18,333 163,788   6,805    15      undirected https://arxiv.org/abs/1811.05868
    coauthor-physics          34,493 495,924   8,415    5       undirected https://arxiv.org/abs/1811.05868
    wikics                    11,701 ~431,000  300      10      undirected https://arxiv.org/abs/2007.02901
    ogbn-arxiv                169k   1,166k    128      40      directed   https://arxiv.org/abs/2005.00687
    ogbn-products             2,449k 123,719k  100      47      undirected https://arxiv.org/abs/2005.00687
    reddit                    232k   114,616k  602      41      undirected https://arxiv.org/abs/1706.02216
    elliptic                  203k   234k       165      2       directed   https://arxiv.org/abs/1908.02591
    dgraphfin                 3,700k 4,301k    17       2       directed   https://arxiv.org/abs/2207.03579
    csbm, csbm:PHI            10,000 ~50,000   200      2       undirected the paper's appendix; see `csbm`
    ========================= ====== ========= ======== ======= ========== ====================================

    Any other Facebook100 school works too, as `facebook:Yale4` or plainly `yale4`. Figures from coauthor-cs on are
    those that are published for the raw files.

    Args:
        name: one of the names above, in any case.
        root: the folder with the raw files in PyG's or ogb's layout; it is only read. If they are not there, the folder
            that GRAPHVEIL_DATA names is tried, and then what was downloaded before. Without a root: GRAPHVEIL_DATA,
            `data`.
        seed: of the split; for `csbm` too, where the graph itself stays the same.
        download: fetch missing raw files from their public address. They go to the cache: the folder GRAPHVEIL_CACHE,
            or `~/.cache/graphveil`.

    Returns:
        The graph, with a split.

    Raises:
        MissingData: the raw files are in none of these folders, and `download` is False.
        InvalidInput: there is no such dataset, or its files cannot be downloaded or read.

    Example:
        >>> graph = load_dataset("csbm:0.75", seed=3)
        >>> graph.num_nodes, graph.num_features, int(graph.train_mask.sum())
        (10000, 200, 7500)
    """
    validate.flag("download", download)
    key = canonical_name(name)
    if key.startswith("csbm"):
        return csbm(float(key.partition(":")[2] or 0.5), seed=0, split_seed=seed)
    source = SOURCES[key]
    raw = find_raw_files(key, source, root, download)
    graph = _cached(key, source, raw)
    return graph if source.has_split else graph.with_split(seed)


def dataset_names() -> tuple[str, ...]:
    """The graphs of the paper's Table 1, in its order, and then the others."""
    return (
        *("squirrel", "chameleon", "facebook", "pubmed", "computers", "cora", "photo"),
        *("berkeley13", "wisconsin87", "citeseer", "actor", "tolokers"),
        *(
            "coauthor-cs",
            "coauthor-physics",
            "wikics",
            "ogbn-arxiv",
            "ogbn-products",
            "reddit",
            "elliptic",
            "dgraphfin",
        ),
        "csbm",
    )


def keeps_split(name: str) -> bool:
    """Whether a dataset has a published split that it keeps; others get a random one by seed."""
    return name in SOURCES and SOURCES[name].has_split


def canonical_name(name: str) -> str:
    """The one spelling of a dataset's name.

    Example:
        >>> canonical_name("Facebook:UIllinois20"), canonical_name("Facebook:Yale4"), canonical_name("csbm:-0.50")
        ('facebook', 'yale4', 'csbm:-0.5')
    """
    key = name.strip().lower().replace("_", "-")
    family, colon, detail = key.partition(":")
    if family == "csbm" and colon:
        try:
            return f"csbm:{float(detail):g}"
        except ValueError:
            raise InvalidInput("dataset", name, "after 'csbm:' comes a number phi in [-1, 1]") from None
    school = (detail if family == "facebook" and colon else key).replace(" ", "")
    if school in _SCHOOLS:
        return "facebook" if school == "uillinois20" else school
    if key in dataset_names():
        return key
    raise InvalidInput("dataset", name, f"is not known; there are {', '.join(dataset_names())}, and facebook:SCHOOL")


def search_path(root: str | Path | None = None) -> list[Path]:
    """The folders that are searched for raw files, in order."""
    given = [Path(root)] if root is not None else []
    named = [Path(value)] if (value := os.environ.get("GRAPHVEIL_DATA")) else []
    return [*given, *named, *([Path("data")] if root is None else []), _cache_folder() / "raw"]


def _cache_folder() -> Path:
    return Path(os.environ.get("GRAPHVEIL_CACHE") or Path.home() / ".cache" / "graphveil")


def _school(school: str) -> Source:
    folder = f"{school}/raw"
    return Source(
        folder=folder,
        files=(f"{school}.mat",),
        load=lambda root: _filtered(
            published.load_school((root / folder / f"{school}.mat").resolve(), school), published.FACEBOOK_MIN_CLASS
        ),
        download=lambda root: published.download_school(school, root / folder),
    )


def _pyg(
    key: str,
    folder: str,
    files: tuple[str, ...],
    class_name: str,
    *arguments: str,
    below: str = "",
    directed: bool = False,
    min_class: int | None = 50,
) -> Source:
    """A dataset that PyG has a class for; `min_class` None leaves out the paper's filtering."""

    def build(root: Path) -> Any:
        import torch_geometric.datasets  # takes seconds, so only when a graph is really loaded

        return getattr(torch_geometric.datasets, class_name)(str(root / below), *arguments)

    def load(root: Path) -> Graph:
        data = build(root)[0]
        for mask in MASKS:
            data[mask] = None  # the published splits are other ones than the paper's
        graph = Graph.from_pyg(data, directed=directed, name=key, drop_self_loops=True)
        return graph if min_class is None else _filtered(graph, min_class)

    return Source(folder=folder, files=files, load=load, download=build)


def _coauthor(name: str) -> Source:
    files = (f"ms_academic_{name[:3].lower()}.npz",)
    return _pyg(f"coauthor-{name.lower()}", f"{name}/raw", files, "Coauthor", name, min_class=None)


def _planetoid(name: str) -> tuple[str, ...]:
    return tuple(f"ind.{name}.{part}" for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"))


def _geom_gcn(name: str) -> tuple[str, ...]:
    splits = (f"{name}_split_0.6_0.2_{i}.npz" for i in range(10))
    return ("out1_node_feature_label.txt", "out1_graph_edges.txt", *splits)


def _amazon(name: str) -> tuple[str, ...]:
    return (f"amazon_electronics_{name}.npz",)


_SCHOOLS = {school.lower(): _school(school) for school in published.SCHOOLS}
SOURCES = (
    _SCHOOLS
    | published.SOURCES
    | {
        "facebook": _SCHOOLS["uillinois20"],
        "cora": _pyg("cora", "Cora/raw", _planetoid("cora"), "Planetoid", "Cora"),
        "pubmed": _pyg("pubmed", "PubMed/raw", _planetoid("pubmed"), "Planetoid", "PubMed"),
        "citeseer": _pyg("citeseer", "CiteSeer/raw", _planetoid("citeseer"), "Planetoid", "CiteSeer", min_class=None),
        "photo": _pyg("photo", "Photo/raw", _amazon("photo"), "Amazon", "Photo"),
        "computers": _pyg("computers", "Computers/raw", _amazon("computers"), "Amazon", "Computers"),
        "squirrel": _pyg(
            "squirrel", "squirrel/geom_gcn/raw", _geom_gcn("squirrel"), "WikipediaNetwork", "squirrel", directed=True
        ),
        "chameleon": _pyg(
            "chameleon",
            "chameleon/geom_gcn/raw",
            _geom_gcn("chameleon"),
            "WikipediaNetwork",
            "chameleon",
            directed=True,
        ),
        "actor": _pyg("actor", "Actor/raw", _geom_gcn("film"), "Actor", below="Actor", directed=True, min_class=None),
        "tolokers": _pyg(
            "tolokers", "tolokers/raw", ("tolokers.npz",), "HeterophilousGraphDataset", "tolokers", min_class=None
        ),
        "coauthor-cs": _coauthor("CS"),
        "coauthor-physics": _coauthor("Physics"),
    }
)


def _filtered(graph: Graph, min_class: int) -> Graph:
    """The paper's filtering: without small classes and then without isolated nodes.

    Both steps look at the data. They define the public set of nodes and come before anything is private
    (docs/theory.md, section 9.4), so a certificate speaks about the filtered graph.
    """
    return _drop_isolated_nodes(_drop_small_classes(graph, min_class))


def _drop_small_classes(graph: Graph, min_class: int) -> Graph:
    """Without the nodes that have no label or whose class has fewer than `min_class` nodes; classes are renumbered."""
    y = graph.labels.numpy()
    sizes = np.bincount(y[y >= 0], minlength=graph.num_classes)
    large = np.flatnonzero(sizes >= min_class)
    number = np.full(graph.num_classes + 1, -1)
    number[large] = np.arange(len(large))
    renumbered = number[y]  # y = -1 picks the last place, which is -1
    if len(large) == graph.num_classes and (renumbered >= 0).all():
        return graph
    names = None if graph.class_names is None else tuple(graph.class_names[c] for c in large)
    kept = graph.subgraph(renumbered >= 0)
    return kept.replace(labels=renumbered[renumbered >= 0], num_classes=len(large), class_names=names)


def _drop_isolated_nodes(graph: Graph) -> Graph:
    """Without the nodes that neither have an edge nor are the target of one."""
    touched = np.diff(graph.indptr) > 0
    touched[graph.indices] = True
    return graph if touched.all() else graph.subgraph(touched)


def find_raw_files(key: str, source: Source, root: str | Path | None, download: bool) -> Path:
    """The first root under which every raw file is there."""
    roots = search_path(root)
    for place in roots:
        if all((place / source.folder / file).is_file() for file in source.files):
            return place
    if not download or source.download is None:
        looked = ", ".join(str(place / source.folder) for place in roots)
        more = f" and {len(source.files) - 1} other files" if len(source.files) > 1 else ""
        helps = "fetch them with --download, or name the folder that has them with --root"
        helps += f" (in Python download=True and root; `graphveil datasets {key} --download`)"
        if source.download is None:
            helps = f"fetch it by hand from {source.address}, and name the folder that has it with --root"
        raise MissingData("dataset", key, f"{source.files[0]}{more} not in {looked}; {helps}")
    target = roots[-1]
    try:
        target.mkdir(parents=True, exist_ok=True)
        source.download(target)
    except Exception as error:  # urllib, ssl, fsspec and aiohttp each have their own
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInput("dataset", key, f"cannot be downloaded: {said}") from None
    return target


def _cached(key: str, source: Source, root: Path) -> Graph:
    """The filtered graph, kept in the cache under a name that follows from the raw bytes."""
    digest = hashlib.blake2b(digest_size=8)
    for file in source.files:
        with (root / source.folder / file).open("rb") as opened:
            while block := opened.read(2**24):
                digest.update(block)
    path = _cache_folder() / "graphs" / f"{key}-{digest.hexdigest()}-{_CACHE_FORMAT}.npz"
    if path.is_file():
        try:
            return read_graph(path, seed=None)
        except InvalidInput:
            pass  # a damaged cache is built again
    graph = _with_sparse_features(_load_in_scratch_folder(source, root))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        small = graph.num_edges + graph.num_nodes * graph.num_features < _WORTH_COMPRESSING
        write_graph(graph, path, compress=small, overwrite=True)
    except OSError:
        pass  # a cache that cannot be written only costs time
    return graph


def _with_sparse_features(graph: Graph) -> Graph:
    """With sparse features where most entries are zero, because sparse products are then faster.

    This measures the features, which is allowed for public data alone.
    """
    x = graph.features
    if not isinstance(x, torch.Tensor) or int(x.count_nonzero()) > _MOSTLY_EMPTY * x.numel():
        return graph
    return graph.replace(features=sp.csr_array(x.numpy()))


def _load_in_scratch_folder(source: Source, root: Path) -> Graph:
    """PyG writes `processed/` beside `raw/`: let it do so in a scratch folder, whose raw files are links."""
    with tempfile.TemporaryDirectory(prefix="graphveil-") as scratch:
        folder = Path(scratch) / source.folder
        folder.mkdir(parents=True)
        for file in source.files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).symlink_to((root / source.folder / file).resolve())
        # PyG writes messages about its processing to stderr.
        with decoding(root / source.folder, "the raw files of this dataset"), redirect_stderr(io.StringIO()):
            return source.load(Path(scratch))
