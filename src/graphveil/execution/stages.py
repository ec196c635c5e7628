"""The stages of a fit: draws that are made once, and trainings. Here none is kept; `checkpoint` keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import torch

from graphveil.execution import progress


class Carried(Protocol):
    """All that a training carries from one step to the next."""

    def tensors(self) -> dict[str, torch.Tensor]: ...

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None: ...


class Stages:
    """Every stage in its turn, from its beginning to its end."""

    def draw(self, name: str, draw: Callable[[], torch.Tensor], fits: Callable[[torch.Tensor], bool]) -> torch.Tensor:
        """What `draw` gives; it is asked once in the life of a fit. `fits` tells whether it can have given a value."""
        del name, fits
        return draw()

    def steps(self, count: int, name: str, carried: Carried, show: bool | None) -> Iterable[int]:
        """The steps of a training that are still to be taken; `carried` is restored to where they begin."""
        del carried
        return progress.steps(count, name, show)
