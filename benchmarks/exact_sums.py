"""(h) What exact sums cost: a full-batch clipped step and a release, beside the same in float32."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional

from benchmarks.result import Result, Section
from graphveil.execution.draws import add_gaussian_
from graphveil.execution.exact import EXACT, Linear, linear, selu
from graphveil.execution.gradients import ClippedSums, ExactGradients
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseLinear, SparseRows, transpose_of
from graphveil.noise import NoiseSource

_WIDTH, _CLASSES = 64, 8
_BLOCK = 2**14


class _Network(nn.Module):
    """F -> 64 -> 64 -> C, with our layers or with torch's."""

    def __init__(self, first: nn.Module, ours: bool) -> None:
        super().__init__()
        make = Linear if ours else nn.Linear
        self.first, self.middle, self.last = first, make(_WIDTH, _WIDTH), make(_WIDTH, _CLASSES)
        self.activation = selu if ours else functional.selu

    def forward(self, x: Rows) -> torch.Tensor:
        return self.last(self.activation(self.middle(self.activation(self.first(x)))))


def run(quick: bool) -> Section:
    rounds = 9 if quick else 41
    results = []
    cases: dict[str, Rows] = {
        "5,651 rows of 745 features, dense": _dense(5651, 745),
        "15,000 rows of 200 features, dense": _dense(15_000, 200),
        "2,031 rows of 1,433 features, sparse": _sparse(2031, 1433, 18),
        "15,000 rows of 3,000 features, sparse": _sparse(15_000, 3000, 30),
        "30,000 rows of 8,415 features, sparse": _sparse(30_000, 8415, 33),
    }
    for name, rows in cases.items():
        ours, theirs = _side_by_side(_exact_step(rows), _float32_step(rows), rounds)
        results.append(Result(f"clipped step, {name}", 1e3 * ours, 1e3 * theirs, "ms", target=1 / 1.5))
    for name in ("5,651 rows of 745 features, dense", "2,031 rows of 1,433 features, sparse"):
        ours, theirs = _side_by_side(_exact_free_step(cases[name]), _float32_free_step(cases[name]), rounds)
        results.append(Result(f"step without protection, {name}", 1e3 * ours, 1e3 * theirs, "ms", target=1 / 1.3))
    for nodes, degree, width in ((7500, 32, 8), (100_000, 20, 8), (100_000, 20, 64)):
        adjacency = _adjacency(nodes, degree)
        table = torch.randn(nodes, width)
        ours, theirs = _side_by_side(_exact_release(adjacency, table), _float32_release(adjacency, table), rounds)
        name = f"release, {nodes:,} nodes, degree {degree}, {width} columns"
        results.append(Result(name, 1e3 * ours, 1e3 * theirs, "ms", target=1 / 2))
    return Section(
        "(h) Exact sums",
        results,
        [
            "Ours is exact (docs/theory.md, section 8.4), the peer is the same step or release with float32 sums, in "
            "one process, in turns; medians. A clipped step is forward and backward pass, clipping, sum, noise and "
            "Adam; a step without protection is both passes and Adam, the peer's by autograd; a release is the table, "
            "A W and its noise. The noise is the same on both sides. A ratio of 0.67 is 1.5 times the time.",
        ],
    )


