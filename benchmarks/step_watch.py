"""Watching the steps of a real fit from outside: every step asks the ledger for its rows and for its noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import torch

from graphveil.execution import Ledger, MakeLedger

Event = Literal["step begins", "noise begins", "noise ends"]
# Called with the training's name and the event.
Watcher = Callable[[str, Event], None]


def watched_by(watcher: Watcher) -> MakeLedger:
    """Ledgers that report the steps of a fit to `watcher`; `NodeClassifier.execute` takes them."""

    class WatchedLedger(Ledger):
        def sample(self, name: str, rows: int) -> torch.Tensor | None:
            watcher(name, "step begins")
            return super().sample(name, rows)

        def noisy_sum(self, name: str, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            watcher(name, "noise begins")
            noisy = super().noisy_sum(name, sums)
            watcher(name, "noise ends")
            return noisy

    return WatchedLedger


class StepTimes:
    """Seconds of each step of one training, in three parts; `between` runs off the clock before each step."""

    def __init__(self, training: str, between: Callable[[], None] = lambda: None) -> None:
        self._training, self._between = training, between
        self._last: float | None = None
        self.gradient: list[float] = []
        self.noise: list[float] = []
        self.update: list[float] = []

    def __call__(self, training: str, event: Event) -> None:
        if training != self._training:
            return
        if self._last is not None:
            parts = {"noise begins": self.gradient, "noise ends": self.noise, "step begins": self.update}
            parts[event].append(time.perf_counter() - self._last)
        if event == "step begins":
            self._between()
        self._last = time.perf_counter()

    @property
    def whole(self) -> list[float]:
        """Complete steps; the last one's end is not seen, so it is left out."""
        return [sum(parts) for parts in zip(self.gradient, self.noise, self.update, strict=False)]
