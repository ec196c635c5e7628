"""A fitted model as a folder: what may be published, what stays with the owner of the data, and checksums of both.

    RUN/
      manifest.json               every file with its checksum and who may see it
      certificate.json, .txt      what was spent
      public/                     may be published: model_card.md, config.json, weights.safetensors
      owner/                      stays with the owner: state.safetensors, new_nodes.jsonl, nodes.json, naming.json,
                                  graph.json

No file holds A, X or the noise seed, nor labels that the level protects, and none is executed when it is read.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from graphveil import validate
from graphveil.artifact.contents import JOURNAL, list_derived, problems, read_files, restore
from graphveil.artifact.predictions import FolderAnswers
from graphveil.artifact.saving import (
    ALSO,
    CARD,
    CONFIG,
    CONFIG_FORMAT,
    GRAPH,
    NAMING,
    NODES,
    NOT_KEPT,
    STATE,
    save,
    weights_path,
)
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from graphveil.graph import Fingerprint, Graph
from graphveil.graph.summary import Naming
from graphveil.methods import method_class
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.inputs import Inputs
from graphveil.methods.predictions import FittedState
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.levels import level_from_dict, with_unit
from graphveil.validate import check_declared, decoding, inside

__all__ = ["list_derived", "load", "problems", "save"]


def load(folder: str | Path, *, graph: Graph | None = None, device: str = "cpu") -> NodeClassifier:
    """The model that `save` or `graphveil train --out` wrote.

    Args:
        folder: The run folder.
        graph: The training graph. No artifact holds it. With it the model can be scored, and methods whose new nodes
            read their neighbours' features (gap, dp-sage, sage) can predict for new nodes.
        device: Where tensors are: "cpu" or "cuda".

    Returns:
        The fitted model.

    Raises:
        InvalidInput: A file is missing, damaged or of another format, or `graph` is not the training graph. The message
            names the file.

    Formal guarantee: loading draws nothing and costs nothing. No file is executed.
    """
    folder = Path(folder)
    validate.device(device)
    names, files = read_files(folder)
    certificate = _certificate(folder, files)
    _check_names(folder, names, certificate)
    model, budget = _configured(folder / CONFIG, files[CONFIG], certificate, device)
    plan = certificate.plan()
    weights = folder / weights_path(certificate.level)
    state = folder / STATE
    with decoding(folder / CONFIG, "a configuration of this model"):
        logits, sparse = restore(
            model,
            plan,
            (weights, _tensors(weights)),
            (state, _tensors(state)),
        )
    naming, fingerprint = _naming(folder, files, certificate), _fingerprint(folder, files)
    _name_classes(model, naming)
    answers = FolderAnswers(folder)
    facts = certificate.facts
    for answer in answers.given:
        if len(answer.probabilities) != facts.classes or max(answer.reads, default=0) >= facts.nodes:
            raise InvalidInput("file", str(folder / JOURNAL), f"the answer for {answer.node!r} does not fit this model")
    model.take(
        FittedState(
            ledger=Ledger.finished(plan, NoiseSource()),
            certificate=certificate,
            logits=logits,
            sparse=sparse,
            naming=naming,
            labels=None if graph is None else graph.labels,
            fingerprint=fingerprint,
            answers=answers,
            budget=budget,
        )
    )
    model.recall(None if graph is None else _inputs(model, graph))
    return model


def _name_classes(model: NodeClassifier, naming: Naming) -> None:
    """Give class weights and shares the names that only the owner has; the published configuration has codes."""
    if naming.declared_classes or naming.classes is None:
        return
    for field in ("class_weight", "class_prior"):
        value = getattr(model, field)
        if isinstance(value, dict):
            setattr(model, field, {naming.class_name(int(code)): each for code, each in value.items()})


def _certificate(folder: Path, files: Mapping[str, bytes]) -> Certificate:
    path = folder / "certificate.json"
    if path.name not in files:
        raise InvalidInput("file", str(path), "is not in the manifest")
    with decoding(path, "a certificate"), inside(path):
        return Certificate.from_json(files[path.name].decode())


def _check_names(folder: Path, names: set[str], certificate: Certificate) -> None:
    needed = {CARD, CONFIG, STATE, NAMING, JOURNAL, "certificate.json", "certificate.txt"}
    needed.add(weights_path(certificate.level))
    for name in sorted(needed - names):
        raise InvalidInput("file", str(folder / name), "is not in the manifest")
    for name in sorted(names - needed):
        if name not in (NODES, GRAPH, *ALSO):
            raise InvalidInput("file", str(folder / name), "does not belong to this model")


def _configured(path: Path, data: bytes, certificate: Certificate, device: str) -> tuple[NodeClassifier, float]:
    """An unfitted model with the settings that were written, and the budget."""
    with decoding(path, "a configuration"), inside(path):
        config = json.loads(data)
        if config["format"] != CONFIG_FORMAT:
            raise InvalidInput("format", config["format"], validate.why_other_format(config["format"], CONFIG_FORMAT))
        if set(config) != {"format", "method", "params", "budget", "naming"}:
            raise InvalidInput("fields", sorted(config), "are not those of a configuration")
        if config["method"] != certificate.method:
            raise InvalidInput("method", config["method"], f"the certificate is about {certificate.method}")
        cls = method_class(certificate.method)
        params = dict(config["params"])
        wanted = {field.name for field in dataclasses.fields(cls)} - NOT_KEPT
        if set(params) != wanted:
            raise InvalidInput("params", sorted(set(params) ^ wanted), "are missing or unknown")
        params["level"] = level_from_dict(params["level"])
        if with_unit(params["level"], certificate.facts.directed) != certificate.level:
            raise InvalidInput("level", config["params"]["level"], "is not the certificate's")
        validate.count("hidden", params["hidden"])
        budget = math.inf if config["budget"] is None else validate.real("budget", config["budget"])
        model = cls(**params, device=device)
        check_declared(model)
        return model, budget


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file, mapped: what nobody looks at takes no memory."""
    with decoding(path, "safetensors"), safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)


