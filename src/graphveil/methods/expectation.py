"""What each branch of the default can be expected to reach, by training nodes that judge it on their own rows.

docs/theory.md, section 5.6. For each branch the neighbourhood of every training node is simulated from the link
statistics and its own label, and joined with what features say about it. How many come out right is released once for
all branches, and the rest of the budget follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import gammaincinv, ndtri, pdtrik

from graphveil.accounting import RandomizedResponse
from graphveil.methods import defaults
from graphveil.methods.auto_plan import CLASS_SUMS, FIRST_FEATURES, counted
from graphveil.methods.link_statistics import LinkStatistics
from graphveil.methods.tables import log_likelihoods, row_norms
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.mechanisms import GaussianRelease, Mechanism, Responses, Role
from graphveil.privacy.plan import Branch, Plan

# Branches that do not read the graph.
_ALONE = ("sums", "features")
# Of a simulated table.
_DRAWS = 400
# How often class sums of half the budget are drawn: a power of two, so that means are exact.
HALVES = 4
# How often the noise of the release is drawn again, to see what it makes of a difference.
_REPEATS = 64
# Poisson variables up to this are found by adding up probabilities; those that differ by less are not told apart.
_MOST_ADDED, _UNCLEAR = 40, 1e-6
# Nodes whose neighbourhoods are simulated at a time.
_ROWS_AT_ONCE = 2**13


@dataclass(frozen=True)
class GraphBranch:
    """What a branch that reads the graph will see.

    Args:
        expected: Row c: the expected responses of each class among the training neighbours of a node of class c.
        noise: Of each count of responses.
        spread: How degrees vary.
    """

    expected: np.ndarray
    noise: float
    spread: float

    @classmethod
    def of(cls, branch: Branch, links: LinkStatistics, unlabelled: float = 0.0, accuracy: float = 0.0) -> GraphBranch:
        """From the plan of the branch and what was released before.

        Args:
            branch: Its part of the plan.
            links: What was released about links.
            unlabelled: How many nodes without a label there are for each one with a label. They respond with what
                features say about them.
            accuracy: How often features are right.
        """
        responses = next(m for m in branch.mechanisms if isinstance(m, Responses))
        release = next(m for m in branch.mechanisms if isinstance(m, GaussianRelease) and m.role == "release")
        classes = len(links.priors)
        truth = RandomizedResponse(responses.epsilon, classes).truth_probability
        answers = np.full((classes, classes), (1 - truth) / max(1, classes - 1))
        np.fill_diagonal(answers, truth)
        guesses = accuracy * np.eye(classes) + (1 - accuracy) * links.priors
        neighbors = links.compatibility @ (np.eye(classes) + unlabelled * guesses) @ answers
        return cls(links.degree * neighbors, count_noise(release, classes), links.spread)

    @classmethod
    def of_co_readers(cls, branch: Branch, links: LinkStatistics, facts: PublicFacts) -> GraphBranch:
        """The same on a directed graph: a node adds up what table "neighbors" says of each node that it reads.

        Rows of that table are simulated: how many training nodes read such a node follows from how many nodes each
        reads, their classes are those of co-readers. Rows of norm 1 stand for one neighbour each.

        Args:
            branch: Its part of the plan.
            links: What was released about co-links.
            facts: How many nodes there are.
        """
        releases = {m.name: m for m in branch.mechanisms if isinstance(m, GaussianRelease)}
        table, release = releases["neighbors"], releases["release"]
        classes, rng = len(links.priors), np.random.default_rng(0)
        weight = min(1.0, (table.tau or 1.0) / math.sqrt(max(1.0, links.degree)))
        # A node with many readers is the more often read: that adds the squared spread to the mean of the logarithm.
        spread = defaults.READERS_SPREAD
        readers = np.exp(spread * rng.standard_normal(_DRAWS) + spread**2 / 2)
        readers *= links.degree * facts.train_nodes / facts.nodes
        # The same draws for all classes: what differs between their rows is what the statistics say.
        numbers, noise = rng.random((_DRAWS, classes)), table.noise * rng.standard_normal((_DRAWS, classes))
        rows = []
        for shares in links.compatibility:
            counts = weight * _poisson(numbers, readers[:, None] * shares) + noise
            unusual = counts - counts.sum(1, keepdims=True) * links.priors
            lengths = np.linalg.norm(unusual, axis=1, keepdims=True) + table.noise * math.sqrt(classes) + 1e-12
            rows.append((unusual / lengths).mean(0))
        expected = links.degree * np.maximum(0.0, 1 / classes + np.array(rows))
        norm = release.row_norm * row_norms(release.table.split("+"))[0]
        return cls(expected, release.noise / norm, links.spread)


def count_noise(release: GaussianRelease, classes: int) -> float:
    """The noise of a centred count, where rows of W are centred one-hot labels scaled to the release's row norm."""
    return release.noise * math.sqrt(1 - 1 / classes) / release.row_norm


