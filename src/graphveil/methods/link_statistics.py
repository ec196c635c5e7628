"""How training nodes are linked: a small paid release, and what follows from it (docs/theory.md, section 5.5).

On directed graphs: how training nodes are linked with the same nodes (section 5.7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from graphveil.methods import defaults
from graphveil.methods.inputs import Inputs
from graphveil.privacy.levels import KNeighbor, Level, Node
from graphveil.privacy.mechanisms import count_step
from graphveil.privacy.plan import Plan
from graphveil.privacy.sensitivity import link_statistics_units

# What is said where the released numbers show nothing. That may be so, or the noise may be too large to tell.
_HARDLY = "hardly depend on classes, or noise hides that they do"


def link_sums(data: Inputs, level: Level) -> torch.Tensor:
    """The sums that are released, over pairs of linked training nodes of an undirected graph, each pair once.

    First the class-compatibility matrix, its upper triangle by rows: pair (i, j) counts 1 / max(d_i, d_j, bound) for
    its two classes, with d the number of training neighbours and the bound of `level`. Then the number of pairs, then
    the number of training nodes of each class, in the units of `sensitivity.link_statistics_units`. Where links have
    weights, a pair counts its weight in all of these.

    Two nodes are linked if each reads the other: where degrees were cut, one direction may be left, and a degree
    promise bounds columns alone. A training node that was emptied has no label: its links count in degrees and in the
    number of pairs, not in the matrix.
    """
    labels = data.target.labels[data.target.train].cpu().numpy()
    links = data.adjacency.links_among(data.target.train)
    sums = np.zeros(data.classes * (data.classes + 1) // 2, dtype=np.int64)
    step, number = count_step(data.target.count), 0.0
    for first, second, weights in links.pairs(np.stack([labels, links.degrees], axis=1)):
        number += weights.sum()
        labelled = (first[:, 0] >= 0) & (second[:, 0] >= 0)
        first, second, weights = first[labelled], second[labelled], weights[labelled]
        cells = _cell(first[:, 0].astype(np.int64), second[:, 0].astype(np.int64), data.classes)
        shares = weights * _weights(first[:, 1], second[:, 1], max(1, _bound(level)))
        np.add.at(sums, cells, np.trunc(shares / step).astype(np.int64))
    # Each process has counted its own pairs. Both totals are exact: whole numbers, and weights on their lattice.
    counted = torch.from_numpy(np.concatenate([sums, np.bincount(labels[labels >= 0], minlength=data.classes)]))
    matrix, classes = np.split(data.target.total(counted).numpy(), [len(sums)])
    pairs = data.target.total(torch.tensor([number], dtype=torch.float64)).numpy()
    pair_unit, class_unit = link_statistics_units(_with_bound(level))
    return torch.from_numpy(np.concatenate([matrix * step, pair_unit * pairs, class_unit * classes]))


def co_link_sums(data: Inputs, level: Level) -> torch.Tensor:
    """The sums that are released on a directed graph, over pairs of training nodes that read the same node.

    As `link_sums`: first a matrix, then the number of entries of training rows, then the numbers of each class. A pair
    (i, j) that reads t counts 1 / (max(d_i, d_j, bound) max(m_t, bound)) in the matrix, with d the number of nodes that
    a node reads, m_t the number of training nodes that read t, and k as the bound. Weights of links do not matter.

    A training node that was emptied has no label: what it reads counts in d, m and the number of entries, not in the
    matrix.
    """
    train, step = data.target.train, count_step(data.target.count)
    labels = data.target.labels[train].cpu().numpy()
    degrees = data.adjacency.entries_in(train)
    # All readers of a node are at hand where the node is: a process counts the pairs that read its own nodes.
    readers, targets = data.adjacency.entries_with(train, np.stack([labels, degrees], axis=1))
    sums = _co_link_matrix(readers, targets, data.classes, max(1, _bound(level)), data.target.count)
    of_classes = np.bincount(labels[labels >= 0], minlength=data.classes)
    counted = torch.from_numpy(np.concatenate([sums, degrees.sum(keepdims=True), of_classes]))
    matrix, entries, classes = np.split(data.target.total(counted).numpy(), [len(sums), len(sums) + 1])
    entry_unit, class_unit = link_statistics_units(_with_bound(level))
    return torch.from_numpy(np.concatenate([matrix * step, entry_unit * entries, class_unit * classes])).double()


def _co_link_matrix(readers: np.ndarray, targets: np.ndarray, classes: int, bound: int, train_nodes: int) -> np.ndarray:
    """The upper triangle in steps of `mechanisms.count_step`, added in int64.

    The readers of each node are sorted by degree: then a pair counts by the degree of the later one, and a reader adds
    its weight times the number of readers of each class before it. `readers` has the label and the degree of the reader
    of each entry, `targets` what is read.
    """
    company = np.bincount(targets, minlength=1)
    labelled = readers[:, 0] >= 0
    readers, targets = readers[labelled], targets[labelled]
    order = np.lexsort((readers[:, 1], targets))
    readers, targets = readers[order], targets[order]
    weights = _co_link_weights(readers[:, 1], company[targets], bound, train_nodes)
    first = np.searchsorted(targets, targets)
    own = readers[:, 0]
    sums = np.zeros((classes, classes), dtype=np.int64)
    for label in range(classes):
        up_to = np.concatenate([[0], np.cumsum(own == label)])
        np.add.at(sums[:, label], own, weights * (up_to[:-1] - up_to[first]))
    return (sums + np.tril(sums, -1).T)[np.triu_indices(classes)]


def _co_link_weights(degrees: np.ndarray, company: np.ndarray, bound: int, train_nodes: int) -> np.ndarray:
    """Of the pairs of a node of this degree with readers of smaller ones, in whole steps, rounded down."""
    return round(1 / count_step(train_nodes)) // (np.maximum(degrees, bound) * np.maximum(company, bound))


@dataclass(frozen=True)
class LinkStatistics:
    """What the release says about the graph.

    Args:
        priors: The share of each class among training nodes.
        degree: Training neighbours of a training node, on average.
        compatibility: Row c: the classes of the neighbours of a node of class c, as shares.
        homophily: 0 where links do not depend on classes, 1 where they stay within them, negative where they avoid it.
        spread: How degrees vary: the standard deviation of the logarithm of the expected degree of a node.
    """

    priors: np.ndarray
    degree: float
    compatibility: np.ndarray
    homophily: float
    spread: float

    @classmethod
    def of(cls, released: torch.Tensor, plan: Plan) -> LinkStatistics:
        """Read what was released. Formal guarantee: post-processing."""
        classes, level = plan.facts.classes, _with_bound(plan.level)
        cells = classes * (classes + 1) // 2
        values = released.double().cpu().numpy()
        noise = plan["statistics"].noise
        pairs, counts = link_statistics_units(level)
        matrix = np.zeros((classes, classes))
        matrix[np.triu_indices(classes)] = values[:cells]
        matrix = (matrix + matrix.T) / 2  # a pair of two classes counts one half in each of its two cells
        numbers = np.maximum(values[cells + 1 :] / counts, 1.0)
        priors = numbers / numbers.sum()
        homophily, compatibility = _denoised(matrix, priors, noise)
        nodes = plan.facts.train_nodes
        degree = max(0.0, 2 * values[cells] / pairs / nodes)
        total, doubt = 2 * float(values[:cells].sum()) / nodes, 2 * noise * math.sqrt(cells) / nodes
        spread = _degree_spread(total, doubt, degree, max(1, _bound(level)))
        return cls(priors, float(degree), compatibility, homophily, spread)

    def sentences(self, plan: Plan) -> tuple[str, ...]:
        """In words, for the certificate and the report."""
        links = min(self.degree * plan.facts.nodes / plan.facts.train_nodes, plan.facts.nodes - 1)
        like = self._own_class("nodes link to their own class") or self._one_class() or f"links {_HARDLY}"
        if plan.facts.weighted:
            return (f"The links of a node weigh about {links:.3g} in all, and {like}.",)
        return (f"A node has about {links:.3g} links, and {like}.",)

    def _one_class(self) -> str:
        """The same for the class where it is most often so. A rare class hardly shows in what all classes do."""
        most = float((np.diag(self.compatibility) / np.maximum(self.priors, 1e-9)).max())
        return f"nodes of one class link to it {most:.1f} times as often as chance would" if most > 1.5 else ""

    def _own_class(self, what: str) -> str:
        """How often this happens, as a multiple of what chance would give; nothing if that is about as often."""
        within = float(self.priors @ np.diag(self.compatibility))
        ratio = within / max(1e-9, float((self.priors**2).sum()))
        if 0.9 < ratio < 1.1:
            return ""
        return f"{what} {'only ' if ratio < 1 else ''}{ratio:.1f} times as often as chance would"


class CoLinkStatistics(LinkStatistics):
    """What the release says about a directed graph.

    `degree` is how many nodes a training node reads. Row c of `compatibility` are the classes of the training nodes
    that read the same as a node of class c. How degrees vary is not measured.
    """

    @classmethod
    def of(cls, released: torch.Tensor, plan: Plan) -> CoLinkStatistics:
        """Read what was released. Formal guarantee: post-processing."""
        pairs = LinkStatistics.of(released, plan)  # an entry counts once, a pair for both of its nodes
        return cls(pairs.priors, pairs.degree / 2, pairs.compatibility, pairs.homophily, defaults.USUAL_SPREAD[0])

    def sentences(self, plan: Plan) -> tuple[str, ...]:
        """In words, for the certificate and the report."""
        links = min(self.degree, plan.facts.nodes - 1)
        same = self._own_class("nodes that link to the same node belong to the same class")
        like = same or f"links to the same node {_HARDLY}"
        return (f"A node links to about {links:.3g} others, and {like}.",)


def _denoised(matrix: np.ndarray, priors: np.ndarray, noise: float) -> tuple[float, np.ndarray]:
    """Homophily, and the shares of classes among neighbours, without what noise alone could have made.

    The matrix is taken apart into what chance would give, homophily (one number) and a remainder. Homophily is moved
    towards 0 by its standard deviation; the remainder is shrunk as a whole (James and Stein 1961).
    """
    classes = len(matrix)
    total = max(float(matrix.sum()), 1e-9)
    chance = np.outer(priors, priors) * total
    within = np.diag(priors) * total - chance
    size = max(float((within**2).sum()), 1e-12)
    estimate = float(((matrix - chance) * within).sum()) / size
    homophily = math.copysign(min(1.0, max(0.0, abs(estimate) - noise / math.sqrt(size))), estimate)
    rest = matrix - chance - estimate * within
    spread = noise**2 * classes * (classes + 1) / 2
    kept = max(0.0, 1 - spread / max(float((rest**2).sum()), 1e-12))
    cleaned = np.maximum(chance + homophily * within + kept * rest, 1e-3 * chance + 1e-9)
    return homophily, cleaned / cleaned.sum(1, keepdims=True)


def _degree_spread(total: float, doubt: float, degree: float, bound: int) -> float:
    """How degrees vary, from the weights of all pairs together.

    A node's pairs weigh 1 / max(d_i, d_j, bound). In a graph of equal degrees above the bound the pairs of each node
    weigh 1 in all; the more degrees differ, the less. Of the spreads on a grid the most likely one is taken, with
    `defaults.USUAL_SPREAD` where the weights cannot tell.

    Args:
        total: Twice the weight of all pairs, for each training node; noisy.
        doubt: The standard deviation of its noise.
        degree: The mean degree.
        bound: The least number that a weight is divided by.
    """
    usual, width = defaults.USUAL_SPREAD
    spreads = np.linspace(0.0, 2.0, 41)
    expected = np.array([_weight_of_pairs(spread, degree, bound) for spread in spreads])
    # A part of the weight for what the model does not know: who links to whom depends on degrees.
    misfit = (expected - total) ** 2 / (doubt**2 + (0.05 * expected) ** 2 + 1e-12) + ((spreads - usual) / width) ** 2
    return float(spreads[np.argmin(misfit)])


def _weight_of_pairs(spread: float, degree: float, bound: int) -> float:
    """Twice the expected weight of all pairs, for each node, where expected degrees are log-normal and links random.

    The two ends of a link have degrees of which the larger ones are the more frequent, so their logarithm is
    shifted by the squared spread; each is 1 plus a Poisson number, here a normal one.
    """
    points, chances = np.polynomial.hermite_e.hermegauss(24)
    rates = degree * np.exp(spread * points + spread**2 / 2)
    degrees = 1 + np.maximum(0, rates[:, None] + np.sqrt(rates)[:, None] * points[None, :]).ravel()
    weights = np.outer(chances, chances).ravel() / chances.sum() ** 2
    order = np.argsort(degrees)
    up_to = np.cumsum(weights[order])
    larger = np.diff(up_to**2, prepend=0.0)  # the chance that this is the larger of two
    return degree * float((larger / np.maximum(degrees[order], bound)).sum())


def _weights(first: np.ndarray, second: np.ndarray, bound: int) -> np.ndarray:
    """Of pairs of nodes with so many neighbours."""
    return 1 / np.maximum(np.maximum(first, second), bound)


def _cell(first: np.ndarray, second: np.ndarray, classes: int) -> np.ndarray:
    """The place of an unordered pair of classes in the upper triangle, by rows."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    return low * classes - low * (low - 1) // 2 + high - low


def _bound(level: Level) -> int:
    level = _with_bound(level)
    return level.k if isinstance(level, KNeighbor) else level.max_degree


def _with_bound(level: Level) -> KNeighbor | Node:
    assert isinstance(level, KNeighbor | Node)
    return level
