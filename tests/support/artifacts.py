"""A small graph, models fitted to it, two nodes that join it, and files that somebody has changed."""

import graphveil as gv
from graphveil.artifact.contents import Entry, read_manifest
from graphveil.graph import csbm
from graphveil.methods import method_class

SEED = 918273645
GRAPH = csbm(0.6, n=120, f=8, d=5, seed=1)
NEW = {"ids": ["anna", "ben"], "features": [[1.0] * 8, [0.5] * 8], "neighbors": [[1, 2, 30], []]}


def fitted(method="dpdgc", level=None, **options):
    level = level or gv.KNeighbor(1)
    epsilon = None if isinstance(level, gv.Public) else 4.0
    words = {"level": level, "epsilon": epsilon, "seed": SEED, "steps": 2, "epochs": 2, "hidden": 8}
    if method == "dpdgc" and isinstance(level, gv.KNeighbor | gv.Node):
        words["table"] = "labels"  # one plan without branches
    if isinstance(level, gv.Node) or "max_degree" in options:
        words["reserved_readers"] = 2  # what NEW needs
    return method_class(method)(**{**words, **options}).fit(GRAPH)


def save_with_new_nodes(folder):
    """A run folder whose model has answered for `NEW`."""
    fitted().save(folder)
    gv.load(folder).predict_new(**NEW)
    return folder


def reseal(folder, file, data):
    """Replace a file, or add one, and make the manifest fit it."""
    (folder / file).write_bytes(data)
    manifest = read_manifest(folder)
    old = manifest.files.get(file)
    entry = Entry.of(data, "owner") if old is None else Entry.of(data, old.audience, old.kind)
    (folder / "manifest.json").write_bytes(manifest.with_files({file: entry}).render())
