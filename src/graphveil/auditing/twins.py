"""Broken twins: variants of methods that claim the same as the sound ones and break the claim by one plausible mistake.

An audit that has never flagged anything proves nothing; every twin here must be flagged by the attack that it names.
docs/audit.md has the table. Never use them for anything else.

>>> TWINS["published"].attack, TWINS["published"].epsilon
('end-to-end', 1.0)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.auditing.mechanisms import Subject, as_released, held_at
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, LedgerLike, MakeLedger
from graphveil.execution.exact import Arithmetic
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseRows
from graphveil.execution.sums import Factor
from graphveil.methods.dpdgc import DPDGC
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.expectation import GraphBranch, right_counts
from graphveil.methods.inputs import Inputs
from graphveil.methods.link_statistics import link_sums
from graphveil.methods.mlp import MLP
from graphveil.methods.networks import Embedding
from graphveil.methods.training import Logits, train_privately
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease, Mechanism, Responses
from graphveil.privacy.plan import Plan

# How often the twin that draws anew is asked.
QUERIES = 20


@dataclass(frozen=True)
class Twin:
    """A method with one mistake.

    Args:
        name: Its name on the command line.
        mistake: What is wrong.
        attack: The attack that flags it.
        level: The level at which the attack flags it.
        epsilon: The budget with which the attack flags it.
        method: The method that it is a variant of.
        executed: Turns the claimed plan into the one that is really executed.
        make_ledger: Makes the ledger.
        make_table: Rounds rows of W to a norm before a release.
        publish: What happens to a released table before others see it.
        estimator: The method with the mistake, for attacks on whole fits.
        options: Parameters of the method.
        validation: Whether the mistake is about validation labels.
        replaces: Attributes of the estimator and what is in their place. Such a twin is a variant of any method.
    """

    name: str
    mistake: str
    attack: str
    level: Level
    epsilon: float
    method: str = "dpdgc"
    executed: Callable[[Plan], Plan] = lambda plan: plan
    make_ledger: MakeLedger = Ledger
    make_table: Callable[[torch.Tensor, float], torch.Tensor] = held_at
    publish: Callable[[torch.Tensor], torch.Tensor] = as_released
    estimator: type[NodeClassifier] | None = None
    options: tuple[tuple[str, object], ...] = (("table", "trained"),)
    validation: bool = False
    replaces: tuple[tuple[str, Any], ...] = ()

    def applied_to(self, cls: type[NodeClassifier]) -> type[NodeClassifier]:
        """The method with the mistake in it."""
        cls = self.estimator or cls
        return type(cls.__name__, (cls,), dict(self.replaces)) if self.replaces else cls

    def subject(self, plan: Plan) -> Subject:
        """What is attacked if this twin claims a plan."""
        return Subject(plan, self.executed(plan), self.make_ledger, self.make_table, self.publish)


def twin_named(name: str) -> Twin:
    """A twin by its name.

    Raises:
        InvalidInput: If there is none of this name.
    """
    if name not in TWINS:
        raise InvalidInput("twin", name, f"must be one of {', '.join(TWINS)}")
    return TWINS[name]


def for_rows_of_1e_8(plan: Plan) -> Plan:
    """Noise on Z for rows of W of norm 1e-8."""
    return plan.changed(lambda m: m.scaled(1e-8) if m.role == "release" else m)


def square_root_of_group(plan: Plan) -> Plan:
    """Training noise for sqrt(g) rows where g change."""

    def change(mechanism: Mechanism) -> Mechanism:
        if isinstance(mechanism, ClippedTraining) and mechanism.group.worst > 0:
            return mechanism.scaled(1 / math.sqrt(mechanism.group.worst))
        return mechanism

    return plan.changed(change)


def one_neighborhood(plan: Plan) -> Plan:
    """Noise for D + 1 training rows and D entries, where 2D + 1 and 2D change."""
    if not isinstance(plan.level, Node):
        raise InvalidInput("level", plan.level, "this twin is about the node level")
    degree = plan.level.max_degree

    def change(mechanism: Mechanism) -> Mechanism:
        if isinstance(mechanism, ClippedTraining) and mechanism.group.worst > 1:
            return mechanism.scaled((degree + 1) / mechanism.group.worst)
        return mechanism.scaled(math.sqrt(0.5)) if mechanism.role == "release" else mechanism

    return plan.changed(change)


def half_the_noise(plan: Plan) -> Plan:
    """Half of the planned noise."""
    return plan.changed(lambda m: m.scaled(0.5))


def added_instead_of_replaced(plan: Plan) -> Plan:
    """Training noise for a row that is added or removed (C), where one is replaced (2C)."""
    return plan.changed(lambda m: m.scaled(0.5) if isinstance(m, ClippedTraining) else m)


def without_release(plan: Plan) -> Plan:
    """Calibrated as if the release cost nothing: the others get its part of the budget, and it is drawn too."""
    calibrated = plan.changed(lambda m: None if m.role == "release" else m).calibrated(plan.epsilon)
    return plan.changed(lambda m: m if m.role == "release" else calibrated[m.name])


class PlainFloats(Ledger):
    """Adds noise in floating point, as the published code does; the lattice refuses noise that is so small."""

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        mechanism = self._book(name, GaussianRelease)
        return (value + mechanism.noise * self._source.normal(*value.shape)).float()


class DrawnAnew(Ledger):
    """Draws fresh noise whenever it is asked for the same table; the adversary asks `QUERIES` times and averages."""

    def release(self, name: str, value: torch.Tensor) -> torch.Tensor:
        answers = [super(DrawnAnew, self).release(name, value).double() for _ in range(QUERIES)]
        return torch.stack(answers).mean(0).to(value.dtype)

    def _book(self, name: str, expected: type[Mechanism]) -> Mechanism:
        return self.plan[name]


class Talkative(Ledger):
    """Takes a response's epsilon for its noise parameter: truth with 1 - e^-epsilon, otherwise any symbol."""

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor:
        mechanism = self._book(name, Responses)
        assert isinstance(mechanism, Responses)
        keep = self._source.uniform(*symbols.shape) < 1 - math.exp(-mechanism.epsilon)
        return torch.where(keep, symbols, self._source.integers(mechanism.classes, *symbols.shape))


