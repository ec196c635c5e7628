"""Seeded fits give what they gave before: a change of the code that is meant to change nothing shows here.

Logits of three nodes and the mean size of all of them, with six decimals: another processor may round otherwise.
Whoever changes what a method does replaces the lines that differ, and says so in CHANGELOG.md.
"""

import pytest

import graphveil as gv
from graphveil.graph import csbm
from graphveil.methods import method_class
from support.method_levels import SUPPORTED

K1 = gv.KNeighbor(1)
CASES = {f"{method}, {level}": (method, level, {}) for method, levels in SUPPORTED.items() for level in levels} | {
    "mlp in batches": ("mlp", K1, {"batch_size": 20}),
    "dpdgc, trained": ("dpdgc", K1, {"table": "trained"}),
    "dpdgc, trained in batches": ("dpdgc", K1, {"table": "trained", "batch_size": 20}),
    "dpdgc, labels": ("dpdgc", K1, {"table": "labels"}),
    "dpdgc, posteriors+degrees": ("dpdgc", K1, {"table": "posteriors+degrees"}),
    "dpdgc, readers+degrees": ("dpdgc", K1, {"table": "readers+degrees"}),
    "dpdgc, neighbors": ("dpdgc", K1, {"table": "neighbors"}),
    "dpdgc, degrees cut": ("dpdgc", gv.Node(3), {"cap_degrees": True}),
    "dpdgc in folds": ("dpdgc", gv.Edge(), {"folds": 2}),
}
DIGESTS = {
    "dpdgc, Public()": (0.071955, 0.407766, 0.024475, 0.266904),
    "dpdgc, Edge(unit=None)": (-1.535446, -0.684605, -1.023755, 1.138696),
    "dpdgc, Edge(unit='directed')": (-1.62161, -0.72485, -1.151828, 1.174836),
    "dpdgc, KNeighbor(k=0, attributes=True)": (-3.041931, -1.565597, -1.357108, 2.236191),
    "dpdgc, KNeighbor(k=2, attributes=True)": (0.395844, -0.986253, 1.144029, 1.28072),
    "dpdgc, KNeighbor(k=1, attributes=False)": (-2.171224, 1.945626, -1.010568, 2.594876),
    "dpdgc, KNeighbor(k=5, attributes=False)": (-1.863661, 1.323551, -0.569827, 2.00048),
    "dpdgc, Node(max_degree=20, attributes=True)": (0.683071, -0.517841, 1.617203, 1.182813),
    "dpdgc, Node(max_degree=20, attributes=False)": (-1.174161, 1.156256, -0.142267, 1.525641),
    "auto, Public()": (0.071955, 0.407766, 0.024475, 0.266904),
    "auto, Edge(unit=None)": (-1.535446, -0.684605, -1.023755, 1.138696),
    "auto, Edge(unit='directed')": (-1.62161, -0.72485, -1.151828, 1.174836),
    "auto, KNeighbor(k=0, attributes=True)": (-1.009606, -0.585375, -0.465883, 0.713493),
    "auto, KNeighbor(k=2, attributes=True)": (-1.010446, -0.584819, -0.465376, 0.713602),
    "auto, KNeighbor(k=1, attributes=False)": (-2.171224, 1.945626, -1.010568, 2.594876),
    "auto, KNeighbor(k=5, attributes=False)": (-1.863661, 1.323551, -0.569827, 2.00048),
    "auto, Node(max_degree=20, attributes=True)": (-1.010446, -0.584819, -0.465376, 0.713602),
    "auto, Node(max_degree=20, attributes=False)": (-1.174161, 1.156256, -0.142267, 1.525641),
    "gap, Public()": (0.013396, -0.145639, -0.228506, 0.114091),
    "gap, Edge(unit=None)": (-0.065744, -0.240684, -0.110323, 0.140416),
    "gap, Edge(unit='directed')": (-0.06225, -0.206213, -0.125356, 0.13466),
    "gap, KNeighbor(k=0, attributes=True)": (0.497691, 0.542159, -0.214389, 0.2843),
    "gap, KNeighbor(k=2, attributes=True)": (0.497691, 0.542159, -0.214389, 0.2843),
    "gap, KNeighbor(k=1, attributes=False)": (-0.040556, -0.262145, -0.085027, 0.148486),
    "gap, KNeighbor(k=5, attributes=False)": (-0.040556, -0.262145, -0.085027, 0.148486),
    "gap, Node(max_degree=20, attributes=True)": (0.497691, 0.542159, -0.214389, 0.2843),
    "gap, Node(max_degree=20, attributes=False)": (-0.040556, -0.262145, -0.085027, 0.148486),
    "mlp, Public()": (0.291496, 0.268519, 0.389271, 0.271412),
    "mlp, Edge(unit=None)": (0.291496, 0.268519, 0.389271, 0.271412),
    "mlp, Edge(unit='directed')": (0.291496, 0.268519, 0.389271, 0.271412),
    "mlp, KNeighbor(k=0, attributes=True)": (0.095956, 0.340439, 0.552573, 0.272622),
    "mlp, KNeighbor(k=2, attributes=True)": (0.095956, 0.340439, 0.552573, 0.272622),
    "mlp, KNeighbor(k=1, attributes=False)": (0.291496, 0.268519, 0.389271, 0.271412),
    "mlp, KNeighbor(k=5, attributes=False)": (0.291496, 0.268519, 0.389271, 0.271412),
    "mlp, Node(max_degree=20, attributes=True)": (0.095956, 0.340439, 0.552573, 0.272622),
    "mlp, Node(max_degree=20, attributes=False)": (0.291496, 0.268519, 0.389271, 0.271412),
    "sage, Public()": (0.458417, 0.374869, -0.398135, 0.288954),
    "randedge, Public()": (0.458417, 0.374869, -0.398135, 0.288954),
    "randedge, Edge(unit=None)": (0.455458, 0.319601, -0.252186, 0.288832),
    "randedge, Edge(unit='directed')": (0.455458, 0.319601, -0.252186, 0.288832),
    "dp-sage, Public()": (0.367583, 0.795733, -0.60645, 0.324476),
    "dp-sage, KNeighbor(k=0, attributes=True)": (-0.0473, 0.664847, -0.267448, 0.300179),
    "dp-sage, KNeighbor(k=2, attributes=True)": (-0.047313, 0.664829, -0.267409, 0.300181),
    "dp-sage, KNeighbor(k=1, attributes=False)": (-0.0473, 0.664847, -0.267448, 0.300179),
    "dp-sage, KNeighbor(k=5, attributes=False)": (-0.047328, 0.664808, -0.267369, 0.300182),
    "dp-sage, Node(max_degree=20, attributes=True)": (-0.047458, 0.664625, -0.266992, 0.300193),
    "dp-sage, Node(max_degree=20, attributes=False)": (-0.047458, 0.664625, -0.266992, 0.300193),
    "mlp in batches": (0.105282, 0.317062, 0.540893, 0.261727),
    "dpdgc, trained": (-0.163331, -0.092381, -0.357569, 0.434864),
    "dpdgc, trained in batches": (-0.536114, -0.280034, 0.263682, 0.469318),
    "dpdgc, labels": (0.24958, -1.171052, 0.757285, 1.37944),
    "dpdgc, posteriors+degrees": (0.564646, -2.825928, 0.183001, 0.994987),
    "dpdgc, readers+degrees": (-0.280862, -3.651516, 0.305272, 2.40846),
    "dpdgc, neighbors": (-4.622906, 0.73628, 0.910522, 1.733351),
    "dpdgc, degrees cut": (-0.363921, 0.200617, -0.284773, 0.919415),
    "dpdgc in folds": (-1.564754, -0.815066, -1.09506, 1.132821),
}


@pytest.fixture(scope="module")
def graph():
    return csbm(0.6, n=120, f=8, d=5, seed=1)


def digest(graph, case):
    method, level, options = CASES[case]
    epsilon = None if isinstance(level, gv.Public) else 4.0
    given = {"level": level, "epsilon": epsilon, "seed": 7, "steps": 3, "epochs": 3, "hidden": 8, "max_degree": 20}
    logits = method_class(method)(**{**given, **options}).fit(graph).logits_.double()
    return (*(round(float(logits[node, node % 2]), 6) for node in (0, 41, 119)), round(float(logits.abs().mean()), 6))


@pytest.mark.parametrize("case", CASES)
def test_a_seeded_fit_gives_what_it_gave(graph, case):
    assert digest(graph, case) == pytest.approx(DIGESTS[case], abs=1e-5, rel=1e-5)


def test_digests_of_cases_that_are_gone_are_gone():
    assert set(DIGESTS) == set(CASES)
