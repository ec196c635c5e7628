"""Scales of columns: what moves between adjacent graphs, that the bound is reached, and what follows from counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphveil as gv
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger
from graphveil.graph import Graph
from graphveil.methods import scales as module
from graphveil.methods.scales import MOST_SPREADS, learn_scales, place_counts, size_counts, with_scales
from graphveil.noise import NoiseSource
from graphveil.privacy import sensitivity
from graphveil.privacy.plan import Plan

RAW = st.one_of(
    st.none(),
    st.just(0.0),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-300, 300).map(float),
)


def table(rows: list[list[float | None]]) -> Graph:
    """A graph of these values, each column with its indicator."""
    n, columns = len(rows), len(rows[0])
    x = np.zeros((n, 2 * columns), np.float32)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            x[i, 2 * j : 2 * j + 2] = (0, 1) if value is None else (value, 0)
    pairs = tuple((2 * j, 2 * j + 1) for j in range(columns))
    edges = np.array([[i, i + 1] for i in range(n - 1)]).reshape(-1, 2).T
    half = np.arange(n) < max(2, n // 2)
    y = np.arange(n) % 2
    return Graph.from_edge_index(edges, x, y, num_classes=2, symmetrize=True, train_mask=half, numeric_columns=pairs)


class Watched(Ledger):
    """Writes down what is released, and adds no noise, so that what follows depends on the counts alone."""

    def __init__(self, plan: Plan, source: NoiseSource) -> None:
        super().__init__(plan, source)
        self.seen: list[torch.Tensor] = []

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        self.seen.append(value.clone())
        return super().release(name, value)


def released(graph: Graph) -> list[torch.Tensor]:
    """The two histograms of a real fit's code, with fixed scales after the first one."""
    model = gv.MLP(level=gv.KNeighbor(1), epsilon=4.0, seed=0)
    ledger = Watched(model.plan(graph), NoiseSource(0))
    learn_scales(graph, ledger)
    return ledger.seen


def moved(graph: Graph, other: Graph) -> list[float]:
    """How far each histogram moves, the second one with the units and ranges that the first graph's noise gave."""
    first, second = released(graph)[0], released(other)[0]
    pairs = np.array(graph.numeric_columns)
    ranges = np.array([[3.0, -1.0, 2.5]] * len(pairs)).T
    places = [place_counts(module.raw_values(each.features, pairs), *ranges, 32) for each in (graph, other)]
    return [float((first - second).norm()), float(np.linalg.norm(places[0] - places[1]))]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_replaced_node_moves_the_histograms_by_no_more_than_planned(data: st.DataObject) -> None:
    columns = data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.lists(RAW, min_size=columns, max_size=columns), min_size=4, max_size=8))
    other = data.draw(st.lists(RAW, min_size=columns, max_size=columns))
    at = data.draw(st.integers(0, len(rows) - 1))
    changed = [other if i == at else row for i, row in enumerate(rows)]
    assert max(moved(table(rows), table(changed))) <= sensitivity.column_histograms(columns) + 1e-12


def test_the_bound_is_reached_and_counts_that_are_not_bounded_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[list[float | None]] = [[1.0, -4.0, 100.0] for _ in range(6)]
    changed = [[50.0, 4.0, 1.0], *rows[1:]]
    bound = sensitivity.column_histograms(3)
    assert moved(table(rows), table(changed)) == pytest.approx([bound, bound])

    def sums_of_values(values: np.ndarray) -> np.ndarray:
        """The broken twin: a node counts by its value."""
        return size_counts(values) * np.nanmax(np.abs(values), axis=0)[:, None]

    monkeypatch.setattr(module, "size_counts", sums_of_values)
    assert moved(table(rows), table(changed))[0] > bound


def test_the_plan_has_them_where_attributes_are_private() -> None:
    graph = table([[1.0, 2.0]] * 10)
    for name in ("MLP", "DPDGC", "Auto"):
        plan = getattr(gv, name)(level=gv.KNeighbor(1), epsilon=4.0).plan(graph)
        (scales,) = plan.with_role("scales")
        assert (scales.sensitivity.training, scales.sensitivity.unlabelled, scales.uses) == (2.0, 2.0, 2)
        assert plan.shared[0] == scales
        assert plan.epsilon <= 4.0
        for level in (gv.Edge(), gv.KNeighbor(1, attributes=False), gv.Public()):
            epsilon = None if isinstance(level, gv.Public) else 4.0
            assert not getattr(gv, name)(level=level, epsilon=epsilon).plan(graph).with_role("scales")
    assert not gv.MLP(level=gv.KNeighbor(1), epsilon=4.0).plan(graph.replace(numeric_columns=())).with_role("scales")


