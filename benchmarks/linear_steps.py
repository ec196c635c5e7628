"""(k) Steps of what the default trains, beside ordinary training of the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from benchmarks.result import Result, Section
from graphveil.execution.draws import add_gaussian_
from graphveil.execution.exact import Linear
from graphveil.execution.gradients import ClippedSums
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseLinear, SparseRows
from graphveil.methods.linear_features import LinearClassifier, with_products
from graphveil.methods.networks import Perceptron
from graphveil.methods.training import ROWS_AT_ONCE
from graphveil.noise import NoiseSource

_CLASSES = 8
# Columns, and entries of a row where they are sparse: 32 columns with the products of their pairs are 560 inputs.
_NARROW, _WIDE, _FILLED = 32, 3_000, 30
_HIDDEN = 64
# What a head reads: what features say about each class, what neighbours say, and the direction of Z.
_EVIDENCE = 3 * _CLASSES


def run(quick: bool) -> Section:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results = []
    for count in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000):
        rounds = max(3, 200_000 // count)
        for name, rows in ((f"{_NARROW} columns and products", _dense(count)), (f"{_WIDE:,} sparse", _sparse(count))):
            ours, theirs = _side_by_side(_private_step(rows), _ordinary_step(rows), rounds)
            results.append(Result(f"{count:,} rows, {name}", 1e3 * ours, 1e3 * theirs, "ms", target=1 / 1.6))
        for name, rows in ((f"{_NARROW} columns", _dense(count)), (f"{_WIDE:,} sparse", _sparse(count))):
            ours, theirs = _side_by_side(_private_network_step(rows), _ordinary_network_step(rows), rounds)
            title = f"{count:,} rows, {name}, network"
            results.append(Result(title, 1e3 * ours, 1e3 * theirs, "ms", target=1 / 1.6))
        for name, features in (("head", None), (f"head, {_NARROW} columns and products", _dense(count))):
            ours, theirs = _side_by_side(
                _private_head_step(count, features), _ordinary_head_step(count, features), rounds
            )
            results.append(Result(f"{count:,} rows, {name}", 1e3 * ours, 1e3 * theirs, "ms", target=1 / 1.6))
    torch.set_num_threads(threads)
    return Section(
        "(k) Steps of the default",
        results,
        [
            "Ours is a step of what the default trains, as a fit takes it: rows some at a time, clipped, "
            "summed exactly, noise added, Adam. The peer is a step of ordinary training, without clipping or noise: "
            "the same inputs in the same blocks, kept in the same memory (1 GiB of products; the rest is computed "
            "again in each step, on both sides), gradients by autograd in float32, Adam. Processor time on one "
            "thread, in one process, in turns; medians. A ratio of 0.625 is 1.6 times the time.",
            f"A network has two hidden layers of {_HIDDEN}, with SELU after each: the one of DP-MLP, which the default "
            "trains beside the scores of class sums in its branch 'features'. Its inputs are the features alone.",
            f"A head reads {_EVIDENCE} numbers a row, which are kept: three for each class. Where features are few it "
            "reads them and their products too.",
        ],
    )


def _side_by_side(ours: Callable[[], None], theirs: Callable[[], None], rounds: int) -> tuple[float, float]:
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 1):
        for side, step in ((0, ours), (1, theirs)) if turn % 2 else ((1, theirs), (0, ours)):
            start = time.process_time()
            step()
            seconds[side].append(time.process_time() - start)
    return median(seconds[0][1:]), median(seconds[1][1:])


class _Inputs:
    """The inputs of blocks, kept up to 1 GiB."""

    def __init__(self, rows: Rows, blocks: list[torch.Tensor]) -> None:
        self._rows, self._kept = rows, WeakIdKeyDictionary()
        size = 0
        for block in blocks:
            made = with_products(rows[block])
            size += 0 if isinstance(made, SparseRows) else made.numel() * 4
            if size <= 2**30:
                self._kept[block] = made

    def __call__(self, block: torch.Tensor) -> Rows:
        made: Rows = self._kept[block] if block in self._kept else with_products(self._rows[block])
        return made


def _private_step(rows: Rows) -> Callable[[], None]:
    model, (_, blocks) = LinearClassifier(rows, _CLASSES), _labels_and_blocks(rows)
    inputs = _Inputs(rows, blocks)
    return _clipped_step(rows, model, lambda block: model.out(inputs(block)), blocks)


def _private_network_step(rows: Rows) -> Callable[[], None]:
    model, (_, blocks) = Perceptron(rows, [_HIDDEN, _HIDDEN, _CLASSES]), _labels_and_blocks(rows)
    kept = _kept(rows, blocks)
    return _clipped_step(rows, model, lambda block: model(kept[block]), blocks)


class _Head(nn.Module):
    """A linear map of evidence, and one of features."""

    def __init__(self, out: nn.Module, linear: nn.Module | None) -> None:
        super().__init__()
        self.out, self.linear = out, linear


def _private_head_step(count: int, features: torch.Tensor | None) -> Callable[[], None]:
    own = None if features is None else LinearClassifier(features, _CLASSES)
    return _head_step(_clipped_step, count, features, Linear(_EVIDENCE, _CLASSES), None if own is None else own.out)


def _ordinary_head_step(count: int, features: torch.Tensor | None) -> Callable[[], None]:
    own = None if features is None else nn.Linear(with_products(features[:1]).shape[1], _CLASSES)
    return _head_step(_trained_step, count, features, nn.Linear(_EVIDENCE, _CLASSES), own)


def _head_step(
    step: Callable[..., Callable[[], None]],
    count: int,
    features: torch.Tensor | None,
    out: nn.Module,
    linear: nn.Module | None,
) -> Callable[[], None]:
    evidence = torch.randn(count, _EVIDENCE, generator=torch.Generator().manual_seed(1))
    _, blocks = _labels_and_blocks(evidence)
    kept = _kept(evidence, blocks)
    model, inputs = _Head(out, linear), None if features is None else _Inputs(features, blocks)

    def logits(block: torch.Tensor) -> torch.Tensor:
        joined: torch.Tensor = model.out(kept[block])
        return joined if model.linear is None or inputs is None else joined + model.linear(inputs(block))

    return step(evidence, model, logits, blocks)


def _clipped_step(
    rows: Rows, model: nn.Module, logits: Callable[[torch.Tensor], torch.Tensor], blocks: list[torch.Tensor]
) -> Callable[[], None]:
    labels, _ = _labels_and_blocks(rows)
    optimizer, source, engine = _optimizer(model), NoiseSource(), ClippedSums(model, 1.0, len(labels))

    def losses(block: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits(block), labels[block], reduction="none")

    def step() -> None:
        sums = engine.over(blocks, losses)
        add_gaussian_(sums, 20.0, source)
        for parameter, gradient in zip(model.parameters(), sums, strict=True):
            parameter.grad = gradient.float()
        optimizer.step()

    return step


def _ordinary_step(rows: Rows) -> Callable[[], None]:
    _, blocks = _labels_and_blocks(rows)
    inputs = _Inputs(rows, blocks)
    first = inputs(blocks[0])
    layer = _layer(first, _CLASSES)
    return _trained_step(rows, layer, lambda block: layer(inputs(block)), blocks)


def _ordinary_network_step(rows: Rows) -> Callable[[], None]:
    _, blocks = _labels_and_blocks(rows)
    kept = _kept(rows, blocks)
    hidden = [nn.SELU(), nn.Linear(_HIDDEN, _HIDDEN), nn.SELU(), nn.Linear(_HIDDEN, _CLASSES)]
    model = nn.Sequential(_layer(rows, _HIDDEN), *hidden)
    return _trained_step(rows, model, lambda block: model(kept[block]), blocks)


def _kept(rows: Rows, blocks: list[torch.Tensor]) -> WeakIdKeyDictionary:
    """The rows of each block."""
    kept = WeakIdKeyDictionary()
    for block in blocks:
        kept[block] = rows[block]
    return kept


def _layer(inputs: Rows, width: int) -> nn.Module:
    return (SparseLinear if isinstance(inputs, SparseRows) else nn.Linear)(inputs.shape[1], width)


def _trained_step(
    rows: Rows, model: nn.Module, logits: Callable[[torch.Tensor], torch.Tensor], blocks: list[torch.Tensor]
) -> Callable[[], None]:
    (labels, _), optimizer = _labels_and_blocks(rows), _optimizer(model)

    def step() -> None:
        optimizer.zero_grad()
        for block in blocks:
            functional.cross_entropy(logits(block), labels[block], reduction="sum").backward()
        optimizer.step()

    return step


def _labels_and_blocks(rows: Rows) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.arange(len(rows)) % _CLASSES, list(torch.arange(len(rows)).split(ROWS_AT_ONCE))


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.003, fused=True)


def _dense(count: int) -> torch.Tensor:
    return torch.randn(count, _NARROW, generator=torch.Generator().manual_seed(0))


def _sparse(count: int) -> SparseRows:
    columns = np.sort(np.random.default_rng(0).integers(_WIDE, size=(count, _FILLED)), axis=1).ravel()
    ones, ends = np.ones(len(columns), np.float32), np.arange(count + 1) * _FILLED
    return CsrRows(sp.csr_array((ones, columns, ends), shape=(count, _WIDE)))
