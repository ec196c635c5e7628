"""Links that say more than yes: weights with a declared maximum, and several relations between the same nodes.

A weight is divided by a declared maximum, cut at 1 and rounded to a multiple of 2^-10. So an entry of A moves by at
most 1 between any two graphs, which is all that the privacy analysis asks of it (docs/theory.md, section 2.7), and sums
of weighted rows are exact (section 8.4). A maximum that was measured would let one link change the weights of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.graph import adjacency
from graphveil.graph.adjacency import Repairs
from graphveil.privacy.mechanisms import WEIGHT_BITS

if TYPE_CHECKING:
    from graphveil.graph.graph import Graph

_STEPS = 2.0**WEIGHT_BITS


@dataclass(frozen=True, eq=False)
class Relations:
    """Several relations between the same nodes.

    Args:
        names: Their names, which are declared and public.
        stacked: Their matrices [source, target], one below the other: row t n + i has what relation t holds of node i.
    """

    names: tuple[str, ...]
    stacked: sp.csr_array

    @property
    def nodes(self) -> int:
        return int(self.stacked.shape[1])

    def matrices(self) -> list[sp.csr_array]:
        """One matrix for each relation."""
        n = self.nodes
        return [self.stacked[t * n : (t + 1) * n] for t in range(len(self.names))]

    def transposed(self) -> Relations:
        """The same relations the other way round."""
        return Relations(self.names, stack([sp.csr_array(matrix.T) for matrix in self.matrices()]))

    def between(self, kept: sp.csr_array) -> Relations:
        """The links between the nodes that a diagonal matrix keeps; the others stay, without links."""
        return Relations(self.names, stack([sp.csr_array(kept @ matrix @ kept) for matrix in self.matrices()]))

    def among(self, keep: np.ndarray) -> Relations:
        """The relations between the nodes of a mask."""
        return Relations(self.names, stack([matrix[keep][:, keep] for matrix in self.matrices()]))


def checked(
    indptr: Any, indices: Any, weights: Any, max_weight: Any, relations: Relations | None, directed: bool
) -> dict[str, Any]:
    """The link fields of a `Graph`, checked once. With relations, the rest is their sum, cut at 1."""
    if max_weight is not None:
        validate.scale("max_weight", max_weight)
    if relations is not None:
        names = relation_names(relations.names)
        matrices = [_canonical(*_parts(matrix), directed) for matrix in relations.matrices()]
        relations = Relations(names, stack([adjacency.as_scipy(*matrix) for matrix in matrices]))
        indptr, indices, weights = _parts(total(relations.stacked))
    if max_weight is None:
        if weights is not None and np.any(np.asarray(weights) != 1):
            raise InvalidInput("max_weight", None, "a graph with weights declares what they are parts of")
        weights = None
    elif weights is None:
        raise InvalidInput("weights", None, "are missing, and max_weight is declared")
    fields = dict(zip(("indptr", "indices", "weights"), _canonical(indptr, indices, weights, directed), strict=True))
    return {**fields, "max_weight": max_weight, "relations": relations}


def _canonical(indptr: Any, indices: Any, weights: Any, directed: bool) -> Any:
    given = check_weights(weights, len(indices)) if weights is not None else None
    made = adjacency.canonical_csr(indptr, indices, given)
    if not directed:
        adjacency.check_symmetric(*made)
    return made


def _parts(matrix: sp.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrix.indptr, matrix.indices, matrix.data


def edge_list(graph: Graph) -> dict[str, Any]:
    """The links of a graph as arguments of `Graph.from_edge_index`, weights in the unit of its declared maximum."""
    n, relations = graph.num_nodes, graph.relations
    matrix = adjacency.as_scipy(graph.indptr, graph.indices, graph.weights) if relations is None else relations.stacked
    coo = matrix.tocoo()
    rows, columns = (end.astype(np.int64) for end in coo.coords)
    listed: dict[str, Any] = {"edge_index": np.stack([rows % n, columns])}
    if graph.max_weight is not None:
        listed |= {"edge_weight": coo.data.astype(np.float64) * graph.max_weight, "max_weight": graph.max_weight}
    if relations is not None:
        listed |= {"edge_relation": rows // n, "relations": relations.names}
    return listed


def in_words(graph: Graph, *, merged: bool) -> tuple[str, ...]:
    """How weights and relations were read, for the owner of the graph."""
    words = []
    if graph.max_weight is not None:
        weights = graph.weights if graph.relations is None else graph.relations.stacked.data
        assert weights is not None
        again = "; edges that are listed again are added up" if merged else ""
        full = f"{int((weights == 1).sum()):,} of {len(weights):,} links count fully"
        least = f"what is below 1/{2 * _STEPS:.0f} of it is no link"
        words.append(f"weights: parts of {graph.max_weight:g}, {full}{again}; {least}")
    elif merged:
        words.append("edges that are listed again count once")
    if graph.relations is not None:
        matrices = zip(graph.relations.names, graph.relations.matrices(), strict=True)
        words.append("relations: " + ", ".join(f"{name} ({matrix.nnz:,})" for name, matrix in matrices))
    return tuple(words)


def stack(matrices: Sequence[sp.csr_array]) -> sp.csr_array:
    """Matrices one below the other, with float32 entries in sorted rows."""
    stacked = sp.csr_array(sp.vstack([sp.csr_array(matrix) for matrix in matrices], format="csr"), dtype=np.float32)
    stacked.sort_indices()
    return stacked


def total(stacked: sp.csr_array) -> sp.csr_array:
    """The sum of relations that are stacked, cut at 1: one graph in which each entry moves by at most 1 too."""
    n = int(stacked.shape[1])
    coo = stacked.tocoo()
    entries = coo.data.astype(np.float64), (coo.coords[0] % n, coo.coords[1])  # exact: multiples of 2^-10
    summed = sp.coo_array(entries, shape=(n, n)).tocsr()
    summed.sort_indices()
    return sp.csr_array((np.minimum(summed.data, 1).astype(np.float32), summed.indices, summed.indptr), shape=(n, n))


def from_edges(
    edge_index: Any,
    num_nodes: int,
    repairs: Repairs,
    weights: Any = None,
    max_weight: float | None = None,
    relation: Any = None,
    relations: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The fields of a `Graph` that are about its links.

    Args:
        edge_index: Sources and targets.
        num_nodes: The number of nodes.
        repairs: What may be repaired. Merged edges add their weights; without weights, `max_weight` counts them.
        weights: A number for each edge, 0 or more.
        max_weight: The declared maximum: a link of this weight or more counts 1.
        relation: Which relation each edge belongs to: a name, or its number among `relations`.
        relations: The declared names of all relations.

    Raises:
        InvalidInput: Weights or relations are not declared, or not as declared.
    """
    raw = _raw_weights(weights, max_weight, repairs, np.shape(edge_index)[-1] if np.ndim(edge_index) == 2 else 0)
    if relations is None and relation is not None:
        raise InvalidInput("relations", None, "declare the names of all relations: they are public")
    if relations is None:
        return _fields(*adjacency.csr_from_edges(edge_index, num_nodes, repairs, raw), max_weight)
    names = relation_names(relations)
    edges = edge_index.detach().cpu().numpy() if isinstance(edge_index, torch.Tensor) else np.asarray(edge_index)
    numbers = _numbers(relation, names, edges.shape[-1])
    matrices = []
    for t in range(len(names)):
        own = numbers == t
        made = adjacency.csr_from_edges(edges[:, own], num_nodes, repairs, None if raw is None else raw[own])
        fields = _fields(*made, max_weight)
        data = np.ones(len(fields["indices"])) if fields["weights"] is None else fields["weights"]
        matrices.append(sp.csr_array((data, fields["indices"], fields["indptr"]), shape=(num_nodes, num_nodes)))
    return {"max_weight": max_weight, "relations": Relations(names, stack(matrices))}


