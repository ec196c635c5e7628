"""Sensitivities: how far a query can move between adjacent graphs. One function for each result of docs/theory.md.

Conventions: A has entries 0 and 1, or weights between them, and no diagonal; row i is what node i reads, column r is
who reads node r. `rows != r` means all rows except that of the replaced node r, which graph differential privacy does
not cover. L2 (Frobenius) norms throughout. tests/privacy searches adjacent graphs for a counterexample to each.

In the zero-out unit r is emptied instead of replaced, and most bounds are smaller: docs/theory.md, section 2.6.
"""

from __future__ import annotations

import math

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public, is_zero_out, protects_attributes
from graphveil.privacy.mechanisms import WEIGHT_BITS, count_step, table_step


def embedding_group(level: Level, train_nodes: int, *, in_training: bool = True) -> int:
    """Training rows of A (or their labels) that change: the group of a classifier that reads row i for node i.

    docs/theory.md section 2, column g: edge 1 or 2, N_k k + 1, node 2D + 1 (the paper's text says D + 1, but old and
    new neighbourhoods may be disjoint; D + 1 in the zero-out unit, where one of them is empty). One less when the
    replaced node is outside the training set.
    """
    rows = _changed_column_entries(level)
    own = 0 if isinstance(level, Public | Edge) or not in_training else 1
    return min(rows + own, train_nodes)


def head_group(level: Level, train_nodes: int) -> int:
    """Training rows that change when every other row of the input is already private: the node's own, or none.

    docs/theory.md section 4 with the generalised composition theorem of the paper (appendix B). At edge level all rows
    are already private and nothing is left to protect.
    """
    return min(0 if isinstance(level, Public | Edge) else 1, train_nodes)


def removed_rows(level: Level, group: int) -> int:
    """How many of the training rows that change add nothing in one of the two graphs: an emptied node's own.

    docs/theory.md section 2.6: it has no label, so its gradient is zero. Where labels are public it keeps its own.
    """
    return min(1, group) if is_zero_out(level) and protects_attributes(level) else 0


def product_rows(level: Level, row_norm: float, nodes: int) -> float:
    """Rows != r of A W (all rows at edge level), W fixed with rows of norm at most c.

    docs/theory.md section 2, last column; paper, theorems 5.3 and 5.4: c sqrt(k), c sqrt(2D); zero-out: c sqrt(D). With
    weights and for [A^1 W | ... | A^R W] of several relations it is the same (section 2.7); `nodes` are then all rows,
    n R.
    """
    return row_norm * math.sqrt(min(_changed_column_entries(level), _most_entries(level, nodes)))


def product_full(level: Level, row_norm: float, nodes: int) -> float:
    """All rows of A W, the replaced node's own row included.

    docs/theory.md section 2.4: sqrt((row r)^2 + (rows != r)^2). Row r moves by at most k c at N_k. At node level
    nothing bounds it.
    """
    rest = product_rows(level, row_norm, nodes)
    if isinstance(level, Public | Edge):
        return rest
    if isinstance(level, Node):
        raise InvalidInput("level", level, "nothing bounds what a node reads at this level: leave its own row out")
    return math.hypot(min(level.k, nodes - 1) * row_norm, rest)


def gap_hop(level: Level, max_degree: int | None, nodes: int) -> float:
    """One hop A H of GAP, rows of H of norm at most 1 that may all depend on the node's own features.

    docs/theory.md section 3; paper, theorem 5.1: edge 1 or sqrt(2); N_k (every k, 0 included) and node 2 sqrt(D),
    attained when the D readers of r stay and its row of H changes sign. All rows at edge level, else rows != r. An
    emptied node (zero-out, node level) has no readers left: sqrt(D).
    """
    if isinstance(level, Public):
        return 0.0
    if isinstance(level, Edge):
        return math.sqrt(_changed_column_entries(level))
    readers = math.sqrt(min(_promised_degree(level, max_degree), nodes - 1))
    return readers if isinstance(level, Node) and is_zero_out(level) else 2 * readers


def label_responses(level: Level) -> int:
    """Randomised responses that a replaced node changes: its own, if labels are private (docs/theory.md section 5)."""
    return 1 if protects_attributes(level) else 0


