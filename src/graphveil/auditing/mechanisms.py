"""Attacks on single mechanisms of a plan, and on several of them together, with many independent canaries.

`Subject` is what is attacked. Releases are attacked by a matched filter, clipped training in gradient space, responses
by counting; all of them draw through the real ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.accounting import Composition, RandomizedResponse, SampledGaussian
from graphveil.accounting.losses import log_mixture_factor, sampled_pair
from graphveil.auditing.bounds import Branches, Claim, Scores, toss
from graphveil.auditing.canaries import Canary, Query, canary_of, copies, with_unlinked_nodes
from graphveil.execution import Ledger, LedgerLike, MakeLedger
from graphveil.execution.draws import randomized_edges
from graphveil.execution.exact import EXACT
from graphveil.execution.gradients import ClippedSums
from graphveil.execution.sparse_rows import CsrRows, SparseLinear, SparseRows
from graphveil.methods.training import NO_LABEL
from graphveil.noise import NoiseSource
from graphveil.privacy.mechanisms import ClippedTraining, GaussianRelease, Kind, Mechanism, Responses
from graphveil.privacy.plan import Plan

# A replaced node in the training set pays for everything that any node pays for.
KIND: Kind = "training"

# Which attack fits which mechanism.
_ATTACKS = {"gaussian release": "release", "clipped gradients": "gradient", "randomised response": "response"}
# Numbers that one run may draw, gradient rows that it may clip, and responses that it may have.
_MOST_NUMBERS = 2**23
_MOST_ROWS = 2**20
_MOST_RESPONSES = 2**19
_UNLINKED = 30
# The bias is part of the clipped norm; with rows of this length it is less than a millionth of it.
_ROW_LENGTH = 1000.0


def held_at(table: torch.Tensor, norm: float) -> torch.Tensor:
    """Rows of W as the methods round them before a release."""
    return EXACT.table(table, norm, 2**24, stretch=True)


def as_released(tables: torch.Tensor) -> torch.Tensor:
    """What a sound method makes public of released tables, one for each graph: the tables."""
    return tables


@dataclass(frozen=True)
class Subject:
    """What is attacked: the plan that a certificate claims, and the code that executes it.

    Args:
        claimed: The claimed plan.
        executed: The plan that is really executed; for a sound method the same.
        make_ledger: Makes the ledger.
        make_table: Rounds rows of W to a norm before a release.
        publish: What happens to a released table before others see it; the first dimension is that of separate graphs.
    """

    claimed: Plan
    executed: Plan
    make_ledger: MakeLedger = Ledger
    make_table: Callable[[torch.Tensor, float], torch.Tensor] = held_at
    publish: Callable[[torch.Tensor], torch.Tensor] = as_released

    @classmethod
    def sound(cls, plan: Plan) -> Subject:
        """A method that executes what it claims."""
        return cls(plan, plan)

    def ledger(self, name: str, seed: int | None) -> LedgerLike:
        """A new ledger on the branch of the plan that draws `name`."""
        ledger = self.make_ledger(replace(self.executed, followed=None), NoiseSource(seed))
        for branch in self.executed.branches:
            if any(mechanism.name == name for mechanism in branch.mechanisms):
                ledger.follow(branch.name)
        return ledger

    def branches(self) -> list[list[Mechanism]]:
        """The mechanisms that a replaced training node (or an edge) pays for, for each branch of the plan."""
        return [
            [mechanism for mechanism in plan.mechanisms if mechanism.loss(KIND) is not None]
            for plan in self.claimed.outcomes()
        ]

    def charged(self) -> list[Mechanism]:
        """All mechanisms that such a node may pay for, in any branch."""
        return list({mechanism.name: mechanism for branch in self.branches() for mechanism in branch}.values())

    def whole_claim(self) -> Claim:
        """What a whole fit may cost."""
        each = tuple(self.claim([mechanism.name for mechanism in branch]) for branch in self.branches())
        return each[0] if len(each) == 1 else Branches(each)

    def claim(self, names: list[str] | None = None) -> Composition:
        """What these mechanisms may cost together; by default those of the first branch."""
        chosen = self.branches()[0] if names is None else [self.claimed[name] for name in names]
        losses = (mechanism.loss(KIND) for mechanism in chosen)
        return Composition(tuple(loss for loss in losses if loss is not None))


def attack_name(mechanism: Mechanism) -> str:
    """The name of the attack that fits a mechanism; a table of neighbours' labels has one of its own."""
    of_neighbors = isinstance(mechanism, GaussianRelease) and mechanism.tau is not None
    return "table" if of_neighbors else _ATTACKS[mechanism.type]