def _naming(folder: Path, files: Mapping[str, bytes], certificate: Certificate) -> Naming:
    nodes: Any = None
    if NODES in files:
        with decoding(folder / NODES, "names of nodes"), inside(folder / NODES):
            nodes = json.loads(files[NODES])
            if not (isinstance(nodes, list) and all(isinstance(name, str) for name in nodes)):
                raise InvalidInput("content", type(nodes).__name__, "must be a list of names")
            if len(nodes) != certificate.facts.nodes or len(set(nodes)) != len(nodes):
                raise InvalidInput("nodes", len(nodes), f"must be {certificate.facts.nodes} different names")
    with decoding(folder / NAMING, "names of classes and categories"), inside(folder / NAMING):
        owner = json.loads(files[NAMING])
        if not isinstance(owner, dict) or set(owner) != {"classes", "categories"}:
            raise InvalidInput("content", type(owner).__name__, "must have the keys classes and categories")
    with decoding(folder / CONFIG, "a configuration"), inside(folder / CONFIG):
        return Naming.from_dicts(json.loads(files[CONFIG])["naming"], owner, nodes, certificate.facts)


def _fingerprint(folder: Path, files: Mapping[str, bytes]) -> Fingerprint | None:
    if GRAPH not in files:
        return None
    with decoding(folder / GRAPH, "a fingerprint of a graph"), inside(folder / GRAPH):
        return Fingerprint.from_dict(json.loads(files[GRAPH]))


def _inputs(model: NodeClassifier, graph: Graph) -> Inputs:
    facts = model.plan_.facts
    given = (graph.num_nodes, graph.num_features, graph.num_classes, graph.directed, int(graph.train_mask.sum()))
    fingerprint = model.fitted_.fingerprint
    if fingerprint is None:
        why = "cannot be compared with the parts that this model was trained on; they were read one by one"
        raise InvalidInput("graph", graph.name, why)
    same = given == (facts.nodes, facts.features, facts.classes, facts.directed, facts.train_nodes)
    if not same or not fingerprint.is_of(graph):
        why = "is not the graph that this model was trained on: links, features, labels and split must be the same"
        raise InvalidInput("graph", graph.name, why)
    return model.inputs_of(graph)