def draws_of_a_node(classes: int) -> int:
    """Random numbers that `simulated_counts` takes for each node: a degree, and three for each class."""
    return 1 + 3 * classes


def simulated_counts(labels: np.ndarray, branch: GraphBranch, rng: np.random.Generator) -> torch.Tensor:
    """Centred noisy counts of responses for a node of each of these labels.

    Degrees vary, and the neighbours of one node resemble each other (`defaults.CONCENTRATION`).
    """
    # A node takes `draws_of_a_node` numbers of the stream, whatever its label: others' numbers do not depend on it.
    classes = len(branch.expected)
    drawn = rng.random((len(labels), draws_of_a_node(classes))).T
    degrees, mixtures, numbers = ndtri(drawn[0]), drawn[1 : 1 + classes].T, drawn[1 + classes : 1 + 2 * classes].T
    noise = ndtri(drawn[1 + 2 * classes :].T)
    spread = branch.spread
    totals = branch.expected.sum(1, keepdims=True)
    shares = branch.expected / np.maximum(totals, 1e-12)
    amounts = gammaincinv(defaults.CONCENTRATION * shares[labels] + 1e-3, mixtures) + 1e-12
    mixture = amounts / amounts.sum(1, keepdims=True)
    means = np.exp(spread * degrees - spread**2 / 2)[:, None] * totals[labels] * mixture
    noisy = _poisson(numbers, means) + branch.noise * noise
    return torch.from_numpy(noisy - noisy.mean(1, keepdims=True))


