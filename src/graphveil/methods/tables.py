"""Tables W that are private without training (docs/theory.md, section 5), and how to read noisy counts of labels.

A table has one row for each node, of norm at most 1, centred so that what all classes share takes no room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch.nn import functional

from graphveil.execution import LedgerLike
from graphveil.execution.exact import EXACT, Arithmetic, power_above
from graphveil.execution.sparse_rows import SparseRows, dense
from graphveil.execution.sums import column_largest
from graphveil.methods import defaults
from graphveil.methods.inputs import Inputs
from graphveil.methods.networks import log_probabilities
from graphveil.methods.training import label_rows
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import protects_attributes
from graphveil.privacy.mechanisms import table_step

# Tables whose every row is private, a node's own included.
RELEASED_IN_FULL = ("readers", "neighbors")
# Degrees as multiples of the usual one, evenly on a logarithmic scale, up to so many standard deviations.
_MULTIPLES = 11
_WIDEST = 2.2
# Rows that are worked on at a time, so that what one operation makes is in the cache for the next.
_ROWS_AT_ONCE = 2**14


class Tables:
    """The tables of one fit, each made once: of the graph, of everybody's class probabilities from features alone
    (`opinions`), and with the weight bound `tau`.

    Formal guarantee: what the mechanisms "labels", "posteriors", "readers" and "neighbors" of the plan say; everything
    else is post-processing of their outputs.
    """

    def __init__(
        self, data: Inputs, opinions: torch.Tensor, tau: float, ledger: LedgerLike, arithmetic: Arithmetic = EXACT
    ) -> None:
        # One node whose features are too large to give probabilities would spoil what tables are scaled by.
        opinions = opinions.nan_to_num(1 / data.classes)
        self._data, self._opinions, self._tau, self._ledger = data, opinions, tau, ledger
        self._arithmetic, self._terms = arithmetic, ledger.plan.facts.terms
        self._private = protects_attributes(ledger.plan.level)

    def joined(self, name: str) -> torch.Tensor:
        """The tables that `name` joins by +, side by side, with the row norm 1 divided among them."""
        names = name.split("+")
        used = [part for part in names if self._uses(part, names)]
        norms = dict(zip(used, row_norms(used), strict=True))
        return torch.cat([getattr(self, part) * norms.get(part, 0.0) for part in names], dim=1)

    def without_unused(self, summed: torch.Tensor, name: str) -> torch.Tensor:
        """A W with noise, where columns of tables that are not used are 0: they are noise alone."""
        names = name.split("+")
        used = [self._uses(part, names) for part in names]
        return _where_used(summed, used, name, self._ledger.plan.facts)

    def _uses(self, part: str, names: Sequence[str]) -> bool:
        """Beside other tables neighbours' features are used only where features differ, and say nothing about their own
        node."""
        if part != "attributes" or len(names) == 1:
            return True
        return not self._features_tell and float(self._data.longest(self.attributes)) > 0

    @cached_property
    def _features_tell(self) -> bool:
        """Whether features alone predict labels of training nodes better than the shares of classes do; public."""
        data, train = self._data, self._data.target.train
        labels = data.target.labels[train]
        counts = data.target.total(torch.bincount(labels, minlength=data.classes))
        entropy = -float((counts / counts.sum()).xlogy(counts / counts.sum()).sum())
        gained = entropy + data.target.likelihood(log_probabilities(self._opinions[train]), train)
        return gained > defaults.FEATURES_TELL * entropy

    @cached_property
    def degrees(self) -> torch.Tensor:
        """One for everybody, so that Z tells how many neighbours a node has; it depends on nothing private."""
        return torch.ones_like(self._opinions[:, :1])

    @cached_property
    def labels(self) -> torch.Tensor:
        """One-hot labels of the training nodes, by randomised response where labels are private; others are zero.

        With public attributes the others have rows too, by what their features say.
        """
        data = self._data
        labels = data.target.labels[data.target.train]
        if self._private:
            labels = self._ledger.respond("labels", labels)
        rows = functional.one_hot(labels, data.classes).float()
        table = torch.zeros_like(self._opinions) if self._private else self._centred(self._opinions, rows)
        table[data.target.train] = self._centred(rows, rows)
        return self._to_norm_one(table)

    @cached_property
    def posteriors(self) -> torch.Tensor:
        """Everybody's class probabilities from features, with noise where features are private."""
        if not self._private:
            return self._to_norm_one(self._centred(self._opinions, self._opinions))
        noisy = self._ledger.release("posteriors", self._arithmetic.table(self._opinions, 1.0, 1).double())
        return self._to_norm_one(shrunk_rows(self._centred(noisy, noisy), noise_of(self._ledger, "posteriors")))

    @cached_property
    def readers(self) -> torch.Tensor:
        """What those say who read a node: A^T of the label table, released in all rows (docs/theory.md, 5.4)."""
        rows = self._arithmetic.table(self.labels, 1.0, self._terms)
        noisy = self._ledger.release("readers", self._arithmetic.transposed_product(self._data.adjacency, rows))
        return self._to_norm_one(shrunk_rows(noisy, noise_of(self._ledger, "readers")))

    @cached_property
    def neighbors(self) -> torch.Tensor:
        """Whose readers have which labels: S = A^T diag(w) Y + noise over training rows, less what S usually is."""
        data = self._data
        rows = weighted_labels(
            data.adjacency, data.target.labels, data.target.train, data.classes, self._tau, self._terms
        )
        counts = self._ledger.release("neighbors", self._arithmetic.transposed_product(data.adjacency, rows))
        usual = data.total(counts).float().clamp_min(1e-9)
        unusual = counts - counts.sum(1, keepdim=True) * usual / usual.sum()
        return self._to_norm_one(shrunk_rows(unusual, noise_of(self._ledger, "neighbors")))

    @cached_property
    def attributes(self) -> torch.Tensor:
        """Everybody's features, column by column in standard deviations from the mean; only where they are public.

        Rows longer than usual are shortened to the usual length, which then is 1. Columns are divided by powers of two
        first: squares of large and of small numbers would leave the range of float32.
        """
        features = dense(self._data.features).float()
        sizes = power_above(self._data.target.largest(column_largest(features)).double())
        features = (features / sizes).float()
        rows = features - self._data.mean(features)
        rows = rows / (self._data.mean(rows.square()) * rows.shape[1]).sqrt().clamp_min(1e-6)
        return rows / rows.norm(dim=1, keepdim=True).clamp_min(1.0)

    def own(self, name: str) -> torch.Tensor:
        """What was released about a node in its own row of a table: paid for already, so the head may read it."""
        parts: list[torch.Tensor] = [getattr(self, part) for part in name.split("+") if part in RELEASED_IN_FULL]
        return torch.cat([self._opinions[:, :0], *parts], dim=1)

    def _centred(self, rows: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
        return rows - self._data.mean(sample)

    def _to_norm_one(self, table: torch.Tensor) -> torch.Tensor:
        """Scaled as a whole, so that its longest row uses all of the release's row norm."""
        return table / self._data.longest(table).clamp_min(1e-12)


def without_unused(summed: torch.Tensor, table: torch.Tensor, name: str, facts: PublicFacts) -> torch.Tensor:
    """What `Tables.without_unused` returns, for rows of new nodes: a table that is not used is zero in W."""
    blocks = zip(name.split("+"), table.split(widths(name, facts), dim=1), strict=True)
    used = [part != "attributes" or bool(block.any()) for part, block in blocks]
    return _where_used(summed, used, name, facts)


def _where_used(summed: torch.Tensor, used: Sequence[bool], name: str, facts: PublicFacts) -> torch.Tensor:
    if all(used):
        return summed
    columns = summed.new_tensor(used).repeat_interleave(torch.tensor(widths(name, facts), device=summed.device))
    return summed * columns.repeat(summed.shape[1] // len(columns))


def weighted_labels(
    adjacency: SparseRows, labels: torch.Tensor, train: torch.Tensor, classes: int, tau: float, terms: int
) -> torch.Tensor:
    """diag(w) Y over training rows, w_i = min(1, tau / |A_i|), rounded down to the lattice of sums of `terms` rows; the
    others are zero. Where entries are 0/1, |A_i| is the root of the degree."""
    weighted = torch.zeros(len(adjacency), classes, device=labels.device)
    degrees = adjacency.squared_norms[train].clamp_min(1e-9)  # less than that means: no entries
    step = table_step(1.0, terms)
    weights = (tau * (1 - 1e-12) / degrees.sqrt()).clamp_(max=1.0).div_(step).floor_().mul_(step).float()
    weighted[train] = label_rows(labels[train], classes) * weights[:, None]
    return weighted


def neighbor_label_counts(
    adjacency: SparseRows, labels: torch.Tensor, train: torch.Tensor, classes: int, tau: float
) -> torch.Tensor:
    """A^T diag(w) Y on one process, exactly."""
    rows = weighted_labels(adjacency, labels, train, classes, tau, len(adjacency))
    return EXACT.transposed_product(adjacency, rows)


def shrunk_rows(table: torch.Tensor, noise: float) -> torch.Tensor:
    """Each row's direction, shrunk where noise could have made it: z / (|z| + noise sqrt(width)). Row by row: free."""
    return table / (table.norm(dim=1, keepdim=True) + noise * math.sqrt(table.shape[1]) + 1e-12)


def row_norms(names: Sequence[str]) -> list[float]:
    """How tables that are released together share the row norm 1, by their squares: degrees and attributes have fixed
    parts, the others equal parts of the rest."""
    fixed = {"degrees": defaults.DEGREES_PART, "attributes": defaults.ATTRIBUTES_PART}
    others = [name for name in names if name not in fixed]
    rest = 1 - sum(fixed[name] for name in names if name in fixed)
    parts = [fixed[name] if name in fixed else rest / len(others) for name in names]
    # Where there are no others, nothing is left over.
    return [math.sqrt(part / sum(parts)) for part in parts]


def widths(name: str, facts: PublicFacts) -> list[int]:
    """Columns of each of the tables that `name` joins; an empty name joins none."""
    others = {"degrees": 1, "attributes": facts.features}
    return [others.get(part, facts.classes) for part in name.split("+") if part]


def class_width(name: str, facts: PublicFacts) -> int:
    """Columns of Z as a head reads it (`readable`): attributes it reads in units of noise alone."""
    return sum(widths("+".join(part for part in name.split("+") if part != "attributes"), facts))


def own_width(name: str, classes: int) -> int:
    """Columns of `Tables.own`."""
    return classes * sum(part in RELEASED_IN_FULL for part in name.split("+"))


def degree_width(name: str) -> int:
    """How many of these columns are degrees, the last ones."""
    return int("degrees" in name.split("+"))


def readable(
    summed: torch.Tensor, name: str, noise: float, facts: PublicFacts
) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
    """Z of one relation as a head reads it, row by row: the direction of each table of classes on its own, so that a
    weak one does not shrink a strong one; and, apart from these, the logarithm of the degree."""
    names = [part for part in name.split("+") if part]
    blocks = dict(zip(names, summed.split(widths(name, facts), dim=1), strict=True))
    blocks.pop("attributes", None)
    degrees = blocks.pop("degrees", None)
    readable_blocks = [summed[:, :0], *(shrunk_rows(block, noise) for block in blocks.values())]
    if degrees is None:
        return torch.cat(readable_blocks, dim=1), []
    norm = row_norms(names)[names.index("degrees")]
    return torch.cat(readable_blocks, dim=1), [(degrees / norm).clamp_min(0).log1p()]


def in_noises(summed: torch.Tensor, noise: float) -> torch.Tensor:
    """Z in units of its noise, row by row, no longer than `defaults.LONGEST_ROW`.

    Directions do not tell how much a node hears, and what to believe depends on it. A hub's row would outweigh all
    others in training.
    """
    rows = summed / (noise or 1.0)
    return rows * (defaults.LONGEST_ROW / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1.0)


def noise_of(ledger: LedgerLike, name: str) -> float:
    """The standard deviation that `name` plans, 0 where nothing is planned."""
    return next((m.noise for m in ledger.plan.mechanisms if m.name == name), 0.0)


@torch.no_grad()
def log_likelihoods(counts: torch.Tensor, expected: torch.Tensor, noise: float, spread: float) -> torch.Tensor:
    """log p(counts | class) for each row and class, less the mean over classes.

    Counts are centred: each row has lost its mean. A node of class c with m times the usual number of links has
    Gaussian counts of mean m expected[c] and variance m expected[c] + noise^2; the logarithm of m is normal with
    standard deviation `spread`, and the mean of m is 1.

    Args:
        counts: Centred noisy counts, a row for each node and a column for each class of neighbours.
        expected: Row c: how many neighbours of each class a node of class c has.
        noise: The standard deviation of the noise on each count.
        spread: How degrees vary (`LinkStatistics.spread`).
    """
    if len(counts) > _ROWS_AT_ONCE:
        return torch.cat([log_likelihoods(some, expected, noise, spread) for some in counts.split(_ROWS_AT_ONCE)])
    deviations = torch.linspace(-_WIDEST, _WIDEST, _MULTIPLES, dtype=torch.float64)
    places = spread * deviations - spread**2 / 2
    chances = torch.log_softmax(-0.5 * deviations.square(), dim=0)
    columns = []
    for row in expected.double().clamp_min(0).cpu():
        terms = []
        for place, chance in zip(places.tolist(), chances.tolist(), strict=True):
            mean = math.exp(place) * row
            variance = (mean + noise**2).clamp_min(1e-9)
            centred = (mean - mean.mean()).to(counts)
            squares = ((counts - centred).square() * (1 / variance).to(counts)).sum(1)
            terms.append(chance - 0.5 * (squares + float(variance.log().sum())))
        # Over the last dimension: over the first one, the last bits of a row would depend on its place among the rows.
        columns.append(torch.stack(terms, dim=1).logsumexp(1))
    scores = torch.stack(columns, dim=1)
    return scores - scores.mean(1, keepdim=True)