def _fields(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, max_weight: float | None) -> dict[str, Any]:
    if max_weight is None:
        return {"indptr": indptr, "indices": indices, "weights": None}
    A = sp.csr_array((on_lattice(data, max_weight), indices, indptr), shape=(len(indptr) - 1, len(indptr) - 1))
    A.eliminate_zeros()
    return {"indptr": A.indptr, "indices": A.indices, "weights": A.data, "max_weight": max_weight}


def on_lattice(weights: np.ndarray, max_weight: float) -> np.ndarray:
    """Weights as parts of the declared maximum: cut at 1, and the nearest multiples of 2^-10.

    Example:
        >>> on_lattice(np.array([0.0, 25.0, 100.0, 3000.0]), max_weight=100.0).tolist()
        [0.0, 0.25, 1.0, 1.0]
    """
    parts = np.minimum(np.asarray(weights, dtype=np.float64) / max_weight, 1.0)
    return (np.rint(parts * _STEPS) / _STEPS).astype(np.float32)


def check_weights(weights: Any, stored: int) -> np.ndarray | None:
    """Weights of stored entries, which are multiples of 2^-10 above 0 and up to 1; None: there are none."""
    if weights is None:
        return None
    array = np.asarray(weights, dtype=np.float32)
    if array.shape != (stored,):
        raise InvalidInput("weights", array.shape, f"must have shape ({stored},), one weight for each stored entry")
    wrong = ~((array > 0) & (array <= 1) & (array * _STEPS == np.rint(array * _STEPS)))
    if wrong.any():
        at = int(np.argmax(wrong))
        why = f"must be a multiple of 2^-{WEIGHT_BITS} above 0 and up to 1; from_edge_index divides by max_weight"
        raise InvalidInput(f"weights[{at}]", array[at].item(), why)
    return array