def centred(tables: torch.Tensor) -> torch.Tensor:
    """Every table with its columns centred over the nodes. The rows then sum to zero: each follows from the others."""
    return tables - tables.mean(dim=-2, keepdim=True)


def as_trained(table: torch.Tensor, norm: float) -> torch.Tensor:
    """Rows of W of the norm that training gives them, about 0.3 (docs/theory.md, section 7.2), not the promised one."""
    del norm
    return 0.3 * table


class Float32Sums(Arithmetic):
    """Terms that are not on a lattice, added in float32 in any order."""

    def _table_rows(self, rows: torch.Tensor, norm: float, step: float, stretch: bool) -> torch.Tensor:
        del step
        lengths = self.lengths(rows)
        factors = norm / (lengths.clamp_min(1e-300) if stretch else lengths.clamp_min(norm))
        return (rows * factors[:, None]).float()

    def product(self, rows: SparseRows, table: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        del out
        return rows.times(table).double()

    def transposed_product(self, rows: SparseRows, table: torch.Tensor) -> torch.Tensor:
        return rows.transposed_times(table).double()

    def add_outer(self, total: torch.Tensor, outputs: Factor, inputs: Factor, bias: torch.Tensor | None = None) -> None:
        rounded = outputs.rounded()
        total += rounded.T @ inputs.rounded()
        if bias is not None:
            bias += self.total(rounded)

    def total(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.sum(0).double()


class Float32Norms(Arithmetic):
    """Squares of a row's entries added in float32, one after the other."""

    def lengths(self, rows: Rows) -> torch.Tensor:
        matrix = rows.matrix.toarray() if isinstance(rows, SparseRows) else rows.detach().cpu().numpy()
        with np.errstate(over="ignore"):
            squares = np.square(matrix.astype(np.float32))
        sums = np.cumsum(squares, axis=1, dtype=np.float32)[:, -1:].sum(1)
        return torch.from_numpy(np.sqrt(sums)).double()


def every_link_counts_one(data: Inputs, level: Level) -> torch.Tensor:
    """The link statistics without weights: a node moves as much as it has links."""
    sums = link_sums(data, level)
    train = data.target.train.cpu().numpy()
    links = data.adjacency[data.target.train].matrix[:, train].tocoo()
    once = links.coords[0] < links.coords[1]
    labels = data.target.labels[data.target.train].cpu().numpy()
    ends = np.sort(np.stack([labels[side[once]] for side in links.coords]), axis=0)
    counts = np.zeros((data.classes, data.classes))
    np.add.at(counts, (ends[0], ends[1]), 1)
    upper = counts[np.triu_indices(data.classes)]
    return torch.cat([torch.from_numpy(upper), sums[len(upper) :]])


def class_by_class(labels: np.ndarray, branch: GraphBranch, rng: np.random.Generator) -> torch.Tensor:
    """Simulated neighbours, one class of nodes after the other from one stream of random numbers.

    When the label of one node changes, nodes of several classes get other random numbers.
    """
    counts = np.zeros((len(labels), len(branch.expected)))
    for label, means in enumerate(branch.expected):
        rows = labels == label
        size = (int(rows.sum()), len(means))
        counts[rows] = rng.poisson(means, size) + branch.noise * rng.standard_normal(size)
    return torch.from_numpy(counts - counts.mean(1, keepdims=True))


class NotNormalised(DPDGC):
    """The published implementation: the normalised W is written to a copy, and the release multiplies the other one."""

    def _embed(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        model = Embedding(data.adjacency, self.hidden, data.classes)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return model(data.adjacency if rows is None else data.adjacency[rows])

        rate = self._private_rate(data)
        train_privately(model, logits, data.target, ledger, "embedding", learning_rate=rate, show=self.show_progress)
        with torch.no_grad():
            self._table, self._bias = model.layer.weight.detach(), model.layer.bias.detach()
            return ledger.release("release", data.adjacency.times(self._table).double()) + self._bias


class BestEpoch(MLP):
    """Keeps the epoch with the best validation accuracy: the choice depends on private labels and is not paid for."""

    def _train(self, model: torch.nn.Module, logits: Logits, data: Inputs, ledger: LedgerLike, name: str) -> None:
        best: list[tuple[float, dict[str, torch.Tensor]]] = []

        @torch.no_grad()
        def keep_best() -> None:
            guess = logits(data.target.validation).argmax(1)
            accuracy = float((guess == data.target.labels[data.target.validation]).float().mean())
            if not best or accuracy > best[0][0]:
                best[:] = [(accuracy, copy.deepcopy(model.state_dict()))]

        rate = self._private_rate(data)
        train_privately(
            model, logits, data.target, ledger, name, learning_rate=rate, show=self.show_progress, after_step=keep_best
        )
        model.load_state_dict(best[0][1])


class ShiftedLabels(DPDGC):
    """A loader that drops empty rows of A: every later row is trained with the label of another node."""

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        rows = data.adjacency.matrix
        kept = sp.csr_array(rows[np.diff(rows.indptr) > 0])
        missing = data.nodes - kept.shape[0]
        data.adjacency = CsrRows(sp.csr_array(sp.vstack([kept, sp.csr_array((missing, data.nodes))])))
        return super()._fit(data, ledger)


_NEIGHBOR = KNeighbor(5)
_TABLE = (("table", "labels"),)
_EVERY = (
    Twin(
        "published",
        "rows of W are never normalised and the noise on Z is scaled for rows of 1e-8, as in the published code",
        "end-to-end",
        KNeighbor(1),
        1.0,
        executed=for_rows_of_1e_8,
        make_ledger=PlainFloats,
        make_table=as_trained,
        estimator=NotNormalised,
    ),
    Twin(
        "square-root-group",
        "training noise for sqrt(k + 1) rows instead of k + 1",
        "gradient",
        _NEIGHBOR,
        4.0,
        executed=square_root_of_group,
    ),
    Twin(
        "one-neighbourhood",
        "noise for D + 1 rows instead of 2D + 1",
        "gradient",
        Node(8),
        4.0,
        executed=one_neighborhood,
    ),
    Twin("halved-noise", "half of the planned noise", "joint", KNeighbor(1), 4.0, executed=half_the_noise),
    Twin(
        "redrawn-noise",
        f"fresh noise for every query; {QUERIES} answers are averaged",
        "release",
        KNeighbor(1),
        4.0,
        make_ledger=DrawnAnew,
    ),
    Twin(
        "best-epoch",
        "the epoch with the best validation accuracy is kept",
        "end-to-end",
        KNeighbor(1),
        1.0,
        method="mlp",
        estimator=BestEpoch,
        options=(("steps", 200), ("learning_rate", 0.1)),  # the predicted class of a node changes often during training
        validation=True,
    ),
    Twin(
        "shifted-labels",
        "empty rows are dropped, which shifts labels against rows",
        "end-to-end",
        KNeighbor(1),
        1.0,
        estimator=ShiftedLabels,
    ),
    Twin(
        "centred-rows",
        "Z is centred over all nodes before others read it",
        "release",
        _NEIGHBOR,
        4.0,
        publish=centred,
    ),
    Twin(
        "add-or-remove",
        "training noise for an added or removed row instead of a replaced one",
        "gradient",
        KNeighbor(1),
        4.0,
        executed=added_instead_of_replaced,
    ),
    Twin(
        "forgotten-release",
        "the release is drawn but left out of the composition",
        "joint",
        Edge("undirected"),
        4.0,
        executed=without_release,
    ),
    Twin(
        "talkative-response",
        "a response's epsilon is taken for its noise parameter",
        "response",
        KNeighbor(1),
        4.0,
        make_ledger=Talkative,
        options=_TABLE,
    ),
    Twin(
        "float32-sums",
        "released sums are added in float32",
        "arithmetic",
        Edge("undirected"),
        1.0,
        options=_TABLE,
        replaces=(("arithmetic", Float32Sums()),),
    ),
    Twin(
        "float32-norms",
        "the norms of rows that are clipped are added in float32",
        "arithmetic",
        KNeighbor(1),
        4.0,
        method="mlp",
        options=(),
        replaces=(("arithmetic", Float32Norms()),),
    ),
    Twin(
        "unweighted-links",
        "every link counts 1 in the link statistics, however many links its two nodes have",
        "arithmetic",
        _NEIGHBOR,
        4.0,
        method="auto",
        options=(),
        replaces=(("_link_sums", staticmethod(every_link_counts_one)),),
    ),
    Twin(
        "shared-simulation",
        "neighbourhoods are simulated class by class, so that one label changes the random numbers of other nodes",
        "arithmetic",
        KNeighbor(1),
        4.0,
        method="auto",
        options=(),
        replaces=(("_right_counts", staticmethod(partial(right_counts, simulate=class_by_class))),),
    ),
)
TWINS: dict[str, Twin] = {twin.name: twin for twin in _EVERY}
