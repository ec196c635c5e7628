"""From a fitted model to a folder: checks before anything is spent, the files, the model card."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as tensor_bytes
from torch import nn

from graphveil import validate
from graphveil.artifact.contents import (
    JOURNAL,
    MANIFEST,
    Audience,
    Entry,
    Manifest,
    row_shapes,
    rows_of,
    weight_shapes,
    weights_of,
)
from graphveil.artifact.predictions import FolderAnswers, render
from graphveil.errors import InvalidInput
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.levels import Edge, Public, describe, level_to_dict
from graphveil.privacy.mechanisms import GaussianRelease
from graphveil.privacy.plan import Plan
from graphveil.storage import Unwritable, check_new_folder, unwritable, write_folder
from graphveil.validate import without_infinity

CONFIG_FORMAT = "graphveil-model/2"
CARD, CONFIG = "public/model_card.md", "public/config.json"
STATE, NODES = "owner/state.safetensors", "owner/nodes.json"
NAMING, GRAPH = "owner/naming.json", "owner/graph.json"
ALSO = ("metrics.json", "predictions.csv")  # what `graphveil train --out` adds
# Whoever knows the seed can subtract the noise; the others are no property of the model.
NOT_KEPT = frozenset({"seed", "device", "show_progress"})
# The longest path in an artifact, while it is written.
_LONGEST = "public/.weights.safetensors-xxxxxxxx"
# Certificate, card, report and the like.
_SMALL_FILES = 2 * 2**20
# What a line of predictions.csv takes for the node, and for each class.
_PER_NODE, _PER_CLASS = 32, 9
# What the model card says of each file.
_CONTENTS = {
    "certificate.json": "the certificate, for machines",
    "certificate.txt": "the certificate, for people",
    "metrics.json": "scores on private labels, which the certificate does not cover",
    "predictions.csv": "the predicted class and class probabilities of every node, by its name",
    "public/config.json": "method, settings, names of feature columns, declared names of classes and categories",
    "public/model_card.md": "this page",
    "public/weights.safetensors": "the trained weights",
    "owner/weights.safetensors": "the trained weights",
    "owner/state.safetensors": "logits and released rows, one for each node, and counts that later answers need",
    "owner/nodes.json": "names of the nodes",
    "owner/naming.json": "names of classes and categories that were read from the data",
    "owner/graph.json": "a salted fingerprint of the graph",
    "owner/new_nodes.jsonl": "what new nodes were told",
}


def check_new_run(folder: Path) -> None:
    """Refuse a run folder that exists or that could not be written; nothing is left of the trial."""
    check_new_folder("out", folder, _LONGEST)


def check_apart(out: Path, checkpoint: Path) -> None:
    """Refuse a run folder and a checkpoint of which one lies in the other.

    A checkpoint is removed at the end, and a run folder has no files of others in it.
    """
    here, there = (Path(os.path.realpath(path)) for path in (out, checkpoint))
    if here == there:
        raise InvalidInput("checkpoint", str(checkpoint), "is the same folder as out; name another one")
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise InvalidInput("checkpoint", str(checkpoint), f"and out, {out}, lie in one another; put them side by side")


def check_budget(budget: float | None, spent: float) -> float:
    """The budget for a fit and later releases: by default what the fit alone spends, and never less."""
    if budget is None:
        return spent
    if validate.positive("budget", budget) < spent:
        raise InvalidInput("budget", budget, f"is less than the epsilon of the fit alone, {spent:.6g}")
    return budget


def check_space(model: NodeClassifier, plan: Plan, out: Path | None, checkpoint: Path | None) -> None:
    """Refuse to begin where the disk cannot hold what a fit will write.

    Args:
        model: The model, not yet fitted.
        plan: Its plan; sizes follow from public facts alone.
        out: The run folder; None: none is written.
        checkpoint: The checkpoint; None: none is written.

    Raises:
        InvalidInput: There is not enough space.
    """
    weights, rows = _sizes(model, plan)
    facts = plan.facts
    predictions = facts.nodes * (_PER_NODE + _PER_CLASS * facts.classes)
    needs = {"out": (out, weights + rows + predictions + _SMALL_FILES)}
    # Weights, their two moments and their mean, and released rows; twice, while one version replaces another.
    needs["checkpoint"] = (checkpoint, 8 * weights + 2 * rows + _SMALL_FILES)
    wanted: dict[int, int] = {}
    for field, (path, size) in needs.items():
        if path is None:
            continue
        place = _existing(path)
        try:
            disk, free = os.stat(place).st_dev, shutil.disk_usage(place).free
        except OSError as error:
            raise unwritable(path, error, field) from None
        wanted[disk] = wanted.get(disk, 0) + size
        if wanted[disk] > free:
            why = f"needs about {_megabytes(wanted[disk])}, and {_megabytes(free)} are free there; nothing was spent"
            raise InvalidInput(field, str(path), why)


def other_places() -> Iterator[Path]:
    """New folders for a finished run that could not be written to its own, in the order in which to try them.

    A folder into which nothing was written is removed when the next one is asked for.
    """
    for find in (Path.cwd, lambda: Path(tempfile.gettempdir())):
        with suppress(OSError):
            made = Path(tempfile.mkdtemp(prefix="graphveil-unsaved-", dir=find()))
            yield made / "run"
            with suppress(OSError):
                made.rmdir()


def save_somewhere(
    write: Callable[[Path], None], out: Path, kept: Path | None, places: Iterator[Path] | None = None
) -> None:
    """Write a finished run. If its place cannot be written, a checkpoint keeps it, or it is written to another place.

    Args:
        write: Writes the run to a folder.
        out: The folder that was asked for.
        kept: The folder of the checkpoint of the fit.
        places: Other folders to try; by default `other_places`.

    Raises:
        Unwritable: The run is not in `out`; the message says where it is.
    """
    try:
        write(out)
        return
    except Unwritable as error:
        failed = error
    if kept is not None:
        why = f"{failed.why}; the finished fit is kept in {kept}: go on with --resume and another --out"
        raise Unwritable("out", str(out), why)
    for place in other_places() if places is None else places:
        try:
            write(place)
        except Unwritable:
            continue
        raise Unwritable(failed.field, failed.value, f"{failed.why}; the finished run is in {place} instead")
    raise failed


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
    """Write a fitted model to a new folder, complete or not at all.

    Args:
        model: The model.
        folder: The folder to create.
        budget: The epsilon that the fit and later releases for new nodes may cost together; by default what the fit
            cost.
        also: Further files for the owner, by their names in `ALSO`.
        tensors: The files of weights and rows, if they have been written already: they are moved.

    Raises:
        InvalidInput: The model is not fitted, the folder exists, the budget is below what was spent, or the model is
            kept in another folder already.
        Unwritable: The disk does not take it.

    Formal guarantee: what is marked for anyone is a function of what the certificate covers in full (docs/artifact.md).
    A checkpoint that still holds the fit names this folder before the folder is there: one fit gives one artifact.
    """
    model.check_fitted()
    state = model.fitted_
    if state.on_account and budget is not None and budget > state.certificate.epsilon:
        raise InvalidInput("budget", budget, "later releases would not be in the ledger; leave the budget out")
    if os.path.lexists(folder):
        raise InvalidInput("folder", str(folder), "exists already; a run is never overwritten")
    if isinstance(state.answers, FolderAnswers) and model.draws_noise(from_graph=True):
        kept = str(state.answers.folder)
        raise InvalidInput("model", kept, "is where this model is kept; a second folder would draw noise a second time")
    certificate = model.certificate_
    limit = check_budget(budget, certificate.epsilon)
    covered, owners = _contents(model, limit, tensors)
    owners |= also or {}
    # Without protection nothing is for anyone.
    public: Audience = "owner" if isinstance(certificate.level, Public) else "anyone"
    entries = {name: Entry.of(data, public) for name, data in covered.items()}
    entries |= {name: Entry.of(data, "owner") for name, data in owners.items()}
    entries[JOURNAL] = Entry.of(owners[JOURNAL], "owner", "grows")
    audiences = {CARD: public, **{name: entry.audience for name, entry in entries.items()}}
    card = _model_card(certificate, published_params(model), limit, audiences).encode()
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
        "params": {**published_params(model), "level": level_to_dict(model.level)},
        "budget": without_infinity(budget),
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


def published_params(model: NodeClassifier) -> dict[str, Any]:
    """The parameters for everybody: classes whose names were not declared stand there by their numbers."""
    naming = model.fitted_.naming
    hidden = () if naming.declared_classes else naming.classes or ()
    return params_of(model, {name: str(number) for number, name in enumerate(hidden)})


def params_of(model: NodeClassifier, codes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The parameters that make a model what it is, with `codes` in place of names of classes."""
    params = {name: value for name, value in model.get_params().items() if name not in NOT_KEPT}
    for name in ("shares", "class_weight", "class_prior"):
        value = params[name]
        known = {} if codes is None or name == "shares" else codes
        if isinstance(value, Mapping):
            params[name] = {known.get(str(key), str(key)): each for key, each in value.items()}
    return params


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def _sizes(model: NodeClassifier, plan: Plan) -> tuple[int, int]:
    """Bytes of weights and of rows, in the largest branch of the plan."""
    sizes = []
    for outcome in plan.outcomes():
        logits = plan.facts.nodes * plan.facts.classes
        weights = _bytes(weight_shapes(model, outcome, sparse=False))
        sizes.append((weights, _bytes(row_shapes(model, outcome)) + 4 * logits))
    return max(weights for weights, _ in sizes), max(rows for _, rows in sizes)


