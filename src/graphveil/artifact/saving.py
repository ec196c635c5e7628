"""From a fitted model to a folder."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save as tensor_bytes

from graphveil import validate
from graphveil.artifact.answers import FolderAnswers, render
from graphveil.artifact.card import model_card
from graphveil.artifact.manifest import JOURNAL, MANIFEST, Audience, Entry, Manifest
from graphveil.artifact.tensors import rows_of, weights_of
from graphveil.errors import InvalidInput
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.levels import Public, level_to_dict
from graphveil.storage.files import write_folder

CONFIG_FORMAT = "graphveil-model/2"
CARD, CONFIG = "public/model_card.md", "public/config.json"
STATE, NODES = "owner/state.safetensors", "owner/nodes.json"
NAMING, GRAPH = "owner/naming.json", "owner/graph.json"
ALSO = ("metrics.json", "predictions.csv")  # what `graphveil train --out` adds
# Whoever knows the seed can subtract the noise; the others are no property of the model.
NOT_KEPT = frozenset({"seed", "device", "show_progress"})


def weights_path(level: object) -> str:
    """Weights that were trained without noise are not for the public."""
    return "owner/weights.safetensors" if isinstance(level, Public) else "public/weights.safetensors"


def save(
    model: NodeClassifier,
    folder: Path,
    *,
    budget: float | None = None,
    also: Mapping[str, bytes | Path] | None = None,
    tensors: tuple[Path, Path] | None = None,
) -> None:
    """Write a fitted model to a new folder, complete or not at all; `also` are files of `ALSO`, for the owner.

    `tensors` are the files of weights and rows, if they have been written already: they are moved.

    Formal guarantee: what is marked for anyone is a function of what the certificate covers in full (docs/artifact.md).
    A checkpoint that still holds the fit names this folder before the folder is there: one fit gives one artifact.
    """
    model.check_fitted()
    state = model.fitted_
    if os.path.lexists(folder):
        raise InvalidInput("folder", str(folder), "exists already; a run is never overwritten")
    if isinstance(state.answers, FolderAnswers) and model.draws_noise(from_graph=True):
        kept = str(state.answers.folder)
        raise InvalidInput("model", kept, "is where this model is kept; a second folder would draw noise a second time")
    limit = _budget(model, budget)
    certificate = model.certificate_
    covered, owners = _contents(model, limit, tensors)
    owners |= also or {}
    # Without protection nothing is for anyone.
    public: Audience = "owner" if isinstance(certificate.level, Public) else "anyone"
    entries = {name: Entry.of(data, public) for name, data in covered.items()}
    entries |= {name: Entry.of(data, "owner") for name, data in owners.items()}
    entries[JOURNAL] = Entry.of(owners[JOURNAL], "owner", "grows")
    audiences = {CARD: public, **{name: entry.audience for name, entry in entries.items()}}
    card = model_card(certificate, params_of(model), limit, audiences).encode()
    manifest = Manifest({**entries, CARD: Entry.of(card, public)})
    if state.keeper is not None:
        state.keeper.goes_to(folder, entries[STATE].sha256)
    write_folder(folder, {**covered, **owners, CARD: card, MANIFEST: manifest.render()})
    state.saved(FolderAnswers(folder), limit)


def _contents(
    model: NodeClassifier, budget: float, tensors: tuple[Path, Path] | None
) -> tuple[dict[str, bytes | Path], dict[str, bytes | Path]]:
    """Files that the certificate covers, and files for the owner alone."""
    state, certificate = model.fitted_, model.certificate_
    config = {
        "format": CONFIG_FORMAT,
        "method": model.method,
        "params": {**params_of(model), "level": level_to_dict(model.level)},
        "budget": budget if math.isfinite(budget) else None,
        "naming": state.naming.public_dict(),
    }
    weights, rows = tensors or (tensor_bytes(weights_of(model)), tensor_bytes(rows_of(model)))
    covered: dict[str, bytes | Path] = {
        "certificate.json": f"{certificate.to_json()}\n".encode(),
        "certificate.txt": f"{certificate}\n".encode(),
        CONFIG: _json(config),
    }
    owners: dict[str, bytes | Path] = {STATE: rows, JOURNAL: render(state.answers.given)}
    owners[NAMING] = _json(state.naming.owner_dict())
    if state.fingerprint is not None:
        owners[GRAPH] = _json(state.fingerprint.to_dict())
    if state.naming.nodes is not None:
        owners[NODES] = _json(list(state.naming.nodes))
    where = weights_path(certificate.level)
    (owners if where.startswith("owner/") else covered)[where] = weights
    return covered, owners


def params_of(model: NodeClassifier) -> dict[str, Any]:
    """The parameters that make a model what it is."""
    found = {name: value for name, value in model.get_params().items() if name not in NOT_KEPT}
    found["shares"] = None if model.shares is None else dict(model.shares)
    return found


def _budget(model: NodeClassifier, budget: float | None) -> float:
    spent = model.certificate_.epsilon
    if budget is None:
        return spent
    if validate.positive("budget", budget) < spent:
        raise InvalidInput("budget", budget, f"is less than the epsilon that the fit has cost, {spent:.4g}")
    return budget


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()
