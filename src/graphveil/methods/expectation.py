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

from graphveil.methods import defaults
from graphveil.methods.link_statistics import LinkStatistics
from graphveil.methods.neighbor_likelihood import log_likelihoods
from graphveil.privacy.accounting import RandomizedResponse
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease, Responses
from graphveil.privacy.plan import Branch, Plan

_BRANCHES = ("features", "balanced", "graph")
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
        release = next(m for m in branch.mechanisms if isinstance(m, GaussianRelease))
        classes = len(links.priors)
        truth = RandomizedResponse(responses.epsilon, classes).truth_probability
        answers = np.full((classes, classes), (1 - truth) / max(1, classes - 1))
        np.fill_diagonal(answers, truth)
        guesses = accuracy * np.eye(classes) + (1 - accuracy) * links.priors
        neighbors = links.compatibility @ (np.eye(classes) + unlabelled * guesses) @ answers
        return cls(links.degree * neighbors, count_noise(release, classes), links.spread)


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
    counts = np.maximum(0, np.ceil(np.nan_to_num(pdtrik(numbers, np.maximum(means, 1e-9)))))
    noisy = counts + branch.noise * noise
    return torch.from_numpy(noisy - noisy.mean(1, keepdims=True))


def right_counts(
    labels: np.ndarray,
    half: Sequence[torch.Tensor],
    whole: torch.Tensor,
    branches: Mapping[str, GraphBranch],
    simulate: Callable[[np.ndarray, GraphBranch, np.random.Generator], torch.Tensor] = simulated_counts,
    first: int = 0,
) -> torch.Tensor:
    """How many training nodes come out right, in `auto_plan.EXPECTATIONS` ways.

    Each is a sum of numbers between 0 and 1 that depend on a node's own row alone.

    Features alone by the mean of the `half` trainings and by the `whole` of both; then the same in the balanced branch;
    then the branch of the graph with the whole. The simulation's randomness is public. It belongs to a node's place
    among all training nodes, of which these are from `first` on: the sums of several processes add up to that of one.
    """
    truth = torch.from_numpy(labels)

    def right(scores: torch.Tensor) -> torch.Tensor:
        return (scores.argmax(1) == truth).double()

    def joined(logits: torch.Tensor, counts: torch.Tensor, branch: GraphBranch) -> torch.Tensor:
        own, neighbors = defaults.FIRST_WEIGHTS
        scores = log_likelihoods(counts, torch.from_numpy(branch.expected), branch.noise, branch.spread)
        return own * (logits.double() - logits.double().mean(1, keepdim=True)) + neighbors * scores

    votes = [torch.stack([right(each) for each in half]).mean(0), right(whole)]
    for number, (name, branch) in enumerate(branches.items()):
        stream = np.random.PCG64(number)
        stream.advance(first * draws_of_a_node(len(branch.expected)))
        rng = np.random.Generator(stream)
        blocks = [labels[low : low + _ROWS_AT_ONCE] for low in range(0, max(1, len(labels)), _ROWS_AT_ONCE)]
        counts = torch.cat([simulate(block, branch, rng) for block in blocks])
        if name == "balanced":
            votes.append(torch.stack([right(joined(each, counts, branch)) for each in half]).mean(0))
        votes.append(right(joined(whole, counts, branch)))
    # Halves of ones: exact in float64.
    return torch.stack(votes).sum(1)


@dataclass(frozen=True)
class Expected:
    """Accuracies in percent, by branch: with all that the branch reads, and what its features reach alone."""

    joined: Mapping[str, float]
    features: Mapping[str, float]


def chosen_branch(released: torch.Tensor, links: LinkStatistics, plan: Plan) -> tuple[str, Expected]:
    """The branch with the largest expected accuracy, and the expectations.

    Formal guarantee: post-processing.

    Features alone need less to be chosen: reading the graph costs budget for certain. Accuracies at more budget for
    features follow a curve that saturates (`accuracy_at`).
    """
    half_alone, alone, half_balanced, balanced, graph = (released.double() / plan.facts.train_nodes).tolist()
    chance = float(links.priors.max())
    first = sum(_squared_mu(m) for m in plan.shared if isinstance(m, ClippedTraining))

    def budget(branch: str) -> float:
        later = sum(_squared_mu(m) for m in plan.branch(branch).mechanisms if m.role == "features")
        return (first + later) / first

    features = {name: 100 * accuracy_at(half_alone, alone, budget(name), chance) for name in _BRANCHES}
    joined = {
        "features": max(100 * chance, features["features"]),
        "balanced": 100 * accuracy_at(half_balanced, balanced, budget("balanced"), chance),
        "graph": 100 * graph,
    }
    doubt = defaults.DOUBT * 100 * plan["expectation"].noise / plan.facts.train_nodes
    with_graph = "graph" if joined["graph"] > joined["balanced"] + defaults.AHEAD_POINTS else "balanced"
    worth_it = joined[with_graph] > joined["features"] + defaults.WORTH_IT_POINTS + doubt
    return with_graph if worth_it else "features", Expected(joined, features)


def expectation_in_words(followed: str, expected: Expected) -> str:
    """Why this branch is followed, for the certificate."""
    shown = {name: min(100.0, max(0.0, value)) for name, value in expected.joined.items()}
    alone = shown["features"]
    best = max(value for name, value in shown.items() if name != "features")
    if followed == "features":
        return (
            f"The graph was not used, because it was not expected to help clearly: about {alone:.0f} % right with "
            f"features alone, about {best:.0f} % with the graph."
        )
    with_it = shown[followed]
    return f"The graph was used: about {with_it:.0f} % right were expected with it, {alone:.0f} % with features alone."


def accuracy_at(half: float, whole: float, budget: float, chance: float) -> float:
    """The accuracy at `budget` times the squared mu at which `whole` was seen; `half` was seen at half of it.

    What lies above chance is taken to grow as 1 - exp(-x) with x in proportion to mu.
    """
    if whole <= max(chance, half):
        return whole
    ratio = (whole - chance) / max(half - chance, 1e-9)
    low, high = defaults.LEAST_GROWTH, 60.0
    for _ in range(60):  # the ratio falls with x
        middle = (low + high) / 2
        if math.expm1(-math.sqrt(2) * middle) / math.expm1(-middle) > ratio:
            low = middle
        else:
            high = middle
    growth = math.expm1(-math.sqrt(2 * budget) * low) / math.expm1(-math.sqrt(2) * low)
    return min(1.0, chance + (whole - chance) * growth)


def _squared_mu(mechanism: object) -> float:
    assert isinstance(mechanism, ClippedTraining)
    return 4 * mechanism.group.worst**2 * mechanism.steps / mechanism.noise_multiplier**2
