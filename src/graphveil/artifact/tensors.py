"""A fitted model as named tensors, and back; strict about names, shapes, types and finite values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import scipy.sparse as sp
import torch
from torch import nn

from graphveil.errors import InvalidInput
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseLinear
from graphveil.methods.estimator import NodeClassifier
from graphveil.privacy.plan import Plan

LOGITS, SPARSE = "logits", "sparse"
Parts = Mapping[str, nn.Module | torch.Tensor]


def weights_of(model: NodeClassifier) -> dict[str, torch.Tensor]:
    """What the certificate covers in full."""
    return _flat(model, weight_shapes(model, model.plan_, model.fitted_.sparse))


def rows_of(model: NodeClassifier) -> dict[str, torch.Tensor]:
    """What has a row for each node that only the node's owner may see, and what else must not be published.

    Whether features are stored as sparse rows is a fact about private data, so it is here too.
    """
    rows = {LOGITS: model.logits_.contiguous(), **_flat(model, row_shapes(model, model.plan_))}
    rows[SPARSE] = torch.tensor([model.fitted_.sparse], dtype=torch.uint8)
    return rows


def restore(
    model: NodeClassifier,
    plan: Plan,
    weights: tuple[Path, Mapping[str, torch.Tensor]],
    rows: tuple[Path, Mapping[str, torch.Tensor]],
) -> tuple[torch.Tensor, bool]:
    """Fill a model from the tensors of two files.

    Args:
        model: The model, with its parameters.
        plan: Its executed plan.
        weights: The file of weights and its tensors.
        rows: The file of rows and its tensors.

    Returns:
        The logits, and whether features are read as sparse rows.

    Raises:
        InvalidInput: Names, shapes or types are not those of this model, or a value is not finite.
    """
    facts = plan.facts
    logits = torch.empty(facts.nodes, facts.classes, device="meta")
    expected: dict[str, nn.Module | torch.Tensor] = {LOGITS: logits, **row_shapes(model, plan)}
    plain = {name: tensor for name, tensor in rows[1].items() if name != SPARSE}
    extra = {name: tensor for name, tensor in rows[1].items() if name == SPARSE}
    _check_same(rows[0], {n: (t.dtype, tuple(t.shape)) for n, t in extra.items()}, {SPARSE: (torch.uint8, (1,))})
    _fill(model, expected, rows[0], plain)
    sparse = bool(extra[SPARSE].item())
    for field in ("folds", "hops"):
        value = getattr(model, field, 0)
        if value > len(weights[1]) + 1:  # no file of this size can hold so many
            raise InvalidInput(field, value, f"does not fit the {len(weights[1])} tensors in {weights[0].name}")
    _fill(model, weight_shapes(model, plan, sparse), weights[0], weights[1])
    return plain[LOGITS], sparse


def weight_shapes(model: NodeClassifier, plan: Plan, sparse: bool) -> Parts:
    """What of a model with this plan is in the file of weights, without memory."""
    width = plan.facts.features
    like: Rows = CsrRows(sp.csr_array((0, width))) if sparse else torch.empty(0, width, device="meta")
    with torch.device("meta"):  # shapes without memory
        return model.covered_parts(plan, like)


def row_shapes(model: NodeClassifier, plan: Plan) -> dict[str, torch.Tensor]:
    """What else is in the file of rows beside the logits, likewise."""
    with torch.device("meta"):
        return model.owner_parts(plan)


def _flat(model: NodeClassifier, parts: Parts) -> dict[str, torch.Tensor]:
    tensors = {}
    for name in parts:
        value = model.part(name)
        if isinstance(value, nn.Module):
            for key, tensor in _in_file_form(value, value.state_dict()).items():
                tensors[f"{name}.{key}"] = tensor
        else:
            tensors[name] = value
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _fill(model: NodeClassifier, parts: Parts, path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    wanted = {}
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            for key, tensor in _in_file_form(part, part.state_dict()).items():
                wanted[f"{name}.{key}"] = tuple(tensor.shape)
        else:
            wanted[name] = tuple(part.shape)
    given = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    _check_same(path, given, {name: (torch.float32, shape) for name, shape in wanted.items()})
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidInput("file", str(path), f"{name} holds values that are not finite")
    for name, part in parts.items():
        prefix = f"{name}."
        if isinstance(part, nn.Module):
            own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            part.load_state_dict(_in_file_form(part, own), strict=True, assign=True)
            model.set_part(name, part.to(model.device).eval())
        elif name != LOGITS:
            model.set_part(name, tensors[name].to(model.device))


def _in_file_form(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of a module with the weights of sparse layers transposed: from memory to a file, or back.

    A sparse layer keeps its weight as (inputs, outputs). Files have (outputs, inputs) for every layer, so that a shape
    does not tell whether private features are mostly zero.
    """
    sparse = {
        f"{place}.weight" if place else "weight"
        for place, layer in module.named_modules()
        if isinstance(layer, SparseLinear)
    }
    return {key: tensor.T.contiguous() if key in sparse else tensor for key, tensor in tensors.items()}


def _check_same(path: Path, given: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    for name in sorted({*given, *wanted}):
        if name not in wanted:
            raise InvalidInput("file", str(path), f"holds {name}, which is no part of this model")
        if name not in given:
            raise InvalidInput("file", str(path), f"does not hold {name}")
        if given[name] != wanted[name]:
            raise InvalidInput("file", str(path), f"{name} is {given[name]}, must be {wanted[name]}")
