"""How much of a fit is sparse products and noise: the floor under it, since every fit of this kind needs both."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from graphveil import execution as ledger
from graphveil.execution import sparse_rows as sparse


class Floor:
    """Seconds by kind; what is measured inside something else is not counted there too."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    @property
    def total(self) -> float:
        return self.seconds["products"] + self.seconds["noise"]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Fits in this context are measured."""
        watched = [
            (sparse.SparseRows, "times_of_rows", "products"),
            (sparse.SparseRows, "transposed_times", "products"),
            (sparse, "transpose_of", "transposing"),
            (ledger, "add_gaussian", "noise"),
            (ledger, "add_gaussian_", "noise"),
            (ledger, "randomized_response", "noise"),
        ]
        with ExitStack() as stack:
            for owner, name, kind in watched:
                stack.enter_context(mock.patch.object(owner, name, self._timed(getattr(owner, name), kind)))
            yield

    def _timed(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                whole = time.perf_counter() - start
                self.seconds[kind] += whole - self._inside.pop()
                if self._inside:
                    self._inside[-1] += whole

        return timed