def _side_by_side(ours: Callable[[], None], theirs: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Median seconds of both. Who begins changes by turns, and short ones are repeated more often: otherwise a busy
    machine interrupts the same one in every round."""
    seconds: tuple[list[float], list[float]] = ([], [])
    sides, begun = list(enumerate((ours, theirs))), time.perf_counter()
    while len(seconds[0]) < rounds + 2 or time.perf_counter() - begun < rounds / 20:
        for side, step in sides:
            start = time.perf_counter()
            step()
            seconds[side].append(time.perf_counter() - start)
        sides.reverse()
    return median(seconds[0][2:]), median(seconds[1][2:])


def _dense(count: int, width: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(0))


def _sparse(count: int, width: int, filled: int) -> SparseRows:
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(width, size=(count, filled)), axis=1).ravel()
    return CsrRows(sp.csr_array((np.ones(len(columns), np.float32), columns, np.arange(count + 1) * filled)))


def _adjacency(nodes: int, degree: int) -> SparseRows:
    columns = np.random.default_rng(0).integers(nodes, size=nodes * degree)
    shape = (nodes, nodes)
    return CsrRows(
        sp.csr_array((np.ones(len(columns), np.float32), columns, np.arange(nodes + 1) * degree), shape=shape)
    )


def _exact_step(rows: Rows) -> Callable[[], None]:
    first = SparseLinear(rows.shape[1], _WIDTH) if isinstance(rows, SparseRows) else Linear(rows.shape[1], _WIDTH)
    model = _Network(first, ours=True)
    labels, blocks = _labels_and_blocks(rows)
    optimizer, source = _optimizer(model), NoiseSource()
    engine = ClippedSums(model, 1.0, len(labels))

    def losses(chosen: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(kept[id(chosen)]), labels[chosen], reduction="none")

    kept = {id(block): rows[block] for block in blocks}

    def step() -> None:
        sums = engine.over(blocks, losses)
        add_gaussian_(sums, 20.0, source)
        _take(model, optimizer, [part.float() for part in sums])

    return step


def _float32_step(rows: Rows) -> Callable[[], None]:
    """Ghost clipping with norms and sums in float32; sparse layers add one transposed product for all rows."""
    sparse = isinstance(rows, SparseRows)
    first = SparseLinear(rows.shape[1], _WIDTH) if sparse else nn.Linear(rows.shape[1], _WIDTH)
    model = _Network(first, ours=False)
    labels, blocks = _labels_and_blocks(rows)
    optimizer, source = _optimizer(model), NoiseSource()
    kept = [rows[block] for block in blocks]
    norms = [part.squared_norms.float() if isinstance(part, SparseRows) else None for part in kept]
    transposed = transpose_of(kept) if sparse else None  # type: ignore[arg-type]

    def clipped(x: Rows, squares: torch.Tensor | None, y: torch.Tensor) -> tuple[list[Rows], list[torch.Tensor]]:
        inputs: list[Rows] = []
        outputs: list[torch.Tensor] = []

        def record(layer: nn.Module, given: tuple[Rows, ...], out: torch.Tensor) -> None:
            inputs.append(given[0])
            outputs.append(out)

        handles = [layer.register_forward_hook(record) for layer in (model.first, model.middle, model.last)]
        losses = functional.cross_entropy(model(x), y, reduction="none")
        for handle in handles:
            handle.remove()
        gradients = torch.autograd.grad(losses.sum(), outputs)
        with torch.no_grad():
            total = torch.zeros_like(losses)
            for number, (given, gradient) in enumerate(zip(inputs, gradients, strict=True)):
                if squares is not None and number == 0:
                    length = squares
                else:
                    assert isinstance(given, torch.Tensor)
                    length = given.square().sum(1)
                total += gradient.square().sum(1) * (length + 1)
            scale = (1 / total.sqrt()).clamp_(max=1.0)
            return inputs, [gradient * scale[:, None] for gradient in gradients]

    def step() -> None:
        sums: list[torch.Tensor] = []
        first_outputs = []
        for block, x, squares in zip(blocks, kept, norms, strict=True):
            inputs, gradients = clipped(x, squares, labels[block])
            with torch.no_grad():
                parts = []
                for given, gradient in zip(inputs, gradients, strict=True):
                    if isinstance(given, SparseRows):
                        first_outputs.append(gradient)
                        parts.append(torch.zeros(0))
                    else:
                        parts.append(gradient.T @ given)
                    parts.append(gradient.sum(0))
            sums = parts if not sums else [a + b for a, b in zip(sums, parts, strict=True)]
        if transposed is not None:
            sums[0] = transposed.times(torch.cat(first_outputs))
        noisy = [part.double() for part in sums]
        add_gaussian_(noisy, 20.0, source)
        _take(model, optimizer, [part.float() for part in noisy])

    return step


def _exact_free_step(rows: Rows) -> Callable[[], None]:
    model = _Network(linear(rows, _WIDTH), ours=True)
    labels = torch.arange(len(rows)) % _CLASSES
    optimizer = _optimizer(model)
    engine = ExactGradients(model, len(labels), lambda value: value, lambda value: value)

    def step() -> None:
        gradients = engine.of(lambda: functional.cross_entropy(model(rows), labels, reduction="none"))
        _take(model, optimizer, gradients)

    return step


def _float32_free_step(rows: Rows) -> Callable[[], None]:
    """The same layers, with the gradients of autograd."""
    model = _Network(linear(rows, _WIDTH), ours=True)
    labels = torch.arange(len(rows)) % _CLASSES
    optimizer = _optimizer(model)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()

    return step


def _labels_and_blocks(rows: Rows) -> tuple[torch.Tensor, list[torch.Tensor]]:
    count = len(rows)
    return torch.arange(count) % _CLASSES, list(torch.arange(count).split(_BLOCK))


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.003, fused=True)


def _take(model: nn.Module, optimizer: torch.optim.Optimizer, gradients: list[torch.Tensor]) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.view(parameter.shape)
    optimizer.step()


def _exact_release(adjacency: SparseRows, table: torch.Tensor) -> Callable[[], None]:
    source = NoiseSource()

    def release() -> None:
        value = EXACT.product(adjacency, EXACT.table(table, 1.0, len(table)))
        add_gaussian_([value], 3.0, source)
        value.float()

    return release


def _float32_release(adjacency: SparseRows, table: torch.Tensor) -> Callable[[], None]:
    source = NoiseSource()

    def release() -> None:
        value = adjacency.times(table * (1 / table.norm(dim=1, keepdim=True).clamp_min(1.0))).double()
        add_gaussian_([value], 3.0, source)
        value.float()

    return release