def relation_names(names: Sequence[str]) -> tuple[str, ...]:
    """Declared names of relations: different texts."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise InvalidInput("relations", names, "must be a list of names")
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise InvalidInput("relations", name, "must be a name")
        if name in names[:place]:
            raise InvalidInput("relations", name, "is listed twice")
    return tuple(names)


def _raw_weights(weights: Any, max_weight: float | None, repairs: Repairs, edges: int) -> np.ndarray | None:
    if max_weight is not None:
        validate.scale("max_weight", max_weight)
    if weights is None:
        if max_weight is not None and not repairs.merge_duplicates:
            why = "there are no weights; name them, or count repeated edges with merge_duplicates"
            raise InvalidInput("max_weight", max_weight, why)
        return None
    if max_weight is None:
        raise InvalidInput("max_weight", None, "declare from which weight on a link counts fully; do not measure it")
    array = weights.detach().cpu().numpy() if isinstance(weights, torch.Tensor) else np.asarray(weights)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (edges,) or array.dtype.kind not in "biuf":
        why = f"must be {edges} numbers, one for each edge"
        raise InvalidInput("edge_weight", (array.shape, str(array.dtype)), why)
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InvalidInput(f"edge_weight[{at}]", array[at].item(), "must be a finite number, 0 or more")
    return array.astype(np.float64)


def _numbers(relation: Any, names: tuple[str, ...], edges: int) -> np.ndarray:
    """The number of each edge's relation."""
    if relation is None:
        raise InvalidInput("edge_relation", None, "relations are declared; say which one each edge belongs to")
    array = relation.detach().cpu().numpy() if isinstance(relation, torch.Tensor) else np.asarray(relation)
    if array.shape != (edges,):
        raise InvalidInput("edge_relation", array.shape, f"must have shape ({edges},), one relation for each edge")
    if array.dtype.kind in "iu":
        numbers, why = array.astype(np.int64), f"relations count from 0 to {len(names) - 1}"
    else:
        values, places = np.unique(array.astype(str), return_inverse=True)
        place = {name: t for t, name in enumerate(names)}
        numbers = np.array([place.get(value, -1) for value in values.tolist()], dtype=np.int64)[places]
        why = f"is not one of the declared relations, {', '.join(names)}"
    wrong = (numbers < 0) | (numbers >= len(names))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InvalidInput(f"edge_relation[{at}]", array[at].item(), why)
    return numbers
