"""Checks of features, labels, masks, names and declared lists; each error names the field, the place and the value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.graph.adjacency import row_of

# The longest id that a request to `graphveil serve` can hold within the limit on its body.
LONGEST_ID = 1024
# An integer of 64 bits in its usual form.
INTEGER = "0|-?[1-9][0-9]{0,17}"
# Features are checked in slices, so that no mask of the full size is ever made.
_ROWS_AT_ONCE = 65_536


def count_nodes(num_nodes: int | None, *tables: Any) -> int:
    """The declared number of nodes, or else the number of rows of the first table that is given."""
    rows = (_rows(table) for table in tables if table is not None)
    n = num_nodes if num_nodes is not None else next(rows, None)
    if n is None:
        raise InvalidInput("num_nodes", None, "is needed when there are neither features nor labels")
    if not isinstance(n, (int, np.integer)) or n < 1:
        raise InvalidInput("num_nodes", n, "a graph needs at least one node")
    return int(n)


def _rows(table: Any) -> int:
    if hasattr(table, "shape"):
        return int(table.shape[0]) if len(table.shape) else 0
    return len(table)


def features(values: Any, num_nodes: int) -> torch.Tensor | sp.csr_array:
    """Dense float32 tensor or float32 CSR with one row per node; finite. None is a graph without features."""
    if values is None:
        return torch.zeros(num_nodes, 0)
    if isinstance(values, torch.Tensor) and values.layout != torch.strided:
        coo = values.detach().cpu().to_sparse_coo().coalesce()
        values = sp.coo_array((coo.values().numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape))
    if not hasattr(values, "shape"):
        values = _array("features", values)
    if len(values.shape) != 2 or values.shape[0] != num_nodes:
        why = f"must have shape ({num_nodes}, number of features)"
        raise InvalidInput("features", tuple(values.shape), why)
    return _sparse_features(values) if sp.issparse(values) else _dense_features(values)


def _dense_features(values: Any) -> torch.Tensor:
    tensor = values.detach().cpu() if isinstance(values, torch.Tensor) else _numeric_tensor("features", values)
    if tensor.is_complex():
        raise InvalidInput("features", str(tensor.dtype), "must be real numbers")
    x = tensor.to(torch.float32).contiguous()
    for start in range(0, len(x), _ROWS_AT_ONCE):
        finite = np.isfinite(x[start : start + _ROWS_AT_ONCE].numpy())
        if not finite.all():
            row, column = (int(place) for place in np.argwhere(~finite)[0])
            _not_finite(start + row, column, tensor[start + row, column].item())
    return x


def _sparse_features(values: Any) -> sp.csr_array:
    matrix = sp.csr_array(values)
    if matrix.dtype.kind not in "biuf":
        raise InvalidInput("features", str(matrix.dtype), "must be real numbers")
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InvalidInput("features", matrix.shape, str(error)) from None
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    with np.errstate(over="ignore"):
        data = matrix.data.astype(np.float32, copy=False)
    finite = np.isfinite(data)
    if not finite.all():
        at = int(np.argmin(finite))
        _not_finite(row_of(matrix.indptr, at), int(matrix.indices[at]), matrix.data[at].item())
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _not_finite(row: int, column: int, value: float) -> None:
    raise InvalidInput(f"features[{row}, {column}]", value, "must be a finite float32 number")


def labels(values: Any, num_nodes: int, num_classes: int | None) -> tuple[torch.Tensor, int]:
    """int64 labels with -1 for "no label", and the number of classes (declared, or one more than the largest)."""
    if num_classes is not None and (not isinstance(num_classes, (int, np.integer)) or num_classes < 2):
        raise InvalidInput("num_classes", num_classes, "needs at least 2 classes")
    if values is None:
        return torch.full((num_nodes,), -1), num_classes or 0
    tensor = values.detach().cpu() if isinstance(values, torch.Tensor) else _numeric_tensor("labels", values)
    if tensor.ndim == 2 and tensor.shape[1] == 1:
        tensor = tensor[:, 0]
    if tuple(tensor.shape) != (num_nodes,):
        raise InvalidInput("labels", tuple(tensor.shape), f"must have shape ({num_nodes},), one class per node")
    if tensor.is_floating_point() or tensor.is_complex():
        raise InvalidInput("labels", str(tensor.dtype), "must be integers, with -1 for a node without a label")
    y = tensor.to(torch.int64, copy=True)
    numbers = y.numpy()
    if numbers.min(initial=0) < -1:
        node = int(np.argmax(numbers < -1))
        raise InvalidInput(f"labels[{node}]", int(y[node]), "classes count from 0, and -1 is a node without a label")
    if num_classes is None:
        present = y[y >= 0].unique()
        if len(present) == 1:
            raise InvalidInput("labels", present.tolist(), "needs at least 2 classes")
        num_classes = int(present[-1]) + 1 if len(present) else 0
        if num_classes > num_nodes:
            raise InvalidInput("labels", num_classes - 1, f"counts more classes than there are nodes ({num_nodes})")
    classes = int(num_classes)
    if numbers.max(initial=-1) >= classes:
        node = int(np.argmax(numbers >= classes))
        raise InvalidInput(f"labels[{node}]", int(y[node]), f"classes run from 0 to {classes - 1}")
    return y, classes


def masks(train: Any, val: Any, test: Any, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Three disjoint boolean masks over labelled nodes. A training mask that was given must not be empty."""
    given = {"train_mask": train, "val_mask": val, "test_mask": test}
    checked = {field: _mask(field, values, y) for field, values in given.items()}
    if train is not None and not bool(checked["train_mask"].any()):
        raise InvalidInput("train_mask", 0, "the training set is empty")
    if train is None and (val is not None or test is not None):
        raise InvalidInput("train_mask", None, "is missing although another mask is given")
    for a, b in (("train_mask", "val_mask"), ("train_mask", "test_mask"), ("val_mask", "test_mask")):
        both = checked[a].numpy() & checked[b].numpy()
        if both.any():
            raise InvalidInput(a, int(np.argmax(both)), f"this node is in {b} too; the sets must not overlap")
    return checked["train_mask"], checked["val_mask"], checked["test_mask"]