def posterior_table(level: Level) -> float:
    """A table with one row per node computed from that node's attributes by an already private classifier.

    docs/theory.md section 5: rows are non-negative and of norm at most 1, so one row moves by sqrt(2).
    """
    return math.sqrt(2) if protects_attributes(level) else 0.0


def link_statistics(level: KNeighbor | Node, train_nodes: int) -> float:
    """The link statistics of `methods.link_statistics`, for a replaced training node; for another node it is 0.

    docs/theory.md section 5.5. The weights of a node's own links add up to at most 1 before and after, so moving them
    changes the matrix by at most sqrt(2). At N_k each of k nodes whose degree changes by one reweights its other links
    by at most 1 / (k + 1) together; at node level weights do not depend on degrees. The number of pairs moves by at
    most k (node level: the promised degree), class counts by sqrt(2). Rounding adds a step for every pair that changes.
    An emptied node's links only vanish, weights of others only grow, and one class count falls.
    """
    bound = level.k if isinstance(level, KNeighbor) else level.max_degree
    reweighted = bound / (bound + 1) if isinstance(level, KNeighbor) else 0.0
    pairs, counts = link_statistics_units(level)
    rounding = train_nodes * (2 * (bound + 1) * count_step(train_nodes) + 2.0**-50)
    if is_zero_out(level):
        return math.hypot(1.0, reweighted, pairs * bound, counts) + rounding
    return math.hypot(math.sqrt(2) + reweighted, pairs * bound, counts * math.sqrt(2)) + rounding


def link_statistics_units(level: KNeighbor | Node) -> tuple[float, float]:
    """What the number of pairs and the class counts are multiplied by beside the matrix: powers of two."""
    bound = level.k if isinstance(level, KNeighbor) else level.max_degree
    return 2.0 ** -math.ceil(math.log2(max(1, bound))), 0.5


def own_row_counts(counts: int) -> float:
    """Sums over training nodes of `counts` numbers between 0 and 1 that depend on the node's own row alone.

    docs/theory.md section 5.6: each sum moves by at most 1.
    """
    return math.sqrt(counts)


def held_out_counts(level: Level, candidates: int, *, by_class: bool = False) -> float:
    """How many held-out nodes each candidate of a search answers rightly, for a replaced node that is held out.

    docs/theory.md section 4.7: a node's own answer moves each count by at most 1. `by_class`: counts apart for each
    class, beside the number of held-out nodes of each class; the node may leave one class and enter another. At edge
    level no answer depends on more than what was released.
    """
    if isinstance(level, Public | Edge):
        return 0.0
    return math.sqrt(2 * (candidates + 1)) if by_class else own_row_counts(candidates)


def class_counts(level: Level) -> float:
    """How many training nodes each class has, for a replaced training node; for another node it is 0.

    docs/theory.md section 5.10: it leaves one class and enters another. An emptied one only leaves its class.
    """
    if not protects_attributes(level):
        return 0.0
    return 1.0 if is_zero_out(level) else math.sqrt(2)


def class_sums(level: Level, norm: float) -> float:
    """The sum of the rows of each class, for a replaced training node; for another node it is 0.

    docs/theory.md section 5.11: rows have no negative entry and a norm of at most `norm`, so the product of the two
    tables that a node adds before and after is not negative, and they differ by at most sqrt(2) `norm`. An emptied node
    adds nothing in one of the graphs.
    """
    if not protects_attributes(level):
        return 0.0
    return norm if is_zero_out(level) else math.sqrt(2) * norm


def co_link_statistics(level: KNeighbor, nodes: int, train_nodes: int, *, in_training: bool = True) -> float:
    """The co-link statistics of `methods.link_statistics`, over pairs of training nodes that read the same node.

    docs/theory.md section 5.7. The matrix moves by the difference of two non-negative tables. A replaced training node
    adds its own pairs, of weight at most 1, to each of them. Each of k nodes that begin to read it adds less than 1/b
    to one of them (new pairs) and less than 1/(2b) + 1/(b + 1) to the other one (pairs that lose weight); each of k
    nodes that it reads itself less than 1/(2b). An emptied node adds its own pairs to one table alone. The number of
    entries moves by 2k, class counts by sqrt(2). Rounding adds a step for every pair whose weight changes.
    """
    k, b = level.k, max(1, level.k)
    entries, counts = link_statistics_units(level)
    rounding = train_nodes * (2 * k * nodes * count_step(train_nodes) + 2.0**-50)
    if not in_training:
        return math.hypot(k / b, k / (2 * b) + k / (b + 1), entries * k) + rounding if k else 0.0
    gained, lost = 1 + k / b, k / b + k / (b + 1)
    if is_zero_out(level):
        return math.hypot(gained, lost, entries * 2 * k, counts) + rounding
    return math.hypot(gained, 1 + lost, entries * 2 * k, counts * math.sqrt(2)) + rounding


