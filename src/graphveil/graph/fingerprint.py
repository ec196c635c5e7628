"""A salted digest of a graph: whether two graphs are the same, without keeping either."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch

from graphveil.errors import InvalidInput
from graphveil.graph.graph import GraphView


@dataclass(frozen=True)
class Fingerprint:
    """A salted digest of links, features, labels, training and validation set.

    It can confirm a guess about private data, so it is for the owner. Because of the salt, two fingerprints do not show
    that they are of the same graph.
    """

    salt: str
    digest: str

    @classmethod
    def of(cls, graph: GraphView, salt: str | None = None) -> Self:
        """The fingerprint of a graph; without a salt, with a new one."""
        salt = salt or secrets.token_hex(16)
        return cls(salt, _digest(graph, salt))

    def is_of(self, graph: GraphView) -> bool:
        """Whether links, features, labels, training and validation set are the same."""
        return _digest(graph, self.salt) == self.digest

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What `to_dict` wrote; strict about its form."""
        if not isinstance(data, dict) or set(data) != {"salt", "digest"}:
            raise InvalidInput("content", type(data).__name__, "must have the keys salt and digest")
        if not all(isinstance(value, str) and 0 < len(value) <= 64 for value in data.values()):
            raise InvalidInput("content", sorted(data), "must be short texts")
        return cls(**data)


def _digest(graph: GraphView, salt: str) -> str:
    digest = hashlib.blake2b(key=salt.encode(), digest_size=16)
    for name, array in _arrays(graph):
        digest.update(f"{name} {array.dtype} {array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _arrays(graph: GraphView) -> Iterator[tuple[str, np.ndarray]]:
    # The types of indices are the reader's choice.
    yield "indptr", graph.indptr.astype(np.int64, copy=False)
    yield "indices", graph.indices.astype(np.int32 if len(graph.indptr) <= 2**31 else np.int64, copy=False)
    if isinstance(graph.features, torch.Tensor):
        yield "features", graph.features.numpy()
    else:
        for part in ("data", "indices", "indptr"):
            yield f"features.{part}", getattr(graph.features, part)
    for name in ("labels", "train_mask", "val_mask"):
        yield name, getattr(graph, name).numpy()
