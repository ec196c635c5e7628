"""Seeded fits give what they gave before: a change of the code that is meant to change nothing shows here.

Logits of three nodes and the mean size of all of them, with six decimals: another processor may round otherwise.
Whoever changes what a method does replaces the lines that differ, and says so in CHANGELOG.md.
"""

import pytest

import graphveil as gv
from graphveil.graph import csbm
from graphveil.methods import method_class
from support.method_levels import SUPPORTED

pytestmark = pytest.mark.slow

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
    "dpdgc, Edge(unit=None)": (-2.244851, -0.02554, -0.973443, 1.231135),
    "dpdgc, Edge(unit='directed')": (-2.605271, 0.06016, -1.18987, 1.386285),
    "dpdgc, KNeighbor(k=0, attributes=True, unit='replace')": (0.392891, 0.433401, -0.02925, 0.476642),
    "dpdgc, KNeighbor(k=2, attributes=True, unit='replace')": (0.511493, 0.288431, -0.180062, 0.539264),
    "dpdgc, KNeighbor(k=1, attributes=False, unit='replace')": (-2.256684, 0.744492, -1.196918, 2.40443),
    "dpdgc, KNeighbor(k=5, attributes=False, unit='replace')": (-1.914858, 0.588524, -0.542056, 1.828276),
    "dpdgc, Node(max_degree=20, attributes=True, unit='replace')": (0.410302, 0.41259, -0.051026, 0.485093),
    "dpdgc, Node(max_degree=20, attributes=False, unit='replace')": (-1.247693, 0.350858, -0.284834, 1.382526),
    "dpdgc, Node(max_degree=20, attributes=True, unit='zero-out')": (-0.057656, 0.899575, -0.390283, 0.537417),
    "dpdgc, KNeighbor(k=2, attributes=True, unit='zero-out')": (-0.063748, 0.830701, -0.491525, 0.559894),
    "auto, Public()": (-0.372025, -0.172378, -0.218988, 0.195209),
    "auto, Edge(unit=None)": (-2.244851, -0.02554, -0.973443, 1.231135),
    "auto, Edge(unit='directed')": (-2.605271, 0.06016, -1.18987, 1.386285),
    "auto, KNeighbor(k=0, attributes=True, unit='replace')": (0.392891, 0.433401, -0.02925, 0.476642),
    "auto, KNeighbor(k=2, attributes=True, unit='replace')": (0.511493, 0.288431, -0.180062, 0.539264),
    "auto, KNeighbor(k=1, attributes=False, unit='replace')": (-2.256684, 0.744492, -1.196918, 2.40443),
    "auto, KNeighbor(k=5, attributes=False, unit='replace')": (-1.914858, 0.588524, -0.542056, 1.828276),
    "auto, Node(max_degree=20, attributes=True, unit='replace')": (0.410302, 0.41259, -0.051026, 0.485093),
    "auto, Node(max_degree=20, attributes=False, unit='replace')": (-1.247693, 0.350858, -0.284834, 1.382526),
    "auto, Node(max_degree=20, attributes=True, unit='zero-out')": (-0.057656, 0.899575, -0.390283, 0.537417),
    "auto, KNeighbor(k=2, attributes=True, unit='zero-out')": (-0.063748, 0.830701, -0.491525, 0.559894),
    "gap, Public()": (-0.002789, -0.060601, -0.040708, 0.053052),
    "gap, Edge(unit=None)": (-0.14199, 0.204235, 0.20131, 0.096324),
    "gap, Edge(unit='directed')": (-0.121082, 0.131776, 0.185137, 0.082885),
    "gap, KNeighbor(k=0, attributes=True, unit='replace')": (0.513745, 0.464201, -0.229559, 0.266733),
    "gap, KNeighbor(k=2, attributes=True, unit='replace')": (0.513745, 0.464201, -0.229559, 0.266733),
    "gap, KNeighbor(k=1, attributes=False, unit='replace')": (-0.149105, 0.322092, 0.226604, 0.138433),
    "gap, KNeighbor(k=5, attributes=False, unit='replace')": (-0.149105, 0.322092, 0.226604, 0.138433),
    "gap, Node(max_degree=20, attributes=True, unit='replace')": (0.513745, 0.464201, -0.229559, 0.266733),
    "gap, Node(max_degree=20, attributes=False, unit='replace')": (-0.149105, 0.322092, 0.226604, 0.138433),
    "gap, Node(max_degree=20, attributes=True, unit='zero-out')": (0.51673, 0.468206, -0.241673, 0.26763),
    "gap, KNeighbor(k=2, attributes=True, unit='zero-out')": (0.517631, 0.467115, -0.236676, 0.266944),
    "caribou, Public()": (-0.006527, -0.063958, -0.047919, 0.051377),
    "caribou, Edge(unit=None)": (-0.081977, 0.164926, 0.167504, 0.079222),
    "caribou, Edge(unit='directed')": (-0.078588, 0.144811, 0.159757, 0.071655),
    "caribou, KNeighbor(k=0, attributes=True, unit='replace')": (0.478234, 0.325974, -0.028861, 0.257394),
    "caribou, KNeighbor(k=2, attributes=True, unit='replace')": (0.478234, 0.325974, -0.028861, 0.257394),
    "caribou, KNeighbor(k=1, attributes=False, unit='replace')": (-0.087353, 0.23454, 0.206837, 0.110542),
    "caribou, KNeighbor(k=5, attributes=False, unit='replace')": (-0.087353, 0.23454, 0.206837, 0.110542),
    "caribou, Node(max_degree=20, attributes=True, unit='replace')": (0.478234, 0.325974, -0.028861, 0.257394),
    "caribou, Node(max_degree=20, attributes=False, unit='replace')": (-0.087353, 0.23454, 0.206837, 0.110542),
    "caribou, KNeighbor(k=2, attributes=True, unit='zero-out')": (0.483074, 0.329533, -0.036667, 0.257753),
    "caribou, Node(max_degree=20, attributes=True, unit='zero-out')": (0.482188, 0.330857, -0.036893, 0.257968),
    "progap, Public()": (0.179843, 0.076179, 0.06028, 0.096345),
    "progap, Edge(unit=None)": (0.135149, 0.126477, 0.078502, 0.079217),
    "progap, Edge(unit='directed')": (0.152151, 0.126251, 0.080287, 0.085723),
    "progap, KNeighbor(k=0, attributes=True, unit='replace')": (0.007209, -0.260101, -0.043163, 0.123542),
    "progap, KNeighbor(k=2, attributes=True, unit='replace')": (0.007209, -0.260101, -0.043163, 0.123542),
    "progap, KNeighbor(k=1, attributes=False, unit='replace')": (0.193915, 0.209115, 0.186792, 0.226176),
    "progap, KNeighbor(k=5, attributes=False, unit='replace')": (0.193915, 0.209115, 0.186792, 0.226176),
    "progap, Node(max_degree=20, attributes=True, unit='replace')": (0.007209, -0.260101, -0.043163, 0.123542),
    "progap, Node(max_degree=20, attributes=False, unit='replace')": (0.193915, 0.209115, 0.186792, 0.226176),
    "progap, KNeighbor(k=2, attributes=True, unit='zero-out')": (0.010098, -0.260674, -0.044108, 0.123821),
    "progap, Node(max_degree=20, attributes=True, unit='zero-out')": (0.012399, -0.260792, -0.043604, 0.122683),
    "mlp, Public()": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Edge(unit=None)": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Edge(unit='directed')": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, KNeighbor(k=0, attributes=True, unit='replace')": (0.331423, -0.235094, 1.24399, 0.406506),
    "mlp, KNeighbor(k=2, attributes=True, unit='replace')": (0.331423, -0.235094, 1.24399, 0.406506),
    "mlp, KNeighbor(k=1, attributes=False, unit='replace')": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, KNeighbor(k=5, attributes=False, unit='replace')": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Node(max_degree=20, attributes=True, unit='replace')": (0.331423, -0.235094, 1.24399, 0.406506),
    "mlp, Node(max_degree=20, attributes=False, unit='replace')": (0.154245, 0.315465, 0.507524, 0.258925),
    "mlp, Node(max_degree=20, attributes=True, unit='zero-out')": (0.340018, -0.214984, 1.224553, 0.405112),
    "mlp, KNeighbor(k=2, attributes=True, unit='zero-out')": (0.340018, -0.214984, 1.224553, 0.405112),
    "sage, Public()": (0.45715, 0.354448, -0.41544, 0.28742),
    "randedge, Public()": (0.45715, 0.354448, -0.41544, 0.28742),
    "randedge, Edge(unit=None)": (0.455709, 0.292978, -0.271649, 0.287109),
    "randedge, Edge(unit='directed')": (0.455709, 0.292978, -0.271649, 0.287109),
    "dp-sage, Public()": (0.367583, 0.795733, -0.60645, 0.324476),
    "dp-sage, KNeighbor(k=0, attributes=True, unit='replace')": (-0.0473, 0.664847, -0.267448, 0.300179),
    "dp-sage, KNeighbor(k=2, attributes=True, unit='replace')": (-0.047313, 0.664829, -0.267409, 0.300181),
    "dp-sage, KNeighbor(k=1, attributes=False, unit='replace')": (-0.0473, 0.664847, -0.267448, 0.300179),
    "dp-sage, KNeighbor(k=5, attributes=False, unit='replace')": (-0.047328, 0.664808, -0.267369, 0.300182),
    "dp-sage, Node(max_degree=20, attributes=True, unit='replace')": (-0.047458, 0.664625, -0.266992, 0.300193),
    "dp-sage, Node(max_degree=20, attributes=False, unit='replace')": (-0.047458, 0.664625, -0.266992, 0.300193),
    "dp-sage, Node(max_degree=20, attributes=True, unit='zero-out')": (-0.035261, 0.676907, -0.286344, 0.301248),
    "dp-sage, KNeighbor(k=2, attributes=True, unit='zero-out')": (-0.047294, 0.664858, -0.267474, 0.300177),
    "mlp in batches": (0.361148, -0.29347, 1.297576, 0.412833),
    "dpdgc, trained": (-0.49377, -0.844937, 0.70235, 0.744598),
    "dpdgc, trained in batches": (-0.680573, -0.935, 1.237851, 0.780886),
    "dpdgc, labels": (0.128474, -1.661956, 0.955957, 1.413174),
    "dpdgc, posteriors+degrees": (0.432061, -3.159589, 0.328933, 1.012638),
    "dpdgc, readers+degrees": (-0.403746, -4.491073, 0.110494, 2.488793),
    "dpdgc, neighbors": (-4.738628, 0.460975, 1.021656, 1.74533),
    "dpdgc, degrees cut": (0.465575, 1.532986, -0.357045, 0.384917),
    "dpdgc in folds": (-2.235257, -0.005167, -0.826016, 1.252346),
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
