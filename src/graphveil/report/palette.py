"""Colours and markers: told apart by colour-blind readers, on white and on black, and in print by their shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

INK, MUTED, GRID, PAPER = "#1c2128", "#5b6470", "#e2e5e9", "#ffffff"
# After Okabe and Ito; the dark theme's are lighter versions of the same hues.
SERIES = ("#0072b2", "#d55e00", "#00825f", "#b8528f", "#7a6a00", "#6f4fc0", "#3d3d3d")
SERIES_DARK = ("#5ab4f0", "#ff9a52", "#3fd1a3", "#ee9ccb", "#dcc94a", "#b7a1ff", "#c8c8c8")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ((0, ()), (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_METHODS = ("dpdgc", "gap", "mlp", "sage", "randedge", "dp-sage", "auto")

# What a drawing on a page takes from the page instead.
THEMED = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    PAPER: "var(--card)",
    **{colour: f"var(--series-{index})" for index, colour in enumerate(SERIES)},
}


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    colour: str
    marker: str
    dashes: tuple[float, tuple[float, ...]]


def looks(series: Sequence[tuple[str, bool]]) -> list[Look]:
    """One look for each series, given by its method and whether it is drawn hollow.

    A method looks the same in every figure, unless a figure has several curves of it.
    """
    told_apart = len(set(series)) == len(series) and all(method in _METHODS for method, _ in series)
    places = [_METHODS.index(method) for method, _ in series] if told_apart else range(len(series))
    return [_look(place) for place in places]


def _look(place: int) -> Look:
    turn = place // len(SERIES)
    colour, marker = SERIES[place % len(SERIES)], _MARKERS[(place + turn) % len(_MARKERS)]
    return Look(colour, marker, _DASHES[turn % len(_DASHES)])


def theme() -> str:
    """The colours as CSS variables, light and dark."""
    light = {"ink": INK, "muted": MUTED, "line": GRID, "card": PAPER, "page": "#f6f7f9", "accent": "#0b62a0"}
    dark = {"ink": "#e6e9ed", "muted": "#9aa4b0", "line": "#30363e", "card": "#1a1e24", "page": "#12151a"}
    light |= {"note": "#fff6e0", **{f"series-{index}": colour for index, colour in enumerate(SERIES)}}
    dark |= {"note": "#2b2616", "accent": "#6cb8f2"}
    dark |= {f"series-{index}": colour for index, colour in enumerate(SERIES_DARK)}
    return f":root{{{_variables(light)}}}@media (prefers-color-scheme:dark){{:root{{{_variables(dark)}}}}}"


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())
