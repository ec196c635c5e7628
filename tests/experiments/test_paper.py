import tomllib
from pathlib import Path

import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments.paper import PAPER_GRAPHS, PAPER_TABLE_2, SPECS, Figure, builtin_spec, paper_figure
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
    assert len(PAPER_TABLE_2) == len({(level_label(run.level), run.method, run.graph.name) for run in runs})


@pytest.mark.parametrize("method", ["gap", "mlp"])
def test_gap_and_mlp_are_printed_alike_at_every_k_and_at_node_level(method):
    for graph in PAPER_GRAPHS:
        assert len({PAPER_TABLE_2[level, method, graph] for level in ("N_1", "N_5", "N_25", "node")}) == 1


def test_column_sums_of_the_table():
    """Against a digit that was read wrongly: sums of the means of each column, computed from the paper's source."""
    sums = [
        round(sum(PAPER_TABLE_2[key].mean for key in PAPER_TABLE_2 if key[2] == graph), 2) for graph in PAPER_GRAPHS
    ]
    assert sums == [766.97, 906.8, 1231.58, 1766.16, 1657.67, 1348.96, 1740.11]


def test_what_the_paper_does_not_have():
    assert paper_figure(KNeighbor(1), 8.0, "dpdgc", "cora") is None
    assert paper_figure(KNeighbor(2), 16.0, "dpdgc", "cora") is None
    assert paper_figure(KNeighbor(1, attributes=False), 16.0, "dpdgc", "cora") is None
    assert paper_figure(Node(50), 16.0, "dpdgc", "cora") is None
    assert paper_figure(KNeighbor(1), 16.0, "dpdgc", "berkeley13") is None


def test_table_2_has_the_rows_of_the_paper():
    runs = SPECS["table2"].narrowed(seeds=1).runs()
    runs = [run for run in runs if run.options.get("table", "trained") == "trained"]
    rows = dict.fromkeys((type(run.level), getattr(run.level, "k", None), run.epsilon, run.method) for run in runs)
    assert len(runs) == 21 * 7
    assert list(rows) == [
        *((Public, None, None, method) for method in ("dpdgc", "gap", "sage", "mlp")),
        *((Edge, None, 1.0, method) for method in ("dpdgc", "gap", "randedge", "mlp")),
        *((KNeighbor, k, 16.0, method) for k in (1, 5, 25) for method in ("dpdgc", "gap", "mlp")),
        *((Node, None, 16.0, method) for method in ("dpdgc", "gap", "dp-sage", "mlp")),
    ]


def test_the_degree_promise_is_made_where_a_method_needs_it():
    for run in SPECS["table2"].narrowed(seeds=1).runs():
        at_node = isinstance(run.level, Node)
        needed = at_node or (run.method == "gap" and isinstance(run.level, KNeighbor))
        assert run.options.get("cap_degrees", False) == needed
        assert run.level.max_degree == 100 if at_node else run.options.get("max_degree") == (100 if needed else None)


def test_the_papers_experiments_keep_its_delta():
    for spec in SPECS.values():
        assert {setting.delta for setting in spec.settings} == {"paper"}
    own = {path.stem: path for path in (Path(__file__).parents[2] / "docs" / "results" / "experiments").glob("*.toml")}
    on_other_graphs = {"default", "default-edge", "field"}  # none of the paper's figures is beside these
    assert own.keys() > on_other_graphs
    for name, path in own.items():
        settings = tomllib.loads(path.read_text(encoding="utf-8"))["settings"]
        wanted = None if name in on_other_graphs else "paper"
        assert {setting.get("delta") for setting in settings} == {wanted}, path


def test_figures_sweep_what_their_captions_say():
    assert {run.epsilon for run in SPECS["figure-a"].runs()} == {0.5, 1, 2, 4, 8, 16}
    assert {run.level for run in SPECS["figure-b"].runs()} == {KNeighbor(1), KNeighbor(5), KNeighbor(25), Node(100)}
    assert {(run.graph.name, run.epsilon) for run in SPECS["figure-c"].runs()} == {("computers", 16.0)}
    names = [graph.name for graph in SPECS["figure-d"].graphs]
    assert names == [f"csbm:{phi}" for phi in ("-1", "-0.75", "-0.5", "-0.25", "0", "0.25", "0.5", "0.75", "1")]
    assert {run.method for run in SPECS["figure-d"].runs()} == {"mlp", "dpdgc"}


def test_runs_that_two_experiments_share_have_one_identity():
    table = {run.key for run in SPECS["table2"].runs()}
    figure = {run.key for run in SPECS["figure-b"].runs() if run.epsilon == 16 and isinstance(run.level, Node)}
    assert figure
    assert figure <= table


def test_an_unknown_experiment():
    with pytest.raises(InvalidInput, match=r"experiment = 'table3': must be one of table2, figure-a"):
        builtin_spec("table3")
