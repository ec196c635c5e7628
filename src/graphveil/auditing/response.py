"""Audit of randomised responses: labels, one symbol per canary, and edges, one or two bits per canary."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.auditing.subject import KIND, Subject
from graphveil.execution.edges import randomized_edges
from graphveil.privacy.mechanisms import Responses

MOST_CANARIES = 2**19


def response_scores(subject: Subject, mechanism: Responses, coins: np.ndarray, seed: int | None) -> np.ndarray:
    """Log-likelihood ratio of each canary: +epsilon, 0 or -epsilon for each of its answers."""
    epsilon = subject.executed[mechanism.name].noise
    if mechanism.role == "edges":
        return epsilon * _edge_votes(subject, mechanism, coins, seed)
    ledger = subject.ledger(mechanism.name, seed)
    changed = int(mechanism.changed.of(KIND))
    total = np.zeros(len(coins))
    for _ in range(mechanism.uses):
        symbols = torch.from_numpy(np.tile(coins.astype(np.int64), (changed, 1)))
        answers = ledger.respond(mechanism.name, symbols).numpy()
        total += ((answers == 1).astype(float) - (answers == 0)).sum(axis=0)
    return epsilon * total


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