DISTRIBUTIONS: dict[str, Any] = {
    "normal": lambda draw, n: draw.normal(0, 3, n),
    "shifted": lambda draw, n: draw.normal(1975, 12, n),
    "negative": lambda draw, n: draw.normal(-40, 4, n),
    "heavy": lambda draw, n: np.exp(draw.normal(6, 2, n)),
    "counts": lambda draw, n: draw.poisson(0.7, n),
    "tiny": lambda draw, n: draw.uniform(0, 1e-3, n),
    "mostly zero": lambda draw, n: np.where(draw.random(n) < 0.7, 0, np.exp(draw.normal(4, 1, n))),
    "both signs, heavy": lambda draw, n: draw.standard_cauchy(n) * 100,
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("private", [False, True])
def test_columns_of_every_kind_come_to_about_one_scale(name: str, private: bool) -> None:
    draw = np.random.default_rng(0)
    n = 4000
    x = np.zeros((n, 2), np.float32)
    x[:, 0] = DISTRIBUTIONS[name](draw, n)
    x[::50] = (0, 1)
    graph = Graph.from_edge_index(
        np.zeros((2, 0), np.int64), x, np.arange(n) % 2, train_mask=np.arange(n) < 3000, numeric_columns=[(0, 1)]
    )
    level = gv.KNeighbor(1) if private else gv.Edge()
    model = gv.MLP(level=level, epsilon=4.0, seed=0)
    scales = learn_scales(graph, Ledger(model.plan(graph), NoiseSource(0)))
    scaled = with_scales(graph.features, scales)
    assert isinstance(scaled, torch.Tensor)
    known = scaled[graph.features[:, 1] == 0, 0]
    assert 0.3 < float(known.std()) < 1.5
    assert abs(float(known.mean())) < 1.0
    assert float(known.abs().max()) <= MOST_SPREADS
    assert (scaled[graph.features[:, 1] == 1, 0] == 0).all()
    sparse = with_scales(sp.csr_array(graph.features.numpy()), scales)
    assert sp.issparse(sparse)
    assert np.array_equal(sparse.toarray(), scaled.numpy())


def test_a_declared_constant_counts_as_a_value() -> None:
    graph = table([[float(i)] for i in range(20)]).replace(numeric_columns=((0, -1),))
    scales = learn_scales(graph, Ledger(gv.MLP(level=gv.Edge(), epsilon=1.0).plan(graph), NoiseSource(0)))
    assert scales[0, 1] == -1
    assert with_scales(graph.features, scales)[:, 1].tolist() == graph.features[:, 1].tolist()


def test_too_little_to_learn_from_is_no_error() -> None:
    graph = table([[1.0, None], [2.0, None], [3.0, None], [1e30, None]])
    for epsilon in (0.1, 1e6):
        model = gv.MLP(level=gv.KNeighbor(1), epsilon=epsilon, seed=0, steps=2).fit(graph)
        assert np.isfinite(model.predict_proba()).all()
    assert not math.isnan(float(model.part("scales").sum()))  # type: ignore[union-attr, operator]


def test_a_saved_model_scales_new_nodes_as_it_scaled_its_own(tmp_path: Any) -> None:
    draw = np.random.default_rng(1)
    rows: list[list[float | None]] = [
        [float(v), None if v > 900 else float(v) ** 2] for v in draw.uniform(0, 1000, 200)
    ]
    graph = table(rows)
    model = gv.MLP(level=gv.KNeighbor(1), epsilon=4.0, seed=0, steps=5).fit(graph)
    model.save(tmp_path / "run")
    loaded = gv.load(tmp_path / "run")
    assert torch.equal(loaded.part("scales"), model.part("scales"))  # type: ignore[arg-type]
    told = loaded.predict_new(["new"], graph.features[7:8].numpy(), [[]])
    assert told == pytest.approx(model.predict_proba([7]), abs=1e-6)
    assert loaded.predict_on(graph) == pytest.approx(model.predict_proba(), abs=1e-6)
    with pytest.raises(InvalidInput, match=r"numeric_columns = .*: the model was trained on"):
        loaded.predict_on(graph.replace(numeric_columns=()))


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    graph = table([[None if cell > 2 else float(cell) for cell in row] for row in rng.normal(size=(11, 3))])
    scales = torch.tensor([[0.0, 1, 1, 0.1, 2], [2, 3, 4, 0, 1], [4, 5, 0.5, 0.2, 3]])
    whole = released(graph), with_scales(graph.features, scales)
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 4)
    for some, all_at_once in zip(released(graph), whole[0], strict=True):
        assert torch.equal(some, all_at_once)
    scaled, sparse = with_scales(graph.features, scales), with_scales(sp.csr_array(graph.features.numpy()), scales)
    assert torch.equal(scaled, whole[1])
    assert sparse.toarray().tolist() == scaled.tolist()
