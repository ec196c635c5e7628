"""From a long table of edges to rows in mapped files, with the checks and the words of the usual reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphveil.errors import InvalidInput
from graphveil.graph.edge_stream import EdgeStream
from graphveil.graph.external_csr import csr_in_files, first_repeat
from graphveil.graph.node_ids import NodeIds
from graphveil.graph.repairs import Repairs
from graphveil.graph.scratch import ScratchArray
from graphveil.graph.table import DUPLICATE, SELF_LOOP

_EDGES_AT_ONCE = 2**20


def mapped_rows(
    edges: EdgeStream, ids: NodeIds, repairs: Repairs, folder: Path
) -> tuple[tuple[np.ndarray, np.ndarray], int]:
    """`(indptr, indices)` in files in `folder`, and the number of edges that were listed."""
    source, target = (_positions(edges, column, ids, folder) for column in edges.ends)
    if len(source) != len(target):
        raise InvalidInput("path", str(edges.path), "cannot be read as Parquet: its columns differ in length")
    if not repairs.drop_self_loops:
        _check_self_loops(edges, source, target)
    rows = csr_in_files(
        source,
        target,
        len(ids),
        folder,
        symmetrize=repairs.symmetrize,
        drop_self_loops=repairs.drop_self_loops,
    )
    if rows.repeats and not repairs.drop_duplicates:
        earlier, again = first_repeat(source, target, len(ids), rows.repeats)
        raise edges.cell_error(edges.ends[0], again, DUPLICATE.format(earlier=earlier + 1))
    return (rows.indptr, rows.indices), len(source)


def _positions(edges: EdgeStream, column: str, ids: NodeIds, folder: Path) -> np.ndarray:
    """Nodes for the ids of a column. A missing id anywhere is told before an unknown one, as in the usual reader."""
    found = ScratchArray(folder, np.int32)
    unknown: InvalidInput | None = None
    for part in edges.parts(column):
        values = part.ids(column)
        if unknown is None:
            try:
                found.append(part.positions(column, values, ids))
            except InvalidInput as error:
                unknown = error
    if unknown is not None:
        raise unknown
    return found.mapped()


def _check_self_loops(edges: EdgeStream, source: np.ndarray, target: np.ndarray) -> None:
    for at in range(0, len(source), _EDGES_AT_ONCE):
        loops = source[at : at + _EDGES_AT_ONCE] == target[at : at + _EDGES_AT_ONCE]
        if loops.any():
            raise edges.cell_error(edges.ends[0], at + int(np.argmax(loops)), SELF_LOOP)
