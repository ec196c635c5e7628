"""Answers to new nodes that read nodes of the training graph: checked, paid for, drawn once and kept.

Each answer is kept, because a second draw of its noise would average it away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil import validate
from graphveil.errors import BudgetExceeded, InvalidInput
from graphveil.execution.sparse_rows import CsrRows, Rows
from graphveil.methods.inputs import dense_rows, node_index
from graphveil.privacy.mechanisms import GaussianRelease, Mechanism
from graphveil.privacy.plan import Plan

if TYPE_CHECKING:
    from graphveil.methods.fitted import FittedModel


@dataclass(frozen=True)
class Answer:
    """The class probabilities that a new node was given.

    `question` is a fingerprint of what was asked, `release` the number of times that noise was drawn for this node's
    row so far (0: its answer needed none). `reads` are the nodes that the row reads, kept only where a degree promise
    has to be counted.
    """

    node: str
    question: str
    release: int
    probabilities: tuple[float, ...]
    reads: tuple[int, ...] = ()


class Answers:
    """All answers of one model, in memory; `artifact.predictions` keeps them on disk.

    The first draws of all new rows join the table that the fit released. Second draws, of rows that have changed,
    make up a second table, and so on: `releases` is the number of tables.
    """

    def __init__(self, given: Iterable[Answer] = ()) -> None:
        self.given: list[Answer] = []
        self.releases = 1
        self._last: dict[str, Answer] = {}
        self._reads: dict[int, list[tuple[int, ...]]] = {}
        self._note(given)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Within this block nobody else adds answers."""
        yield

    def add(self, answers: Sequence[Answer]) -> None:
        """Keep these; when this returns they may be shown."""
        self._note(answers)

    def of(self, node: str) -> Answer | None:
        """The last answer that this node was given."""
        return self._last.get(node)

    def readers(self, release: int, nodes: int) -> np.ndarray:
        """How many rows of new nodes read each node in one of the tables."""
        nodes_read = [node for row in self._reads.get(release, []) for node in row]
        return np.bincount(np.array(nodes_read, dtype=np.int64), minlength=nodes)

    def _note(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self.given.append(answer)
            self.releases = max(self.releases, answer.release)
            self._last[answer.node] = answer
            self._reads.setdefault(answer.release, []).append(answer.reads)


def fingerprint(features: np.ndarray, neighbors: Sequence[int], from_graph: bool) -> str:
    """Tells whether a new node is asked about again with the same data."""
    asked = repr((sorted(map(int, neighbors)), from_graph)).encode()
    return hashlib.sha256(np.ascontiguousarray(features).tobytes() + asked).hexdigest()


def check_unchanged(answers: Answers, node: str, question: str) -> None:
    """Refuse another question about the same node."""
    last = answers.of(node)
    if last is not None and last.question != question:
        raise InvalidInput("ids", node, "was answered before with other data; a second release has to be paid for")


def epsilon_with(plan: Plan, name: str, releases: int) -> float:
    """What a plan costs when the release `name` was made this many times."""
    if releases == 1:
        return plan.epsilon

    def repeated(mechanism: Mechanism) -> Mechanism:
        if mechanism.name != name or not isinstance(mechanism, GaussianRelease):
            return mechanism
        return replace(mechanism, uses=mechanism.uses * releases)

    return plan.changed(repeated).epsilon


def pay(plan: Plan, name: str, releases: int, budget: float) -> None:
    """Refuse a further release that would cost more than the budget.

    Formal guarantee (docs/theory.md, section 9.2): each further table of changed rows is one more use of the release,
    composed with everything else; its rows keep to the level's bound on their own.
    """
    cost = epsilon_with(plan, name, releases)
    if cost > budget * (1 + 1e-9):
        raise BudgetExceeded(
            f"epsilon: release {releases} of {name} would make it {cost:.4g} in all; the budget is {budget:.4g}"
        )


def answer_new_nodes(
    model: FittedModel,
    ids: Sequence[Hashable],
    features: Any,
    neighbors: Sequence[Sequence[int]],
    *,
    from_graph: bool,
    update: bool,
) -> np.ndarray:
    """What `FittedModel.predict_new` returns."""
    validate.flag("from_graph", from_graph)
    validate.flag("update", update)
    facts = model.plan_.facts
    if facts.weighted or facts.relations:
        raise InvalidInput("graph", "weights or relations", "new nodes cannot be answered yet; fit again with them")
    names = model.fitted_.naming.new_ids(ids, facts.nodes)
    lists = _neighbor_lists(neighbors, facts.nodes)
    x, rows = _rows_of(model, names, features, lists)
    questions = [fingerprint(x[i], lists[i].tolist(), from_graph) for i in range(len(names))]
    with model.fitted_.answers.opened():
        fresh = []
        for i, (name, question) in enumerate(zip(names, questions, strict=True)):
            if not update:
                check_unchanged(model.fitted_.answers, name, question)
            last = model.fitted_.answers.of(name)
            if last is None or last.question != question:
                fresh.append(i)
        if fresh:
            asked = [(names[i], questions[i]) for i in fresh]
            model.fitted_.answers.add(_answers(model, asked, x[fresh], rows[fresh], from_graph))
        kept = [model.fitted_.answers.of(name) for name in names]
    return np.array([answer.probabilities for answer in kept if answer is not None], dtype=np.float32).reshape(
        len(names), model.plan_.facts.classes
    )


def _answers(
    model: FittedModel, asked: Sequence[tuple[str, str]], x: np.ndarray, rows: sp.csr_array, from_graph: bool
) -> list[Answer]:
    """Answers to questions that were not asked before, by node and fingerprint."""
    draws = model.draws_noise(from_graph)
    earlier = [model.fitted_.answers.of(name) for name, _ in asked]
    releases = [(0 if last is None else last.release) + draws for last in earlier]
    if draws:
        assert model.joined_release is not None
        if max(releases) > model.fitted_.answers.releases:
            pay(model.plan_, model.joined_release, max(releases), model.budget_)
        _count_readers(model, rows, np.array(releases))
    with torch.no_grad():
        features = model.scaled(sp.csr_array(x) if model.fitted_.sparse else dense_rows(x))
        inputs: Rows = CsrRows(features, model.device) if model.fitted_.sparse else features.to(model.device)
        logits = model.logits_new(inputs, CsrRows(rows, model.device), from_graph)
    counted = draws and model.degree_bound(model.plan_) is not None
    return [
        Answer(name, question, release, tuple(row), tuple(reads.tolist()) if counted else ())
        for (name, question), release, row, reads in zip(
            asked,
            releases,
            model.probabilities(logits.cpu()).tolist(),
            np.split(rows.indices, rows.indptr[1:-1]),
            strict=True,
        )
    ]


def _neighbor_lists(neighbors: Any, count: int) -> list[np.ndarray]:
    """For each new node the row numbers that it reads."""
    if isinstance(neighbors, str | bytes | Mapping) or not hasattr(neighbors, "__iter__"):
        raise InvalidInput("neighbors", type(neighbors).__name__, "must be a list of row numbers for each id")
    return [_row_numbers(row, count) for row in neighbors]


def _row_numbers(row: Any, count: int) -> np.ndarray:
    if (isinstance(row, torch.Tensor | np.ndarray) and row.ndim != 1) or not isinstance(
        row, Sequence | torch.Tensor | np.ndarray
    ):
        raise InvalidInput("neighbors", type(row).__name__, "must be a list of row numbers for each id")
    if len(row) and np.asarray(row[0]).dtype == bool:
        raise InvalidInput("neighbors", "a mask", "must be a list of row numbers for each id")
    return node_index([int(j) if isinstance(j, torch.Tensor) else j for j in row], count, "neighbors").numpy()


def _rows_of(
    model: FittedModel, ids: Sequence[str], features: Any, neighbors: Sequence[np.ndarray]
) -> tuple[np.ndarray, sp.csr_array]:
    """New nodes' features and rows of A over the old nodes, checked."""
    facts = model.plan_.facts
    try:
        x = np.asarray(features, dtype=np.float32)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InvalidInput("features", type(features).__name__, "must be a row of numbers for each id") from None
    if x.shape != (len(ids), facts.features):
        raise InvalidInput("features", x.shape, f"must have shape ({len(ids)}, {facts.features})")
    if not np.isfinite(x).all():
        raise InvalidInput("features", "NaN or infinite", "must be finite")
    if len(neighbors) != len(ids) or len(set(ids)) != len(ids):
        raise InvalidInput("ids", len(ids), f"must be unique and as many as neighbor lists, {len(neighbors)}")
    starts = np.cumsum([0, *(len(row) for row in neighbors)])
    columns = np.concatenate([np.zeros(0, np.int64), *neighbors])
    for row in neighbors:
        if len(np.unique(row)) < len(row):
            raise InvalidInput("neighbors", row.tolist(), "names a node twice")
    return x, sp.csr_array((np.ones(len(columns), np.float32), columns, starts), shape=(len(ids), facts.nodes))


def _count_readers(model: FittedModel, rows: sp.csr_array, releases: np.ndarray) -> None:
    """Refuse new rows by which a node would be read more often than promised.

    The first table of new rows joins the release of the fit, which has left `reserved_readers` of the promise free. In
    each later table there are new readers only, so the whole promise is theirs.
    """
    bound = model.degree_bound(model.plan_)
    if bound is None:
        return
    for release in np.unique(releases).tolist():
        nodes = model.plan_.facts.nodes
        readers = model.fitted_.answers.readers(release, nodes)
        readers += np.bincount(rows[releases == release].indices, minlength=nodes)
        room, most = model.reserved_readers if release == 1 else bound, int(readers.max(initial=0))
        if most > room:
            what = "reserved_readers" if release == 1 else "max_degree"
            why = f"is how many new nodes may read a node, and {most} would read one; only a new fit can allow more"
            raise InvalidInput(what, room, why)