def neighbor_label_table(
    level: Level, tau: float, nodes: int, *, in_training: bool = True, weighted: bool = False
) -> float:
    """The one-shot table S = A^T diag(w) Y over training rows, w_i = min(1, tau / sqrt(deg_i)).

    With a of the changed entries of column r appearing and b disappearing, p = w(d + 1), q = sqrt(d) (w(d) - w(d + 1)):

        max_d [(a p)^2 + (tau + a q)^2] + max_d [(b p)^2 + (tau + b q)^2],   tau = 0 for r outside the training set.

    Row r of S moves by the difference of two non-negative vectors of norm a p and b p; the other rows by the
    difference of two non-negative tables of norm tau + a q and tau + b q. docs/theory.md section 5 has the case b = 0
    (and section 2.6 the zero-out unit), which is the largest at N_k; at node level a, b <= D. The proof is in
    docs/theory.md, section 5. Weights are rounded down to a lattice, so each of the d entries of a row changes by at
    most a step more: q grows by sqrt(d) steps.

    `weighted`: links have weights, so that w_i = min(1, tau / |A_i|) and rows of every norm occur.
    """
    validate.positive("tau", tau)
    if isinstance(level, Public):
        return 0.0
    if weighted:
        return _weighted_label_table(level, tau, nodes, in_training)
    if isinstance(level, Edge):
        return (min(1.0, tau) + _rounding_of_weights(nodes)) * math.sqrt(_changed_column_entries(level))
    own = tau if in_training else 0.0
    if is_zero_out(level):
        # Readers of r vanish, and so does its own part, unless links beyond k and a public label stay.
        left = own if isinstance(level, KNeighbor) and not level.attributes else 0.0
        rows = min(_changed_column_entries(level), nodes - 1)
        return math.sqrt(max((rows * p) ** 2 + (left + rows * q) ** 2 for p, q in _weight_changes(tau, nodes)) + own**2)
    if isinstance(level, KNeighbor):
        appear, vanish = min(level.k, nodes - 1), 0
    else:
        changed = min(2 * level.max_degree, nodes - 1)
        appear = min(level.max_degree, changed)
        vanish = changed - appear
    changes = _weight_changes(tau, nodes)
    return math.sqrt(sum(max((rows * p) ** 2 + (own + rows * q) ** 2 for p, q in changes) for rows in (appear, vanish)))


def _weighted_label_table(level: Edge | KNeighbor | Node, tau: float, nodes: int, in_training: bool) -> float:
    """docs/theory.md section 5.3, weights: p^2 + 2 q^2 <= 1 for each changed entry, and 2 tau q <= 1."""
    rounding = _rounding_of_weights(nodes, nodes << WEIGHT_BITS)
    if isinstance(level, Edge):
        entries = _changed_column_entries(level)
        return math.sqrt(entries) + entries * rounding
    changed = min(_changed_column_entries(level), nodes - 1)
    appear = changed if isinstance(level, KNeighbor) else min(level.max_degree, changed)
    rows = (appear, changed - appear)
    own = 2 * tau**2 + changed if in_training else 0.0
    if in_training and is_zero_out(level) and (level.attributes or isinstance(level, Node)):
        own = tau**2  # an emptied node adds nothing of its own
    return math.sqrt(sum(row**2 for row in rows) + own) + changed * rounding


