"""Levels, and which methods are defined at which of them."""

import graphveil as gv

LEVELS = [
    gv.Public(),
    gv.Edge(),
    gv.Edge("directed"),
    gv.KNeighbor(0),
    gv.KNeighbor(2),
    gv.KNeighbor(1, attributes=False),
    gv.KNeighbor(5, attributes=False),
    gv.Node(20),
    gv.Node(20, attributes=False),
    gv.KNeighbor(2, unit="zero-out"),
    gv.Node(20, unit="zero-out"),
]
SUPPORTED = {
    "dpdgc": LEVELS,
    "auto": LEVELS,
    "gap": LEVELS,
    "caribou": LEVELS,
    "progap": LEVELS,
    "mlp": LEVELS,
    "sage": LEVELS[:1],
    "randedge": LEVELS[:3],
    "dp-sage": [level for level in LEVELS if not isinstance(level, gv.Edge)],
}
