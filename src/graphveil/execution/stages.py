"""The stages of a fit: draws that are made once, and trainings.

This implementation stores nothing. `graphveil.checkpoint` has one that stores each stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import torch

from graphveil.execution import progress


class Carried(Protocol):
    """The state that a training carries from one step to the next."""

    def tensors(self) -> dict[str, torch.Tensor]: ...

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None: ...


class Stages:
    """Runs every stage from its beginning to its end."""

    def draw(self, name: str, draw: Callable[[], torch.Tensor], fits: Callable[[torch.Tensor], bool]) -> torch.Tensor:
        """Make a draw, once in the life of a fit.

        Args:
            name: The stage's name.
            draw: Makes the draw.
            fits: Whether a value that was stored earlier can be a result of `draw`.

        Returns:
            The result of `draw`, or what was stored.
        """
        del name, fits
        return draw()

    def steps(self, count: int, name: str, carried: Carried, show: bool | None) -> Iterable[int]:
        """The steps of a training that are still to be made.

        Args:
            count: All steps of the training.
            name: The stage's name.
            carried: Is restored to the state before the first of these steps.
            show: Whether to show a progress bar; None: on a terminal only.

        Returns:
            The numbers of the steps.
        """
        del carried
        return progress.steps(count, name, show)
