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
    "dpdgc, Public()": (-0.372025, -0.172378, -0.218988, 0.195209),
    "dpdgc, Edge(unit=None)": (-1.577876, -0.668084, -0.989978, 1.143285),
    "dpdgc, Edge(unit='directed')": (-1.674604, -0.717976, -1.114139, 1.177565),
    "dpdgc, KNeighbor(k=0, attributes=True)": (-3.041931, -1.565597, -1.357108, 2.236191),
    "dpdgc, KNeighbor(k=2, attributes=True)": (0.395844, -0.986253, 1.144029, 1.28072),
    "dpdgc, KNeighbor(k=1, attributes=False)": (-2.027656, 1.871111, -1.034522, 2.601948),
    "dpdgc, KNeighbor(k=5, attributes=False)": (-1.696754, 1.515139, -0.382246, 2.004916),
    "dpdgc, Node(max_degree=20, attributes=True)": (0.683071, -0.517841, 1.617203, 1.182813),
    "dpdgc, Node(max_degree=20, attributes=False)": (-1.005384, 1.113019, -0.204707, 1.535083),
    "auto, Public()": (-0.372025, -0.172378, -0.218988, 0.195209),
    "auto, Edge(unit=None)": (-1.577876, -0.668084, -0.989978, 1.143285),
    "auto, Edge(unit='directed')": (-1.674604, -0.717976, -1.114139, 1.177565),
    "auto, KNeighbor(k=0, attributes=True)": (-1.009606, -0.585375, -0.465883, 0.713493),
    "auto, KNeighbor(k=2, attributes=True)": (-1.010446, -0.584819, -0.465376, 0.713602),
    "auto, KNeighbor(k=1, attributes=False)": (-2.027656, 1.871111, -1.034522, 2.601948),
    "auto, KNeighbor(k=5, attributes=False)": (-1.696754, 1.515139, -0.382246, 2.004916),
    "auto, Node(max_degree=20, attributes=True)": (-1.010446, -0.584819, -0.465376, 0.713602),
    "auto, Node(max_degree=20, attributes=False)": (-1.005384, 1.113019, -0.204707, 1.535083),
    "gap, Public()": (-0.002789, -0.060601, -0.040708, 0.053052),
    "gap, Edge(unit=None)": (-0.14199, 0.204235, 0.20131, 0.096324),
    "gap, Edge(unit='directed')": (-0.121082, 0.131776, 0.185137, 0.082885),
    "gap, KNeighbor(k=0, attributes=True)": (0.497691, 0.542159, -0.214389, 0.2843),
    "gap, KNeighbor(k=2, attributes=True)": (0.497691, 0.542159, -0.214389, 0.2843),
    "gap, KNeighbor(k=1, attributes=False)": (-0.149105, 0.322092, 0.226604, 0.138433),
    "gap, KNeighbor(k=5, attributes=False)": (-0.149105, 0.322092, 0.226604, 0.138433),
    "gap, Node(max_degree=20, attributes=True)": (0.497691, 0.542159, -0.214389, 0.2843),
    "gap, Node(max_degree=20, attributes=False)": (-0.149105, 0.322092, 0.226604, 0.138433),
    "mlp, Public()": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Edge(unit=None)": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Edge(unit='directed')": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, KNeighbor(k=0, attributes=True)": (0.095956, 0.340439, 0.552573, 0.272622),
    "mlp, KNeighbor(k=2, attributes=True)": (0.095956, 0.340439, 0.552573, 0.272622),
    "mlp, KNeighbor(k=1, attributes=False)": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, KNeighbor(k=5, attributes=False)": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Node(max_degree=20, attributes=True)": (0.095956, 0.340439, 0.552573, 0.272622),
    "mlp, Node(max_degree=20, attributes=False)": (0.154245, 0.315465, 0.507524, 0.258925),
    "sage, Public()": (0.45715, 0.354448, -0.41544, 0.28742),
    "randedge, Public()": (0.45715, 0.354448, -0.41544, 0.28742),
    "randedge, Edge(unit=None)": (0.455709, 0.292978, -0.271649, 0.287109),
    "randedge, Edge(unit='directed')": (0.455709, 0.292978, -0.271649, 0.287109),
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
    "dpdgc in folds": (-1.520932, -0.668834, -1.026489, 1.147801),
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