def _poisson(numbers: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Poisson variables from uniform ones, one from each: the least k up to which the probability is at least that.

    Small ones are found by adding up probabilities, which is many times as fast as the inverse that scipy has. Where a
    number is so close to such a sum that rounding could decide, and where k is large, the inverse is asked.
    """
    numbers, means = np.broadcast_arrays(numbers, np.maximum(means, 1e-9))
    flat, rates = numbers.ravel(), means.ravel()
    found = np.full(flat.shape, np.nan)
    left = np.flatnonzero(rates < _MOST_ADDED)
    number, rate = flat[left], rates[left]
    chance = np.exp(-rate)
    total, before = chance.copy(), np.zeros_like(chance)
    for k in range(_MOST_ADDED):
        reached = total >= number
        clear = np.minimum(total - number, np.where(k > 0, number - before, np.inf)) > _UNCLEAR
        found[left[reached & clear]] = k
        left, number, rate, total, chance = (each[~reached] for each in (left, number, rate, total, chance))
        if not len(left):
            break
        before, chance = total, chance * (rate / (k + 1))
        total = total + chance
    open_ones = np.isnan(found)
    inverse = np.ceil(np.nan_to_num(pdtrik(flat[open_ones], rates[open_ones])))
    found[open_ones] = np.maximum(0, inverse)
    return found.reshape(numbers.shape)


def right_counts(
    labels: np.ndarray,
    trained: Sequence[torch.Tensor],
    sums: Sequence[torch.Tensor],
    branches: Mapping[str, GraphBranch],
    priors: np.ndarray,
    simulate: Callable[[np.ndarray, GraphBranch, np.random.Generator], torch.Tensor] = simulated_counts,
    first: int = 0,
) -> torch.Tensor:
    """How many training nodes come out right, in the ways that `auto_plan.counted` lists.

    Each is a sum of numbers between 0 and 1 that depend on a node's own row alone. The simulation's randomness is
    public. It belongs to a node's place among all training nodes: the sums of several processes add up to that of one.

    Args:
        labels: The classes of these training nodes.
        trained: Their logits after half of the first training of features, and after all of it.
        sums: Their scores by class sums: several draws with half of what these cost, of which the mean counts; last,
            with all of it.
        branches: The branches that read the graph.
        priors: The shares of the classes.
        simulate: Draws noisy counts of neighbours.
        first: The place of the first of these nodes among all training nodes.
    """
    truth = torch.from_numpy(labels)
    own, neighbors = defaults.FIRST_WEIGHTS
    *halves, best = sums
    scores = own * (best.double() - best.double().mean(1, keepdim=True))

    def right(scores: torch.Tensor) -> torch.Tensor:
        return (scores.argmax(1) == truth).double()

    # Multiples of 2^-20 up to 1: exact in float64.
    votes = [*map(right, trained), torch.stack([right(half) for half in halves]).mean(0), right(best)]
    alike = _counting_alike(truth, priors)
    last = [alike(scores)] if branches else []
    for number, (name, branch) in enumerate(branches.items()):
        stream = np.random.PCG64(number)
        stream.advance(first * draws_of_a_node(len(branch.expected)))
        rng = np.random.Generator(stream)
        blocks = [labels[low : low + _ROWS_AT_ONCE] for low in range(0, max(1, len(labels)), _ROWS_AT_ONCE)]
        counts = torch.cat([simulate(block, branch, rng) for block in blocks])
        expected = torch.from_numpy(branch.expected)
        both = scores + neighbors * log_likelihoods(counts, expected, branch.noise, branch.spread)
        votes.append(right(both))
        if name == "balanced":
            last.append(alike(both))
    return torch.stack([*votes, *last]).sum(1)


def _counting_alike(truth: torch.Tensor, priors: np.ndarray) -> Callable[[torch.Tensor], torch.Tensor]:
    """Votes in which all classes count alike, as in balanced accuracy.

    Scores lose what they owe to the shares of classes, and a right answer counts by how rare its class is: 1 for the
    rarest one. Where nearly all nodes are of one class, accuracy hardly tells a good model from a bad one; this does.
    """
    shares = torch.from_numpy(np.maximum(priors, 1e-6))
    weights = (shares.min() / shares * 2**20).floor() / 2**20

    def votes(scores: torch.Tensor) -> torch.Tensor:
        return ((scores - shares.log()).argmax(1) == truth) * weights[truth.clamp_min(0)]

    return votes


@dataclass(frozen=True)
class Expected:
    """Accuracies in percent, by branch: with all that the branch reads, and what its features reach alone.

    `alike` has balanced accuracies (all classes count alike) of class sums alone and of the balanced branch; None where
    no branch reads the graph.
    """

    joined: Mapping[str, float]
    features: Mapping[str, float]
    alike: tuple[float, float] | None

    @property
    def alone(self) -> str:
        """The branch that is followed if the graph is not read."""
        return max(_ALONE, key=self.joined.__getitem__)

    @property
    def with_graph(self) -> str | None:
        """The best branch that reads the graph, if there is one."""
        return max((name for name in self.joined if name not in _ALONE), key=self.joined.__getitem__, default=None)


def chosen_branch(released: torch.Tensor, priors: np.ndarray, plan: Plan) -> tuple[str, Expected]:
    """The branch with the largest expected accuracy, and the expectations.

    Formal guarantee: post-processing.

    The graph has to be ahead of features alone by some points (`defaults.WORTH_IT_POINTS`), and by more than what the
    noise of the release makes of the difference: reading it costs budget for certain. Where accuracies are too close
    to tell, balanced accuracies decide.
    """
    shares = released.double().numpy() / plan.facts.train_nodes
    expected = _expected(shares, priors, plan)
    alone, with_graph = expected.alone, expected.with_graph
    if with_graph is None:
        return alone, expected

    def ahead(of: Expected) -> tuple[float, float]:
        assert of.alike is not None
        return of.joined[with_graph] - of.joined[alone], of.alike[1] - of.alike[0]

    noise = np.random.default_rng(0).standard_normal((_REPEATS, len(shares)))
    again = shares + noise * (plan["expectation"].noise / plan.facts.train_nodes)
    doubts = np.std([ahead(_expected(each, priors, plan)) for each in again], axis=0)
    (points, doubt), (alike, alike_doubt) = zip(ahead(expected), defaults.DOUBT * doubts, strict=True)
    if abs(points) > defaults.WORTH_IT_POINTS:
        return with_graph if points > defaults.WORTH_IT_POINTS + doubt else alone, expected
    return "balanced" if alike > defaults.ALIKE_POINTS + alike_doubt else alone, expected


def _expected(shares: np.ndarray, priors: np.ndarray, plan: Plan) -> Expected:
    """Accuracies of all branches, from the shares of right answers.

    Those of features at more budget follow a curve that saturates (`accuracy_at`). In the balanced branch neighbours
    add as much as they did at first, in proportion to what features leave wrong.
    """
    reading = [branch.name for branch in plan.branches if branch.name not in _ALONE]
    share = dict(zip(counted([name for name in reading if name != "joint"]), shares.tolist(), strict=True))
    chance = float(priors.max())

    def reached(before: str, now: str, most_growth: float, first: str, branch: str, *roles: Role) -> float:
        paid = _squared_mu(plan[first])
        later = sum(_squared_mu(m) for m in plan.branch(branch).mechanisms if m.role in roles)
        at = accuracy_at(share[before], share[now], (paid + later) / paid, chance, most_growth)
        return 100 * max(chance, at)

    def by_sums(branch: str) -> float:
        return reached("half of sums", "sums", defaults.SUMS_GROWTH, CLASS_SUMS, branch, "class sums")

    def by_training(branch: str) -> float:
        trained = reached("half", "whole", defaults.TRAINING_GROWTH, FIRST_FEATURES, branch, "features", "head")
        return max(min(100.0, 100 * share["sums"]), trained)  # it starts from class sums

    trained = {"features", "joint"}
    features = {b.name: by_training(b.name) if b.name in trained else by_sums(b.name) for b in plan.branches}
    joined = {name: features[name] for name in _ALONE}
    if not reading:
        return Expected(joined, features, None)
    for name in reading:
        left = (100 - features[name]) / max(100 - 100 * share["sums"], 1e-9)
        joined[name] = features[name] + 100 * (share["balanced"] - share["sums"]) * min(1.0, left)
    if "graph" in share:  # undirected graphs have this branch
        joined["graph"] = 100 * share["graph"]
    rarest = float(priors.min()) * len(priors)
    alone, balanced = (100 * share[name] / rarest for name in ("sums alike", "balanced alike"))
    # The rest of the budget for features alone makes them better; accuracies say by how much.
    growth = max(joined[name] for name in _ALONE) - features["balanced"]
    return Expected(joined, features, (alone + max(0.0, growth), balanced))


def expectation_in_words(followed: str, expected: Expected) -> str:
    """Why this branch is followed, for the certificate."""
    shown = {name: min(100.0, max(0.0, value)) for name, value in expected.joined.items()}
    alone, with_graph = shown[expected.alone], expected.with_graph
    if with_graph is None or expected.alike is None:
        return f"About {alone:.0f} % right were expected with features."
    best, ahead = shown[with_graph], expected.joined[with_graph] - expected.joined[expected.alone]
    balanced_alone, balanced = (min(100.0, max(0.0, value)) for value in expected.alike)
    if followed not in _ALONE:
        if ahead > defaults.WORTH_IT_POINTS:
            right = f"about {shown[followed]:.0f} % right were expected with it, {alone:.0f} % with features alone."
            return f"The graph was used: {right}"
        return (
            f"The graph was used: a balanced accuracy of about {balanced:.0f} % was expected with it, "
            f"{balanced_alone:.0f} % with features alone."
        )
    if abs(ahead) <= defaults.WORTH_IT_POINTS:
        return (
            "The graph was not used, because it was not expected to help clearly: about "
            f"{alone:.0f} % right either way, and a balanced accuracy of about {balanced_alone:.0f} % with features "
            f"alone and {balanced:.0f} % with the graph."
        )
    # Beyond these points nothing but the doubt of `chosen_branch` can have decided.
    doubt = ", a difference that noise may have made" if ahead > 0 else ""
    return (
        f"The graph was not used, because it was not expected to help clearly: about {alone:.0f} % right with "
        f"features alone, about {best:.0f} % with the graph{doubt}."
    )


def accuracy_at(half: float, whole: float, budget: float, chance: float, most_growth: float) -> float:
    """The accuracy at `budget` times the squared mu at which `whole` was seen; `half` was seen at half of it.

    What lies above chance is taken to grow as s / (s + K) with the squared mu s, where K follows from the two, and by
    at most `most_growth` where s is doubled.
    """
    if whole <= chance:
        return whole
    ratio = (whole - chance) / max(half - chance, 1e-9)
    ratio = min(most_growth, max(1.0, ratio))
    half_at = (ratio - 1) / (2 - ratio)
    return min(1.0, chance + (whole - chance) * budget * (1 + half_at) / (budget + half_at))


def _squared_mu(mechanism: Mechanism) -> float:
    """What it costs a training node, as the squared mu of one Gaussian mechanism."""
    loss = mechanism.loss("training")
    return 0.0 if loss is None else loss.mu**2