def _mask(field: str, values: Any, y: torch.Tensor) -> torch.Tensor:
    if values is None:
        return torch.zeros(len(y), dtype=torch.bool)
    tensor = values.detach().cpu() if isinstance(values, torch.Tensor) else _numeric_tensor(field, values)
    if tuple(tensor.shape) != tuple(y.shape):
        raise InvalidInput(field, tuple(tensor.shape), f"must have shape ({len(y)},)")
    if tensor.dtype != torch.bool and not bool(((tensor == 0) | (tensor == 1)).all()):
        raise InvalidInput(field, str(tensor.dtype), "must be boolean, one entry per node")
    mask = tensor.to(torch.bool, copy=True)
    unlabelled = mask.numpy() & (y.numpy() < 0)
    if unlabelled.any():
        raise InvalidInput(field, int(np.argmax(unlabelled)), "this node has no label, so it cannot be in the set")
    return mask


def node_ids(values: Any, num_nodes: int) -> np.ndarray | None:
    """One distinct id per node, or None; ids of mixed types are told apart by their text."""
    if values is None:
        return None
    ids = np.asarray(values)
    if ids.shape != (num_nodes,):
        raise InvalidInput("node_ids", ids.shape, f"must have shape ({num_nodes},)")
    if ids.dtype.kind not in "biufUS":  # of several types, perhaps: 1 and "1" would have the same name
        ids = np.array([str(value) for value in ids.tolist()])
    if ids.dtype.kind == "U":
        letters = _letters(ids)
        for text in ids[_unlike_words(letters)].tolist():
            why = why_no_id(text)
            if why is not None:
                raise InvalidInput("node_ids", text[:40], why)
        if _hashes_differ(letters):
            return ids
    distinct, count = np.unique(ids, return_counts=True)
    if len(distinct) < num_nodes:
        raise InvalidInput("node_ids", distinct[np.argmax(count > 1)].item(), "this id is given to more than one node")
    return ids


def _letters(texts: np.ndarray) -> np.ndarray:
    """The letters of texts as numbers, one row for each text, with zeros after its end."""
    native = np.ascontiguousarray(texts.astype(texts.dtype.newbyteorder("="), copy=False))
    return native.view(np.uint32).reshape(len(texts), -1)