def _bytes(parts: Mapping[str, nn.Module | torch.Tensor]) -> int:
    tensors = [
        tensor
        for part in parts.values()
        for tensor in (part.state_dict().values() if isinstance(part, nn.Module) else [part])
    ]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _existing(path: Path) -> Path:
    """The nearest folder above that is there."""
    path = Path(os.path.realpath(path))
    return next(place for place in (path, *path.parents) if place.exists())


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MB" if size >= 2**20 else f"{size:,} bytes"


def _model_card(
    certificate: Certificate, params: Mapping[str, Any], budget: float, files: Mapping[str, Audience]
) -> str:
    """Markdown without anything that the certificate does not cover: no scores, no data."""
    facts = certificate.facts
    settings = "\n".join(f"| `{name}` | `{value}` |" for name, value in params.items() if value is not None)
    listed = "\n".join(
        f"| `{name}` | {_CONTENTS.get(name, '')} | {audience} |" for name, audience in sorted(files.items())
    )
    spent = "no guarantee" if isinstance(certificate.level, Public) else _spent(certificate, budget)
    return f"""# Model card: {certificate.method}

A node classifier trained by graphveil on a graph of {facts.nodes} nodes ({facts.train_nodes} of them in training),
{facts.features} features and {facts.classes} classes. {describe(certificate.level)}

**Privacy:** {spent}.

## What may be published

{_publishing(certificate)}

| file | what | for |
|---|---|---|
{listed}
| `{MANIFEST}` | checksums of all files; those of private files can confirm a guess about them | owner |

{_held(certificate)}

## Use

    graphveil predict RUN --nodes 0,1,2          # nodes of the training graph: free, the same answer every time
    graphveil predict RUN --new nodes.csv        # nodes that joined later: noise is drawn once and kept
    graphveil verify RUN                         # checksums, the certificate's figures, audits

A new node's answer is kept in `owner/new_nodes.jsonl` before it is shown. Answer from one copy of this folder only:
two copies draw noise twice, and two draws for the same node can be averaged.

Not for decisions about people without a human who can overrule it. Accuracy is not stated here: scores on private
labels are not covered by the certificate.

## Settings

| setting | value |
|---|---|
{settings}

## Certificate

```
{certificate}
```
"""


