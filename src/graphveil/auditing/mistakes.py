"""The mistakes of broken twins, each a plausible one: in what is planned, drawn, published, added or trained.

`twins.py` says which twin makes which of them. Never use them for anything else.
"""

from __future__ import annotations

import copy
import math

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, LedgerLike
from graphveil.execution.exact import Arithmetic
from graphveil.execution.sparse_rows import CsrRows, Rows, SparseRows
from graphveil.execution.sums import Factor
from graphveil.methods.baselines import MLP
from graphveil.methods.dpdgc import DPDGC
from graphveil.methods.expectation import GraphBranch
from graphveil.methods.gap import Caribou
from graphveil.methods.inputs import Inputs
from graphveil.methods.link_statistics import co_link_sums, link_sums
from graphveil.methods.networks import Embedding
from graphveil.methods.training import Logits, train_privately
from graphveil.privacy.levels import Level, Node
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease, Mechanism, Responses
from graphveil.privacy.plan import Plan

# How often the twin that draws anew is asked.
QUERIES = 20


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


def every_row_vanishes(plan: Plan) -> Plan:
    """Training noise as if all rows that an emptied node changes vanished (g C), where all but its own move by 2C."""

    def change(mechanism: Mechanism) -> Mechanism:
        if not isinstance(mechanism, ClippedTraining) or mechanism.group.worst == 0:
            return mechanism
        return mechanism.scaled(mechanism.group.worst / (2 * mechanism.group.worst - mechanism.removed.worst))

    return plan.changed(change)


def noise_of_one_sum(plan: Plan) -> Plan:
    """Noise as if each of several sums had their whole part of the budget to itself."""

    def change(mechanism: Mechanism) -> Mechanism:
        if mechanism.role != "aggregation" or not isinstance(mechanism, GaussianRelease):
            return mechanism
        return mechanism.scaled(1 / math.sqrt(mechanism.uses))

    return plan.changed(change)


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


class UnboundedLayers(Caribou):
    """Adds up the rows of a layer without scaling them: they are as long as sums are, and the noise is for norm 1."""

    def _hops(self, data: Inputs, ledger: LedgerLike, H: torch.Tensor) -> torch.Tensor:
        hops = [H]
        for _ in range(self.hops):
            rows = self.arithmetic.table(hops[-1], 2.0**10, ledger.plan.facts.terms)
            noisy = ledger.release("hops", self.arithmetic.product(data.adjacency, rows))
            hops.append(self.contraction * noisy + (1 - self.contraction) * H)
        return torch.stack(hops, dim=1)


class Talkative(Ledger):
    """Takes a response's epsilon for its noise parameter: truth with 1 - e^-epsilon, otherwise any symbol."""

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor:
        mechanism = self._book(name, Responses)
        assert isinstance(mechanism, Responses)
        keep = self._source.uniform(*symbols.shape) < 1 - math.exp(-mechanism.epsilon)
        return torch.where(keep, symbols, self._source.integers(mechanism.classes, *symbols.shape))


class FirstClass(Ledger):
    """Takes the answer of an emptied node for that of a node of the first class, where it has to be uniform."""

    def respond(self, name: str, symbols: torch.Tensor) -> torch.Tensor:
        return super().respond(name, symbols.clamp_min(0))


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


def every_co_link_counts_one(data: Inputs, level: Level) -> torch.Tensor:
    """The co-link statistics without weights: a node moves as much as there are others that read the same."""
    sums = co_link_sums(data, level)
    labels = data.target.labels[data.target.train].cpu().numpy()
    known = labels[:, None] == np.arange(data.classes)
    readers = (data.adjacency[data.target.train].matrix > 0).astype(np.float64).T @ known
    pairs = readers.T @ readers
    # Each pair of two readers of a class is there twice, and each reader with itself.
    pairs[np.diag_indices(data.classes)] = (np.diag(pairs) - readers.sum(0)) / 2
    upper = pairs[np.triu_indices(data.classes)]
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
    """The published implementation: it normalises a copy of W, and releases the product with the W that it did not."""

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
