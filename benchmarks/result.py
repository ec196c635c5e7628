"""What a benchmark hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# faster/smaller: peer / ours. rate: ours / peer. growth: ours is twice the size, peer the size itself; ours / peer.
Sense = Literal["smaller is better", "rate", "growth"]


@dataclass(frozen=True)
class Result:
    """One measured pair; `ratio` says how many times better ours is, or for growth how many times more it takes."""

    name: str
    ours: float
    peer: float
    unit: str
    sense: Sense = "smaller is better"
    target: float | None = None

    @property
    def ratio(self) -> float:
        return self.peer / self.ours if self.sense == "smaller is better" else self.ours / self.peer

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        met = self.ratio <= self.target if self.sense == "growth" else self.ratio >= self.target
        bound = f"{'<=' if self.sense == 'growth' else '>='} {self.target:g}"
        return f"{bound}: {'met' if met else 'MISSED'}"

    def to_dict(self) -> dict[str, str | float]:
        """The form of `latest.json`."""
        return {"name": self.name, "ours": self.ours, "peer": self.peer, "ratio": self.ratio, "unit": self.unit}


@dataclass(frozen=True)
class Section:
    """All results of one benchmark, and what a reader has to know about them."""

    title: str
    results: list[Result]
    notes: list[str] = field(default_factory=list)
