"""What new nodes were told: each answer is kept, because a second draw of its noise would average it away."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from graphveil.errors import BudgetExceeded, InvalidInput
from graphveil.privacy.mechanisms import GaussianRelease, Mechanism
from graphveil.privacy.plan import Plan


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
