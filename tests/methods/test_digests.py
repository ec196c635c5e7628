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
    "dpdgc, KNeighbor(k=0, attributes=True)": (-3.137138, -2.153869, -1.129578, 2.236837),
    "dpdgc, KNeighbor(k=2, attributes=True)": (0.270114, -1.476388, 1.341844, 1.316728),
    "dpdgc, KNeighbor(k=1, attributes=False)": (-2.027656, 1.871111, -1.034522, 2.601948),
    "dpdgc, KNeighbor(k=5, attributes=False)": (-1.696754, 1.515139, -0.382246, 2.004916),
    "dpdgc, Node(max_degree=20, attributes=True)": (0.567961, -1.009918, 1.808066, 1.227609),
    "dpdgc, Node(max_degree=20, attributes=False)": (-1.005384, 1.113019, -0.204707, 1.535083),
    "auto, Public()": (-0.372025, -0.172378, -0.218988, 0.195209),
    "auto, Edge(unit=None)": (-1.577876, -0.668084, -0.989978, 1.143285),
    "auto, Edge(unit='directed')": (-1.674604, -0.717976, -1.114139, 1.177565),
    "auto, KNeighbor(k=0, attributes=True)": (0.426313, 0.504783, -0.080737, 0.285099),
    "auto, KNeighbor(k=2, attributes=True)": (0.426313, 0.504783, -0.080737, 0.285099),
    "auto, KNeighbor(k=1, attributes=False)": (-2.027656, 1.871111, -1.034522, 2.601948),
    "auto, KNeighbor(k=5, attributes=False)": (-1.696754, 1.515139, -0.382246, 2.004916),
    "auto, Node(max_degree=20, attributes=True)": (0.426313, 0.504783, -0.080737, 0.285099),
    "auto, Node(max_degree=20, attributes=False)": (-1.005384, 1.113019, -0.204707, 1.535083),
    "gap, Public()": (-0.002789, -0.060601, -0.040708, 0.053052),
    "gap, Edge(unit=None)": (-0.14199, 0.204235, 0.20131, 0.096324),
    "gap, Edge(unit='directed')": (-0.121082, 0.131776, 0.185137, 0.082885),
    "gap, KNeighbor(k=0, attributes=True)": (0.513745, 0.464201, -0.229559, 0.266733),
    "gap, KNeighbor(k=2, attributes=True)": (0.513745, 0.464201, -0.229559, 0.266733),
    "gap, KNeighbor(k=1, attributes=False)": (-0.149105, 0.322092, 0.226604, 0.138433),
    "gap, KNeighbor(k=5, attributes=False)": (-0.149105, 0.322092, 0.226604, 0.138433),
    "gap, Node(max_degree=20, attributes=True)": (0.513745, 0.464201, -0.229559, 0.266733),
    "gap, Node(max_degree=20, attributes=False)": (-0.149105, 0.322092, 0.226604, 0.138433),
    "mlp, Public()": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Edge(unit=None)": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Edge(unit='directed')": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, KNeighbor(k=0, attributes=True)": (0.331423, -0.235094, 1.24399, 0.406506),
    "mlp, KNeighbor(k=2, attributes=True)": (0.331423, -0.235094, 1.24399, 0.406506),
    "mlp, KNeighbor(k=1, attributes=False)": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, KNeighbor(k=5, attributes=False)": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Node(max_degree=20, attributes=True)": (0.331423, -0.235094, 1.24399, 0.406506),
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
    "mlp in batches": (0.361148, -0.29347, 1.297576, 0.412833),
    "dpdgc, trained": (-0.49377, -0.844937, 0.70235, 0.744598),
    "dpdgc, trained in batches": (-0.680573, -0.935, 1.237851, 0.780886),
    "dpdgc, labels": (0.128474, -1.661956, 0.955957, 1.413174),
    "dpdgc, posteriors+degrees": (0.432061, -3.159589, 0.328933, 1.012638),
    "dpdgc, readers+degrees": (-0.403746, -4.491073, 0.110494, 2.488793),
    "dpdgc, neighbors": (-4.738628, 0.460975, 1.021656, 1.74533),
    "dpdgc, degrees cut": (-0.461022, -0.256105, -0.10251, 0.94578),
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
