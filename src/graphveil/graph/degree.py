"""A cap on how often a node is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from graphveil.errors import InvalidInput


def cap_degree(A: Any, max_degree: int, seed: int | None = None) -> sp.csr_array:
    """Keep at most `max_degree` entries of every column of A, chosen uniformly at random.

    A is in reading form (`graph.reads(...)`): row i lists what node i reads, column j is where node j is read. Rows
    keep their place, also when they end up empty, and columns within the cap are untouched. Entries are dropped one by
    one: of a symmetric A one direction of an edge may stay while the other goes.

    This bounds the degree of the graph that is trained on. It does not promise anything about the raw graph: removing
    a node frees its slots in other columns, so adjacency must then be defined on capped graphs (theory, section 2).

    Example:
        >>> star = sp.csr_array(np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0]]))
        >>> cap_degree(star, max_degree=1, seed=0).sum(axis=0).tolist()
        [1, 0, 0]
    """
    if not isinstance(max_degree, (int, np.integer)) or max_degree < 1:
        raise InvalidInput("max_degree", max_degree, "must be a positive integer")
    coo = sp.csr_array(A).tocoo()
    row, column = coo.coords
    counts = np.bincount(column, minlength=A.shape[1])
    crowded = np.flatnonzero((counts > max_degree)[column])  # only these entries compete; the rest never move
    # Sorting by column + fraction orders each column's entries at random, in one pass. Half a unit, so that rounding
    # can never carry an entry into the next column.
    key = column[crowded] + 0.5 * np.random.default_rng(seed).random(len(crowded))
    order = crowded[np.argsort(key)]
    in_crowded = np.where(counts > max_degree, counts, 0)
    first = np.cumsum(in_crowded) - in_crowded
    rank = np.arange(len(order)) - first[column[order]]
    keep = np.ones(len(column), dtype=bool)
    keep[order[rank >= max_degree]] = False
    return sp.csr_array((coo.data[keep], (row[keep], column[keep])), shape=A.shape)