def most_canaries(subject: Subject, mechanism: Mechanism) -> int:
    """How many canaries one run of the mechanism can have with little memory."""
    if isinstance(mechanism, GaussianRelease):
        canary, query = _canary(subject, mechanism)
        width = query(copies(canary, np.zeros(1, dtype=bool))).shape[1]
        return max(1, _MOST_NUMBERS // (canary.size * width))
    if isinstance(mechanism, ClippedTraining):
        rows = _MOST_ROWS // int(mechanism.group.of(KIND))
        if mechanism.sampling_rate < 1:  # rows are drawn and clipped in every step
            rows = rows * 8 // mechanism.steps
        return max(1, min(rows, _MOST_NUMBERS // mechanism.steps))
    return _MOST_RESPONSES


def canary_scores(subject: Subject, mechanism: Mechanism, coins: np.ndarray, seed: int | None) -> np.ndarray:
    """Each canary's log-likelihood ratio after one run of the mechanism."""
    if isinstance(mechanism, GaussianRelease):
        return release_scores(subject, mechanism, coins, seed)
    if isinstance(mechanism, ClippedTraining):
        return gradient_scores(subject, mechanism, coins, seed)
    return response_scores(subject, mechanism, coins, seed)


def attack_mechanisms(subject: Subject, mechanisms: list[Mechanism], trials: int, seed: int) -> Scores:
    """Scores of canaries that are in the input of all of these mechanisms.

    The mechanisms' draws are independent, so the log-likelihood ratio of all of them is the sum of theirs: this is the
    worst case of their composition. Runs are repeated until there are enough canaries.

    Args:
        subject: The plan and the code that executes it.
        mechanisms: Mechanisms of the plan.
        trials: The number of canaries.
        seed: The seed of coins and noise.

    Returns:
        One score for each canary.
    """
    runs = -(-trials // min(most_canaries(subject, mechanism) for mechanism in mechanisms))
    at_once = -(-trials // runs)
    rng = np.random.default_rng(seed)
    coins, values = [], []
    for _ in range(runs):
        tossed = toss(at_once, rng)
        seeds = rng.integers(2**52, size=len(mechanisms))
        shown = sum(
            canary_scores(subject, mechanism, tossed, int(each))
            for mechanism, each in zip(mechanisms, seeds, strict=True)
        )
        coins.append(tossed)
        values.append(np.asarray(shown))
    return Scores(np.concatenate(coins), np.concatenate(values))


def release_scores(subject: Subject, mechanism: GaussianRelease, coins: np.ndarray, seed: int | None) -> np.ndarray:
    """The log-likelihood ratio of each canary, heads against tails, from the rows of a release that the adversary sees.

    The canaries: at edge level one entry (or pair of entries) that appears; at k-neighbour level k entries of one
    column; at node level a replaced node with disjoint readers before and after. GAP's hops and DP-SAGE's aggregation:
    a row whose sign changes, with D readers. One-shot tables: readers of one class appear, and the node's own label
    changes. Posteriors: one row changes from a class to another. The replaced node's own row is never used, except in
    tables that others read.

    With values v (tails) and v' (heads) and noise of standard deviation s the ratio of the densities of Z is
    exp(<Z - (v + v') / 2, v' - v> / s^2): a matched filter. All draws of a mechanism with several uses add up.
    """
    canary, query = _canary(subject, mechanism)
    value = query(copies(canary, coins)).double()
    shape = (len(coins), canary.size, value.shape[1])
    tails, heads = (query(copies(canary, np.array([coin]))).double() for coin in (False, True))
    seen, whiten = _seen_noise(subject, canary)
    step, middle = seen @ (heads - tails), seen @ (heads + tails) / 2
    filtered = step if whiten is None else whiten @ step
    std = max(subject.executed[mechanism.name].noise, 1e-300)  # that of the code that runs, which the adversary knows
    total = torch.zeros(len(coins), dtype=torch.float64)
    ledger = subject.ledger(mechanism.name, seed)
    for _ in range(mechanism.uses):
        Z = subject.publish(ledger.release(mechanism.name, value).reshape(shape))[:, canary.seen]
        total += ((Z - middle) / std * (filtered / std)).sum(dim=(1, 2))
    return total.numpy()


def _canary(subject: Subject, mechanism: GaussianRelease) -> tuple[Canary, Query]:
    """The mechanism's canary; with further nodes where a method mixes rows, as a graph of some size has them."""
    canary, query = canary_of(subject.claimed, mechanism, subject.make_table)
    return (canary if subject.publish is as_released else with_unlinked_nodes(canary, _UNLINKED)), query


def _seen_noise(subject: Subject, canary: Canary) -> tuple[torch.Tensor, torch.Tensor | None]:
    """How rows of Z reach the adversary, as a matrix, and the inverse covariance of unit noise after it.

    For a sound method both are the identity; None stands for the second. Where publishing mixes rows, the rows that
    others see also tell something about the row that they should not see.
    """
    if subject.publish is as_released:
        return torch.eye(canary.size, dtype=torch.float64)[canary.seen], None
    mixing = subject.publish(torch.eye(canary.size, dtype=torch.float64)[None])[0][canary.seen]
    return mixing, torch.linalg.pinv(mixing @ mixing.T, hermitian=True)


def gradient_scores(subject: Subject, mechanism: ClippedTraining, coins: np.ndarray, seed: int | None) -> np.ndarray:
    """The log-likelihood ratio of each canary, heads against tails, over all steps of a clipped training.

    A linear model with loss sign * <w, x> has the gradient sign * x whatever the weights are. Canary j owns coordinate
    j and g rows along it, much longer than the clipping norm; its coin is the sign of all of them, so that clipped
    gradients change from +C to -C. That is the pair that dominates a step (docs/theory.md, lemma 1), with the real
    clipping, sampling and noise. Nasr et al. 2021 (arXiv:2101.04535), section IV-F, call it the gradient attack.
    Rows that one of the graphs does not have (zero-out) have no loss at tails.
    """
    group, removed = int(mechanism.group.of(KIND)), int(mechanism.removed.of(KIND))
    owners = np.repeat(np.arange(len(coins)), group)
    rows = CsrRows(
        sp.csr_array(
            (np.full(len(owners), _ROW_LENGTH, np.float32), owners, np.arange(len(owners) + 1)),
            shape=(len(owners), len(coins)),
        )
    )
    vanishes = np.arange(len(owners)) % group < removed
    signs = torch.from_numpy(np.where(coins[owners], 1.0, np.where(vanishes, 0.0, -1.0)).astype(np.float32))
    model = SparseLinear(len(coins), 1)
    ledger = subject.ledger(mechanism.name, seed)
    drawn_as = subject.executed[mechanism.name]
    assert isinstance(drawn_as, ClippedTraining)
    total = np.zeros(len(coins))
    kept: list[torch.Tensor] | None = None
    for _ in range(mechanism.steps):
        picked = ledger.sample(mechanism.name, len(owners))
        if picked is not None or kept is None:
            kept = _clipped_sum(model, rows, signs, picked, mechanism.clip)
        noisy = ledger.noisy_sum(mechanism.name, [part.clone() for part in kept])
        moved = noisy[0][:, 0].double().numpy() / mechanism.clip
        total += _log_ratio(moved, group, removed, drawn_as)
    return total


def _clipped_sum(
    model: SparseLinear, rows: SparseRows, signs: torch.Tensor, picked: torch.Tensor | None, clip: float
) -> list[torch.Tensor]:
    chosen, sign = (rows, signs) if picked is None else (rows[picked], signs[picked])
    return ClippedSums(model, clip, len(sign)).of(lambda: sign * model(chosen)[:, 0])


def _log_ratio(moved: np.ndarray, group: int, removed: int, drawn_as: ClippedTraining) -> np.ndarray:
    """log of sum_i w_i N(+i, s^2) over sum_j v_j N(-j, s^2) at `moved`, in units of the clipping norm."""
    sigma = max(drawn_as.noise_multiplier, 1e-150)
    first, second = sampled_pair(SampledGaussian(sigma, group, drawn_as.sampling_rate, 1, removed))
    heads, tails = (
        log_mixture_factor(sign * moved, counts[likely], log_weights[likely], sigma)
        for sign, (counts, log_weights) in ((1, first), (-1, second))
        for likely in (log_weights > math.log(1e-12),)
    )
    return heads - tails


def response_scores(subject: Subject, mechanism: Responses, coins: np.ndarray, seed: int | None) -> np.ndarray:
    """The log-likelihood ratio of each canary: +epsilon, 0 or -epsilon for each of its randomised responses.

    A canary is one label, or one or two bits of the adjacency matrix. In the zero-out unit it is a label or none.
    """
    epsilon = subject.executed[mechanism.name].noise
    if mechanism.role == "edges":
        return epsilon * _edge_votes(subject, mechanism, coins, seed)
    ledger = subject.ledger(mechanism.name, seed)
    changed = int(mechanism.changed.of(KIND))
    total = np.zeros(len(coins))
    for _ in range(mechanism.uses):
        symbols = np.tile(coins.astype(np.int64), (changed, 1))
        tails = NO_LABEL if mechanism.uniform else 0
        answers = ledger.respond(mechanism.name, torch.from_numpy(np.where(symbols, 1, tails)))
        total += response_log_ratio(answers, 1, tails, epsilon, mechanism.classes).sum(0).numpy()
    return total


def response_log_ratio(
    answers: torch.Tensor, heads: int | torch.Tensor, tails: int | torch.Tensor, epsilon: float, classes: int
) -> torch.Tensor:
    """log Pr[answer | true symbol `heads`] - log Pr[answer | `tails`] for each answer; -1 stands for no symbol."""
    truth = math.log(RandomizedResponse(max(epsilon, 1e-300), classes).truth_probability)

    def log_probability(symbol: int | torch.Tensor) -> torch.Tensor:
        told = torch.where(answers == symbol, truth, truth - epsilon).double()
        return torch.where(torch.as_tensor(symbol) == NO_LABEL, -math.log(classes), told)

    return log_probability(heads) - log_probability(tails)


def _edge_votes(subject: Subject, mechanism: Responses, coins: np.ndarray, seed: int | None) -> np.ndarray:
    """A graph in which canary c is the pair of nodes number c below the diagonal, present where its coin is heads."""
    nodes = math.ceil((1 + math.sqrt(1 + 8 * len(coins))) / 2)
    rows, columns = (ends[: len(coins)] for ends in np.tril_indices(nodes, -1))
    here, there = rows[coins], columns[coins]
    paired = not subject.claimed.facts.directed
    both = paired or int(mechanism.changed.of(KIND)) == 2
    if both:
        here, there = np.concatenate([here, there]), np.concatenate([there, here])
    ones = np.ones(len(here), dtype=np.float32)
    graph = sp.csr_array(sp.coo_array((ones, (here, there)), shape=(nodes, nodes)))
    answer = randomized_edges(graph, subject.ledger(mechanism.name, seed), mechanism.name, paired=paired)
    votes = 2.0 * answer[rows, columns] - 1
    if both and not paired:
        votes = votes + 2.0 * answer[columns, rows] - 1
    return np.asarray(votes).ravel()
