"""Graphs that were saved with `torch.save(data, "graph.pt")`, loaded without running any code from the file.

A PyG `Data`, the dictionary of `data.to_dict()`, or the processed file of an `InMemoryDataset` with a single graph.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from graphveil.errors import InvalidInput
from graphveil.graph.convert import MASKS, fields_from_pyg
from graphveil.graph.report import FeatureColumn, Reading
from graphveil.storage.decoding import decoding, inside

_READ = ("edge_index", "x", "y", "num_nodes", *MASKS)


def read_pt(path: Path, split: int) -> Reading:
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    # Only what PyG has not registered itself: on leaving, torch forgets every class that is listed here.
    known = torch.serialization.get_safe_globals()
    needed = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known]
    with decoding(path, "a PyG file"), inside(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about unusual pickles; those that matter are errors
        try:
            with torch.serialization.safe_globals(needed):
                content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            raise InvalidInput(
                "content",
                path.suffix,
                "is damaged, or holds other objects than tensors and a PyG Data; loading those could run code. "
                "Save it again with torch.save(data.to_dict(), path)",
            ) from None
        data = _single_graph(content, Data)
        fields = fields_from_pyg(data, split)
        x = fields["x"]
        return Reading(
            fields=fields,
            edges_listed=int(data.edge_index.shape[1]),
            columns=() if x is None else (FeatureColumn("x", "numeric", int(x.shape[1])),),
            split=None if fields["train_mask"] is None else f"masks in the file, split {split}",
            unused=tuple(f"attribute {name!r}" for name in data.to_dict() if name not in _READ),
        )


def _single_graph(content: Any, data_class: Any) -> Any:
    if isinstance(content, tuple) and len(content) in (2, 3):
        content, slices = content[0], content[1]
        if slices and any(len(bounds) != 2 for bounds in slices.values()):
            raise InvalidInput("content", "InMemoryDataset", "holds more than one graph")
    if isinstance(content, dict) and isinstance(content.get("edge_index"), torch.Tensor):
        content = data_class.from_dict(content)
    if not isinstance(content, data_class):
        raise InvalidInput("content", type(content).__name__, "is not a PyG Data with an edge_index")
    return content