def _unlike_words(letters: np.ndarray) -> np.ndarray:
    """Which texts are not short words of ASCII without blanks, to which `why_no_id` has no objection."""
    unlike = np.full(len(letters), letters.shape[1] > LONGEST_ID)
    for start in range(0, len(letters), _ROWS_AT_ONCE):
        some = letters[start : start + _ROWS_AT_ONCE]
        odd = (some != 0) & ((some <= ord(" ")) | (some > ord("~")))
        unlike[start : start + _ROWS_AT_ONCE] |= odd.any(axis=1) | (some[:, 0] == 0)
    return unlike


def _hashes_differ(letters: np.ndarray) -> bool:
    """Whether hashes say that all texts differ; if not, some may still be equal by their hash alone."""
    hashes = np.zeros(len(letters), np.uint64)
    for column in letters.T:
        hashes ^= column
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(32)
    hashes.sort()
    return bool((hashes[1:] != hashes[:-1]).all())


def why_no_id(text: str) -> str | None:
    """Why this text, without blanks around it, cannot name a node; None if it can. One rule for all that name nodes.

    Example:
        >>> why_no_id("p7"), why_no_id("")
        (None, 'an id is missing')
    """
    if not text:
        return "an id is missing"
    if text != text.strip():
        return "has blanks around it, which do not belong to an id"
    if len(text) > LONGEST_ID:
        return f"an id may have {LONGEST_ID} characters at most"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half a character, which no file can"
    return None


def spells_integer(name: str) -> bool:
    """Whether a name is an integer of 64 bits in its usual form, so that nothing is lost if it becomes one.

    Example:
        >>> spells_integer("7"), spells_integer("007")
        (True, False)
    """
    return re.fullmatch(INTEGER, name) is not None


def numeric_columns(pairs: Sequence[tuple[int, int]], width: int) -> tuple[tuple[int, int], ...]:
    """Pairs of a column of raw numbers and the column that says which are missing, or -1."""
    checked = tuple((int(value), int(missing)) for value, missing in pairs)
    named = [value for value, _ in checked] + [missing for _, missing in checked if missing != -1]
    if len(set(named)) < len(named) or not all(0 <= place < width for place in named):
        raise InvalidInput("numeric_columns", checked, f"must be different columns, 0 .. {width - 1}")
    return checked


def class_names(values: Sequence[Any] | None, num_classes: int) -> tuple[str, ...] | None:
    """One distinct name per class, or None."""
    if values is None:
        return None
    names = tuple(str(value) for value in values)
    if len(names) != num_classes or len(set(names)) < len(names):
        raise InvalidInput("class_names", names, f"must be {num_classes} distinct names, one per class")
    return names


def class_list(values: Any) -> tuple[Any, ...]:
    """A declared list of all classes in order: two or more, of one type, and different as text."""
    listed = _one_type("classes", values)
    if len(listed) < 2:
        raise InvalidInput("classes", list(listed), "must list all classes, two at least")
    return listed


def category_lists(values: Any) -> dict[str, tuple[str, ...]]:
    """The declared categories of each column, as text."""
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InvalidInput("categories", values, "must give a list of values for each column by its name")
    categories = {}
    for name, listed in values.items():
        categories[name] = tuple(map(str, _one_type(f"categories of column {name!r}", listed)))
        if not categories[name]:
            raise InvalidInput(f"categories of column {name!r}", listed, "must list one value at least")
    return categories


def _one_type(field: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidInput(field, values, "must be a list")
    kinds = {type(value) for value in values}
    if len(kinds) > 1 or not kinds <= {str, int, float, bool}:
        raise InvalidInput(field, list(values), "must be values of one type: all text, or all numbers")
    texts = [str(value) for value in values]
    for place, text in enumerate(texts):
        if text in texts[:place]:
            raise InvalidInput(field, values[place], "is listed twice")
    return tuple(values)


def _numeric_tensor(field: str, values: Any) -> torch.Tensor:
    array = _array(field, values)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(field, str(array.dtype), "must be numbers")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)  # torch has few operations on uint16, uint32 and uint64
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def _array(field: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:
        raise InvalidInput(field, type(values).__name__, "has rows of different lengths") from None
