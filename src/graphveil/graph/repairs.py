"""What may be repaired in a list of edges, on request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Repairs:
    """What is not asked for is an error; `symmetrize` adds the way back of every edge."""

    drop_self_loops: bool = False
    drop_duplicates: bool = False
    symmetrize: bool = False