def _spent(certificate: Certificate, budget: float) -> str:
    spent = f"epsilon {certificate.epsilon:.4g} at delta {certificate.delta:.3g}"
    if budget > certificate.epsilon:
        spent += f"; with further releases for changed new nodes at most {budget:.4g}"
    return spent if certificate.secure else f"{spent}; the noise was seeded, so this is for experiments only"


def _held(certificate: Certificate) -> str:
    """The sentences of the model card on what no file holds."""
    tables = [part for m in certificate.mechanisms if isinstance(m, GaussianRelease) for part in m.table.split("+")]
    if "attributes" in tables:
        return (
            f"`{STATE}` holds labels and, where they are used, scaled features: the level treats them as public. "
            "No file holds the links of the graph or the seed of the noise."
        )
    return (
        "No file holds the graph, its features or the seed of the noise, and none holds labels that the level protects."
    )


def _publishing(certificate: Certificate) -> str:
    if isinstance(certificate.level, Public):
        return "**Nothing.** The model was trained without noise: every file can give away the data it was trained on."
    published = "The folder `public/` and the two certificate files. Everything else stays with the owner of the data."
    if isinstance(certificate.level, Edge):
        return (
            f"{published} At this level the certificate covers every prediction, so predictions and released rows may "
            "be published too, where features and labels really are public, as the level assumes."
        )
    return (
        f"{published} A node's prediction, logits and released row are computed from its own features and links, and "
        "are for that node alone: handing it those is what the guarantee allows; publishing them for all nodes is not."
    )