def sage_group(level: Level, max_degree: int | None, layers: int, train_nodes: int, *, in_training: bool = True) -> int:
    """Training rows whose L-hop neighbourhood holds the replaced node, before or after: the group of DP-SAGE.

    Daigavane et al. 2021 (arXiv:2111.15521, lemma 1) for one graph; over both graphs r has at most 2D readers at node
    level and D + floor(k / 2) at N_k (|N| + a = |N'| + b with a + b <= k and both at most D), each read by D others. In
    the zero-out unit all readers are those of one graph: D.
    """
    return min(_sage_readers(level, max_degree, layers) + int(in_training), train_nodes)


def randomized_edges(level: Level, nodes: int, *, paired: bool) -> int:
    """Randomised bits that change when every entry of A is answered by randomised response.

    `paired`: A[i, j] and A[j, i] share one bit, as on an undirected graph. An undirected edge is then one bit; without
    pairs it is two (docs/theory.md section 6.3). N_k changes k pairs or 2k entries; a node changes 2D pairs, or 2D
    entries of its column and any number in its row, which the promise on columns does not bound.
    """
    if isinstance(level, Public):
        return 0
    if isinstance(level, Edge):
        return 1 if paired else _changed_column_entries(level)
    column = min(_changed_column_entries(level), nodes - 1)
    if paired:
        return column
    return column + (min(level.k, nodes - 1) if isinstance(level, KNeighbor) else nodes - 1)


def column_histograms(columns: int) -> float:
    """What histograms of columns move by between adjacent graphs, where attributes are private.

    docs/theory.md section 5.9: in each column a replaced node leaves one bin and enters another. Reached if its values
    change their bins in all columns.
    """
    return math.sqrt(2 * validate.count("columns", columns))


def _changed_column_entries(level: Level) -> int:
    """Rows != r of A that change (at edge level: all rows that change)."""
    if isinstance(level, Public):
        return 0
    if isinstance(level, Edge):
        if level.unit is None:
            raise InvalidInput("unit", None, "the edge unit is not settled; see levels.with_unit")
        return 1 if level.unit == "directed" else 2
    if isinstance(level, KNeighbor):
        return level.k
    return level.max_degree if is_zero_out(level) else 2 * level.max_degree


def _most_entries(level: Level, nodes: int) -> int:
    return 2 if isinstance(level, Edge) else nodes - 1


def _promised_degree(level: Level, max_degree: int | None) -> int:
    """The degree promise of a node level, or the one given beside a k-neighbour level."""
    if isinstance(level, Node):
        return level.max_degree
    if max_degree is None:
        raise InvalidInput("max_degree", None, "this method needs a promise on the degree at this level")
    return validate.count("max_degree", max_degree)


def _sage_readers(level: Level, max_degree: int | None, layers: int) -> int:
    validate.count("layers", layers)
    if not isinstance(level, KNeighbor | Node):
        raise InvalidInput("level", level, "DP-SAGE is defined at the k-neighbor and node levels")
    degree = _promised_degree(level, max_degree)
    direct = 2 * degree if isinstance(level, Node) else min(2 * degree, degree + level.k // 2)
    if is_zero_out(level):
        direct = degree
    return direct * sum(degree**hop for hop in range(layers))


def _weight_changes(tau: float, nodes: int) -> list[tuple[float, float]]:
    """(w(d + 1), sqrt(d) (w(d) - w(d + 1))) for each degree d that can matter.

    Both fall with d once d >= tau^2, where w(d) = tau / sqrt(d); a few degrees beyond that are enough.
    """

    def weight(degree: int) -> float:
        return min(1.0, tau / math.sqrt(degree)) if degree > 0 else 1.0

    last = max(0, min(nodes - 2, math.ceil(tau**2) + 2))
    first = max(0, min(last, math.floor(tau**2) - 2))  # before, all weights are 1, as they are at 0
    more = _rounding_of_weights(nodes)
    degrees = {0, *range(first, last + 1)}
    return [(weight(d + 1), math.sqrt(d) * (weight(d) - weight(d + 1)) + more) for d in degrees]


def _rounding_of_weights(nodes: int, terms: int | None = None) -> float:
    """What rounding the weights of a row's entries can add to the row's movement: a step of their lattice each, and
    the part in 10^12 by which they are lowered before, so that no rounding lifts them."""
    return math.sqrt(nodes) * (table_step(1.0, terms or nodes) + 1e-12)
