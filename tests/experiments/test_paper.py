import pytest

from graphveil.experiments.builtin import PAPER_GRAPHS, SPECS
from graphveil.experiments.paper import TABLE_2, Figure, paper_figure
from graphveil.experiments.spec import level_label
from graphveil.privacy.levels import Edge, KNeighbor, Node, Public


@pytest.mark.parametrize(
    ("level", "epsilon", "method", "graph", "mean", "half_width"),
    [
        (Public(), None, "dpdgc", "squirrel", 79.92, 0.26),
        (Public(), None, "gap", "pubmed", 89.75, 0.12),
        (Public(), None, "sage", "photo", 94.05, 0.38),
        (Edge(), 1.0, "randedge", "facebook", 25.27, 2.00),
        (Edge("directed"), 1.0, "mlp", "cora", 76.48, 0.91),
        (KNeighbor(1), 16.0, "dpdgc", "facebook", 80.94, 0.27),
        (KNeighbor(5), 16.0, "dpdgc", "chameleon", 47.22, 1.90),
        (KNeighbor(25), 16.0, "dpdgc", "photo", 84.82, 0.54),
        (Node(100), 16.0, "dp-sage", "cora", 15.86, 1.55),
        (Node(100), 16.0, "mlp", "computers", 80.01, 0.37),
    ],
)
def test_cells_as_printed(level, epsilon, method, graph, mean, half_width):
    assert paper_figure(level, epsilon, method, graph) == Figure(mean, half_width)


def test_every_run_of_table_2_has_a_figure_and_every_figure_a_run():
    runs = SPECS["table2"].narrowed(seeds=1).runs()
    assert all(paper_figure(run.level, run.epsilon, run.method, run.graph.name) for run in runs)
    assert len(TABLE_2) == len({(level_label(run.level), run.method, run.graph.name) for run in runs})


@pytest.mark.parametrize("method", ["gap", "mlp"])
def test_gap_and_mlp_are_printed_alike_at_every_k_and_at_node_level(method):
    for graph in PAPER_GRAPHS:
        assert len({TABLE_2[level, method, graph] for level in ("N_1", "N_5", "N_25", "node")}) == 1


def test_column_sums_of_the_table():
    """Against a digit that was read wrongly: sums of the means of each column, computed from the paper's source."""
    sums = [round(sum(TABLE_2[key].mean for key in TABLE_2 if key[2] == graph), 2) for graph in PAPER_GRAPHS]
    assert sums == [766.97, 906.8, 1231.58, 1766.16, 1657.67, 1348.96, 1740.11]


def test_what_the_paper_does_not_have():
    assert paper_figure(KNeighbor(1), 8.0, "dpdgc", "cora") is None
    assert paper_figure(KNeighbor(2), 16.0, "dpdgc", "cora") is None
    assert paper_figure(KNeighbor(1, attributes=False), 16.0, "dpdgc", "cora") is None
    assert paper_figure(Node(50), 16.0, "dpdgc", "cora") is None
    assert paper_figure(KNeighbor(1), 16.0, "dpdgc", "berkeley13") is None
