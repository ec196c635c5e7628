"""How fast two processes exchange rows: `torchrun --nproc-per-node 2 -m benchmarks.exchange` prints it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch

from graphveil.distributed.group import Group
from graphveil.distributed.inputs import ROWS_AT_ONCE

_HIDDEN, _TIMES = 64, 30


def main() -> None:
    torch.set_num_threads(1)
    with Group.joined() as group:
        rows = torch.randn(ROWS_AT_ONCE, _HIDDEN)
        counts = [ROWS_AT_ONCE // group.size] * group.size
        mine = rows[: counts[0]]
        sent = (group.size - 1) * mine.numel() * mine.element_size()
        rates = {
            "sums for owners": sent / _best(lambda: group.add_for_owners(rows, counts)),
            "rows for all": sent / _best(lambda: group.gathered(mine, counts)),
        }
        if group.rank == 0:
            print(json.dumps(rates))


def _best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


if __name__ == "__main__":
    main()
